"""The texts that modes tell models, as files beside this module."""

from importlib.resources import files


def prompt(name: str) -> str:
    """The text of a prompt file."""
    return (files("ecoshell.modes") / f"{name}.md").read_text(encoding="utf-8").strip()

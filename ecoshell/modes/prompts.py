"""The texts that modes tell models, as files beside this module."""

from importlib.resources import files

_QUESTION = 600
"""Characters of a question that are told once more."""


def prompt(name: str) -> str:
    """The text of a prompt file."""
    return (files("ecoshell.modes") / f"{name}.md").read_text(encoding="utf-8").strip()


def conclude_text(question: str) -> str:
    """How an answer is asked for where no call may follow, with the question once more."""
    again = question if len(question) <= _QUESTION else f"{question[:_QUESTION]}…"
    return f"{prompt('conclude')}\n{again}"

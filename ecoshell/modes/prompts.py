"""The texts that modes tell models, as files beside this module."""

from importlib.resources import files

from ecoshell.catalog.presentation import Presentation

_QUESTION = 600
"""Characters of a question that are told once more."""


def prompt(name: str) -> str:
    """The text of a prompt file."""
    return (files("ecoshell.modes") / f"{name}.md").read_text(encoding="utf-8").strip()


def system_text(presentation: Presentation, *, searching: bool = False) -> str:
    """What one model is told before everything else, the same for all of a session."""
    parts = [prompt("single")]
    if presentation.registers:
        parts.append(prompt("registering"))
    if searching:
        parts.append(prompt("finishing"))
    return "\n\n".join(parts)


def conclude_text(question: str) -> str:
    """How an answer is asked for where no call may follow, with the question once more."""
    again = question if len(question) <= _QUESTION else f"{question[:_QUESTION]}…"
    return f"{prompt('conclude')}\n{again}"

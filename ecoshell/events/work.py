"""Events of planned work: the task list that the agent keeps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ecoshell.events.base import Event

TodoState = Literal["pending", "in_progress", "done"]
TODO_MARKS: dict[TodoState, str] = {"done": "[x]", "in_progress": "[>]", "pending": "[ ]"}


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One piece of work in the task list."""

    text: str
    state: TodoState = "pending"


@dataclass(frozen=True, slots=True)
class TodoChanged(Event):
    """The agent replaced its task list."""

    type: ClassVar[str] = "todo_changed"
    items: tuple[TodoItem, ...]


def todo_lines(items: Sequence[TodoItem]) -> Iterator[str]:
    """The task list as plain text, one line per item: `[x] read the code`."""
    return (f"{TODO_MARKS[item.state]} {item.text}" for item in items)


def is_done(items: Sequence[TodoItem]) -> bool:
    """Whether nothing is left to do; also for an empty list."""
    return all(item.state == "done" for item in items)

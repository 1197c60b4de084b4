"""Events of the agent's work: its task list and its subagents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Literal

from ecoshell.budget import NANO
from ecoshell.events.base import Event
from ecoshell.events.turn import Status
from ecoshell.messages import Usage

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


@dataclass(frozen=True, slots=True)
class SubagentStarted(Event):
    """A subagent started to work; its own events are those of its session."""

    type: ClassVar[str] = "subagent_started"
    id: str
    """The call of `task` that started it."""
    name: str
    """The name of its definition; `subagent` without one."""
    session: str
    """The ID of its session, which can be resumed and exported."""
    model: str
    share_usd: str | None
    """Most dollars that it may spend; null without a share in dollars."""
    share: str = ""
    """The share in words, such as `$0.05` or `20,000 tokens`; empty without one."""


@dataclass(frozen=True, slots=True)
class SubagentFinished(Event):
    """A subagent ended; what it did not spend of its share is available again."""

    type: ClassVar[str] = "subagent_finished"
    id: str
    name: str
    session: str
    status: Status
    share_usd: str | None
    spent_usd: str | None
    """Decimal dollars, those of its own subagents included; null if a part of the price is unknown."""
    share: str = ""
    spent: str = ""
    """What it used in the units of its share, in words."""
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)

    @property
    def spent_nano(self) -> int | None:
        """`spent_usd` in nano-dollars."""
        return None if self.spent_usd is None else int(Decimal(self.spent_usd) * NANO)


def todo_lines(items: Sequence[TodoItem]) -> Iterator[str]:
    """The task list as plain text, one line per item: `[x] read the code`."""
    return (f"{TODO_MARKS[item.state]} {item.text}" for item in items)


def is_done(items: Sequence[TodoItem]) -> bool:
    """Whether nothing is left to do; also for an empty list."""
    return all(item.state == "done" for item in items)

"""All there is to tell of one tool in a session: its document, what it takes, and since when and why it is there."""

from collections.abc import Iterable
from dataclasses import dataclass

from ecoshell.events import Event, ToolRegistered, ToolUnregistered, TurnStarted
from ecoshell.messages import Effect, ToolDocument


@dataclass(frozen=True, slots=True)
class Since:
    """When a tool was registered: seconds since 1970, the turn (0 before the first) and the step in it."""

    at: float
    turn: int
    step: int


@dataclass(frozen=True, slots=True)
class Dossier:
    """A tool as a person looks it up; `why` is empty until a turn has decided on it."""

    document: ToolDocument
    effects: tuple[Effect, ...]
    price_nano: int
    tokens: int
    exact: bool
    by: str
    """Who registered it (agent, user, upfront); empty while nobody has."""
    since: Since | None
    why: str


def registered_since(name: str, events: Iterable[tuple[float, Event]]) -> Since | None:
    """When the tool was registered, read from a session's events; None when it is not any more, or never was."""
    found: Since | None = None
    turn = 0
    for at, event in events:
        match event:
            case TurnStarted():
                turn = event.turn
            case ToolRegistered() if event.name == name and found is None:
                found = Since(at, turn, event.step)
            case ToolUnregistered() if event.name == name:
                found = None
            case _:
                pass
    return found

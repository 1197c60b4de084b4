"""What a model is shown: earlier turns, the opening of this one, and the path so far, cut only where it may be cut."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ecoshell.events import (
    Answer,
    CallFinished,
    CallStarted,
    Event,
    Rationale,
    ToolRegistered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import FINISH, META_TOOLS, TOOL_REGISTER, Call, Message, Observation
from ecoshell.strategies.base import Path, Step

_CUT_KEEPS = 80
"""Characters an observation keeps when it is cut."""


def path_messages(opening: str, path: Path) -> tuple[Message, ...]:
    """The turn as messages: the opening, then for each step what the assistant called and what came of it."""
    messages = [Message("user", opening)]
    for step in path.steps:
        messages.append(Message("assistant", step.rationale, step.call))
        messages.append(Message("tool", step.observation.text, step.call))
    return tuple(messages)


def finished_messages(opening: str, path: Path, answer: str) -> tuple[Message, ...]:
    """A turn that is over, as later turns see it."""
    return (*path_messages(opening, path), Message("assistant", answer))


def fit(messages: tuple[Message, ...], enough: Callable[[tuple[Message, ...]], bool]) -> tuple[Message, ...]:
    """The messages with the oldest observations cut until `enough` says so; documents are never cut (SPEC §4)."""
    if enough(messages):
        return messages
    shortened = list(messages)
    for index, message in enumerate(messages):
        if message.speaker != "tool" or (message.call and message.call.name in META_TOOLS):
            continue
        shortened[index] = replace(message, text=_cut(message.text))
        if enough(tuple(shortened)):
            break
    return tuple(shortened)


def _cut(text: str) -> str:
    if len(text) <= 2 * _CUT_KEEPS:
        return text
    return f"{text[:_CUT_KEEPS]} [cut: {len(text) - _CUT_KEEPS} characters, to make room]"


@dataclass(slots=True)
class _Replay:
    """One turn being read back from its events."""

    path: Path
    rationale: str = ""
    call: Call | None = None
    answer: str = ""

    def step(self, call: Call, seen: Observation) -> None:
        self.path = self.path.then(Step(self.rationale, call, seen))
        self.rationale = ""


def past_messages(events: Iterable[Event], document: Callable[[str], str]) -> tuple[Message, ...]:
    """The messages of a session read from its events.

    `document` gives a registration's result again, or "" when the tool is gone.
    """
    messages: list[Message] = []
    turn: _Replay | None = None
    for event in events:
        if isinstance(event, TurnStarted):
            turn = _Replay(Path(event.question))
        elif turn is None:
            continue
        elif isinstance(event, TurnFinished):
            messages += finished_messages(turn.path.question, turn.path, turn.answer or f"[{event.status}]")
            turn = None
        else:
            _read(turn, event, document)
    if turn is not None:  # the process was killed in this turn
        messages += finished_messages(turn.path.question, turn.path, "[interrupted]")
    return tuple(messages)


def _read(turn: _Replay, event: Event, document: Callable[[str], str]) -> None:
    """Take one event of a turn into its replay."""
    match event:
        case Rationale():
            turn.rationale = event.text
        case Answer():
            turn.answer = event.text
        case CallStarted():
            turn.call = Call(event.name, event.arguments, event.id)
        case CallFinished() if turn.call is not None and event.name != FINISH:
            turn.step(
                turn.call, Observation(event.observation, event.ok, event.truncated, event.seconds, event.refused)
            )
        case ToolRegistered(by="agent") if text := document(event.name):
            turn.step(Call(TOOL_REGISTER, {"tool_name": event.name}, f"r{event.step}"), Observation(text))
        case _:
            pass

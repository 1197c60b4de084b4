"""What a model is shown: earlier turns, the opening of this one, and the path so far, cut only where it may be cut."""

from collections.abc import Callable
from dataclasses import replace

from ecoshell.messages import META_TOOLS, TOOL_CALL, Message
from ecoshell.strategies.base import Path

_CUT_KEEPS = 80
"""Characters an observation keeps when it is cut."""
_NEVER_CUT = META_TOOLS - {TOOL_CALL}
"""Calls whose results are documents, or short."""


def path_messages(opening: str, path: Path) -> tuple[Message, ...]:
    """The turn as messages: the opening, then for each step what the assistant called and what came of it."""
    messages = [Message("user", opening)]
    for step in path.steps:
        messages.append(Message("assistant", step.rationale, step.call))
        messages.append(Message("tool", step.observation.told, step.call))
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
        if message.speaker != "tool" or (message.call and message.call.name in _NEVER_CUT):
            continue
        shortened[index] = replace(message, text=_cut(message.text))
        if enough(tuple(shortened)):
            break
    return tuple(shortened)


def _cut(text: str) -> str:
    if len(text) <= 2 * _CUT_KEEPS:
        return text
    return f"{text[:_CUT_KEEPS]} [cut: {len(text) - _CUT_KEEPS} characters, to make room]"

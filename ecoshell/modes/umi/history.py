"""What was said and done, as the lines that all roles read (SPEC §4), and a caller's action read from its text."""

import json
import re
from typing import Any, cast

from ecoshell.messages import Call, Message
from ecoshell.modes.umi.decision import Next

_ACTION = re.compile(r"Action:[ \t]*[\"'`*]{0,3}([\w.:/-]+)[\"'`*,]{0,4}\s*Action[ _]Input:\s*", re.IGNORECASE)
TASK_GAP = "\n\n"
"""Between what the user says last and a role's task, where both are one message."""
_ANSWER_NAME = re.compile(r"^\s*(?:conclusion|summarizer|answer)\s*:\s*", re.IGNORECASE)


def lines(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Messages of turns and paths as the roles read them; what the planner did not write speaks as the user."""
    told: list[Message] = []
    for message in messages:
        if message.speaker == "system":
            told.append(message)
        elif message.speaker == "user":
            _tell(told, f"user: {message.text}")
        elif message.speaker == "tool":
            _tell(told, f"observation: {message.text}")
        elif message.call is None:
            told.append(Message("assistant", f"conclusion: {message.text}"))
        else:
            told.append(planned(message.text, "caller"))
            _tell(told, f"caller: {action_text(message.call)}")
    return tuple(told)


def planned(rationale: str, following: Next) -> Message:
    """The planner's line."""
    said = f"{rationale} Next: {following}." if rationale else f"Next: {following}."
    return Message("assistant", f"assistant: {said}")


def with_task(told: tuple[Message, ...], task: str) -> tuple[Message, ...]:
    """The lines, and after them what the role is to do; last, so that all roles share the prompt before it."""
    messages = list(told)
    _tell(messages, task, gap=TASK_GAP)
    return tuple(messages)


def action_text(call: Call) -> str:
    """A call as the caller writes it."""
    return f"Action: {call.name}\nAction Input: {json.dumps(dict(call.arguments), ensure_ascii=False)}"


def action_in(text: str) -> Call | None:
    """The call that a text in the caller's own format makes, if it can be read; never raises."""
    found = _ACTION.search(text)
    if found is None:
        return None
    begin = text.find("{", found.end())
    if begin < 0 or text[found.end() : begin].strip("`\"' \njson"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text[begin:])
    except (ValueError, RecursionError):
        return None
    return Call(found[1], cast("dict[str, Any]", value))


def answer_in(text: str) -> str:
    """The summarizer's answer without the name its line has in the history."""
    return _ANSWER_NAME.sub("", text, count=1).strip()


def _tell(told: list[Message], text: str, gap: str = "\n") -> None:
    """Add to what the user says last, so that user and assistant take turns, as some models demand."""
    if told and told[-1].speaker == "user":
        text = f"{told.pop().text}{gap}{text}"
    told.append(Message("user", text))

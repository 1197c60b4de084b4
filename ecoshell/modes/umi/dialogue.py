"""The conversation as the roles read it: lines of text for small models, messages for capable ones."""

import json
import re
from dataclasses import replace
from itertools import zip_longest
from typing import Any, cast

from ecoshell.messages import Call, Image, Message
from ecoshell.models.call_parsing import refuse_constant
from ecoshell.models.protocol import exchanges, too_deep
from ecoshell.modes.continuing import with_content
from ecoshell.modes.requests import Messages
from ecoshell.modes.umi.decision import Next

TASK_GAP = "\n\n"  # separates the user's last text from a role's task in one message
ANSWER_NAME = re.compile(r"^\s*(?:conclusion|summarizer|answer)\s*:\s*", re.IGNORECASE)
_ACTION = re.compile(
    r"Action:[ \t]*[\"'`*]{0,3}([\w.:/-]+)[\"'`*,]{0,4}\s*Action[ _]Input:\s*", re.IGNORECASE
)


def lines(messages: Messages) -> Messages:
    """Messages of turns and paths as lines; all that the planner did not write appears as the user's."""
    result: list[Message] = []
    for message, results in exchanges(messages):
        if message.speaker == "system":
            result.append(message)
        elif message.speaker == "user":
            _append(result, f"user: {message.text}", images=message.images)
        elif message.speaker == "tool":
            _append(result, f"observation: {message.text}", images=message.images)
        elif not message.calls:
            result.append(Message("assistant", f"conclusion: {message.text}"))
        else:
            result.append(planned(message.text, "caller"))
            for call, observation in zip_longest(message.calls, results):
                _append(result, f"caller: {action_text(call)}")
                if observation is not None:
                    _append(result, f"observation: {observation.text}", images=observation.images)
    return tuple(result)


def spoken(messages: Messages) -> Messages:
    """The messages, with the planner's text added to the state that the caller's provider expects back."""
    result: list[Message] = []
    for message in messages:
        content = message.state.message.get("content") if message.state else None
        if message.calls and message.state and message.text and message.text not in (content or ""):
            text = "\n\n".join(filter(None, (message.text, content)))
            message = replace(message, state=with_content(message.state, text))  # noqa: PLW2901
        result.append(message)
    return tuple(result)


def planned(rationale: str, following: Next) -> Message:
    """The planner's line."""
    text = f"{rationale} Next: {following}." if rationale else f"Next: {following}."
    return Message("assistant", f"assistant: {text}")


def with_task(messages: Messages, task: str) -> Messages:
    """Append a role's task; it comes last so that all roles share the prompt before it."""
    result = list(messages)
    _append(result, task, gap=TASK_GAP)
    return tuple(result)


def action_text(call: Call) -> str:
    """A call in the caller's format."""
    return (
        f"Action: {call.name}\nAction Input: {json.dumps(dict(call.arguments), ensure_ascii=False)}"
    )


def action_in(text: str) -> Call | None:
    """The call in a text in the caller's format; None without a call that can be parsed."""
    action = _ACTION.search(text)
    if action is None:
        return None
    begin = text.find("{", action.end())
    if begin < 0 or text[action.end() : begin].strip("`\"' \njson"):
        return None
    try:
        value, _ = json.JSONDecoder(parse_constant=refuse_constant).raw_decode(text[begin:])
    except (ValueError, RecursionError):
        return None
    if too_deep(value):
        return None
    return Call(action[1], cast("dict[str, Any]", value))


def _append(
    messages: list[Message], text: str, gap: str = "\n", images: tuple[Image, ...] = ()
) -> None:
    """Append to the user's last message, since some models require user and assistant to alternate."""
    if messages and messages[-1].speaker == "user":
        last = messages.pop()
        text, images = f"{last.text}{gap}{text}", (*last.images, *images)
    messages.append(Message("user", text, images=images))

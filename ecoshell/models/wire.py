"""A request in the shape that providers take: chat messages, a tool array, and marks for prompt caches.

Names that providers refuse (they allow letters, digits, `_` and `-`) are replaced by safe ones on the way out, and
`real_name` finds the way back. The replacement depends on nothing but the name, so a cached prefix stays valid.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha1
from typing import Any

from ecoshell.messages import Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.textcalls import as_plain_messages

_ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_CHOICE = {"call": "required", "either": "auto", "text": "none"}
_CACHE_MARK = {"type": "ephemeral"}
_ASKED_ONCE = frozenset({"rank", "judge", "compact"})
"""Purposes whose prompt no later call continues, so that writing it to a cache would cost and never pay."""


def plain_body(request: Request) -> dict[str, Any]:
    """The request for a model without tool calls of its own: tools and calls are text."""
    return {"messages": [{"role": message.speaker, "content": message.text} for message in as_plain_messages(request)]}


def native_body(request: Request) -> dict[str, Any]:
    """The request for a model with native tool calls; one call alone where a call is what is wanted."""
    return {
        "messages": _chat_messages(request.messages),
        "tools": [replace(document, name=safe_name(document.name)).as_function() for document in request.tools],
        "tool_choice": _CHOICE[request.want],
        "parallel_tool_calls": request.want == "either",
    }


def mark_for_cache(body: dict[str, Any], request: Request) -> None:
    """Put Anthropic's cache marks on the system text, which covers the tools before it, and on the last message.

    Anthropic caches nothing that is not marked. At the next step the marked prefix is read for a tenth of its price.
    A task that no other ask is told is left out: in the place of the last message, what stands before it is marked.
    """
    messages: list[dict[str, Any]] = body["messages"]
    if request.purpose in _ASKED_ONCE or not messages:
        return
    system = [message for message in messages if message["role"] == "system"]
    if system:
        _mark(system[-1])
    elif body.get("tools"):
        body["tools"][-1]["cache_control"] = _CACHE_MARK
    if request.task:
        _mark_before(messages, request.task)
    elif messages[-1]["role"] != "system":
        _mark(messages[-1])


def safe_name(name: str) -> str:
    """The name itself where providers take it, else one they take, still unique."""
    if _ALLOWED.fullmatch(name):
        return name
    return f"{_NOT_ALLOWED.sub('_', name)[:55]}_{sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


def real_name(name: str, documents: Iterable[ToolDocument]) -> str:
    """The name of the document that went out under this name; the name itself when there is none."""
    return next((document.name for document in documents if safe_name(document.name) == name), name)


def _chat_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Calls and their results as pairs; a call or a result on its own, which providers refuse, becomes text."""
    chat: list[dict[str, Any]] = []
    paired = False
    for index, message in enumerate(messages):
        following = messages[index + 1] if index + 1 < len(messages) else None
        if paired:
            chat.append({"role": "tool", "tool_call_id": _id(index - 1), "content": message.text})
            paired = False
        elif _are_pair(message, following):
            chat.append(_call_message(message, _id(index)))
            paired = True
        else:
            text = as_plain_messages(Request((message,)))
            chat += [{"role": plain.speaker, "content": plain.text} for plain in text if plain.text]
    return chat


def _are_pair(message: Message, following: Message | None) -> bool:
    if message.speaker != "assistant" or message.call is None or following is None or following.speaker != "tool":
        return False
    return following.call is None or following.call.name == message.call.name


def _call_message(message: Message, identity: str) -> dict[str, Any]:
    call = message.call
    function = (
        {}
        if call is None
        else {
            "name": safe_name(call.name),
            "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
        }
    )
    return {
        "role": "assistant",
        "content": message.text or None,
        "tool_calls": [{"id": identity, "type": "function", "function": function}],
    }


def _id(index: int) -> str:
    """Nine letters and digits, the only form that every provider takes."""
    return f"call{index:05d}"


def _mark(message: dict[str, Any]) -> None:
    if message["role"] == "tool":
        message["cache_control"] = _CACHE_MARK
    elif isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"], "cache_control": _CACHE_MARK}]


def _mark_before(messages: Sequence[dict[str, Any]], task: str) -> None:
    """Mark what stands before a task: the rest of its message, parted from it, or the message asked about before."""
    asked = [message for message in messages if message["role"] in ("user", "tool")]
    for at, message in reversed([*enumerate(asked)]):
        text: str = message["content"]
        if text == task.lstrip():
            if at:
                _mark(asked[at - 1])
            return
        if message["role"] == "user" and text.endswith(task):
            rest = {"type": "text", "text": text.removesuffix(task), "cache_control": _CACHE_MARK}
            message["content"] = [rest, {"type": "text", "text": task}]
            return

"""Replies that the output limit cut: continued, or requested once more with more room."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ecoshell.errors import LimitReached, ModelError
from ecoshell.events import Emit, Notice
from ecoshell.messages import Message, ProviderState
from ecoshell.models import Reply, Request
from ecoshell.models.metered import MeteredModel

CONTINUE = "Continue exactly where you stopped."
_CONTINUATIONS = 3
_CONTINUATION_TOKENS = 256  # a continuation with less room than this is not worth its prompt
_OVERLAP_CHARACTERS = range(16, 401)
"""How much of its last text a model may repeat when it continues."""
_MORE_ROOM = (
    "Raise [agent] max_output_tokens, or the cap with /budget, or choose another model with /model."
)
_NO_MORE_ROOM = (
    "That is all the model can write at once: ask for less, or choose another with /model."
)


async def completed(
    reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str
) -> Reply:
    """The reply to `request`, continued if the output limit cut it.

    If nothing of it is usable (reasoning took all the room, or the only call was cut), the request is repeated once
    with at least twice the room, up to the model's own maximum. Every request is reserved like any other. A reply that
    is still cut is returned with a notice. Raises LimitReached if a cap has no room for the second attempt.
    """
    if not _is_cut(reply):
        return reply
    if _is_unusable(reply):
        reached = reply.usage.output if reply.usage else request.max_tokens
        room = await _room(model, request)
        more = max(2 * reached, request.max_tokens)  # a cap may have granted less than was asked
        more = more if room is None else min(more, room)
        if more <= reached:
            emit(Notice(f"{_unusable_text(reply, reached)} {_NO_MORE_ROOM}"))
            return reply
        emit(Notice(f"{_unusable_text(reply, reached)} Asking once more, with up to {more:,}."))
        least = reached + reached // 2
        request = replace(request, max_tokens=more, min_tokens=least, repeatable=False)
        reply = await model.ask(request, emit, role=role)
        if not _is_cut(reply):
            return reply
        if _is_unusable(reply):
            reached = reply.usage.output if reply.usage else more
            advice = await advice_after_cut(reply, request, model)
            emit(Notice(f"{_unusable_text(reply, reached)} {advice}"))
            return reply
    return await _continued(reply, request, model, emit, role=role)


async def _continued(
    reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str
) -> Reply:
    """The reply with its continuations."""
    text, failure_text = _content(reply), ""
    for _ in range(_CONTINUATIONS):
        messages = (*request.messages, Message("assistant", text), Message("user", CONTINUE))
        following = replace(request, messages=messages, min_tokens=_CONTINUATION_TOKENS, task="")
        try:
            piece = await model.ask(following, emit, role=role)
        except (LimitReached, ModelError) as failure:  # the text so far is an answer
            if isinstance(failure, LimitReached):
                text = joined(text, failure.text)
                reply = replace(reply, text=text, state=with_content(reply.state, text))
            failure_text = f" {failure.message}"
            break
        text = joined(text, _content(piece))
        reply = replace(piece, text=text, state=with_content(piece.state, text))
        if not _is_cut(piece):
            return reply
        if _is_unusable(piece):
            break
    advice = _MORE_ROOM if failure_text else await advice_after_cut(reply, request, model)
    emit(Notice(f"The reply is incomplete: its output limit cut it.{failure_text} {advice}"))
    return reply


async def advice_after_cut(reply: Reply, request: Request, model: MeteredModel) -> str:
    """What the user can do about a cut reply: no setting helps if it is as long as the model can write."""
    room = await _room(model, request)
    reached = reply.usage.output if reply.usage else request.max_tokens
    return _MORE_ROOM if room is None or reached < room else _NO_MORE_ROOM


def joined(text: str, addition: str) -> str:
    """The text and what continues it, without the words that the continuation repeats."""
    longest = min(len(text), len(addition), _OVERLAP_CHARACTERS.stop - 1)
    for count in range(longest, _OVERLAP_CHARACTERS.start - 1, -1):
        if text.endswith(addition[:count]):
            return text + addition[count:]
    return text + addition


def with_content(state: ProviderState | None, text: str) -> ProviderState | None:
    """The provider's state with this text as its content."""
    if state is None:
        return None
    message: Mapping[str, Any] = {**state.message, "content": text}
    return replace(state, message=message)


def _is_cut(reply: Reply) -> bool:
    """Whether the output limit cut the reply; if it has complete calls, they are made."""
    return reply.finish == "length" and not reply.calls


def _is_unusable(reply: Reply) -> bool:
    return bool(reply.fault) or not reply.text.strip()


def _content(reply: Reply) -> str:
    """The text as the model sent it, with surrounding white space."""
    content = reply.state.message.get("content") if reply.state else None
    if isinstance(content, str) and content.strip() == reply.text.strip():
        return content
    return reply.text


async def _room(model: MeteredModel, request: Request) -> int | None:
    """How many tokens the model can write after this prompt; None if unknown."""
    traits = model.traits
    rooms = [] if traits.max_output is None else [traits.max_output]
    if traits.context is not None:
        size = await asyncio.to_thread(model.size, request)
        rooms.append(traits.context - size.cautious_count)
    return min(rooms, default=None)


def _unusable_text(reply: Reply, reached: int) -> str:
    moment = "in the middle of a call" if reply.fault else "before an answer came"
    reasoning = reply.usage.reasoning if reply.usage else 0
    thinking = f", {reasoning:,} of them reasoning" if reasoning else ""
    return f"The reply reached its limit of {reached:,} tokens{thinking}, {moment}."

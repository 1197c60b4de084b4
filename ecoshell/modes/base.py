"""The base class of modes: one model leads, the answer's price is reserved, and cut replies are completed."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ecoshell.agent.view import View
from ecoshell.budget import Hold
from ecoshell.errors import LimitReached, ModelError
from ecoshell.events import Emit, Notice
from ecoshell.messages import FINISH, Message, ProviderState
from ecoshell.models import Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies import Thought

SINGLE = "single"
PLANNER = "planner"
CALLER = "caller"
SUMMARIZER = "summarizer"
ANSWER_SLACK = 1024
"""Tokens by which the final request may outgrow its reservation: one more step's rationale and result."""


class BaseMode(ABC):
    """What all modes share."""

    role: str
    """The role that produces each step."""
    answer_role: str
    """The role that writes the answer."""
    by_program: bool = False
    finish: str = ""
    """Finish reason of the last reply, in OpenAI's terms; empty if unknown."""

    def __init__(
        self,
        leader: MeteredModel,
        answerer: MeteredModel,
        *,
        max_tokens: int,
        answer_tokens: int,
        temperature: float | None,
    ) -> None:
        """`max_tokens` bounds a step's output, `answer_tokens` the answer's; `temperature` is as in `Request`."""
        self.model = leader.traits.name
        self.answer_hold: Hold | None = None
        self._leader = leader
        self._answerer = answerer
        self._max_tokens = max_tokens
        self._answer_tokens = answer_tokens
        self._temperature = temperature

    @abstractmethod
    def _concluding(self, view: View, output: int, prompt_limit: int | None = None) -> Request:
        """The request for an answer of at most `output` tokens from the results so far; counts it, so may block."""

    @property
    def _longest_answer(self) -> int:
        """Output limit of an answer in tokens; the reservation for it may be smaller."""
        return self._max_tokens

    async def hold_answer(self, view: View) -> None:
        self.answer_hold = await self._answerer.set_aside(
            lambda: self._concluding(view, self._answer_tokens),
            role=self.answer_role,
            slack=ANSWER_SLACK,
        )

    async def release(self) -> None:
        if self.answer_hold is not None:
            hold, self.answer_hold = self.answer_hold, None
            await self._answerer.release(hold)

    async def prefer(
        self, view: View, first: Thought, second: Thought, emit: Emit
    ) -> Thought | None:
        from ecoshell.modes.ranking import RANKER, ranking_request, verdict

        reply = await self._leader.ask(ranking_request(view, first, second), emit, role=RANKER)
        return {"A": first, "B": second}.get(verdict(reply.text))

    async def conclude(self, view: View, emit: Emit) -> str:
        prompt_limit = None if self.answer_hold is None else self.answer_hold.prompt_tokens
        request = await asyncio.to_thread(
            self._concluding, view, self._longest_answer, prompt_limit
        )
        return await self._answered(request, emit)

    async def _ask(
        self,
        model: MeteredModel,
        request: Request,
        emit: Emit,
        *,
        role: str,
        hold: Hold | None = None,
    ) -> Reply:
        """The complete reply of a model; `hold`, this mode's answer reservation, pays for its first part."""
        if hold is None:
            reply = await model.ask(request, emit, role=role)
        else:
            reply = await model.ask(request, emit, role=role, aside=hold)
            self.answer_hold = None  # used up; before this, `release` returns it
        reply = await self._completed(reply, request, model, emit, role=role)
        self.finish = reply.finish
        return reply

    async def _completed(
        self, reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str
    ) -> Reply:
        """The reply, continued if the output limit cut it."""
        return await completed(reply, request, model, emit, role=role)

    async def _answered(self, request: Request, emit: Emit) -> str:
        """Ask for the answer, paid from the reservation."""
        reply = await self._ask(
            self._answerer, request, emit, role=self.answer_role, hold=self.answer_hold
        )
        if reply.call is not None and reply.call.name == FINISH:
            return str(reply.call.arguments.get("answer", ""))
        return reply.text.strip()


CONTINUE = "Continue exactly where you stopped."
_CONTINUATIONS = 3
_CONTINUATION_TOKENS = 256
"""A continuation with less room than this is not worth its prompt."""
_OVERLAP_CHARACTERS = range(16, 401)
"""How much of its last text a model may repeat when it continues."""
_MORE_ROOM = "To allow longer replies, raise [agent] max_output_tokens, or the cap with /budget."


async def completed(
    reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str
) -> Reply:
    """The reply to `request`, continued if the output limit cut it.

    If nothing of it is usable (reasoning took all the room, or the only call was cut), the request is repeated once
    with twice the room, up to the model's own maximum. Every request is reserved like any other. A reply that is still
    cut is returned with a notice. Raises LimitReached if a cap has no room for the second attempt.
    """
    if not _is_cut(reply):
        return reply
    if _is_unusable(reply):
        reached = reply.usage.output if reply.usage else request.max_tokens
        room = await _room(model, request)
        more = 2 * reached if room is None else min(2 * reached, room)
        if more <= reached:
            emit(Notice(f"{_unusable_text(reply, reached)} {_MORE_ROOM}"))
            return reply
        emit(Notice(f"{_unusable_text(reply, reached)} Asking once more, with {more:,}."))
        request = replace(request, max_tokens=more, min_tokens=reached + (more - reached) // 2)
        reply = await model.ask(request, emit, role=role)
        if not _is_cut(reply):
            return reply
        if _is_unusable(reply):
            reached = reply.usage.output if reply.usage else more
            emit(Notice(f"{_unusable_text(reply, reached)} {_MORE_ROOM}"))
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
    emit(Notice(f"The reply is incomplete: its output limit cut it.{failure_text} {_MORE_ROOM}"))
    return reply


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
        rooms.append(traits.context - size.count)
    return min(rooms, default=None)


def _unusable_text(reply: Reply, reached: int) -> str:
    moment = "in the middle of a call" if reply.fault else "before an answer came"
    reasoning = reply.usage.reasoning if reply.usage else 0
    thinking = f", {reasoning:,} of them reasoning" if reasoning else ""
    return f"The reply reached its limit of {reached:,} tokens{thinking}, {moment}."

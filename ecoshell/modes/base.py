"""The base class of modes: one model leads, and the answer's price is reserved."""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass

from ecoshell.agent.view import View
from ecoshell.budget import Hold
from ecoshell.events import Emit
from ecoshell.messages import FINISH
from ecoshell.models import Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.continuing import completed
from ecoshell.strategies import Thought

SINGLE = "single"
PLANNER = "planner"
CALLER = "caller"
SUMMARIZER = "summarizer"
ANSWER_SLACK = (
    1024  # tokens of one more step, by which the final request may outgrow its reservation
)


@dataclass(frozen=True, slots=True)
class ModeLimits:
    """Output limits of a mode in tokens, and the temperature of its requests."""

    max_tokens: int  # of a step
    answer_tokens: int
    temperature: float | None = 0.0  # as in `Request`


class BaseMode(ABC):
    """What all modes share."""

    role: str  # the role that produces each step
    answer_role: str  # the role that writes the answer
    by_program: bool = False
    finish: str = ""  # finish reason of the last reply, in OpenAI's terms; empty if unknown

    def __init__(self, leader: MeteredModel, answerer: MeteredModel, limits: ModeLimits) -> None:
        self.model = leader.traits.name
        self.answer_hold: Hold | None = None
        self._leader = leader
        self._answerer = answerer
        self._max_tokens = limits.max_tokens
        self._answer_tokens = limits.answer_tokens
        self._temperature = limits.temperature

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

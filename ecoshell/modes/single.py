"""The single mode: one model plans, calls and answers."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from ecoshell.agent.context import fit, path_messages
from ecoshell.agent.mode import Foreseen, View
from ecoshell.budget.gate import Hold
from ecoshell.errors import ModelBroken, UsageError
from ecoshell.events import Emit, Notice
from ecoshell.messages import FINISH, Message
from ecoshell.models.base import PromptSize, Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.prompts import prompt
from ecoshell.modes.siblings import RANKER, ranking_request, tried_message, verdict
from ecoshell.strategies.base import Thought

ASIDE_SLACK = 1024
"""Tokens by which the concluding prompt may outgrow what was set aside: one more step's rationale and result."""


class Single:
    """One model in every role."""

    name = "single"
    role = "single"

    def __init__(self, model: MeteredModel, *, max_tokens: int, answer_tokens: int) -> None:
        """`max_tokens` bounds a step's output, `answer_tokens` that of the concluding answer."""
        self._model = model
        self._max_tokens = max_tokens
        self._answer_tokens = answer_tokens
        self._aside: Hold | None = None
        self._system = Message("system", prompt("single"))

    @property
    def model(self) -> str:
        return self._model.traits.name

    @property
    def aside(self) -> Hold | None:
        return self._aside

    def foresee(self, view: View) -> Foreseen:
        step = self._request(view)
        return Foreseen((step,), self._concluding(step), ASIDE_SLACK)

    async def set_aside(self, view: View) -> None:
        request = await asyncio.to_thread(self._conclusion, view)  # counting a long prompt takes its time
        self._aside = await self._model.set_aside(request, role=self.role, slack=ASIDE_SLACK)

    async def release(self) -> None:
        if self._aside is not None:
            aside, self._aside = self._aside, None
            await self._model.release(aside)

    async def think(self, view: View, emit: Emit) -> Thought:
        request = await asyncio.to_thread(self._step, view)
        reply = await self._model.ask(request, emit, role=self.role)
        if reply.fault and not view.closed:
            reply = await self._repaired(request, reply, emit)
        _tell_if_cut(reply, emit)
        return Thought(reply.text.strip(), reply.call)

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        reply = await self._model.ask(ranking_request(view, one, other), emit, role=RANKER)
        return {"A": one, "B": other}.get(verdict(reply.text))

    async def conclude(self, view: View, emit: Emit) -> str:
        request = await asyncio.to_thread(self._payable, view)
        reply = await self._model.ask(request, emit, role=self.role, aside=self._aside)
        self._aside = None  # until here it is for `release` to give back
        _tell_if_cut(reply, emit)
        if reply.call is not None and reply.call.name == FINISH:
            return str(reply.call.arguments.get("answer", ""))
        return reply.text.strip()

    async def _repaired(self, request: Request, reply: Reply, emit: Emit) -> Reply:
        """One more attempt, told what was wrong with the first."""
        told = (
            *request.messages,
            Message("assistant", reply.text),
            Message("user", f"That call could not be used: {reply.fault} Make the call again, correctly."),
        )
        again = await self._model.ask(replace(request, messages=told, purpose="repair"), emit, role=self.role)
        if again.fault:
            raise ModelBroken(
                f"{self.model} twice made a call that cannot be used: {again.fault}",
                kept="The session is kept.",
                fix="Ask again, or choose another model with /model.",
            )
        return again

    def _step(self, view: View) -> Request:
        step = self._request(view)
        if view.closed:  # nothing may be called any more, so what is left is the answer
            step = replace(self._concluding(step), max_tokens=self._max_tokens)
        return self._in_context(step)

    def _conclusion(self, view: View) -> Request:
        return self._in_context(self._concluding(self._request(view)))

    def _concluding(self, step: Request) -> Request:
        messages = (*step.messages, Message("user", prompt("conclude")))
        return replace(step, messages=messages, want="text", max_tokens=self._answer_tokens, purpose="answer")

    def _payable(self, view: View) -> Request:
        """The conclusion cut to what was set aside for it."""
        request, aside = self._conclusion(view), self._aside
        if aside is None:
            return request
        return self._fitted(request, lambda size: size.bound <= aside.prompt_tokens)

    def _request(self, view: View) -> Request:
        array = view.presentation.array(view.registered, large=view.large)
        shown = {document.name for document in array}
        told = (tried_message(view),) if view.tried else ()
        may = (*array, *(document for document in view.registered if document.name not in shown))
        return Request(
            messages=(self._system, *view.history, *path_messages(view.opening, view.path), *told),
            tools=array,
            callable_now=tuple(document for document in may if document.name not in view.forbidden),
            max_tokens=self._max_tokens,
        )

    def _in_context(self, request: Request) -> Request:
        """The request cut to the model's context size, if that is known; raises UsageError when no cut is enough."""
        context = self._model.traits.context
        if context is None:
            return request
        room = context - request.max_tokens
        if self._model.size(request).count <= room:
            return request
        cut = self._fitted(request, lambda size: size.count <= room)
        count = self._model.size(cut).count
        if count > room:
            raise UsageError(
                f"This takes about {count:,} tokens, and the context of {self.model} has room for {max(0, room):,}.",
                kept="Nothing was sent.",
                fix="Ask something shorter, put long text in a file, or choose a model with a larger context.",
            )
        return cut

    def _fitted(self, request: Request, fits: Callable[[PromptSize], bool]) -> Request:
        """The request with its oldest observations cut until its prompt's size fits."""

        def enough(messages: tuple[Message, ...]) -> bool:
            return fits(self._model.size(replace(request, messages=messages)))

        return replace(request, messages=fit(request.messages, enough))


def _tell_if_cut(reply: Reply, emit: Emit) -> None:
    if reply.cut:
        emit(Notice("The reply was cut at its longest: [agent] max_output_tokens, or a cap, allows no more."))

"""The single mode: one model plans, calls and answers."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal

from ecoshell.agent.approval import is_trusted
from ecoshell.agent.dependencies import PROGRAM_PARAMETERS
from ecoshell.agent.memory import path_messages
from ecoshell.agent.model_set import DraftTask, FillTask, Foreseen, ForeseenCall, View
from ecoshell.catalog import FINISH_DOCUMENT
from ecoshell.errors import LimitReached, ModelBroken
from ecoshell.events import Emit
from ecoshell.messages import FINISH, Call, Message
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes import (
    ASIDE_SLACK,
    SINGLE,
    UNUSABLE,
    BaseMode,
    ask_for_draft,
    broken_call,
    callable_documents,
    fill_text,
    filled,
    has_stopped_short,
    in_context,
    prompt,
    repair_request,
    system_text,
    tell_if_cut,
    thought_of,
    tried_message,
    with_question,
)
from ecoshell.strategies import Step, Thought, same


class Single(BaseMode):
    """One model in every role."""

    role = answer_role = SINGLE

    def __init__(
        self,
        model: MeteredModel,
        *,
        max_tokens: int,
        answer_tokens: int,
        temperature: float | None = 0.0,
        name: str = "single",
    ) -> None:
        """`name` is the mode's for which this one stands."""
        super().__init__(model, model, max_tokens=max_tokens, answer_tokens=answer_tokens, temperature=temperature)
        self.name = name
        self._model = model

    @property
    def _held(self) -> bool:
        """Whether the model's calls are held to a grammar, as those of files on this machine are."""
        return self._model.traits.calls_undeclared

    def foresee(self, view: View) -> Foreseen:
        step = self._request(view)
        conclusion = ForeseenCall(self._conclusion(step, view), self._model, self.role)
        return Foreseen((ForeseenCall(self._reminded(step, view), self._model, self.role),), conclusion, ASIDE_SLACK)

    async def think(self, view: View, emit: Emit) -> Thought:
        if thought := await self._by_program(view, emit):
            return thought
        step, last = self._request(view), _repeated(view)
        has_it = last is not None and last.observation.ok
        if last is not None and has_it and self._model.traits.trained:  # it has no better answer than what it had got
            ran = (one.observation for one in reversed(view.path.steps) if same(one.call, last.call))
            if known := next((seen.text.strip() for seen in ran if not seen.refused), ""):
                return Thought(known)
        # a weak model, which calls on and on, knows no more to do where it asks for what it had got: it is to answer
        if view.closed or (has_it and not is_trusted(self._model.traits)):
            step = replace(self._conclusion(step, view), max_tokens=self._max_tokens)
        else:
            step = self._reminded(step, view)
        request = await self._fitted(step)
        reply = await self._model.ask(request, emit, role=self.role)
        if reply.fault and not view.closed:
            repair = repair_request(request, reply, UNUSABLE.format(reply.fault))
            reply = await self._model.ask(repair, emit, role=self.role)
            if reply.fault:
                raise broken_call(self._model, reply.fault, reply.attempt)
        elif reply.call is None and self._held and has_stopped_short(view.path, reply) and view.usable:
            # it stopped short, and is asked once for a call of a tool not yet called
            called = {step.call.subject for step in view.path.steps}
            others = tuple(document for document in request.callable_now if document.name not in called)
            guesses = (self._model.traits.parameters or PROGRAM_PARAMETERS) < PROGRAM_PARAMETERS
            if others and not guesses:
                nudge = replace(repair_request(request, reply, prompt("nudge")), want="call", callable_now=others)
                with suppress(LimitReached, ModelBroken):  # no cap or context has room for it: it has answered
                    again = await self._model.ask(nudge, emit, role=self.role)
                    if not again.fault and again.call is not None:
                        reply = replace(again, text=reply.text)
        tell_if_cut(reply, emit)
        return thought_of(reply)

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        make = partial(self._asking, view, want="text")
        return await ask_for_draft(self._model, task, make, emit, role=self.role)

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        request = await self._asking(view, fill_text(task), want="call")
        ask = partial(self._model.ask, emit=emit, role=self.role)
        return await filled(request, task.document, self._model, ask, lambda reply, _: (reply.call, reply.fault))

    async def conclude(self, view: View, emit: Emit) -> str:
        traits = self._model.traits
        if traits.small and traits.trained:  # it was not shown how to, and would say something: the result is quoted
            return ""
        return await super().conclude(view, emit)

    async def _by_program(self, view: View, emit: Emit) -> Thought | None:
        """The program by which a weak model does what is asked of files; then what that printed, or says of it.

        None where that is no way, or it wrote none that works: then it goes on by calls.
        """
        if not view.attachments:
            return None
        from ecoshell.modes.programs import by_program, program_in

        following = by_program(
            view,
            lambda: self._conclusion(self._request(view), view),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )
        if not isinstance(following, Request):
            return following
        reply = await self._model.ask(await self._fitted(following), emit, role=self.role)
        tell_if_cut(reply, emit)
        if following.purpose == "answer":
            return Thought(reply.text.strip())
        call = program_in(reply, view)
        return None if call is None else Thought("", call)

    async def _asking(self, view: View, task: str, *, want: Literal["call", "text"]) -> Request:
        """A step in which the model is asked for this alone."""
        step = self._request(view)
        messages = (*step.messages, Message("user", task))
        return await self._fitted(replace(step, messages=messages, want=want, task=task))

    async def _concluding(self, view: View, most: int | None = None) -> Request:
        return await self._fitted(self._conclusion(self._request(view), view), most)

    def _conclusion(self, step: Request, view: View) -> Request:
        messages = (*step.messages, Message("user", with_question("conclude", view.path.question)))
        return replace(step, messages=messages, want="text", max_tokens=self._answer_tokens, purpose="answer")

    def _request(self, view: View) -> Request:
        system = Message("system", system_text(view.presentation, searching=view.searching))
        array = view.array
        told = (tried_message(view),) if view.tried else ()
        may = callable_documents(view, held=self._held)
        if not self._held and all(document.name != FINISH for document in array):
            may = (*may, FINISH_DOCUMENT)  # it is how many models end, whether it is offered or not
        last = _repeated(view) if self._held else None
        # a held model that has just called a tool once more to no avail is to call another
        barred = "" if last is None else last.call.subject
        return Request(
            messages=(system, *view.history, *path_messages(view.opening, view.path), *told),
            tools=array,
            callable_now=tuple(document for document in may if document.name != barred),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )

    def _reminded(self, step: Request, view: View) -> Request:
        """The step, at whose last result a weak model is asked whether that is enough.

        Only there, so that what was sent before stays a prefix of what is sent next.
        """
        last, steps = step.messages[-1], view.path.steps
        found = last.speaker == "tool" and steps and steps[-1].observation.ok
        if not found or is_trusted(self._model.traits) or self._model.traits.trained:
            return step
        text = f"{last.text}\n\n{with_question('enough', view.path.question)}"
        return replace(step, messages=(*step.messages[:-1], replace(last, text=text)))

    async def _fitted(self, request: Request, most: int | None = None) -> Request:
        """The request, cut where it must be; counting a long prompt takes its time."""
        return await asyncio.to_thread(
            in_context, self._model, request.messages, lambda said: replace(request, messages=said), most
        )


def _repeated(view: View) -> Step | None:
    """The last step, if it was of a call made before."""
    last = view.path.steps[-1] if view.path.steps else None
    return last if last is not None and last.observation.refused == "repeated" else None

"""The single mode: one model plans, calls and answers."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Literal

from ecoshell.agent.mode import CallForecast, DraftTask, FillTask, StepForecast
from ecoshell.agent.view import View, path_messages
from ecoshell.catalog import FINISH_SCHEMA
from ecoshell.events import Emit
from ecoshell.messages import FINISH, Call, Message
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.base import ANSWER_SLACK, SINGLE, BaseMode, ModeLimits
from ecoshell.modes.continuing import advice_after_cut
from ecoshell.modes.requests import (
    UNUSABLE_CALL,
    broken_call,
    callable_schemas,
    cut_call,
    exhausted,
    in_context,
    prompt,
    repair_request,
    siblings_message,
    system_text,
    thought_of,
)
from ecoshell.strategies import Thought


class Single(BaseMode):
    """One model in every role."""

    role = answer_role = SINGLE

    def __init__(self, model: MeteredModel, limits: ModeLimits) -> None:
        super().__init__(model, model, limits)
        self.name = "single"  # of the mode that this object implements
        self._model = model

    def forecast(self, view: View) -> StepForecast:
        step = self._request(view)
        conclusion = CallForecast(
            self._conclusion(step, view, self._answer_tokens), self._model, self.role
        )
        following = CallForecast(self._reminded(step, view), self._model, self.role)
        return StepForecast((following,), conclusion, ANSWER_SLACK)

    async def think(self, view: View, emit: Emit) -> Thought:
        step = self._request(view)
        if view.closed:
            step = self._conclusion(step, view, self._max_tokens)
        request = await asyncio.to_thread(self._fitted, step)
        reply = await self._ask(self._model, request, emit, role=self.role)
        if reply.fault and reply.cut:
            advice = await advice_after_cut(reply, request, self._model)
            raise cut_call(self._model, reply.attempt, advice)
        # a call as text; faults of native calls are reported as their results
        if reply.fault:
            repair = repair_request(request, reply, UNUSABLE_CALL.format(reply.fault))
            reply = await self._ask(
                self._model, replace(repair, temperature=self._temperature), emit, role=self.role
            )
        if reply.fault:
            raise broken_call(self._model, reply.fault, reply.attempt)
        if reply.finish == "length" and not (
            reply.call or reply.text.strip() or view.path.result_steps
        ):
            raise exhausted(self._model, await advice_after_cut(reply, request, self._model))
        return thought_of(reply)

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        from ecoshell.modes.drafting import ask_for_draft

        make = partial(self._asking, view, want="text")
        ask = partial(self._ask, self._model, emit=emit, role=self.role)
        return await ask_for_draft(self._model, task, make, ask)

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        from ecoshell.modes.drafting import fill_text, filled

        request = await self._asking(view, fill_text(task), want="call")
        ask = partial(self._ask, self._model, emit=emit, role=self.role)
        return await filled(
            request, task.schema, self._model, ask, lambda reply, _: (reply.call, reply.fault)
        )

    async def _asking(self, view: View, task: str, *, want: Literal["call", "text"]) -> Request:
        """A step with `task` as its last message."""
        step = self._request(view)
        messages = (*step.messages, Message("user", task))
        step = replace(step, messages=messages, want=want, task=task)
        return await asyncio.to_thread(self._fitted, step)

    def _concluding(self, view: View, output: int, prompt_limit: int | None = None) -> Request:
        return self._fitted(self._conclusion(self._request(view), view, output), prompt_limit)

    def _conclusion(self, step: Request, view: View, output: int) -> Request:
        """The step as a request for an answer of at most `output` tokens, without a call."""
        messages = (*step.messages, Message("user", self._closing(view)))
        return replace(step, messages=messages, want="text", max_tokens=output, purpose="answer")

    def _reminded(self, step: Request, view: View) -> Request:
        """The step with what a small model is reminded of."""
        return step

    def _closing(self, view: View) -> str:
        """The request for an answer when nothing more can be done."""
        return prompt("answer_now")

    def _system(self, view: View) -> str:
        """The system text, the same throughout a session."""
        return system_text(view.presentation, searching=view.searching)

    def _request(self, view: View) -> Request:
        siblings = (siblings_message(view),) if view.siblings else ()
        array = view.array
        callable_now = callable_schemas(view, array)
        if all(schema.name != FINISH for schema in array):
            # many models call it even if it is not in the array
            callable_now = (*callable_now, FINISH_SCHEMA)
        system = Message("system", self._system(view))
        return Request(
            messages=(system, *view.history, *path_messages(view.opening, view.path), *siblings),
            tools=array,
            callable_now=callable_now,
            max_tokens=self._max_tokens,
            repeatable=True,
            temperature=self._temperature,
        )

    def _fitted(self, request: Request, prompt_limit: int | None = None) -> Request:
        """The request fitted to the context; counts a long prompt, so it may block."""
        return in_context(
            self._model,
            request.messages,
            lambda messages: replace(request, messages=messages),
            prompt_limit,
        )

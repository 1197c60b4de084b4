"""The single mode: one model plans, calls and answers."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Literal

from ecoshell.agent.approval import is_trusted
from ecoshell.agent.dependencies import PROGRAM_PARAMETERS
from ecoshell.agent.memory import path_messages
from ecoshell.agent.mode import DraftTask, FillTask, Foreseen, ForeseenCall, View
from ecoshell.budget.holds import Hold
from ecoshell.catalog.presentation import FINISH_DOCUMENT
from ecoshell.errors import LimitReached, ModelBroken
from ecoshell.events import Emit
from ecoshell.messages import FINISH, Call, Message
from ecoshell.models.base import Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.asking import (
    RANKER,
    SINGLE,
    asked_again,
    broken_call,
    call_in_question,
    callable_documents,
    conclude_text,
    draft_grammar,
    draft_text,
    drafted,
    fill_text,
    fillable,
    filled,
    has_stopped_short,
    in_context,
    prompt,
    ranking_request,
    repair_request,
    system_text,
    tell_if_cut,
    thought_of,
    tried_message,
    unusable_call,
    verdict,
)
from ecoshell.strategies.base import Step, Thought, same

ASIDE_SLACK = 1024
"""Tokens by which the concluding prompt may outgrow what was set aside: one more step's rationale and result."""


class Single:
    """One model in every role."""

    name = "single"
    role = SINGLE

    def __init__(
        self, model: MeteredModel, *, max_tokens: int, answer_tokens: int, temperature: float | None = 0.0
    ) -> None:
        """`max_tokens` bounds a step's output, `answer_tokens` that of the concluding answer.

        `temperature` is that of steps and answers, as in `Request`.
        """
        self._model = model
        self.model = model.traits.name
        self.aside: Hold | None = None
        self._max_tokens = max_tokens
        self._answer_tokens = answer_tokens
        self._temperature = temperature

    @property
    def _is_held(self) -> bool:
        """Whether the model's calls are held to a grammar, as those of files on this machine are."""
        return self._model.traits.calls_undeclared

    @property
    def _is_urged(self) -> bool:
        """Whether it may be asked for one more call; of the smallest models that would be a guessed one."""
        return self._is_held and (self._model.traits.parameters or PROGRAM_PARAMETERS) >= PROGRAM_PARAMETERS

    @property
    def _is_weak(self) -> bool:
        """Whether it is a model that calls on and on, however much it knows."""
        return not is_trusted(self._model.traits)

    def foresee(self, view: View) -> Foreseen:
        step = self._request(view)
        conclusion = ForeseenCall(self._concluding(step, view), self._model, self.role)
        return Foreseen((ForeseenCall(self._reminded(step, view), self._model, self.role),), conclusion, ASIDE_SLACK)

    async def set_aside(self, view: View) -> None:
        request = await asyncio.to_thread(self._conclusion, view)  # counting a long prompt takes its time
        self.aside = await self._model.set_aside(request, role=self.role, slack=ASIDE_SLACK)

    async def release(self) -> None:
        if self.aside is not None:
            aside, self.aside = self.aside, None
            await self._model.release(aside)

    async def think(self, view: View, emit: Emit) -> Thought:
        if thought := await self._by_program(view, emit):
            return thought
        if self._model.traits.trained and (known := _known(view)):
            return Thought(known)
        request = await asyncio.to_thread(self._step, view)
        reply = await self._model.ask(request, emit, role=self.role)
        if reply.fault and not view.closed:
            repair = repair_request(request, reply, unusable_call(reply.fault))
            reply = await self._model.ask(repair, emit, role=self.role)
            if reply.fault:
                raise broken_call(self._model, reply.fault, reply.attempt)
        elif reply.call is None and self._is_urged and has_stopped_short(view.path, reply) and view.usable:
            reply = await self._nudged(view, request, reply, emit)
        tell_if_cut(reply, emit)
        return thought_of(reply)

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        reply = await self._model.ask(ranking_request(view, one, other), emit, role=RANKER)
        return {"A": one, "B": other}.get(verdict(reply.text))

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        request = await asyncio.to_thread(self._drafting, view, task)
        reply = await self._model.ask(request, emit, role=self.role)
        tell_if_cut(reply, emit)
        return drafted(reply)

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        call = call_in_question(task, view.path.question)
        if call is not None:
            return call
        request = await asyncio.to_thread(self._asking, view, fill_text(task), want="call")
        request = replace(request, callable_now=fillable(request, task.document))
        call, fault = await filled(request, task.document, partial(self._model.ask, emit=emit, role=self.role), _made)
        if call is None or fault:
            raise broken_call(self._model, f"for {task.document.name}: {fault}")
        return call

    async def conclude(self, view: View, emit: Emit) -> str:
        most = None if self.aside is None else self.aside.prompt_tokens
        request = await asyncio.to_thread(self._conclusion, view, most)
        reply = await self._model.ask(request, emit, role=self.role, aside=self.aside)
        self.aside = None  # until here it is for `release` to give back
        tell_if_cut(reply, emit)
        if reply.call is not None and reply.call.name == FINISH:
            return str(reply.call.arguments.get("answer", ""))
        return reply.text.strip()

    async def _by_program(self, view: View, emit: Emit) -> Thought | None:
        """The program by which a weak model does what is asked of files; then what that printed, or says of it.

        None where that is no way, or it wrote none that works: then it goes on by calls.
        """
        if not view.attachments:
            return None
        from ecoshell.modes.programs import answer_of, program_in, programming, programs_of, trial_of, wrote_last

        ran = programs_of(view)
        if ran is None:
            return None
        if wrote_last(ran):
            trial = trial_of(ran, view)
            return None if trial is None else Thought("", trial)
        if ran and ran[-1].observation.ok:
            if said := answer_of(ran):
                return Thought(said)
            request = self._concluding(self._request(view), view)
        else:
            request = programming(view, max_tokens=self._max_tokens, temperature=self._temperature)
        reply = await self._model.ask(await asyncio.to_thread(self._in_context, request), emit, role=self.role)
        tell_if_cut(reply, emit)
        if request.purpose == "answer":
            return Thought(reply.text.strip())
        call = program_in(reply, view)
        return None if call is None else Thought("", call)

    async def _nudged(self, view: View, request: Request, reply: Reply, emit: Emit) -> Reply:
        """What a model does that stopped short, and is asked once for a call of a tool not yet called."""
        called = {step.call.subject for step in view.path.steps}
        others = tuple(document for document in request.callable_now if document.name not in called)
        if not others:
            return reply
        nudge = replace(repair_request(request, reply, prompt("nudge")), want="call", callable_now=others)
        try:
            again = await self._model.ask(nudge, emit, role=self.role)
        except (LimitReached, ModelBroken):  # no cap or context has room for it: what it said is its answer
            return reply
        return reply if again.fault or again.call is None else replace(again, text=reply.text)

    def _step(self, view: View) -> Request:
        step, last = self._request(view), _repeated(view)
        # a weak model that asks again for what it had got knows no more to do, and is asked for the answer
        has_it = last is not None and last.observation.ok and self._is_weak
        if view.closed or has_it:
            step = replace(self._concluding(step, view), max_tokens=self._max_tokens)
        else:
            step = self._reminded(step, view)
        return self._in_context(step)

    def _drafting(self, view: View, task: DraftTask) -> Request:
        grammar = draft_grammar(task, self._model)
        text = draft_text(task, numbered=bool(grammar))
        request = self._asking(view, text, want="text")
        return replace(request, grammar=grammar, temperature=0.0) if grammar else request

    def _asking(self, view: View, task: str, *, want: Literal["call", "text"]) -> Request:
        """A step in which the model is asked for this alone."""
        step = self._request(view)
        messages = (*step.messages, Message("user", task))
        return self._in_context(replace(step, messages=messages, want=want, task=task))

    def _conclusion(self, view: View, most: int | None = None) -> Request:
        return self._in_context(self._concluding(self._request(view), view), most)

    def _concluding(self, step: Request, view: View) -> Request:
        messages = (*step.messages, Message("user", conclude_text(view.path.question)))
        return replace(step, messages=messages, want="text", max_tokens=self._answer_tokens, purpose="answer")

    def _request(self, view: View) -> Request:
        system = Message("system", system_text(view.presentation, searching=view.searching))
        array = view.array
        told = (tried_message(view),) if view.tried else ()
        may = callable_documents(view, held=self._is_held)
        if not self._is_held and all(document.name != FINISH for document in array):
            may = (*may, FINISH_DOCUMENT)  # it is how many models end, whether it is offered or not
        last = _repeated(view) if self._is_held else None
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
        if not found or not self._is_weak or self._model.traits.trained:
            return step
        text = f"{last.text}\n\n{prompt('enough')}\n{asked_again(view.path.question)}"
        return replace(step, messages=(*step.messages[:-1], replace(last, text=text)))

    def _in_context(self, request: Request, most: int | None = None) -> Request:
        return in_context(self._model, request.messages, lambda said: replace(request, messages=said), most)


def _repeated(view: View) -> Step | None:
    """The last step, if it was of a call made before."""
    last = view.path.steps[-1] if view.path.steps else None
    return last if last is not None and last.observation.refused == "repeated" else None


def _known(view: View) -> str:
    """What a call returned that was made once more; a trained model that knows no more to do has no better answer."""
    last = _repeated(view)
    if last is None or not last.observation.ok:
        return ""
    ran = (step.observation for step in reversed(view.path.steps) if same(step.call, last.call))
    return next((observation.text.strip() for observation in ran if not observation.refused), "")


def _made(reply: Reply, request: Request) -> tuple[Call | None, str]:
    """The call in a reply, and what is wrong with it."""
    return reply.call, reply.fault

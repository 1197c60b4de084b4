"""The umi mode (α-UMi §3.1): the planner decides, the caller makes the calls, the summarizer writes the answer.

All roles read the same history, followed by their own task, so that roles of one model share its prompt cache, tools
included. A capable model with native tool calls reads messages, every other model reads lines of text. If the planner
makes the calls itself, they are used without asking the caller.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ecoshell.agent.mode import CallForecast, DraftTask, FillTask, StepForecast
from ecoshell.agent.view import View, path_messages
from ecoshell.events import Emit, Notice, Rationale
from ecoshell.messages import FINISH, Call, Message
from ecoshell.models import Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.models.protocol import call_fault
from ecoshell.modes.base import ANSWER_SLACK, CALLER, PLANNER, SUMMARIZER, BaseMode, ModeLimits
from ecoshell.modes.continuing import completed
from ecoshell.modes.requests import (
    UNUSABLE_CALL,
    Messages,
    broken_call,
    in_context,
    prompt,
    repair_request,
    siblings_message,
    thought_of,
    warn_if_cut,
)
from ecoshell.modes.umi.decision import ENDINGS, Decision
from ecoshell.modes.umi.dialogue import ANSWER_NAME, TASK_GAP, action_in, with_task
from ecoshell.modes.umi.player import Player
from ecoshell.strategies import Path, Sibling, Thought

_UNDECIDED = "The planner twice did not say how to go on."


class Umi(BaseMode):
    """Three roles; the planner leads."""

    name = "umi"
    role = PLANNER
    answer_role = SUMMARIZER

    def __init__(
        self,
        planner: MeteredModel,
        caller: MeteredModel,
        summarizer: MeteredModel,
        limits: ModeLimits,
    ) -> None:
        super().__init__(planner, summarizer, limits)
        self._planner = Player(PLANNER, planner)
        self._caller = Player(CALLER, caller)
        self._summarizer = Player(SUMMARIZER, summarizer)
        self.by_program = self._caller.aids is not None and self._caller.aids.by_program
        # A decision that is not carried out yet, with the path and the siblings it was made for.
        self._pending: tuple[Path, tuple[Sibling, ...], Decision] | None = None

    @property
    def _longest_answer(self) -> int:
        return self._answer_tokens if self._summarizer.aids else self._max_tokens

    async def _completed(
        self, reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str
    ) -> Reply:
        player = {PLANNER: self._planner, CALLER: self._caller}.get(role, self._summarizer)
        if player.aids is None:
            return await completed(reply, request, model, emit, role=role)
        warn_if_cut(reply, emit)
        return reply

    def forecast(self, view: View) -> StepForecast:
        conversation = _conversation(view)
        request = self._answering(
            view, conversation, self._answer_tokens, closing=self._summarizer.closing(view)
        )
        answering = CallForecast(request, self._answerer, SUMMARIZER)
        if view.closed:
            return StepForecast((answering,), answering, ANSWER_SLACK)
        planning = CallForecast(self._planning(view, conversation), self._leader, PLANNER)
        calling = CallForecast(self._calling(view, "", conversation), self._caller.model, CALLER)
        return StepForecast(
            (planning, calling), answering, ANSWER_SLACK, ending=(planning, answering)
        )

    async def release(self) -> None:
        self._pending = None
        await super().release()

    async def think(self, view: View, emit: Emit) -> Thought:
        if view.closed:
            return _concluded(await self.conclude(view, emit))
        decision = self._pending_decision(view) or await self._plan(view, emit)
        if isinstance(decision, Thought):
            return decision
        return await self._carried_out(view, decision, emit)

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        from ecoshell.modes.drafting import ask_for_draft

        pending = self._pending_decision(view)
        if pending is not None:
            return await self._carried_out(view, pending, emit)
        planner = self._planner
        draft = await ask_for_draft(
            planner.model,
            task,
            lambda text: _fitted(planner, view, partial(self._planning, view, task=text)),
            partial(self._ask, planner.model, emit=emit, role=PLANNER),
        )
        decision = None if isinstance(draft, Thought) or "[" in draft else planner.decision(draft)
        if decision is not None and decision.next in ("conclusion", "give up"):
            return await self._carried_out(view, decision, emit)
        return draft

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        from ecoshell.modes.drafting import filled

        model = self._caller.model
        request = await _fitted(self._caller, view, partial(self._calling, view, task))
        return await filled(
            request, task.schema, model, partial(self._ask, model, emit=emit, role=CALLER), _call_in
        )

    async def _carried_out(self, view: View, decision: Decision, emit: Emit) -> Thought:
        """Carry out a decision; if a limit prevents that, the decision is kept so that it is not paid twice."""
        if self._pending_decision(view) is None:
            self._pending = (view.path, view.siblings, decision)
            if decision.next == "conclusion" and decision.rationale:
                # before the answer that follows from it
                emit(Rationale(decision.rationale, PLANNER))
        if decision.next == "conclusion":
            ending = self._summarizer.planner_words(decision.rationale, "conclusion")
            make = partial(self._answering, view, output=self._longest_answer, ending=ending)
            request = await _fitted(self._summarizer, view, make)
            thought = _concluded(await self._answered(request, emit), decision.rationale)
        elif decision.next == "give up":
            thought = _given_up(decision.rationale or "The planner gave up and did not say why.")
        else:
            thought = await self._call(view, decision, emit)
        self._pending = None
        return thought

    def _pending_decision(self, view: View) -> Decision | None:
        """The planner's decision for this view that could not be carried out yet."""
        path, siblings, decision = self._pending or (None, (), None)
        return decision if (path, siblings) == (view.path, view.siblings) else None

    async def _plan(self, view: View, emit: Emit) -> Decision | Thought:
        """The planner's decision, or a thought with calls if the planner made calls itself."""
        planner = self._planner
        request = await _fitted(planner, view, partial(self._planning, view))
        reply = await self._ask(planner.model, request, emit, role=PLANNER)
        decision = planner.decision(reply.text)
        if reply.call is None and decision.next is None:
            repair = repair_request(request, reply, prompt("umi/undecided"))
            reply = await self._ask(
                planner.model, self._repair(planner, repair), emit, role=PLANNER
            )
            second = planner.decision(reply.text)
            decision = second if second.next or second.rationale else decision
        if reply.call is None:
            return decision
        return replace(thought_of(reply, by=PLANNER), rationale=decision.rationale)

    async def _call(self, view: View, decision: Decision, emit: Emit) -> Thought:
        """The caller's calls for a decision, or for an undecided planner's text; gives up if no call is possible.

        Raises CallBroken if the caller twice failed to make the call that the planner decided on.
        """
        caller, rationale = self._caller, decision.rationale
        if not caller.callable_schemas(view):
            return _given_up(f"There is no tool to call. {rationale}".strip())
        if decision.next is None:
            emit(Notice(f"{_UNDECIDED} The caller tries to make a call from its text."))
        request = await _fitted(caller, view, partial(self._calling, view, rationale))
        reply = await self._ask(caller.model, request, emit, role=CALLER)
        call, fault = _call_in(reply, request)
        if call is None:
            repair = repair_request(request, reply, UNUSABLE_CALL.format(fault))
            reply = await self._ask(caller.model, self._repair(caller, repair), emit, role=CALLER)
            call, fault = _call_in(reply, request)
        if call is not None:
            return Thought(
                rationale, call, by=CALLER, more=thought_of(reply).more, state=reply.state
            )
        if decision.next is not None:
            raise broken_call(caller.model, fault, reply.attempt or action_in(reply.text))
        return _given_up(f"{_UNDECIDED} {rationale}".strip())

    def _repair(self, player: Player, repair: Request) -> Request:
        """The repair at a temperature that suits the model."""
        return repair if player.aids else replace(repair, temperature=self._temperature)

    async def _answered(self, request: Request, emit: Emit) -> str:
        """The summarizer's answer without the label that its line has in the history."""
        return ANSWER_NAME.sub("", await super()._answered(request, emit), count=1).strip()

    def _concluding(self, view: View, output: int, prompt_limit: int | None = None) -> Request:
        summarizer = self._summarizer
        make = partial(self._answering, view, output=output, closing=summarizer.closing(view))
        return in_context(
            summarizer.model, _conversation(view), make, prompt_limit, role=summarizer.role
        )

    def _planning(self, view: View, conversation: Messages, task: str = "") -> Request:
        """The planner reads tools and history, and decides what is next unless it has another `task`."""
        planner = self._planner
        system, array = planner.equipped(view)
        request = Request(
            messages=(system, *_shared(planner, view, conversation)),
            tools=array,
            callable_now=planner.callable_schemas(view),
            want="text",
            endings=() if task else ENDINGS,
            max_tokens=self._max_tokens,
            repeatable=True,
            temperature=self._temperature,
        )
        return _tasked(request, task or planner.prompt("plan"))

    def _calling(self, view: View, wanted: str | FillTask, conversation: Messages) -> Request:
        """The caller reads tools, history and the planner's rationale, which a small model reads twice.

        For a node of a tool graph, it reads the history and which call of the graph is wanted.
        """
        caller = self._caller
        system, array = caller.equipped(view)
        if isinstance(wanted, FillTask):
            from ecoshell.modes.drafting import fill_text

            instruction = f"{caller.prompt('call')} " if caller.aids else ""
            rationale, task = (), f"{instruction}{fill_text(wanted)}"
        else:
            rationale = caller.planner_words(wanted, "caller")
            task = caller.prompt("call")
            if caller.aids:
                task = f"{task} {wanted}".strip()
        request = Request(
            messages=(system, *_shared(caller, view, conversation), *rationale),
            tools=array,
            callable_now=caller.callable_schemas(view),
            want="call",
            several=caller.native and not isinstance(wanted, FillTask),
            max_tokens=self._max_tokens,
            repeatable=True,
            temperature=self._temperature,
        )
        return _tasked(request, task)

    def _answering(
        self,
        view: View,
        conversation: Messages,
        output: int,
        *,
        ending: Messages = (),
        closing: str = "",
    ) -> Request:
        """The summarizer reads the history of the current path only.

        If it shares the planner's model, its prompt begins with the tools as well, which it does not use: otherwise
        nothing of the history would be cached.
        """
        summarizer = self._summarizer
        task = f"{summarizer.prompt('answer')}\n{closing}".strip()
        system, array = summarizer.equipped(view)
        if summarizer.model is not self._leader:
            system, array = Message("system", summarizer.system(view)), ()
        messages = (system, *summarizer.history(conversation), *ending)
        request = Request(
            messages,
            tools=array,
            want="text",
            max_tokens=output,
            repeatable=True,
            temperature=self._temperature,
            purpose="answer",
        )
        return _tasked(request, task)


def _conversation(view: View) -> Messages:
    """Earlier turns, and the path so far."""
    return (*view.history, *path_messages(view.opening, view.path))


async def _fitted(player: Player, view: View, make: Callable[[Messages], Request]) -> Request:
    """The request of a role, fitted to its context in a thread, since counting a long prompt takes time."""
    conversation = _conversation(view)
    return await asyncio.to_thread(in_context, player.model, conversation, make, role=player.role)


def _shared(player: Player, view: View, conversation: Messages) -> Messages:
    """What the planner and the caller both read: the history, and the steps tried from here."""
    history = player.history(conversation)
    return (
        with_task(history, siblings_message(view, "umi/tried").text) if view.siblings else history
    )


def _tasked(request: Request, task: str) -> Request:
    """The request with the role's task at its end."""
    return replace(request, messages=with_task(request.messages, task), task=f"{TASK_GAP}{task}")


def _call_in(reply: Reply, request: Request) -> tuple[Call | None, str]:
    """The call in the caller's reply, native or in its own format, or what is wrong with it.

    Calls of unknown tools pass, because the guards answer them with similar names.
    """
    call = reply.call or action_in(reply.text)
    if call is None:
        return None, reply.fault or "A call was wanted, and none was made."
    if call is reply.call or call.name not in {schema.name for schema in request.callable_now}:
        return call, ""
    fault = call_fault(call, request.callable_now)
    return (None, fault) if fault else (call, "")


def _concluded(answer: str, rationale: str = "") -> Thought:
    """The summarizer's answer; the planner's rationale was reported before."""
    return Thought(rationale, Call(FINISH, {"answer": answer}), by=SUMMARIZER, announced=True)


def _given_up(reason: str) -> Thought:
    return Thought("", Call(FINISH, {"answer": reason, "give_up": True}), by=PLANNER)

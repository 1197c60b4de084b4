"""Umi: the planner says what is next, the caller makes the call, the summarizer writes the answer (α-UMi §3.1).

All roles read the same lines of history, and their tasks come after it: where roles share a model, each finds cached
what the one before it was sent. A planner that makes the call or gives the answer itself is taken at its word, which
saves the other role's call.
"""

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from ecoshell.agent.context import path_messages
from ecoshell.agent.mode import Foreseen, View
from ecoshell.budget.gate import Hold
from ecoshell.events import Emit, Notice
from ecoshell.messages import FINISH, Call, Message
from ecoshell.models.base import Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.models.textcalls import call_fault
from ecoshell.modes.asking import Messages, broken_call, in_context, repair_request, tell_if_cut, unusable_call
from ecoshell.modes.prompts import prompt
from ecoshell.modes.roles import CALLER, PLANNER, SUMMARIZER
from ecoshell.modes.siblings import RANKER, ranking_request, tried_message, verdict
from ecoshell.modes.umi.decision import Decision, decision
from ecoshell.modes.umi.history import action_in, answer_in, lines, planned, with_task
from ecoshell.strategies.base import Thought

ASIDE_SLACK = 1024
"""Tokens by which the summarizer's prompt may outgrow what was set aside: one more step's rationale and result."""
_UNDECIDED = "The planner twice did not say how to go on."


@dataclass(frozen=True, slots=True)
class Trio:
    """The model of each role."""

    planner: MeteredModel
    caller: MeteredModel
    summarizer: MeteredModel

    @classmethod
    def of(cls, model: MeteredModel) -> "Trio":
        """One model in all three roles."""
        return cls(model, model, model)


class Umi:
    """Three roles, of which the planner thinks each step."""

    name = "umi"
    role = PLANNER

    def __init__(self, models: Trio, *, max_tokens: int, answer_tokens: int) -> None:
        """`max_tokens` bounds what the planner and the caller write, `answer_tokens` the summarizer's answer."""
        self._models = models
        self._max_tokens = max_tokens
        self._answer_tokens = answer_tokens
        self._aside: Hold | None = None
        self._system = Message("system", prompt("umi/roles"))

    @property
    def model(self) -> str:
        return self._models.planner.traits.name

    @property
    def aside(self) -> Hold | None:
        return self._aside

    def foresee(self, view: View) -> Foreseen:
        said, answer = _said(view), self._answering(_said(view), closing=prompt("conclude"))
        if view.closed:
            return Foreseen((answer,), answer, ASIDE_SLACK)
        return Foreseen((self._planning(view, said), self._calling(view, "", said)), answer, ASIDE_SLACK)

    async def set_aside(self, view: View) -> None:
        request = await asyncio.to_thread(self._concluding, view)  # counting a long prompt takes its time
        self._aside = await self._models.summarizer.set_aside(request, role=SUMMARIZER, slack=ASIDE_SLACK)

    async def release(self) -> None:
        if self._aside is not None:
            aside, self._aside = self._aside, None
            await self._models.summarizer.release(aside)

    async def think(self, view: View, emit: Emit) -> Thought:
        if view.closed:  # nothing may be called any more, so what is left is the answer
            return _finish(await self.conclude(view, emit))
        decided = await self._plan(view, emit)
        if isinstance(decided, Thought):
            return decided
        if decided.next == "give up":
            return _finish(decided.rationale or "The planner gave up and did not say why.", give_up=True)
        if decided.next == "conclusion":
            return await self._summarize(view, decided.rationale, emit)
        return await self._call(view, decided, emit)

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        reply = await self._models.planner.ask(ranking_request(view, one, other), emit, role=RANKER)
        return {"A": one, "B": other}.get(verdict(reply.text))

    async def conclude(self, view: View, emit: Emit) -> str:
        most = None if self._aside is None else self._aside.prompt_tokens
        return await self._answered(await asyncio.to_thread(self._concluding, view, most), emit)

    async def _plan(self, view: View, emit: Emit) -> Decision | Thought:
        """What the planner decides; the thought as it is where the planner itself made the call."""
        model = self._models.planner
        request = await asyncio.to_thread(in_context, model, _said(view), partial(self._planning, view))
        reply = await model.ask(request, emit, role=PLANNER)
        decided = decision(reply.text)
        if reply.call is None and decided.next is None:
            request = repair_request(request, reply, prompt("umi/undecided"))
            reply = await model.ask(request, emit, role=PLANNER)
            again = decision(reply.text)
            decided = again if again.next or again.rationale else decided
        tell_if_cut(reply, emit)
        return decided if reply.call is None else Thought(decided.rationale, reply.call)

    async def _call(self, view: View, decided: Decision, emit: Emit) -> Thought:
        """The caller's call, also for a planner that did not say how to go on; giving up where none can be made."""
        model, make = self._models.caller, partial(self._calling, view, decided.rationale)
        request = await asyncio.to_thread(in_context, model, _said(view), make)
        if not request.callable_now:
            return _finish(f"There is no tool to call. {decided.rationale}".strip(), give_up=True)
        if decided.next is None:
            emit(Notice(f"{_UNDECIDED} The caller makes what it can of it."))
        reply = await model.ask(request, emit, role=CALLER)
        call, fault = _made(reply, request)
        if call is None:
            reply = await model.ask(repair_request(request, reply, unusable_call(fault)), emit, role=CALLER)
            call, fault = _made(reply, request)
        tell_if_cut(reply, emit)
        if call is not None:
            return Thought(decided.rationale, call)
        if decided.next is None:
            return _finish(f"{_UNDECIDED} {decided.rationale}".strip(), give_up=True)
        raise broken_call(model, fault)

    async def _summarize(self, view: View, rationale: str, emit: Emit) -> Thought:
        """The end the planner decided on."""
        model, ending = self._models.summarizer, planned(rationale, "conclusion")
        make = partial(self._answering, ending=(ending,))
        request = await asyncio.to_thread(in_context, model, _said(view), make)
        return _finish(await self._answered(request, emit), rationale)

    async def _answered(self, request: Request, emit: Emit) -> str:
        """What the summarizer writes, paid from what was set aside."""
        reply = await self._models.summarizer.ask(request, emit, role=SUMMARIZER, aside=self._aside)
        self._aside = None  # until here it is for `release` to give back
        tell_if_cut(reply, emit)
        if reply.call is not None and reply.call.name == FINISH:
            return str(reply.call.arguments.get("answer", ""))
        return answer_in(reply.text)

    def _concluding(self, view: View, most: int | None = None) -> Request:
        """The answer that is asked for early, within so many tokens of prompt."""
        return in_context(
            self._models.summarizer, _said(view), partial(self._answering, closing=prompt("conclude")), most
        )

    def _planning(self, view: View, said: Messages) -> Request:
        """The planner sees tools and history; without tool calls of its own it reads the documents as text."""
        array = view.presentation.array(view.registered, large=view.large)
        system = self._system
        if not self._models.planner.traits.native_tools:
            documents = "\n".join(document.as_text() for document in array if document.name != FINISH)
            system, array = replace(system, text=f"{system.text}\n\nTools:\n{documents}"), ()
        messages = with_task(_shared(view, said), prompt("umi/planner"))
        return Request((system, *messages), tools=array, want="text", max_tokens=self._max_tokens)

    def _calling(self, view: View, rationale: str, said: Messages) -> Request:
        """The caller sees tools, history with the rationale, and the rationale once more."""
        array = view.presentation.array(view.registered, large=view.large)
        shown = {document.name for document in array}
        may = (*array, *(document for document in view.registered if document.name not in shown))
        thought = planned(rationale, "caller")
        task = f"{prompt('umi/caller')} {rationale}".strip()
        return Request(
            messages=(self._system, *with_task((*_shared(view, said), thought), task)),
            tools=array,
            callable_now=tuple(one for one in may if one.name != FINISH and one.name not in view.forbidden),
            want="call",
            max_tokens=self._max_tokens,
        )

    def _answering(self, said: Messages, *, ending: Messages = (), closing: str = "") -> Request:
        """The summarizer sees the history alone: no tools, and nothing of what was tried on other ways."""
        task = f"{prompt('umi/summarizer')}\n{closing}".strip()
        messages = (self._system, *with_task((*lines(said), *ending), task))
        return Request(messages, want="text", max_tokens=self._answer_tokens, purpose="answer")


def _said(view: View) -> Messages:
    """Earlier turns, and the path so far."""
    return (*view.history, *path_messages(view.opening, view.path))


def _shared(view: View, said: Messages) -> Messages:
    """What the planner and the caller read alike: the history, and what was tried from here."""
    told = lines(said)
    return with_task(told, tried_message(view, "umi/tried").text) if view.tried else told


def _made(reply: Reply, request: Request) -> tuple[Call | None, str]:
    """The call in the caller's reply, native or in its own format; else what is wrong with it.

    A tool that was invented is for the guards to answer, who know the names that come near.
    """
    call = reply.call or action_in(reply.text)
    if call is None:
        return None, reply.fault or "A call was wanted, and none was made."
    if call is reply.call or call.name not in {document.name for document in request.callable_now}:
        return call, ""
    fault = call_fault(call, request.callable_now)
    return (None, fault) if fault else (call, "")


def _finish(answer: str, rationale: str = "", *, give_up: bool = False) -> Thought:
    arguments: dict[str, object] = {"answer": answer, "give_up": True} if give_up else {"answer": answer}
    return Thought(rationale, Call(FINISH, arguments))

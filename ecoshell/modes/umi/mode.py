"""Umi: the planner says what is next, the caller makes the call, the summarizer writes the answer (α-UMi §3.1).

All roles read the same lines of history, and their tasks come after it: where roles share a model, each finds cached
what the one before it was sent, tools included. A planner that makes the call or gives the answer itself is taken at
its word, which saves the other role's call.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ecoshell.agent.memory import path_messages
from ecoshell.agent.model_set import DraftTask, FillTask, Foreseen, ForeseenCall, View
from ecoshell.budget import Hold
from ecoshell.events import Emit, Notice, Rationale
from ecoshell.messages import FINISH, Call, Message, ToolDocument
from ecoshell.models import Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.models.protocol import call_fault
from ecoshell.modes import (
    CALLER,
    PLANNER,
    RANKER,
    SUMMARIZER,
    UNUSABLE,
    Messages,
    ask_for_draft,
    broken_call,
    callable_documents,
    drafted,
    fill_text,
    filled,
    in_context,
    prompt,
    ranking_request,
    repair_request,
    tell_if_cut,
    thought_of,
    tried_message,
    verdict,
    with_question,
)
from ecoshell.modes.umi.history import (
    ENDINGS,
    TASK_GAP,
    Decision,
    action_in,
    answer_in,
    decision,
    lines,
    planned,
    with_task,
)
from ecoshell.strategies import Path, Thought, Tried

ASIDE_SLACK = 1024
"""Tokens by which the summarizer's prompt may outgrow what was set aside: one more step's rationale and result."""
_UNDECIDED = "The planner twice did not say how to go on."


@dataclass(frozen=True, slots=True)
class Trio:
    """The model of each role."""

    planner: MeteredModel
    caller: MeteredModel
    summarizer: MeteredModel


class Umi:
    """Three roles, of which the planner thinks each step."""

    name = "umi"
    role = PLANNER

    def __init__(
        self,
        models: Trio,
        *,
        max_tokens: int,
        answer_tokens: int,
        temperature: float | None = 0.0,
    ) -> None:
        """`max_tokens` bounds what the planner and the caller write, `answer_tokens` the summarizer's answer.

        `temperature` is that of all three, as in `Request`.
        """
        self._models = models
        self.model = models.planner.traits.name
        self.aside: Hold | None = None
        self._max_tokens = max_tokens
        self._answer_tokens = answer_tokens
        self._temperature = temperature
        self._standing: tuple[Path, tuple[Tried, ...], Decision] | None = None
        """A decision that is not carried out yet, with the path and the siblings it was made for."""
        self._system = Message("system", prompt("umi/roles"))

    def foresee(self, view: View) -> Foreseen:
        said = _said(view)
        asked = self._answering(view, said, closing=with_question("conclude", view.path.question))
        answering = ForeseenCall(asked, self._models.summarizer, SUMMARIZER)
        if view.closed:
            return Foreseen((answering,), answering, ASIDE_SLACK)
        planning = ForeseenCall(self._planning(view, said), self._models.planner, PLANNER)
        calling = ForeseenCall(self._calling(view, "", said), self._models.caller, CALLER)
        return Foreseen((planning, calling), answering, ASIDE_SLACK, ending=(planning, answering))

    async def set_aside(self, view: View) -> None:
        request = await self._concluding(view)
        self.aside = await self._models.summarizer.set_aside(request, role=SUMMARIZER, slack=ASIDE_SLACK)

    async def release(self) -> None:
        self._standing = None
        if self.aside is not None:
            aside, self.aside = self.aside, None
            await self._models.summarizer.release(aside)

    async def think(self, view: View, emit: Emit) -> Thought:
        if view.closed:  # nothing may be called any more, so what is left is the answer
            return _concluded(await self.conclude(view, emit))
        decided = self._kept(view) or await self._plan(view, emit)
        return decided if isinstance(decided, Thought) else await self._carried_out(view, decided, emit)

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        reply = await self._models.planner.ask(ranking_request(view, one, other), emit, role=RANKER)
        return {"A": one, "B": other}.get(verdict(reply.text))

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        kept = self._kept(view)
        if kept is not None:
            return await self._carried_out(view, kept, emit)
        planner = self._models.planner
        reply = await ask_for_draft(
            planner,
            task,
            lambda text: _fitted(planner, PLANNER, view, partial(self._planning, view, task=text)),
            emit,
            role=PLANNER,
        )
        found = drafted(reply)
        decided = None if isinstance(found, Thought) or "[" in found else decision(found)
        if decided is not None and decided.next in ("conclusion", "give up"):
            return await self._carried_out(view, decided, emit)
        return found

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        model = self._models.caller
        request = await _fitted(model, CALLER, view, partial(self._calling, view, task))
        call, fault = await filled(request, task.document, partial(model.ask, emit=emit, role=CALLER), _made)
        if call is None or fault:
            raise broken_call(model, f"for {task.document.name}: {fault}")
        return call

    async def conclude(self, view: View, emit: Emit) -> str:
        most = None if self.aside is None else self.aside.prompt_tokens
        return await self._answered(await self._concluding(view, most), emit)

    async def _carried_out(self, view: View, decided: Decision, emit: Emit) -> Thought:
        """What comes of a decision; where a limit stands in its way, it is kept and not bought again."""
        if self._kept(view) is None:
            self._standing = (view.path, view.tried, decided)
            if decided.next == "conclusion" and decided.rationale:
                emit(Rationale(decided.rationale, PLANNER))  # it comes before the answer that is written because of it
        if decided.next == "conclusion":
            make = partial(self._answering, view, ending=(planned(decided.rationale, "conclusion"),))
            request = await _fitted(self._models.summarizer, SUMMARIZER, view, make)
            thought = _concluded(await self._answered(request, emit), decided.rationale)
        elif decided.next == "give up":
            thought = _given_up(decided.rationale or "The planner gave up and did not say why.")
        else:
            thought = await self._call(view, decided, emit)
        self._standing = None
        return thought

    def _kept(self, view: View) -> Decision | None:
        """What the planner has decided here already, and could not be carried out."""
        path, tried, decided = self._standing or (None, (), None)
        return decided if (path, tried) == (view.path, view.tried) else None

    async def _plan(self, view: View, emit: Emit) -> Decision | Thought:
        """What the planner decides; the thought as it is where the planner itself made the call."""
        model = self._models.planner
        request = await _fitted(model, PLANNER, view, partial(self._planning, view))
        reply = await model.ask(request, emit, role=PLANNER)
        decided = decision(reply.text)
        if reply.call is None and decided.next is None:
            request = repair_request(request, reply, prompt("umi/undecided"))
            reply = await model.ask(request, emit, role=PLANNER)
            again = decision(reply.text)
            decided = again if again.next or again.rationale else decided
        tell_if_cut(reply, emit)
        return decided if reply.call is None else replace(thought_of(reply, by=PLANNER), rationale=decided.rationale)

    async def _call(self, view: View, decided: Decision, emit: Emit) -> Thought:
        """The caller's calls, also for a planner that did not say how to go on; giving up where none can be made.

        Raises CallBroken where the caller twice made none of what the planner wants.
        """
        model, rationale = self._models.caller, decided.rationale
        if not _callable(view, model):
            return _given_up(f"There is no tool to call. {rationale}".strip())
        if decided.next is None:
            emit(Notice(f"{_UNDECIDED} The caller makes what it can of it."))
        request = await _fitted(model, CALLER, view, partial(self._calling, view, rationale))
        reply = await model.ask(request, emit, role=CALLER)
        call, fault = _made(reply, request)
        if call is None:
            reply = await model.ask(repair_request(request, reply, UNUSABLE.format(fault)), emit, role=CALLER)
            call, fault = _made(reply, request)
        tell_if_cut(reply, emit)
        if call is not None:
            return Thought(rationale, call, by=CALLER, more=thought_of(reply).more)
        if decided.next is not None:
            raise broken_call(model, fault, reply.attempt or action_in(reply.text))
        return _given_up(f"{_UNDECIDED} {rationale}".strip())

    async def _answered(self, request: Request, emit: Emit) -> str:
        """What the summarizer writes, paid from what was set aside."""
        reply = await self._models.summarizer.ask(request, emit, role=SUMMARIZER, aside=self.aside)
        self.aside = None  # until here it is for `release` to give back
        tell_if_cut(reply, emit)
        if reply.call is not None and reply.call.name == FINISH:
            return str(reply.call.arguments.get("answer", ""))
        return answer_in(reply.text)

    async def _concluding(self, view: View, most: int | None = None) -> Request:
        """The answer that is asked for early, within so many tokens of prompt."""
        make = partial(self._answering, view, closing=with_question("conclude", view.path.question))
        return await _fitted(self._models.summarizer, SUMMARIZER, view, make, most)

    def _planning(self, view: View, said: Messages, task: str = "") -> Request:
        """The planner sees tools and history, and says who is next, unless it has another task."""
        system, array = self._equipped(view, self._models.planner)
        endings = () if task else ENDINGS
        told = Request((system, *_shared(view, said)), tools=array, want="text", endings=endings)
        told = replace(told, max_tokens=self._max_tokens, temperature=self._temperature)
        return _tasked(told, task or prompt("umi/planner"))

    def _calling(self, view: View, wanted: str | FillTask, said: Messages) -> Request:
        """The caller sees tools, history with the rationale, and the rationale once more.

        For a node of a plan, it sees what stands before that, and which call of its plan is wanted.
        """
        system, array = self._equipped(view, self._models.caller)
        rationale = () if isinstance(wanted, FillTask) else (planned(wanted, "caller"),)
        task = fill_text(wanted) if isinstance(wanted, FillTask) else wanted
        told = Request(
            messages=(system, *_shared(view, said), *rationale),
            tools=array,
            callable_now=_callable(view, self._models.caller),
            want="call",
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )
        return _tasked(told, f"{prompt('umi/caller')} {task}".strip())

    def _answering(self, view: View, said: Messages, *, ending: Messages = (), closing: str = "") -> Request:
        """The summarizer sees the history, and nothing of what was tried on other ways.

        It has no use for tools. Where it is the planner's model, they stand before the history all the same: what that
        model has cached begins with them, and without them the whole history would be read anew.
        """
        model, task = self._models.summarizer, f"{prompt('umi/summarizer')}\n{closing}".strip()
        system, array = self._equipped(view, model) if model is self._models.planner else (self._system, ())
        messages = (system, *lines(said), *ending)
        told = Request(messages, tools=array, want="text", max_tokens=self._answer_tokens, purpose="answer")
        return _tasked(replace(told, temperature=self._temperature), task)

    def _equipped(self, view: View, model: MeteredModel) -> tuple[Message, tuple[ToolDocument, ...]]:
        """How a prompt begins, the same in all roles of a model: the tool array, and the system's text.

        A model without tool calls of its own has the documents in the text, and how the caller is to write.
        """
        array = view.array
        if model.traits.native_tools:
            return self._system, array
        documents = "\n".join(document.as_text() for document in array if document.name != FINISH)
        text = f"{self._system.text}\n\n{prompt('umi/written')}\n\nTools:\n{documents}"
        return replace(self._system, text=text), ()


def _said(view: View) -> Messages:
    """Earlier turns, and the path so far."""
    return (*view.history, *path_messages(view.opening, view.path))


async def _fitted(
    model: MeteredModel, role: str, view: View, make: Callable[[Messages], Request], most: int | None = None
) -> Request:
    """The request of a role, cut where it must be; counting a long prompt takes its time."""
    return await asyncio.to_thread(in_context, model, _said(view), make, most, role=role)


def _shared(view: View, said: Messages) -> Messages:
    """What the planner and the caller read alike: the history, and what was tried from here."""
    told = lines(said)
    return with_task(told, tried_message(view, "umi/tried").text) if view.tried else told


def _tasked(told: Request, task: str) -> Request:
    """The request with what the role is to do at its end; before that stands what other roles are sent as well."""
    return replace(told, messages=with_task(told.messages, task), task=f"{TASK_GAP}{task}")


def _callable(view: View, caller: MeteredModel) -> tuple[ToolDocument, ...]:
    """What the caller may call now: all but the end of a turn, which is the planner's to say."""
    may = callable_documents(view, held=caller.traits.calls_undeclared)
    return tuple(one for one in may if one.name != FINISH)


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


def _concluded(answer: str, rationale: str = "") -> Thought:
    """The summarizer's answer; why the planner wanted it was told before it was written."""
    return Thought(rationale, Call(FINISH, {"answer": answer}), by=SUMMARIZER, told=True)


def _given_up(why: str) -> Thought:
    return Thought("", Call(FINISH, {"answer": why, "give_up": True}), by=PLANNER)

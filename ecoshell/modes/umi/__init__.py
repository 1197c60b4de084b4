"""The umi mode (α-UMi §3.1): a planner says what is next, a caller makes the call, a summarizer writes the answer.

All roles read the same lines of history, and their tasks come after it: where roles share a model, each finds cached
what the one before it was sent, tools included. A planner that makes the call or gives the answer itself is taken at
its word, which saves the other role's call.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

from ecoshell.agent.memory import path_messages
from ecoshell.agent.model_set import DraftTask, FillTask, Foreseen, ForeseenCall, View
from ecoshell.events import Emit, Notice, Rationale
from ecoshell.messages import FINISH, Call, Image, Message, ToolDocument
from ecoshell.models import Reply, Request
from ecoshell.models.formats import refuse_constant
from ecoshell.models.metered import MeteredModel
from ecoshell.models.protocol import call_fault, one_call_each, too_deep
from ecoshell.modes import (
    ASIDE_SLACK,
    CALLER,
    PLANNER,
    SUMMARIZER,
    UNUSABLE,
    BaseMode,
    Messages,
    ask_for_draft,
    broken_call,
    callable_documents,
    fill_text,
    filled,
    in_context,
    prompt,
    repair_request,
    tell_if_cut,
    thought_of,
    tried_message,
    with_question,
)
from ecoshell.strategies import Path, Thought, Tried

_UNDECIDED = "The planner twice did not say how to go on."

# The lines that all roles read (SPEC §4), and what is read from theirs: who goes on, a call, an answer. Small models
# forget dots, change the case, add words and go on to play the other roles. What follows on from a line that only
# another role could have begun is not the planner's; of several decisions the order of SPEC §4 chooses.

Next = Literal["caller", "conclusion", "give up"]

ENDINGS = ("Next: caller.", "Next: conclusion.", "Next: give up.")
"""How a planner's text ends, as its prompt says."""
_SIGN = re.compile(
    r"\bnext(?:\s(?:step|role|turn))?[*_`\"')\s]{0,4}[:=→–—-][^\w\n]{0,8}(?:the\s)?"
    r"(?:(?P<give_up>give[\s_-]?up|giving\sup)|(?P<conclusion>conclu(?:de|sion)|summari[sz]er?|finish)"
    r"|(?P<caller>call(?:er)?))\b[^\w\n]{0,4}",
    re.IGNORECASE,
)
_WHOLE_LINE = re.compile(
    r"^\W*(?:(?P<give_up>give[\s_-]?up)|(?P<conclusion>conclusion|summarizer)|(?P<caller>caller))\W*$", re.IGNORECASE
)
_OWN_NAME = re.compile(r"^\s*(?:assistant|planner)\s*:\s*", re.IGNORECASE)
_OTHERS = re.compile(r"^[ \t]*(?:caller|observation|user|conclusion|summarizer)\s*:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the planner wants done, and why."""

    rationale: str
    next: Next | None
    """None where the text does not say."""


def decision(text: str) -> Decision:
    """What the planner's text decides: give up before conclusion before caller; never raises."""
    text = _OWN_NAME.sub("", text, count=1)
    foreign = _OTHERS.search(text)  # from where on the planner speaks for another role
    own = (text[: foreign.start()] if foreign else "").strip() or text
    if signs := list(_SIGN.finditer(own)):
        rationale = own[: signs[0].start()].strip(" \n*_`")
    else:
        before, _, last = own.rstrip().rpartition("\n")
        alone = _WHOLE_LINE.match(last)
        if alone is None:
            return Decision(own.strip(), None)
        rationale, signs = before.strip(), [alone]
    if any(sign["give_up"] for sign in signs):
        return Decision(rationale, "give up")
    return Decision(rationale, "conclusion" if any(sign["conclusion"] for sign in signs) else "caller")


_ACTION = re.compile(r"Action:[ \t]*[\"'`*]{0,3}([\w.:/-]+)[\"'`*,]{0,4}\s*Action[ _]Input:\s*", re.IGNORECASE)
TASK_GAP = "\n\n"
"""Between what the user says last and a role's task, where both are one message."""
_ANSWER_NAME = re.compile(r"^\s*(?:conclusion|summarizer|answer)\s*:\s*", re.IGNORECASE)


def lines(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Messages of turns and paths as the roles read them; what the planner did not write speaks as the user."""
    told: list[Message] = []
    for message in one_call_each(messages):
        if message.speaker == "system":
            told.append(message)
        elif message.speaker == "user":
            _tell(told, f"user: {message.text}", images=message.images)
        elif message.speaker == "tool":
            _tell(told, f"observation: {message.text}", images=message.images)
        elif message.call is None:
            told.append(Message("assistant", f"conclusion: {message.text}"))
        else:
            told.append(planned(message.text, "caller"))
            _tell(told, f"caller: {action_text(message.call)}")
    return tuple(told)


def planned(rationale: str, following: Next) -> Message:
    """The planner's line."""
    said = f"{rationale} Next: {following}." if rationale else f"Next: {following}."
    return Message("assistant", f"assistant: {said}")


def with_task(told: tuple[Message, ...], task: str) -> tuple[Message, ...]:
    """The lines, and after them what the role is to do; last, so that all roles share the prompt before it."""
    messages = list(told)
    _tell(messages, task, gap=TASK_GAP)
    return tuple(messages)


def action_text(call: Call) -> str:
    """A call as the caller writes it."""
    return f"Action: {call.name}\nAction Input: {json.dumps(dict(call.arguments), ensure_ascii=False)}"


def action_in(text: str) -> Call | None:
    """The call that a text in the caller's own format makes, if it can be read; never raises."""
    found = _ACTION.search(text)
    if found is None:
        return None
    begin = text.find("{", found.end())
    if begin < 0 or text[found.end() : begin].strip("`\"' \njson"):
        return None
    try:
        value, _ = json.JSONDecoder(parse_constant=refuse_constant).raw_decode(text[begin:])
    except (ValueError, RecursionError):
        return None
    if too_deep(value):
        return None
    return Call(found[1], cast("dict[str, Any]", value))


def _tell(told: list[Message], text: str, gap: str = "\n", images: tuple[Image, ...] = ()) -> None:
    """Add to what the user says last, so that user and assistant take turns, as some models demand."""
    if told and told[-1].speaker == "user":
        last = told.pop()
        text, images = f"{last.text}{gap}{text}", (*last.images, *images)
    told.append(Message("user", text, images=images))


class Umi(BaseMode):
    """Three roles, of which the planner thinks each step."""

    name = "umi"
    role = PLANNER
    answer_role = SUMMARIZER

    def __init__(
        self,
        planner: MeteredModel,
        caller: MeteredModel,
        summarizer: MeteredModel,
        *,
        max_tokens: int,
        answer_tokens: int,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(
            planner, summarizer, max_tokens=max_tokens, answer_tokens=answer_tokens, temperature=temperature
        )
        self._caller = caller
        self._standing: tuple[Path, tuple[Tried, ...], Decision] | None = None
        """A decision that is not carried out yet, with the path and the siblings it was made for."""
        self._system = Message("system", prompt("umi/roles"))

    def foresee(self, view: View) -> Foreseen:
        said = _said(view)
        asked = self._answering(view, said, closing=with_question("conclude", view.path.question))
        answering = ForeseenCall(asked, self._answerer, SUMMARIZER)
        if view.closed:
            return Foreseen((answering,), answering, ASIDE_SLACK)
        planning = ForeseenCall(self._planning(view, said), self._leader, PLANNER)
        calling = ForeseenCall(self._calling(view, "", said), self._caller, CALLER)
        return Foreseen((planning, calling), answering, ASIDE_SLACK, ending=(planning, answering))

    async def release(self) -> None:
        self._standing = None
        await super().release()

    async def think(self, view: View, emit: Emit) -> Thought:
        if view.closed:  # nothing may be called any more, so what is left is the answer
            return _concluded(await self.conclude(view, emit))
        decided = self._kept(view) or await self._plan(view, emit)
        return decided if isinstance(decided, Thought) else await self._carried_out(view, decided, emit)

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        kept = self._kept(view)
        if kept is not None:
            return await self._carried_out(view, kept, emit)
        found = await ask_for_draft(
            self._leader,
            task,
            lambda text: _fitted(self._leader, PLANNER, view, partial(self._planning, view, task=text)),
            emit,
            role=PLANNER,
        )
        decided = None if isinstance(found, Thought) or "[" in found else decision(found)
        if decided is not None and decided.next in ("conclusion", "give up"):
            return await self._carried_out(view, decided, emit)
        return found

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        model = self._caller
        request = await _fitted(model, CALLER, view, partial(self._calling, view, task))
        return await filled(request, task.document, model, partial(model.ask, emit=emit, role=CALLER), _made)

    async def _carried_out(self, view: View, decided: Decision, emit: Emit) -> Thought:
        """What comes of a decision; where a limit stands in its way, it is kept and not bought again."""
        if self._kept(view) is None:
            self._standing = (view.path, view.tried, decided)
            if decided.next == "conclusion" and decided.rationale:
                emit(Rationale(decided.rationale, PLANNER))  # it comes before the answer that is written because of it
        if decided.next == "conclusion":
            make = partial(self._answering, view, ending=(planned(decided.rationale, "conclusion"),))
            request = await _fitted(self._answerer, SUMMARIZER, view, make)
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
        model = self._leader
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
        model, rationale = self._caller, decided.rationale
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
        """What the summarizer writes, without the name its line has in the history."""
        return _ANSWER_NAME.sub("", await super()._answered(request, emit), count=1).strip()

    async def _concluding(self, view: View, most: int | None = None) -> Request:
        make = partial(self._answering, view, closing=with_question("conclude", view.path.question))
        return await _fitted(self._answerer, SUMMARIZER, view, make, most)

    def _planning(self, view: View, said: Messages, task: str = "") -> Request:
        """The planner sees tools and history, and says who is next, unless it has another task."""
        system, array = self._equipped(view, self._leader)
        endings = () if task else ENDINGS
        told = Request(
            messages=(system, *_shared(view, said)),
            tools=array,
            callable_now=_callable(view, self._leader),
            want="text",
            endings=endings,
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )
        return _tasked(told, task or prompt("umi/planner"))

    def _calling(self, view: View, wanted: str | FillTask, said: Messages) -> Request:
        """The caller sees tools, history with the rationale, and the rationale once more.

        For a node of a plan, it sees what stands before that, and which call of its plan is wanted.
        """
        system, array = self._equipped(view, self._caller)
        rationale = () if isinstance(wanted, FillTask) else (planned(wanted, "caller"),)
        task = fill_text(wanted) if isinstance(wanted, FillTask) else wanted
        told = Request(
            messages=(system, *_shared(view, said), *rationale),
            tools=array,
            callable_now=_callable(view, self._caller),
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
        model, task = self._answerer, f"{prompt('umi/summarizer')}\n{closing}".strip()
        system, array = self._equipped(view, model) if model is self._leader else (self._system, ())
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

"""The umi mode (α-UMi §3.1): a planner says what is next, a caller makes the calls, a summarizer writes the answer.

All roles read the same history, and their tasks come after it: where roles share a model, each finds cached what the
one before it was sent, tools included. A capable model with tool calls of its own reads messages, every other one reads
lines of text. A planner that makes the calls itself is taken at its word, which saves the caller's reply.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, cast

from ecoshell.agent.memory import path_messages
from ecoshell.agent.model_set import DraftTask, FillTask, Foreseen, ForeseenCall, View
from ecoshell.events import Emit, Notice, Rationale
from ecoshell.messages import FINISH, Call, Image, Message, ToolDocument
from ecoshell.models import Reply, Request
from ecoshell.models.formats import refuse_constant
from ecoshell.models.metered import MeteredModel
from ecoshell.models.protocol import call_fault, exchanges, too_deep
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
    system_text,
    tell_if_cut,
    thought_of,
    tried_message,
)
from ecoshell.modes.replies import completed, with_content
from ecoshell.modes.small import limited_registration, small_model_aids, with_question
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


def own_decision(text: str) -> Decision:
    """What a capable planner decides: its last sign; all the rest of its words are the rationale."""
    signs = [*_SIGN.finditer(text)]
    if not signs:
        return decision(text)
    last = signs[-1]
    following: Next = "give up" if last["give_up"] else "conclusion" if last["conclusion"] else "caller"
    return Decision(f"{text[: last.start()]}{text[last.end() :]}".strip(" \n*_`"), following)


_ACTION = re.compile(r"Action:[ \t]*[\"'`*]{0,3}([\w.:/-]+)[\"'`*,]{0,4}\s*Action[ _]Input:\s*", re.IGNORECASE)
TASK_GAP = "\n\n"
"""Between what the user says last and a role's task, where both are one message."""
_ANSWER_NAME = re.compile(r"^\s*(?:conclusion|summarizer|answer)\s*:\s*", re.IGNORECASE)


def lines(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Messages of turns and paths as the roles read them; what the planner did not write speaks as the user."""
    told: list[Message] = []
    for message, results in exchanges(messages):
        if message.speaker == "system":
            told.append(message)
        elif message.speaker == "user":
            _tell(told, f"user: {message.text}", images=message.images)
        elif message.speaker == "tool":
            _tell(told, f"observation: {message.text}", images=message.images)
        elif not message.calls:
            told.append(Message("assistant", f"conclusion: {message.text}"))
        else:
            told.append(planned(message.text, "caller"))
            for call, result in zip_longest(message.calls, results):
                _tell(told, f"caller: {action_text(call)}")
                if result is not None:
                    _tell(told, f"observation: {result.text}", images=result.images)
    return tuple(told)


def spoken(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages, with the planner's words in what the caller's provider expects back."""
    told: list[Message] = []
    for message in messages:
        content = message.state.message.get("content") if message.state else None
        if message.calls and message.state and message.text and message.text not in (content or ""):
            words = "\n\n".join(filter(None, (message.text, content)))
            message = replace(message, state=with_content(message.state, words))  # noqa: PLW2901
        told.append(message)
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


class Player:
    """The model of one role, and the form of its requests."""

    def __init__(self, role: str, model: MeteredModel) -> None:
        self.role = role
        self.model = model
        self.aids = small_model_aids(model.traits)
        self.native = self.aids is None and model.traits.native_tools
        """Whether it reads messages and tool calls; else it reads lines of text."""

    def prompt(self, capable: str, small: str) -> str:
        """The prompt for this kind of model."""
        return prompt(f"umi/{small if self.aids else capable}")

    def decision(self, text: str) -> Decision:
        return decision(text) if self.aids else own_decision(text)

    def history(self, messages: Messages) -> Messages:
        """Turns and paths as this model reads them."""
        return spoken(messages) if self.native else lines(messages)

    def words(self, rationale: str, following: Next) -> Messages:
        """What the planner said just now, as this model reads it."""
        if not self.native:
            return (planned(rationale, following),)
        return (Message("assistant", rationale),) if rationale else ()

    def system(self, view: View) -> str:
        if self.aids:
            return prompt("umi/roles")
        return f"{system_text(view.presentation)}\n\n{prompt('umi/system')}"

    def equipped(self, view: View) -> tuple[Message, tuple[ToolDocument, ...]]:
        """How a prompt begins, the same in all roles of a model: the system text, and the tool array.

        A model without tool calls of its own has the documents in the text, and how the caller is to write.
        """
        array, text = view.array, self.system(view)
        if self.model.traits.native_tools:
            return Message("system", text), array
        documents = "\n".join(document.as_text() for document in array if document.name != FINISH)
        return Message("system", f"{text}\n\n{prompt('umi/written')}\n\nTools:\n{documents}"), ()

    def closing(self, view: View) -> str:
        """The request for an answer when nothing more can be done."""
        return with_question("conclude", view.path.question) if self.aids else prompt("answer_now")

    def callable_documents(self, view: View) -> tuple[ToolDocument, ...]:
        """What the caller may call now: all but the end of a turn, which is the planner's to say."""
        documents = callable_documents(view)
        if self.aids is not None and self.aids.grammar:
            documents = limited_registration(view, documents)
        return tuple(document for document in documents if document.name != FINISH)


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
        self._planner = Player(PLANNER, planner)
        self._caller = Player(CALLER, caller)
        self._summarizer = Player(SUMMARIZER, summarizer)
        self.by_program = self._caller.aids is not None and self._caller.aids.by_program
        self._standing: tuple[Path, tuple[Tried, ...], Decision] | None = None
        """A decision that is not carried out yet, with the path and the siblings it was made for."""

    @property
    def _longest_answer(self) -> int:
        return self._answer_tokens if self._summarizer.aids else self._max_tokens

    async def _completed(self, reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str) -> Reply:
        player = {PLANNER: self._planner, CALLER: self._caller}.get(role, self._summarizer)
        if player.aids is None:
            return await completed(reply, request, model, emit, role=role)
        tell_if_cut(reply, emit)
        return reply

    def foresee(self, view: View) -> Foreseen:
        said = _said(view)
        asked = self._answering(view, said, self._answer_tokens, closing=self._summarizer.closing(view))
        answering = ForeseenCall(asked, self._answerer, SUMMARIZER)
        if view.closed:
            return Foreseen((answering,), answering, ASIDE_SLACK)
        planning = ForeseenCall(self._planning(view, said), self._leader, PLANNER)
        calling = ForeseenCall(self._calling(view, "", said), self._caller.model, CALLER)
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
        planner = self._planner
        found = await ask_for_draft(
            planner.model,
            task,
            lambda text: _fitted(planner, view, partial(self._planning, view, task=text)),
            partial(self._ask, planner.model, emit=emit, role=PLANNER),
        )
        decided = None if isinstance(found, Thought) or "[" in found else planner.decision(found)
        if decided is not None and decided.next in ("conclusion", "give up"):
            return await self._carried_out(view, decided, emit)
        return found

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        model = self._caller.model
        request = await _fitted(self._caller, view, partial(self._calling, view, task))
        return await filled(request, task.document, model, partial(self._ask, model, emit=emit, role=CALLER), _made)

    async def _carried_out(self, view: View, decided: Decision, emit: Emit) -> Thought:
        """What comes of a decision; where a limit stands in its way, it is kept and not bought again."""
        if self._kept(view) is None:
            self._standing = (view.path, view.tried, decided)
            if decided.next == "conclusion" and decided.rationale:
                emit(Rationale(decided.rationale, PLANNER))  # it comes before the answer that is written because of it
        if decided.next == "conclusion":
            ending = self._summarizer.words(decided.rationale, "conclusion")
            make = partial(self._answering, view, output=self._longest_answer, ending=ending)
            request = await _fitted(self._summarizer, view, make)
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
        """What the planner decides; the thought as it is where the planner itself made the calls."""
        planner = self._planner
        request = await _fitted(planner, view, partial(self._planning, view))
        reply = await self._ask(planner.model, request, emit, role=PLANNER)
        decided = planner.decision(reply.text)
        if reply.call is None and decided.next is None:
            repair = repair_request(request, reply, prompt("umi/undecided"))
            reply = await self._ask(planner.model, self._repair(planner, repair), emit, role=PLANNER)
            again = planner.decision(reply.text)
            decided = again if again.next or again.rationale else decided
        return decided if reply.call is None else replace(thought_of(reply, by=PLANNER), rationale=decided.rationale)

    async def _call(self, view: View, decided: Decision, emit: Emit) -> Thought:
        """The caller's calls, also for a planner that did not say how to go on; giving up where none can be made.

        Raises CallBroken where the caller twice made none of what the planner wants.
        """
        caller, rationale = self._caller, decided.rationale
        if not caller.callable_documents(view):
            return _given_up(f"There is no tool to call. {rationale}".strip())
        if decided.next is None:
            emit(Notice(f"{_UNDECIDED} The caller makes what it can of it."))
        request = await _fitted(caller, view, partial(self._calling, view, rationale))
        reply = await self._ask(caller.model, request, emit, role=CALLER)
        call, fault = _made(reply, request)
        if call is None:
            repair = repair_request(request, reply, UNUSABLE.format(fault))
            reply = await self._ask(caller.model, self._repair(caller, repair), emit, role=CALLER)
            call, fault = _made(reply, request)
        if call is not None:
            return Thought(rationale, call, by=CALLER, more=thought_of(reply).more, state=reply.state)
        if decided.next is not None:
            raise broken_call(caller.model, fault, reply.attempt or action_in(reply.text))
        return _given_up(f"{_UNDECIDED} {rationale}".strip())

    def _repair(self, player: Player, repair: Request) -> Request:
        """The repair at a temperature that suits the model."""
        return repair if player.aids else replace(repair, temperature=self._temperature)

    async def _answered(self, request: Request, emit: Emit) -> str:
        """What the summarizer writes, without the name its line has in the history."""
        return _ANSWER_NAME.sub("", await super()._answered(request, emit), count=1).strip()

    async def _concluding(self, view: View, output: int, most: int | None = None) -> Request:
        make = partial(self._answering, view, output=output, closing=self._summarizer.closing(view))
        return await _fitted(self._summarizer, view, make, most)

    def _planning(self, view: View, said: Messages, task: str = "") -> Request:
        """The planner sees tools and history, and says who is next, unless it has another task."""
        planner = self._planner
        system, array = planner.equipped(view)
        request = Request(
            messages=(system, *_shared(planner, view, said)),
            tools=array,
            callable_now=planner.callable_documents(view),
            want="text",
            endings=() if task else ENDINGS,
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )
        return _tasked(request, task or planner.prompt("plan", "planner"))

    def _calling(self, view: View, wanted: str | FillTask, said: Messages) -> Request:
        """The caller sees tools, history and the planner's last words, which a small one reads twice.

        For a node of a plan, it sees what stands before that, and which call of its plan is wanted.
        """
        caller = self._caller
        system, array = caller.equipped(view)
        if isinstance(wanted, FillTask):
            own = f"{prompt('umi/caller')} " if caller.aids else ""
            rationale, task = (), f"{own}{fill_text(wanted)}"
        else:
            rationale = caller.words(wanted, "caller")
            task = f"{prompt('umi/caller')} {wanted}".strip() if caller.aids else prompt("umi/call")
        request = Request(
            messages=(system, *_shared(caller, view, said), *rationale),
            tools=array,
            callable_now=caller.callable_documents(view),
            want="call",
            several=caller.native and not isinstance(wanted, FillTask),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )
        return _tasked(request, task)

    def _answering(
        self, view: View, said: Messages, output: int, *, ending: Messages = (), closing: str = ""
    ) -> Request:
        """The summarizer sees the history, and nothing of what was tried on other ways.

        It has no use for tools. Where it is the planner's model, they stand before the history all the same: what that
        model has cached begins with them, and without them the whole history would be read anew.
        """
        summarizer = self._summarizer
        task = f"{summarizer.prompt('answer', 'summarizer')}\n{closing}".strip()
        system, array = summarizer.equipped(view)
        if summarizer.model is not self._leader:
            system, array = Message("system", summarizer.system(view)), ()
        messages = (system, *summarizer.history(said), *ending)
        request = Request(messages, tools=array, want="text", max_tokens=output, purpose="answer")
        return _tasked(replace(request, temperature=self._temperature), task)


def _said(view: View) -> Messages:
    """Earlier turns, and the path so far."""
    return (*view.history, *path_messages(view.opening, view.path))


async def _fitted(player: Player, view: View, make: Callable[[Messages], Request], most: int | None = None) -> Request:
    """The request of a role, cut where it must be; counting a long prompt takes its time."""
    return await asyncio.to_thread(in_context, player.model, _said(view), make, most, role=player.role)


def _shared(player: Player, view: View, said: Messages) -> Messages:
    """What the planner and the caller read alike: the history, and what was tried from here."""
    history = player.history(said)
    return with_task(history, tried_message(view, "umi/tried").text) if view.tried else history


def _tasked(request: Request, task: str) -> Request:
    """The request with what the role is to do at its end; before that stands what other roles are sent as well."""
    return replace(request, messages=with_task(request.messages, task), task=f"{TASK_GAP}{task}")


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

"""Modes: who thinks. One model (single) or three roles (umi); here is how each is asked."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files

from ecoshell.agent.memory import LARGE_CONTEXT, LEAST_OUTPUT, fit, fit_together
from ecoshell.agent.model_set import DraftTask, FillTask, View
from ecoshell.budget import Hold
from ecoshell.catalog import Presentation
from ecoshell.errors import CallBroken, ContextExceeded, ModelBroken
from ecoshell.events import Emit, Notice
from ecoshell.messages import FINISH, TOOL_CALL, Call, Message, Speaker, ToolDocument
from ecoshell.models import PromptSize, Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.replies import completed
from ecoshell.strategies import Thought

SINGLE = "single"
PLANNER = "planner"
CALLER = "caller"
SUMMARIZER = "summarizer"
ASIDE_SLACK = 1024
"""Tokens by which the concluding prompt may outgrow what was set aside: one more step's rationale and result."""

UNUSABLE = "That call could not be used: {} Make one that can be used."
"""What a model is told of a call that could not be used."""
_LEAST_OUTPUT = 1024
"""Output tokens that a long prompt leaves, or an eighth of the context if that is more."""


@cache
def prompt(name: str) -> str:
    """The text of a prompt file."""
    return (files("ecoshell.modes") / f"{name}.md").read_text(encoding="utf-8").strip()


def system_text(presentation: Presentation, *, searching: bool = False) -> str:
    """What a capable model is told before everything else, the same for all of a session."""
    parts = [prompt("system")]
    if presentation.registers:
        parts.append(prompt("registering_by_name"))
    if searching:
        parts.append(prompt("finishing"))
    return "\n\n".join(parts)


Messages = tuple[Message, ...]

RANKER = "ranker"
"""The role in which thoughts are compared."""
_NOT_RUN = "This call was not made, because the one before it could not be used."
_MAX_TOKENS = 128
_QUESTION = 2_000
_SAID = 600
_RESULT = 160
"""Characters of a question, of a thought, and of a result that are shown when two thoughts are compared."""
_LETTER = re.compile(r"\b[AB]\b")
_FIRST = re.compile(r"\W*([AB])(?!\w| \w)")
"""A reply that begins with the letter, and not with the article."""


def tried_message(view: View, told: str = "tried") -> Message:
    """What was tried from here, after the prompt `told`, and what registered tools the plan does not allow any more."""
    known = [f"- {one.call.signature()}: {one.outcome or 'proposed, and not made yet'}" for one in view.tried]
    lines = [prompt(told), *known]
    barred = [document.name for document in view.registered if document.name in view.forbidden]
    if barred:
        lines.append(f"Not to be used any more: {', '.join(barred)}.")
    return Message("user", "\n".join(lines))


def ranking_request(view: View, one: Thought, other: Thought) -> Request:
    """What to ask a model for its choice between two thoughts, shown as A and B."""
    done: list[str] = []
    for step in view.path.steps:
        outcome = "" if step.observation.ok else "failed: "
        done.append(f"- {_cut(step.call.signature(), _SAID)}: {outcome}{_cut(step.observation.text, _RESULT)}")
    asked = [f"Task: {_cut(view.path.question, _QUESTION)}", "Done so far:", *(done or ["- nothing"])]
    for letter, thought in (("A", one), ("B", other)):
        call = thought.call
        if call is None:
            proposal = f"answer: {_cut(thought.rationale, _SAID)}"
        else:
            does = f"answer: {call.arguments.get('answer', '')}" if call.name == FINISH else call.signature()
            proposal = _cut(f"{thought.rationale} → {does}" if thought.rationale else does, _SAID)
        asked.append(f"{letter}: {proposal}")
    messages = (Message("system", prompt("rank")), Message("user", "\n".join(asked)))
    return Request(messages, want="text", max_tokens=_MAX_TOKENS, purpose="rank")


def verdict(said: str) -> str:
    """`A` or `B`: what the reply begins with, or else the only one it names; empty when it does not say."""
    first, named = _FIRST.match(said), set(_LETTER.findall(said))
    if first:
        return first[1]
    return named.pop() if len(named) == 1 else ""


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} […]"


class BaseMode(ABC):
    """What every mode does alike: one model leads, and the price of the answer is set aside for who writes it."""

    role: str
    """The role that thinks each step."""
    answer_role: str
    """The role that writes the answer."""
    by_program: bool = False
    finish: str = ""
    """Why the model that was asked last stopped, in OpenAI's terms; empty if unknown."""

    def __init__(
        self,
        leader: MeteredModel,
        answerer: MeteredModel,
        *,
        max_tokens: int,
        answer_tokens: int,
        temperature: float | None,
    ) -> None:
        """`max_tokens` bounds a step's output, `answer_tokens` that of the answer; `temperature` is as in `Request`."""
        self.model = leader.traits.name
        self.aside: Hold | None = None
        self._leader = leader
        self._answerer = answerer
        self._max_tokens = max_tokens
        self._answer_tokens = answer_tokens
        self._temperature = temperature

    @abstractmethod
    async def _concluding(self, view: View, output: int, most: int | None = None) -> Request:
        """The ask for an answer of at most `output` tokens from what was found, within `most` tokens of prompt."""

    @property
    def _longest_answer(self) -> int:
        """Tokens of an answer; what is set aside for one may be less."""
        return self._max_tokens

    async def set_aside(self, view: View) -> None:
        request = await self._concluding(view, self._answer_tokens)
        self.aside = await self._answerer.set_aside(request, role=self.answer_role, slack=ASIDE_SLACK)

    async def release(self) -> None:
        if self.aside is not None:
            aside, self.aside = self.aside, None
            await self._answerer.release(aside)

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        reply = await self._leader.ask(ranking_request(view, one, other), emit, role=RANKER)
        return {"A": one, "B": other}.get(verdict(reply.text))

    async def conclude(self, view: View, emit: Emit) -> str:
        most = None if self.aside is None else self.aside.prompt_tokens
        return await self._answered(await self._concluding(view, self._longest_answer, most), emit)

    async def _ask(
        self, model: MeteredModel, request: Request, emit: Emit, *, role: str, aside: Hold | None = None
    ) -> Reply:
        """A complete reply of a model; `aside`, what this mode has set aside, pays for the first part of it."""
        if aside is None:
            reply = await model.ask(request, emit, role=role)
        else:
            reply = await model.ask(request, emit, role=role, aside=aside)
            self.aside = None  # until here it is for `release` to give back
        reply = await self._completed(reply, request, model, emit, role=role)
        self.finish = reply.finish
        return reply

    async def _completed(self, reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str) -> Reply:
        """The reply, made whole where it was cut."""
        return await completed(reply, request, model, emit, role=role)

    async def _answered(self, request: Request, emit: Emit) -> str:
        """What is written, paid from what was set aside."""
        reply = await self._ask(self._answerer, request, emit, role=self.answer_role, aside=self.aside)
        if reply.call is not None and reply.call.name == FINISH:
            return str(reply.call.arguments.get("answer", ""))
        return reply.text.strip()


Make = Callable[[Messages], Request]
"""Makes a request of what was said so far; the results in it may have been cut."""


def in_context(model: MeteredModel, said: Messages, make: Make, most: int | None = None, *, role: str = "") -> Request:
    """The request within the model's context and a bound of `most` tokens; unknown bounds are not counted.

    A small context (below `LARGE_CONTEXT`) has its oldest results cut one by one; in a large one, output shrinks to
    what the prompt leaves of the context. Raises ContextExceeded, which names the role, when too little is left, so
    that the turn is compacted.
    """
    request, context = make(said), model.traits.context
    if context is None and most is None:
        return request
    if context is None or context >= LARGE_CONTEXT:
        return _in_large_context(model, said, make, request, most)
    room = context - min(request.max_tokens, max(LEAST_OUTPUT, context // 8))

    def fits(size: PromptSize) -> bool:
        return size.count <= room and (most is None or size.bound <= most)

    def within(request: Request, count: int) -> Request:
        """The request with no more output than the context has room for."""
        return replace(request, max_tokens=min(request.max_tokens, context - count))

    size = model.size(request)
    if fits(size):
        return within(request, size.count)
    cut = make(fit(said, lambda messages: fits(model.size(make(messages)))))
    count = model.size(cut).count
    if count > room:
        whose = f"the {role}'s model {model.traits.name}" if role else model.traits.name
        other = f", or choose a model with a larger context{f' with /role {role} MODEL' if role else ''}."
        raise ContextExceeded(
            f"This takes about {count:,} tokens, and the context of {whose} has room for {max(0, room):,}.",
            kept="It was not sent." if role else "Nothing was sent.",
            fix=f"Ask something shorter, put long text in a file{other}",
        )
    return within(cut, count)


def _in_large_context(model: MeteredModel, said: Messages, make: Make, request: Request, most: int | None) -> Request:
    """The request with as much output as the context has room for; old results are trimmed only to keep to `most`."""
    size, context = model.size(request), model.traits.context
    if most is not None and size.bound > most:
        request = make(fit_together(said, lambda messages: model.size(make(messages)).bound <= most))
        size = model.size(request)
    if context is None:
        return request
    room = context - size.count
    if room < min(request.max_tokens, LEAST_OUTPUT):
        raise ContextExceeded(
            f"This takes about {size.count:,} tokens, and the context of {model.traits.name} is {context:,}.",
            kept="It was not sent.",
            fix="Ask something shorter, put long text in a file, or choose a model with a larger context.",
        )
    return replace(request, max_tokens=min(request.max_tokens, room))


def callable_documents(view: View) -> tuple[ToolDocument, ...]:
    """What may be called now: what the array has, and what is registered beside it."""
    shown = {document.name for document in view.array}
    documents = (*view.array, *(document for document in view.registered if document.name not in shown))
    return tuple(document for document in documents if document.name not in view.forbidden)


def thought_of(reply: Reply, *, by: str = "") -> Thought:
    """A reply as a thought: all of its calls, though none that would end the turn before the others have come back."""
    ends = reply.call is not None and reply.call.name == FINISH
    more = () if ends else tuple(call for call in reply.calls[1:] if call.name != FINISH)
    return Thought(reply.text.strip(), reply.call, by=by, more=more, state=reply.state)


def repair_request(request: Request, reply: Reply, told: str) -> Request:
    """The same once more, the model told what was wrong with its reply: as the result of its call, if that was read.

    After a call of no tool there is, one of those that there are is wanted.
    """
    said: Messages
    if reply.state is not None and reply.calls:
        results = (Message("tool", _NOT_RUN if at else told, (call,)) for at, call in enumerate(reply.calls))
        said = (Message("assistant", reply.text, reply.calls, state=reply.state), *results)
    else:
        answered: Speaker = "user" if reply.attempt is None else "tool"
        attempted = (reply.attempt,) if reply.attempt else ()
        said = (Message("assistant", reply.text, attempted), Message(answered, told, attempted))
    unknown = reply.attempt is not None and all(one.name != reply.attempt.name for one in request.callable_now)
    want = "call" if unknown else request.want
    return replace(request, messages=(*request.messages, *said), want=want, purpose="repair", temperature=0.0)


def broken_call(model: MeteredModel, fault: str, attempt: Call | None = None) -> CallBroken:
    """The error for a model whose second attempt at a call is as useless as its first."""
    return CallBroken(
        f"{model.traits.name} twice made a call that cannot be used: {fault}",
        tool=attempt.name if attempt else "",
        arguments=attempt.arguments if attempt else None,
        kept="The session is kept.",
        fix="Ask again, or choose another model with /model.",
    )


def exhausted(model: MeteredModel) -> ModelBroken:
    """The error for a model whose output limit left no room for anything but reasoning."""
    return ModelBroken(
        f"{model.traits.name} reached its output limit before it answered.",
        kept="The session is kept.",
        fix="Raise [agent] max_output_tokens, or the cap with /budget, or choose another model with /model.",
    )


def tell_if_cut(reply: Reply, emit: Emit) -> None:
    """Say so where the reply of a small model ended at its longest; those of others are completed."""
    if reply.cut:
        emit(Notice("The reply was cut at its longest: [agent] max_output_tokens, or a cap, allows no more."))


_ANSWER = re.compile(r"^\W*answer\W*:(?:[*_`]+(?=\s))?\s*", re.IGNORECASE)
"""What stands before an answer, with the signs that set off the word and none of the answer's own."""


async def ask_for_draft(
    model: MeteredModel,
    task: DraftTask,
    make: Callable[[str], Awaitable[Request]],
    ask: Callable[[Request], Awaitable[Reply]],
) -> Thought | str:
    """The plan a model writes, or a thought where it makes a call or answers in its place.

    A local one is held to a grammar of plans, or of answers. `make` makes the request that ends in a text, and `ask`
    sends it.
    """
    grammar = ""
    plans = await asyncio.to_thread(task.grammar) if task.grammar is not None and model.traits.local else ""
    if plans:
        from ecoshell.models.grammar import MAX_ANSWER

        answer = rf'root ::= plan | "Answer: " [^\x00]{{1,{MAX_ANSWER}}}'
        grammar = f"{answer}\n{plans.replace('root ::=', 'plan ::=', 1)}"
    request = await make(draft_text(task, numbered=bool(grammar)))
    reply = await ask(replace(request, grammar=grammar, temperature=0.0) if grammar else request)
    if reply.call is not None:
        return thought_of(reply)
    answer = _ANSWER.match(reply.text)
    return Thought(reply.text[answer.end() :].strip()) if answer else reply.text.strip()


def draft_text(task: DraftTask, *, numbered: bool = False) -> str:
    """How a plan is asked for: in the form of labels, or in that of numbers, of which the grammar is."""
    parts = [prompt("draft"), prompt("draft_numbers" if numbered else "draft_labels")]
    if task.costs:
        parts.append(task.costs)
    if task.unfinished:
        done = ", ".join(task.finished) or "nothing"
        lines = "\n".join(f"- {line}" for line in task.unfinished)
        parts.append(f"{prompt('redraft')}\n{task.before}\ndone: {done}\n{lines}")
    if task.fault:
        parts.append(f"This plan cannot be run:\n{task.faulty}\n{task.fault}\nWrite it again, correctly.")
    return "\n\n".join(parts)


def fill_text(task: FillTask) -> str:
    """How a node's call is asked for."""
    lines = [f"{prompt('fill')} {task.document.name}", f"It is {task.label} in the plan {task.plan}."]
    if task.uses > 1:
        lines.append(f"It is use {task.use} of {task.uses} of the tool for what the question names, in that order.")
    if task.calls:
        lines.append(f"Called already: {'; '.join(call.signature() for call in task.calls)}.")
    return "\n".join(lines)


async def filled(
    request: Request,
    document: ToolDocument,
    model: MeteredModel,
    ask: Callable[[Request], Awaitable[Reply]],
    made: Callable[[Reply, Request], tuple[Call | None, str]],
) -> Call:
    """The call that a model makes for a node, asked once more where it cannot be used; raises CallBroken after that.

    What may be called is the node's tool, and what carries calls where the presentation has that.
    """
    from ecoshell.models.protocol import call_fault

    carrier = (one for one in request.callable_now if one.name == TOOL_CALL)
    request = asked = replace(request, callable_now=(*carrier, document))
    fault = ""
    for _ in range(2):
        reply = await ask(asked)
        call, fault = made(reply, request)
        if call is None:
            fault = fault or "A call was wanted, and none was made."
        elif call.subject != document.name:
            fault = f"A call of {document.name} was wanted, not of {call.subject}."
        else:
            fault = call.fault or ("" if call.name != document.name else call_fault(call, [document]))
        if call is not None and not fault:
            return call
        asked = repair_request(request, reply, UNUSABLE.format(fault))
    raise broken_call(model, f"for {document.name}: {fault}")

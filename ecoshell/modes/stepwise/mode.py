"""Stepwise: choose a tool by scores, register it, fill in its arguments under a grammar, answer from what was observed.

For models too small to follow a protocol. Each step asks the model one small thing it can do; what it cannot do (hold a
plan, keep to a format) is done here, and nothing is answered that neither the model said nor a tool returned.
"""

from collections.abc import Callable, Sequence
from importlib.resources import files

from ecoshell.agent.mode import View
from ecoshell.errors import ModelBroken, UsageError
from ecoshell.events import Emit
from ecoshell.messages import FINISH, META_TOOLS, TOOL_REGISTER, Call, Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.stepwise import answering, arguments, choosing
from ecoshell.strategies.base import Step, Thought

Rank = Callable[[str], Sequence[tuple[str, float]]]
"""Names of the tools that fit a request and their scores, best first."""

ROLE = "single"
MOST_CHARACTERS = 4000
TRIES = 2
"""Calls of one tool for one part before giving up."""
_TALK = "You are ecoshell, a helpful assistant in a terminal. You run a small language model. Answer briefly."
_MOST_CHARACTERS_PER_TOKEN = 8
"""More than any real text has on average."""
_REMEMBERED = 4
"""Messages of earlier turns a small model is shown when it talks."""


class Stepwise:
    """One small model, asked one small thing at a time."""

    name = "stepwise"

    def __init__(
        self, model: MeteredModel, *, rank: Rank, document: Callable[[str], ToolDocument], answer_tokens: int
    ) -> None:
        """`rank` is local ranking; `document` gives any known tool's document, read here and never shown to the model
        before it is registered; `answer_tokens` bounds an answer without tools.
        """
        self._model = model
        self._rank = rank
        self._document = document
        self._answer_tokens = answer_tokens

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._model.traits.name

    async def set_aside(self, view: View) -> None:
        """Nothing is held: concluding quotes what was observed and asks no model."""

    async def release(self) -> None:
        """Nothing was held."""

    async def conclude(self, view: View, emit: Emit) -> str:
        """What was observed, quoted."""
        seen = _results(view.path.steps)
        return answering.quotation(seen) if seen else "Nothing was found out before the limit."

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next step: choose, register, call, or finish."""
        steps = view.path.steps
        wanted = answering.parts(_gist(view))
        part = wanted[min(len(_results(steps)), len(wanted) - 1)]
        if not steps:
            return await self._choose(view, part, emit)
        last = steps[-1]
        if last.call.name == TOOL_REGISTER:
            return await self._after_registration(view, part, last, emit)
        if not last.observation.ok:
            return await self._after_failure(view, part, last, emit)
        if len(_results(steps)) < len(wanted):
            return await self._choose(view, part, emit)
        return await self._answer(view, emit)

    def _refuse_too_long(self, question: str) -> None:
        """A text that cannot fit is refused by its length: to count the tokens of megabytes takes minutes."""
        context = self._model.traits.context
        if context is not None and len(question) > _MOST_CHARACTERS_PER_TOKEN * context:
            raise UsageError(
                f"The question has {len(question):,} characters, and {self.model} has a context of {context:,} tokens.",
                kept="Nothing was sent.",
                fix="Ask something shorter, put long text in a file, or choose a model with a larger context.",
            )

    async def _choose(self, view: View, part: str, emit: Emit) -> Thought:
        ranked = dict(self._rank(part))
        names = choosing.shortlist([name for name in view.known if name not in META_TOOLS], ranked)
        scores = await self._model.score(choosing.score_request(part, names), emit, role=ROLE)
        misfits = {name: arguments.misfits(self._document(name), _gist(view)) for name in names}
        chosen = choosing.best_name(names, scores.logprobs, ranked, misfits)
        if chosen is None:
            return await (self._answer(view, emit) if _results(view.path.steps) else self._talk(view, emit))
        document = _document(view, chosen)
        if document is None:
            return Thought(f"{chosen} fits best.", Call(TOOL_REGISTER, {"tool_name": chosen}))
        return await self._call(document, part, view, emit)

    async def _after_registration(self, view: View, part: str, last: Step, emit: Emit) -> Thought:
        document = _document(view, str(last.call.arguments.get("tool_name")))
        if not last.observation.ok or document is None:
            return _given_up(last)
        return await self._call(document, part, view, emit)

    async def _after_failure(self, view: View, part: str, last: Step, emit: Emit) -> Thought:
        document = _document(view, last.call.name)
        tries = sum(1 for step in view.path.steps if step.call.name == last.call.name and not step.observation.ok)
        if document is None or tries >= TRIES or last.observation.refused:
            return _given_up(last)
        return await self._call(document, part, view, emit, failed=last)

    async def _call(
        self, document: ToolDocument, part: str, view: View, emit: Emit, *, failed: Step | None = None
    ) -> Thought:
        """The call to this tool for this part of the question; after a failure the model sees the error."""
        document = arguments.narrowed(document, part, _gist(view))
        only = arguments.only_call(document)
        if only is not None:
            return Thought(f"{part} → {document.name}", only) if failed is None else _given_up(failed)
        error = failed.observation.text if failed else ""
        reply = await self._model.ask(arguments.call_request(document, part, error), emit, role=ROLE)
        if reply.call is None:
            raise ModelBroken(
                f"{self.model} could not fill in the arguments of {document.name}: {reply.fault}",
                fix="Ask more plainly, or choose a larger model with /model.",
            )
        if failed is not None and dict(reply.call.arguments) == dict(failed.call.arguments):
            return _given_up(failed)
        return Thought(f"{part} → {document.name}", reply.call)

    async def _answer(self, view: View, emit: Emit) -> Thought:
        """The answer from the results: worded by the model where that can be checked, else quoted."""
        seen = _results(view.path.steps)
        question, result = _gist(view), seen[-1].observation.text
        if len(seen) != 1 or not answering.can_be_worded(question, result):
            return _finish(answering.quotation(seen))
        reply = await self._model.ask(answering.wording_request(question, result), emit, role=ROLE)
        worded = reply.text.strip()
        return _finish(worded if answering.holds(worded, question, result) else answering.quotation(seen))

    async def _talk(self, view: View, emit: Emit) -> Thought:
        """An answer without tools."""
        self._refuse_too_long(view.path.question)
        earlier = [message for message in view.history if message.speaker in ("user", "assistant") and not message.call]
        messages = (Message("system", _TALK), *_shots(), *earlier[-_REMEMBERED:], Message("user", view.path.question))
        request = Request(messages, want="text", max_tokens=self._answer_tokens, purpose="answer")
        reply = await self._model.ask(request, emit, role=ROLE)
        return _finish(reply.text.strip())


def _shots() -> list[Message]:
    """A few lines of talk that show the model the tone."""
    lines = (files("ecoshell.modes.stepwise") / "talk.md").read_text(encoding="utf-8").splitlines()
    said = (line.partition(": ") for line in lines if line)
    return [Message("assistant" if speaker == "assistant" else "user", text) for speaker, _, text in said]


def _gist(view: View) -> str:
    """The beginning of the question, where it says what is wanted; the rest of a pasted file is not searched for it."""
    return view.path.question[:MOST_CHARACTERS]


def _results(steps: Sequence[Step]) -> list[Step]:
    """The steps in which a tool did something, meta-tools left out."""
    return [step for step in steps if step.call.name not in META_TOOLS and step.observation.ok]


def _document(view: View, name: str) -> ToolDocument | None:
    return next((document for document in view.registered if document.name == name), None)


def _finish(answer: str) -> Thought:
    return Thought("", Call(FINISH, {"answer": answer}))


def _given_up(last: Step) -> Thought:
    reason = f"{last.call.signature()} failed: {last.observation.text.strip()}"
    return Thought("", Call(FINISH, {"answer": reason, "give_up": True}))

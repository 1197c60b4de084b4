"""Stepwise: choose a tool by scores, register it, fill in its arguments under a grammar, answer from what was observed.

For models too small to follow a protocol. Each step asks the model one small thing it can do; what it cannot do (hold a
plan, keep to a format) is done here, and nothing is answered that neither the model said nor a tool returned.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from ecoshell.agent.mentions import without_marks
from ecoshell.agent.mode import Foreseen, View
from ecoshell.errors import ModelBroken, UsageError
from ecoshell.events import Emit, Notice
from ecoshell.messages import FINISH, META_TOOLS, TOOL_REGISTER, Call, Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.roles import ONE_FOR_ALL, Roles
from ecoshell.modes.siblings import RANKER
from ecoshell.modes.stepwise import answering, arguments, choosing
from ecoshell.strategies.base import Step, Thought

Rank = Callable[[str], Sequence[tuple[str, float]]]
"""Names of the tools that fit a request and their scores, best first."""

MOST_CHARACTERS = 4000
TRIES = 2
"""Calls of one tool for one part before giving up."""
_TALK = "You are ecoshell, a helpful assistant in a terminal. You run a small language model. Answer briefly."
_MOST_CHARACTERS_PER_TOKEN = 8
"""More than any real text has on average."""
ASKED_FOR = 0.5
"""The BM25 score from which a request names a tool by its words; a file's name alone scores less."""
_REMEMBERED = 4
"""Messages of earlier turns a small model is shown when it talks."""
_REMEMBERED_CHARACTERS = 800
"""Of each of them; a turn may have carried whole files along."""


class Stepwise:
    """One small model, asked one small thing at a time."""

    def __init__(
        self,
        model: MeteredModel,
        *,
        rank: Rank,
        document: Callable[[str], ToolDocument],
        answer_tokens: int,
        roles: Roles = ONE_FOR_ALL,
    ) -> None:
        """`rank` is local ranking; `document` gives any known tool's document, read here and never shown to the model
        before it is registered; `answer_tokens` bounds an answer without tools; `roles` are said to choose the tool, to
        fill in its arguments, and to word answers.
        """
        self._model = model
        self._rank = rank
        self._document = document
        self._answer_tokens = answer_tokens
        self._roles = roles

    @property
    def name(self) -> str:
        """The mode, by the roles that are named."""
        return "stepwise" if self._roles == ONE_FOR_ALL else "umi"

    @property
    def role(self) -> str:
        """The role that chooses."""
        return self._roles.planning

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._model.traits.name

    @property
    def _along_room(self) -> int:
        """Characters of what goes along with a question; few enough to fit even when each is a token."""
        context = self._model.traits.context
        return MOST_CHARACTERS if context is None else context // 2

    @property
    def aside(self) -> None:
        """Nothing is ever held."""
        return None

    def foresee(self, view: View) -> Foreseen:
        """Choosing among the names, filling in the largest document's arguments, or talking."""
        names = choosing.shortlist([name for name in view.usable if name not in META_TOOLS], {})
        scoring = choosing.score_request(_gist(view), names)
        scored = "".join((scoring.prefix, *scoring.contexts, *scoring.targets))
        ranking = Request((Message("user", scored),), want="text", max_tokens=0, purpose="rank")
        documents = sorted(map(self._document, names), key=lambda document: len(document.as_text()))
        calls = [arguments.call_request(document, _gist(view)) for document in documents[-1:]]
        return Foreseen((ranking, *calls, self._talking(view)))

    async def set_aside(self, view: View) -> None:
        """Nothing is held: concluding quotes what was observed and asks no model."""

    async def release(self) -> None:
        """Nothing was held."""

    async def conclude(self, view: View, emit: Emit) -> str:
        """What was observed, quoted."""
        seen = _results(view.path.steps)
        return answering.quotation(seen) if seen else "Nothing was found out before the limit."

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        """The thought whose tool's name makes the request likelier; None where they do not name two tools."""
        names = [thought.call.subject for thought in (one, other) if thought.call is not None]
        if len(set(names) - META_TOOLS) < 2:
            return None
        part = _part(view, answering.parts(_gist(view)))
        scores = await self._scores(view, part, names, dict(self._rank(part)), emit, role=RANKER)
        return one if scores[names[0]] >= scores[names[1]] else other

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next step: choose, register, call, or finish."""
        steps = view.path.steps
        wanted = answering.parts(_gist(view))
        part = _part(view, wanted)
        if not steps or view.tried:
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
        """A tool for this part of the question, other than those that were tried; else an answer."""
        ranked, tried = dict(self._rank(part)), {one.call.subject for one in view.tried}
        usable = [name for name in view.usable if name not in META_TOOLS and name not in tried]
        names = choosing.shortlist(usable, ranked)
        if view.along:  # what is asked about is here already, so a tool must be asked for by its words
            names = tuple(name for name in names if ranked.get(name, 0.0) >= ASKED_FOR)
        chosen = await self._best(view, part, names, ranked, emit) if names else None
        if chosen is not None:
            return await self._use(chosen, part, view, emit)
        if _results(view.path.steps):
            return await self._answer(view, emit)
        return _no_other(view) if view.tried else await self._talk(view, emit)

    async def _use(self, name: str, part: str, view: View, emit: Emit) -> Thought:
        """Call the tool, or register it first."""
        document = _document(view, name)
        if document is None:
            return Thought(f"{name} fits best.", Call(TOOL_REGISTER, {"tool_name": name}))
        return await self._call(document, part, view, emit)

    async def _best(
        self, view: View, part: str, names: Sequence[str], ranked: Mapping[str, float], emit: Emit
    ) -> str | None:
        """The tool whose name makes this part of the question likely; None to talk."""
        return choosing.best_name(await self._scores(view, part, names, ranked, emit, role=self.role))

    async def _scores(
        self, view: View, part: str, names: Sequence[str], ranked: Mapping[str, float], emit: Emit, *, role: str
    ) -> dict[str, float]:
        """How well each tool goes with this part of the question."""
        scores = await self._model.score(choosing.score_request(part, names), emit, role=role)
        misfits = {name: arguments.misfits(self._document(name), _gist(view)) for name in names}
        return choosing.totals(names, scores.logprobs, ranked, misfits)

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
        reply = await self._model.ask(arguments.call_request(document, part, error), emit, role=self._roles.calling)
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
        reply = await self._model.ask(answering.wording_request(question, result), emit, role=self._roles.answering)
        worded = reply.text.strip()
        return _finish(worded if answering.holds(worded, question, result) else answering.quotation(seen))

    async def _talk(self, view: View, emit: Emit) -> Thought:
        """An answer without tools."""
        self._refuse_too_long(view.path.question)
        if len(view.along) > self._along_room:
            emit(Notice(f"{self.model} reads only the beginning of what goes along with the question."))
        reply = await self._model.ask(self._talking(view), emit, role=self._roles.answering)
        return _finish(reply.text.strip())

    def _talking(self, view: View) -> Request:
        """Talk about the question and what goes along with it, which chose no tool and is read here."""
        spoken = [message for message in view.history if message.speaker in ("user", "assistant") and not message.call]
        earlier = [replace(message, text=_cut(message.text, _REMEMBERED_CHARACTERS)) for message in spoken]
        along = _cut(view.along, self._along_room)
        asked = f"{view.path.question}\n\n{along}" if along else view.path.question
        messages = (Message("system", _TALK), *_shots(), *earlier[-_REMEMBERED:], Message("user", asked))
        return Request(messages, want="text", max_tokens=self._answer_tokens, purpose="answer")


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]} [cut]"


def _shots() -> list[Message]:
    """A few lines of talk that show the model the tone."""
    lines = (files("ecoshell.modes.stepwise") / "talk.md").read_text(encoding="utf-8").splitlines()
    said = (line.partition(": ") for line in lines if line)
    return [Message("assistant" if speaker == "assistant" else "user", text) for speaker, _, text in said]


def _gist(view: View) -> str:
    """The beginning of the question, where it says what is wanted; the rest of a pasted file is not searched for it."""
    return without_marks(view.path.question[:MOST_CHARACTERS])


def _part(view: View, wanted: Sequence[str]) -> str:
    """The part of the question that is next: each result so far has done with one."""
    return wanted[min(len(_results(view.path.steps)), len(wanted) - 1)]


def _results(steps: Sequence[Step]) -> list[Step]:
    """The steps in which a tool did something, meta-tools left out."""
    return [step for step in steps if step.call.name not in META_TOOLS and step.observation.ok]


def _document(view: View, name: str) -> ToolDocument | None:
    return next((document for document in view.registered if document.name == name), None)


def _finish(answer: str) -> Thought:
    return Thought("", Call(FINISH, {"answer": answer}))


def _no_other(view: View) -> Thought:
    """Give up, because no tool is left that was not tried."""
    before = " ".join(one.outcome for one in view.tried)
    return Thought("", Call(FINISH, {"answer": f"No other tool fits. {before}".strip(), "give_up": True}))


def _given_up(last: Step) -> Thought:
    reason = f"{last.call.signature()} failed: {last.observation.text.strip()}"
    return Thought("", Call(FINISH, {"answer": reason, "give_up": True}))

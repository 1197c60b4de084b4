"""Stepwise: choose a tool by scores, register it, fill in its arguments under a grammar, answer from what was observed.

For models too small to follow a protocol. Each step asks the model one small thing it can do; what it cannot do (hold a
plan, keep to a format) is done here, and nothing is answered that neither the model said nor a tool returned.
"""

from collections.abc import Callable, Sequence

from ecoshell.agent.mode import DraftTask, FillTask, Foreseen, ForeseenCall, View
from ecoshell.errors import CallBroken
from ecoshell.events import Emit
from ecoshell.messages import FINISH, META_TOOLS, TOOL_REGISTER, Call, ToolDocument
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.roles import ONE_FOR_ALL, Roles
from ecoshell.modes.siblings import RANKER
from ecoshell.modes.stepwise import answering, arguments, choosing, drafting, talking
from ecoshell.modes.stepwise.looking import gist, registered, results
from ecoshell.planning.catp.tpl import render
from ecoshell.strategies.base import Step, Thought

Rank = Callable[[str], Sequence[tuple[str, float]]]
"""Names of the tools that fit a request and their scores, best first."""

TRIES = 2
"""Calls of one tool for one part before giving up."""
ASKED_FOR = 0.5
"""The BM25 score from which a request names a tool by its words; a file's name alone scores less."""


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
        self._branches: dict[str, drafting.Part] = {}
        """The parts of the question that this turn's plan of branches stands for, by the labels of its nodes."""

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
    def aside(self) -> None:
        """Nothing is ever held."""
        return None

    def foresee(self, view: View) -> Foreseen:
        """Choosing among the names, filling in the largest document's arguments, or talking."""
        names = choosing.shortlist([name for name in view.usable if name not in META_TOOLS], {})
        ranking = choosing.as_foreseen(choosing.score_request(gist(view), names))
        documents = sorted(map(self._document, names), key=lambda document: len(document.as_text()))
        calls = [arguments.call_request(document, gist(view)) for document in documents[-1:]]
        talk = talking.request(view, self._model.traits.context, self._answer_tokens)
        return Foreseen(
            (
                ForeseenCall(ranking, self._model, self._roles.planning),
                *(ForeseenCall(call, self._model, self._roles.calling) for call in calls),
                ForeseenCall(talk, self._model, self._roles.answering),
            )
        )

    async def set_aside(self, view: View) -> None:
        """Nothing is held: concluding quotes what was observed and asks no model."""

    async def release(self) -> None:
        """Nothing was held."""

    async def conclude(self, view: View, emit: Emit) -> str:
        """What was observed, quoted."""
        return answering.conclusion(results(view.path.steps))

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        """The thought whose tool's name makes the request likelier; None where they do not name two tools."""
        names = [thought.call.subject for thought in (one, other) if thought.call is not None]
        if len(set(names) - META_TOOLS) < 2:
            return None
        part = _part(view, answering.parts(gist(view)))
        scores = await self._scores(part, names, emit, role=RANKER, within=gist(view))
        return one if scores[names[0]] >= scores[names[1]] else other

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next step: choose, register, call, or finish."""
        steps = view.path.steps
        if not steps:
            self._branches = {}
        if self._branches and results(steps):
            return await self._answer(view, emit)
        wanted = answering.parts(gist(view))
        part = _part(view, wanted)
        if not steps or view.tried:
            return await self._choose(view, part, emit)
        last = steps[-1]
        if last.call.name == TOOL_REGISTER:
            return await self._after_registration(view, part, last, emit)
        if not last.observation.ok:
            return await self._after_failure(view, part, last, emit)
        if len(results(steps)) < len(wanted):
            return await self._choose(view, part, emit)
        return await self._answer(view, emit)

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        """A tool for each part of the question; what has failed is not planned again but told."""
        if task.unfinished:
            return _finish(answering.with_failures(results(view.path.steps), task.unfinished))
        if task.fault:
            return await self.think(view, emit)
        chosen: list[tuple[drafting.Part, str]] = []
        for part in drafting.taken_apart(gist(view)):
            name = await self._tool_for(view, part.text, emit, within=gist(view) if part.refers else part.text)
            if name is not None:
                chosen.append((part, name))
        if not chosen:
            return await self._talk(view, emit)
        plan, self._branches = drafting.plan_of(chosen)
        return render(plan, "text")

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        """The call for the node's part of the question."""
        part = self._branches.get(task.label, drafting.Part(gist(view)))
        question = gist(view) if part.refers else part.text
        document = arguments.narrowed(task.document, part.text, question)
        return arguments.only_call(document) or await self._filled(document, part.text, "", emit)

    async def _choose(self, view: View, part: str, emit: Emit) -> Thought:
        """A tool for this part of the question, other than those that were tried; else an answer."""
        chosen = await self._tool_for(view, part, emit, within=gist(view))
        if chosen is not None:
            return await self._use(chosen, part, view, emit)
        if results(view.path.steps):
            return await self._answer(view, emit)
        return _no_other(view) if view.tried else await self._talk(view, emit)

    async def _use(self, name: str, part: str, view: View, emit: Emit) -> Thought:
        """Call the tool, or register it first."""
        document = registered(view, name)
        if document is None:
            return Thought(f"{name} fits best.", Call(TOOL_REGISTER, {"tool_name": name}))
        return await self._call(document, part, view, emit)

    async def _tool_for(self, view: View, part: str, emit: Emit, *, within: str) -> str | None:
        """The tool whose name makes this part of the question likely; None to talk.

        `within` is where what it needs may stand.
        """
        ranked, tried = dict(self._rank(part)), {one.call.subject for one in view.tried}
        usable = [name for name in view.usable if name not in META_TOOLS and name not in tried]
        names = choosing.shortlist(usable, ranked)
        if view.along:  # what is asked about is here already, so a tool must be asked for by its words
            names = tuple(name for name in names if ranked.get(name, 0.0) >= ASKED_FOR)
        if not names:
            return None
        return choosing.best_name(await self._scores(part, names, emit, role=self.role, within=within))

    async def _scores(self, part: str, names: Sequence[str], emit: Emit, *, role: str, within: str) -> dict[str, float]:
        """How well each tool goes with this part of the question."""
        scores = await self._model.score(choosing.score_request(part, names), emit, role=role)
        misfits = {name: arguments.misfits(self._document(name), within) for name in names}
        return choosing.totals(names, scores.logprobs, dict(self._rank(part)), misfits)

    async def _after_registration(self, view: View, part: str, last: Step, emit: Emit) -> Thought:
        document = registered(view, str(last.call.arguments.get("tool_name")))
        if not last.observation.ok or document is None:
            return _given_up(last)
        return await self._call(document, part, view, emit)

    async def _after_failure(self, view: View, part: str, last: Step, emit: Emit) -> Thought:
        document = registered(view, last.call.name)
        tries = sum(1 for step in view.path.steps if step.call.name == last.call.name and not step.observation.ok)
        if document is None or tries >= TRIES or last.observation.refused:
            return _given_up(last)
        return await self._call(document, part, view, emit, failed=last)

    async def _call(
        self, document: ToolDocument, part: str, view: View, emit: Emit, *, failed: Step | None = None
    ) -> Thought:
        """The call to this tool for this part of the question; after a failure the model sees the error."""
        document = arguments.narrowed(document, part, gist(view))
        only = arguments.only_call(document)
        if only is not None:
            why = f"{part} → {document.name}"
            return Thought(why, only, self._roles.calling) if failed is None else _given_up(failed)
        call = await self._filled(document, part, failed.observation.text if failed else "", emit)
        if failed is not None and dict(call.arguments) == dict(failed.call.arguments):
            return _given_up(failed)
        return Thought(f"{part} → {document.name}", call, self._roles.calling)

    async def _filled(self, document: ToolDocument, part: str, error: str, emit: Emit) -> Call:
        """The call to a narrowed tool as the model makes it; `error` is what came of an earlier attempt."""
        reply = await self._model.ask(arguments.call_request(document, part, error), emit, role=self._roles.calling)
        if reply.call is None:
            raise CallBroken(
                f"{self.model} could not fill in the arguments of {document.name}: {reply.fault}",
                tool=document.name,
                arguments=reply.attempt.arguments if reply.attempt else None,
                fix="Ask more plainly, or choose a larger model with /model.",
            )
        return reply.call

    async def _answer(self, view: View, emit: Emit) -> Thought:
        """The answer from the results: worded by the model where that can be checked, else quoted."""
        seen, role = results(view.path.steps), self._roles.answering
        return _finish(await answering.answered(self._model, gist(view), seen, emit, role=role), by=role)

    async def _talk(self, view: View, emit: Emit) -> Thought:
        """An answer without tools."""
        role = self._roles.answering
        return _finish(
            await talking.talked(self._model, view, emit, answer_tokens=self._answer_tokens, role=role), by=role
        )


def _part(view: View, wanted: Sequence[str]) -> str:
    """The part of the question that is next: each result so far has done with one."""
    return wanted[min(len(results(view.path.steps)), len(wanted) - 1)]


def _finish(answer: str, *, by: str = "") -> Thought:
    return Thought("", Call(FINISH, {"answer": answer}), by)


def _no_other(view: View) -> Thought:
    """Give up, because no tool is left that was not tried."""
    before = " ".join(one.outcome for one in view.tried)
    return Thought("", Call(FINISH, {"answer": f"No other tool fits. {before}".strip(), "give_up": True}))


def _given_up(last: Step) -> Thought:
    reason = f"{last.call.signature()} failed: {last.observation.text.strip()}"
    return Thought("", Call(FINISH, {"answer": reason, "give_up": True}))

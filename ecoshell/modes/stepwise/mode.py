"""Stepwise: choose a tool by scores, register it, fill in its arguments under a grammar, answer from what was observed.

For models too small to follow a protocol. Each step asks the model one small thing it can do; what it cannot do (hold a
plan, keep to a format) is done here, and nothing is answered that neither the model said nor a tool returned.
"""

import asyncio
import re
from collections.abc import Callable, Sequence

from ecoshell.agent.model_set import DraftTask, FillTask, Foreseen, ForeseenCall, View
from ecoshell.budget import Hold
from ecoshell.errors import CallBroken
from ecoshell.events import Emit
from ecoshell.messages import FINISH, META_TOOLS, TOOL_REGISTER, Call, ToolDocument
from ecoshell.models.metered import MeteredModel
from ecoshell.modes import ONE_FOR_ALL, RANKER, Roles
from ecoshell.modes.stepwise import answering, arguments, choosing, drafting, parting, talking
from ecoshell.modes.stepwise.agenda import NO_TOOL, Agenda
from ecoshell.modes.stepwise.choosing import Chooser, Rank
from ecoshell.modes.stepwise.drafting import Part
from ecoshell.modes.stepwise.filling import Filling, filling
from ecoshell.modes.stepwise.looking import gist, registered, results
from ecoshell.planning.catp.rules import MAX_PLANNED
from ecoshell.planning.catp.tpl import render
from ecoshell.strategies import Step, Thought

TRIES = 2
"""Calls of one tool for one part before giving up."""


class Stepwise:
    """One small model, asked one small thing at a time."""

    def __init__(
        self,
        model: MeteredModel,
        *,
        rank: Rank,
        document: Callable[[str], ToolDocument],
        guarded: Callable[[str], bool],
        answer_tokens: int,
        roles: Roles = ONE_FOR_ALL,
    ) -> None:
        """`rank` is local ranking; `document` gives any known tool's document, read here and never shown to the model
        before it is registered; `guarded` says which tools are used only where a request says so; `answer_tokens`
        bounds an answer without tools; `roles` are said to choose the tool, to fill in its arguments, and to word
        answers.
        """
        self.name = "stepwise" if roles == ONE_FOR_ALL else "umi"
        self.role = roles.planning
        self.model = model.traits.name
        self.aside: Hold | None = None
        """Nothing is ever held."""
        self._model = model
        self._chooser = Chooser(model, rank=rank, document=document, guarded=guarded)
        self._rank = rank
        self._document = document
        self._answer_tokens = answer_tokens
        self._roles = roles
        self._branches: dict[str, Part] = {}
        """The parts of the question that this turn's parallel plan stands for, by the labels of its nodes."""
        self._agenda: Agenda | None = None
        """This turn's parts and what is left out of them; another question has another."""

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
        return answering.with_told(answering.quotation(results(view.path.steps)), self._parts(view).told())

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        """The thought whose tool's name makes the request likelier; None where they do not name two tools."""
        names = [thought.call.subject for thought in (one, other) if thought.call is not None]
        if len(set(names) - META_TOOLS) < 2:
            return None
        agenda = self._parts(view)
        part = next(iter(agenda.open(view)), agenda.parts[-1])
        scores = await self._chooser.scores(part, names, emit, role=RANKER, within=gist(view))
        return one if scores[names[0]] >= scores[names[1]] else other

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next step: choose, register, call, or finish."""
        steps = view.path.steps
        if not steps and not view.tried:
            self._branches, self._agenda = {}, None
        if self._branches and results(steps):
            return await self._answer(view, emit)
        agenda = await asyncio.to_thread(self._parts, view)  # its first patterns take 30 ms to be compiled
        part = next(iter(agenda.open(view)), None)
        if not steps or view.tried or part is None:
            return await self._choose(view, emit)
        last = steps[-1]
        if last.call.name == TOOL_REGISTER:
            document = registered(view, str(last.call.arguments.get("tool_name")))
            if not last.observation.ok or document is None:
                return _given_up(last)
            return await self._call(document, part, view, emit)
        if last.observation.ok:
            return await self._choose(view, emit)
        if last.observation.refused:
            return _given_up(last)
        document = registered(view, last.call.name)
        tries = sum(1 for step in steps if step.call.name == last.call.name and not step.observation.ok)
        if document is None or tries >= TRIES:
            return await self._otherwise(part, view, last, emit)
        return await self._call(document, part, view, emit, failed=last)

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        """A tool for each part of the question; what has failed is not planned again but told."""
        if task.unfinished:
            seen = results(view.path.steps)
            failures = "\n".join(("This failed:", *(f"- {failure}" for failure in task.unfinished)))
            found = answering.quotation(seen) if seen else ""
            return _finish(answering.with_told(found, failures, self._parts(view).told()))
        if task.fault:
            return await self.think(view, emit)
        self._agenda, chosen = None, list[tuple[Part, str]]()
        agenda = await asyncio.to_thread(self._parts, view)
        for part in agenda.parts:
            full = len(chosen) == MAX_PLANNED
            why = agenda.stuck(part) or (f"a plan has {MAX_PLANNED} nodes at most" if full else "")
            name = None if why else await self._chosen(part, view, emit, within=part.text)
            if name is None:
                agenda.left[part] = why or NO_TOOL
            else:
                chosen.append((part, name))
        if not chosen:
            return await self._without_results(view, emit)
        plan, self._branches = drafting.plan_of(chosen)
        return render(plan, "text")

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        """The call for the node's part of the question."""
        part = self._branches.get(task.label, Part(gist(view)))
        wanted = filling(task.document, part, task.given, part.text)
        call = arguments.only_call(wanted.document) or await self._filled(wanted, "", emit)
        self._parts(view).made(part, wanted, call)
        return call

    def _parts(self, view: View) -> Agenda:
        """The parts of the question, as far as they have come."""
        if self._agenda is None or self._agenda.question != view.path.question:
            self._agenda = Agenda(view, rank=self._rank, document=self._document)
        return self._agenda

    def _filling(self, document: ToolDocument, part: Part, view: View) -> Filling:
        """What to fill in for a part, after the results on the path; raises CallBroken."""
        return filling(document, part, self._parts(view).given(part, view), gist(view))

    async def _choose(self, view: View, emit: Emit) -> Thought:
        """A tool for the next part of the question that can be done, other than those that were tried; else an answer.

        Parts that cannot be done are left out, which the answer tells.
        """
        agenda, seen = self._parts(view), results(view.path.steps)
        while undone := agenda.open(view):
            part = undone[0]
            why = agenda.stuck(part)
            name = None if why else await self._chosen(part, view, emit, within=gist(view))
            if name is not None:
                try:
                    self._filling(self._document(name), part, view)
                except CallBroken as broken:  # the results are not what the part speaks of, as far as this tool goes
                    why = broken.message
                else:
                    return await self._use(name, part, view, emit)
            if view.tried:  # it is left out on this branch alone
                if seen:
                    return await self._answer(view, emit, undone)
                before = " ".join(one.outcome for one in view.tried)
                said = {"answer": f"No other tool fits. {before}".strip(), "give_up": True}
                return Thought("", Call(FINISH, said))
            agenda.left[part] = why or NO_TOOL
        return await (self._answer(view, emit) if seen else self._without_results(view, emit))

    async def _chosen(self, part: Part, view: View, emit: Emit, *, within: str) -> str | None:
        """The tool for a part; what would fit better and is not guessed at is told with the answer."""
        name, withheld = await self._chooser.tool(part, view, emit, role=self.role, within=within)
        document = None if name is None else self._document(name)
        said = "" if document is None else f"{document.name} {document.description}".lower()
        does = not set(parting.verb(part.text).split()).isdisjoint(re.findall(r"[^\W_]+", said))
        told = withheld and not does and not parting.asks(part.text)
        self._parts(view).withheld[part] = self._document(withheld) if told else None
        return name

    async def _use(self, name: str, part: Part, view: View, emit: Emit) -> Thought:
        """Call the tool, or register it first."""
        document = registered(view, name)
        if document is None:
            return Thought(f"{name} fits best.", Call(TOOL_REGISTER, {"tool_name": name}))
        return await self._call(document, part, view, emit)

    async def _otherwise(self, part: Part, view: View, last: Step, emit: Emit) -> Thought:
        """After one failure, another tool that takes the file or the address that the part names; else give up."""
        failed = {step.call.name for step in view.path.steps if not step.observation.ok}
        if view.searching or len(failed) > 1:
            return _given_up(last)
        found = await self._chooser.tool(part, view, emit, role=self.role, within=gist(view), failed=failed)
        return _given_up(last) if found.name is None else await self._use(found.name, part, view, emit)

    async def _call(
        self, document: ToolDocument, part: Part, view: View, emit: Emit, *, failed: Step | None = None
    ) -> Thought:
        """The call to this tool for this part of the question; after a failure the model sees the error."""
        wanted, why = self._filling(document, part, view), f"{part.text} → {document.name}"
        call = arguments.only_call(wanted.document)
        if call is None:
            call = await self._filled(wanted, failed.observation.text if failed else "", emit)
            if failed is not None and dict(call.arguments) == dict(failed.call.arguments):
                return await self._otherwise(part, view, failed, emit)
        elif failed is not None:
            return await self._otherwise(part, view, failed, emit)
        self._parts(view).made(part, wanted, call)
        return Thought(why, call, self._roles.calling)

    async def _filled(self, wanted: Filling, error: str, emit: Emit) -> Call:
        """The call to a narrowed tool as the model makes it; `error` is what came of an earlier attempt."""
        request = arguments.call_request(wanted.document, wanted.text, error)
        reply = await self._model.ask(request, emit, role=self._roles.calling)
        if reply.call is None:
            raise CallBroken(
                f"{self.model} could not fill in the arguments of {wanted.document.name}: {reply.fault}",
                tool=wanted.document.name,
                arguments=reply.attempt.arguments if reply.attempt else None,
                fix="Ask more plainly, or choose a larger model with /model.",
            )
        return wanted.checked(reply.call)

    async def _answer(self, view: View, emit: Emit, undone: Sequence[Part] = ()) -> Thought:
        """The answer from the results: worded by the model where that can be checked, else quoted.

        Below it stands what it leaves out; `undone` are parts that this branch leaves out.
        """
        seen, role = results(view.path.steps), self._roles.answering
        answer = await answering.answered(self._model, gist(view), seen, emit, role=role)
        parts = self._parts(view)
        told = (parts.not_guessed(), answering.failed(view.path.steps), answer, parts.told(undone))
        return _finish(answering.with_told(*told), by=role)

    async def _without_results(self, view: View, emit: Emit) -> Thought:
        """Talk about all that was asked, or say that nothing is done, where it would have been guessed at."""
        if told := self._parts(view).not_guessed():
            return _finish(told)
        self._agenda, role = None, self._roles.answering
        answer = await talking.talked(self._model, view, emit, answer_tokens=self._answer_tokens, role=role)
        return _finish(answer, by=role)


def _finish(answer: str, *, by: str = "") -> Thought:
    return Thought("", Call(FINISH, {"answer": answer}), by)


def _given_up(last: Step) -> Thought:
    reason = f"{last.call.signature()} failed: {last.observation.text.strip()}"
    return Thought("", Call(FINISH, {"answer": reason, "give_up": True}))

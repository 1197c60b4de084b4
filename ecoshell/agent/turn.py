"""The driver: runs a strategy's requests against a mode and the guarded tools; and the attempts a turn is made of."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from ecoshell.agent.approval import AnswerNow, SpendApproval, StopNow
from ecoshell.agent.context import ContextKeeper
from ecoshell.agent.dependencies import Dependencies, now
from ecoshell.agent.fallback import fall_back
from ecoshell.agent.guards import CallContext, ToolExecutor
from ecoshell.agent.mode import Mode, View
from ecoshell.agent.model_set import AUTO
from ecoshell.agent.offer import TurnContext
from ecoshell.budget import price_unknown
from ecoshell.errors import (
    BudgetError,
    CallBroken,
    ContextExceeded,
    LimitReached,
    ModelBroken,
    ModelError,
    ModelMissing,
    PriceUnknown,
    StoreError,
    UsageError,
)
from ecoshell.events import (
    Answer,
    BranchLeft,
    BudgetSettled,
    CallFinished,
    Consumption,
    Emit,
    Event,
    ModeChosen,
    Notice,
    Rationale,
    Status,
    StepProposed,
    StepStarted,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    TurnStarted,
)
from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Observation, Usage
from ecoshell.planning.btp.evidence import CANDIDATES, ModeChoice, choose
from ecoshell.planning.btp.experience import Attempt
from ecoshell.secrecy import environ
from ecoshell.strategies import (
    FOUND_MOST,
    AskModel,
    Backtrack,
    CallTool,
    Draft,
    Drafted,
    Gathered,
    Outcome,
    Path,
    Rank,
    RunParallel,
    Step,
    Strategy,
    Thinking,
    Thought,
    Tried,
    same,
)
from ecoshell.strategies.react import onward
from ecoshell.tools import LASTING

_TOLD: frozenset[Status] = frozenset({"answered", "gave_up", "limit"})
"""How an attempt ends that is remembered; a failure and a stop say nothing of who thought."""
_EMPTY = {
    "content_filter": ": the provider's content filter removed it",
    "length": ": it reached its output limit ([agent] max_output_tokens, or a cap) before it answered",
    "stop": " and gave no reason (finish reason: stop)",
}
"""Why an answer was empty, by the finish reason."""
_UNAVAILABLE = (ModelMissing, ModelBroken, UsageError)


@dataclass(slots=True)
class TurnUsage:
    """Adds up what a turn costs from its events; money becomes unknown once any part of it is."""

    started: float = field(default_factory=time.monotonic)
    known_nano: int = 0
    unpriced: int = 0
    """Model calls of which nobody knows what they cost."""
    usage: Usage = field(default_factory=Usage)
    consumption: Consumption = field(default_factory=Consumption)
    """The same as people are shown it."""
    steps: int = 0
    worked: float = 0.0
    """Seconds of models and tools, one after another; the person's own are not in it."""
    saved_tokens: int = 0
    registered: list[str] = field(default_factory=list[str])
    _sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of what the agent registered."""
    _carried: int = 0
    _everything: int = 0

    @property
    def spent_nano(self) -> int | None:
        """What was spent; None when a part of it is unknown."""
        return None if self.unpriced else self.known_nano

    def see(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case BudgetSettled():
                self.known_nano += event.spent_nano or 0
                self.unpriced += event.spent_nano is None
                self.usage += event.usage
                self.consumption = self.consumption.plus(event)
                self.worked += event.seconds
            case CallFinished():
                self.known_nano += event.spent_nano
                self.consumption = self.consumption.plus_price(event.spent_nano)
                self.worked += event.seconds
            case StepStarted():
                if event.step > self.steps:  # one that has met a limit begins twice
                    self.saved_tokens += max(0, self._everything - self._carried)
                self.steps = event.step
            case ToolsOffered():
                self._carried, self._everything = event.context_tokens, event.everything_tokens
            case ToolRegistered():
                self._sizes[event.name] = event.tokens if event.by == "agent" else 0
                self._carried += self._sizes[event.name]
                self.registered.append(event.name)
            case BranchLeft():
                self._carried -= sum(self._sizes.get(name, 0) for name in event.unregistered)
            case _:
                pass


@dataclass(slots=True)
class Attempts:
    """One turn's attempts at its question. Call `begin` first."""

    deps: Dependencies
    asked: TurnStarted
    session: str
    usage: TurnUsage
    """What the turn takes, as far as it has come."""
    tell: Emit
    _before: TurnUsage = field(default_factory=TurnUsage)
    """The same as it was when the attempt began."""
    _names: str = ""
    _again: bool = False
    """Whether the other mode has taken over already."""

    async def begin(self) -> None:
        """In the mode AUTO, choose who thinks and say why; raises nothing for want of experience or of a model."""
        if self.deps.models.mode == AUTO:
            first, models = CANDIDATES[0], self.deps.models
            playing = {mode: models.playing(mode) for mode in CANDIDATES}
            past, question = self.deps.experience.past, self.asked.question
            try:
                if models.no_choice:
                    choice = ModeChoice(first, models.no_choice)
                else:
                    known = await asyncio.to_thread(past.modes, question, playing)
                    choice = choose(known, self.deps.settings.hour_nano or 0)
            except (StoreError, ModelMissing) as failure:
                choice = ModeChoice(first, f"there is no experience to go by; {failure}")
            if not await self._think_as(choice.mode, choice.why):
                await self._think_as(first, "it can be had")
        self._start()

    async def take_over(self, reason: str) -> bool:
        """Whether the other mode goes on, now that this one has given up for a reason: once, in the mode AUTO alone."""
        models = self.deps.models
        if models.mode != AUTO or self._again or models.no_choice:
            return False
        self._again, before = True, models.current.mode.name
        other = next(mode for mode in CANDIDATES if mode != before)
        await self.end("gave_up")
        taken = await self._think_as(other, f"{before} gave up{f': {reason}' if reason else ''}", after=before)
        if taken:
            self._start()
        return taken

    async def end(self, status: Status) -> None:
        """Remember what the attempt has come to, unless another model took part in it or it is remembered already."""
        names, self._names = self._names, ""
        usage, before = replace(self.usage), self._before
        mode, strategy = self.deps.models.current.mode.name, self.deps.settings.strategy
        if status not in _TOLD or not names or names != self.deps.models.playing(mode):
            return

        def made() -> Attempt:  # where its time does not count
            from ecoshell.planning.btp.redaction import QUERY, beginning

            return Attempt(
                query=beginning(self.asked.question, environ, QUERY),
                mode=mode,
                models=names,
                strategy=strategy,
                outcome=status,
                price_nano=None if usage.unpriced > before.unpriced else usage.known_nano - before.known_nano,
                tokens=usage.usage.total - before.usage.total,
                seconds=usage.worked - before.worked,
                session=self.session,
                turn=self.asked.turn,
                at=now(),
            )

        if self.deps.settings.recording:
            await self.deps.experience.remember(made, self.tell)

    def _start(self) -> None:
        models = self.deps.models
        self._before, self._names = replace(self.usage), models.playing(models.current.mode.name)

    async def _think_as(self, mode: str, why: str, after: str = "") -> bool:
        """Go over to a mode and say so.

        False, and a notice, where its models cannot be had, or one has no price and a cap in dollars stands.
        """
        models = self.deps.models
        try:
            await models.choose(mode)
            if mode != CANDIDATES[0]:
                unpriced = [model.traits.name for model in models.current.models if model.traits.price is None]
                capped = [cap for cap in await self.deps.budget.caps() if cap.unit == "usd"]
                if refused := [(name, cap) for name in unpriced for cap in capped if cap.over(name)]:
                    raise price_unknown(*refused[0])
        except (*_UNAVAILABLE, PriceUnknown) as failure:
            self.tell(Notice(f"{mode} cannot think. {failure}"))
            return False
        chosen = models.chosen = ModeChosen(mode, models.name, why, after)
        self.tell(chosen)
        return True


if TYPE_CHECKING:
    from ecoshell.agent.parallel import ParallelPlan

T = TypeVar("T")
Reply = Thought | tuple[Observation, ...] | Drafted | Gathered | None
"""What a strategy is sent."""
MOST_CALLS = 64
"""Calls of one reply that are made."""
TakeOver = Callable[[str], Awaitable[bool]]
"""Told why a mode has given up; says whether another goes on from there."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended."""

    status: Status
    answer: str = ""


@dataclass(eq=False, kw_only=True)
class Turn:
    """One question's way to its answer. Raises ModelError, StoreError and the budget errors that no choice can lift."""

    turn_context: TurnContext
    mode: Mode
    strategy: Strategy
    executor: ToolExecutor
    spending: SpendApproval
    context: ContextKeeper
    emit: Emit
    _path: Path = field(default_factory=lambda: Path(""))
    _best: Path = field(default_factory=lambda: Path(""))
    """The latest of the paths with the most results: what an answer is written from when the search is over."""
    _steps: int = 0
    _most: int = 0
    _ids: set[str] = field(default_factory=set[str])
    """Of all calls so far: some providers count them anew in every reply."""
    _why: dict[str, tuple[str, str, bool]] = field(default_factory=dict[str, tuple[str, str, bool]])
    """Of each call, by its id: why it is made, the role that made it, and whether why is told when it is made."""
    _unavailable: set[str] = field(default_factory=set[str])
    """Models that failed in this turn."""
    _answerer: str = ""
    """The role of the last thought that could end the turn."""

    @cached_property
    def _parallel(self) -> "ParallelPlan":
        """How parallel plans are made and run, which few strategies ask for."""
        from ecoshell.agent.parallel import ParallelPlan

        return ParallelPlan(self.turn_context, executor=self.executor, emit=self.emit)

    async def run(self, question: str, max_steps: int, take_over: TakeOver) -> Ended:
        """Drive the strategy until it ends, a limit ends it, or the task is cancelled.

        Where it gives up and another mode takes over, that goes on as ReAct does, from what was found.
        """
        self._go_on(Path(question))
        self._most = max_steps
        try:
            outcome = await self._drive(self.strategy(question, max_steps))
            if outcome.ending == "gave_up" and self._steps < max_steps:
                self._go_on(outcome.path)
                taken = await take_over(outcome.answer)
                await self._follow()
                if taken:
                    outcome = await self._drive(onward(outcome.path, max_steps - self._steps))
            return await self._end(outcome)
        except AnswerNow:
            return await self._conclude()
        except CallBroken as broken:
            self.emit(Notice(f"{broken.message} The answer comes from what there is."))
            try:
                ended = await self._conclude()
            except ModelBroken:
                raise broken from None
            if not ended.answer:
                raise
            return ended
        except StopNow:
            return Ended("limit")
        finally:
            await self._give_back()

    async def _drive(self, thinking: Thinking) -> Outcome:
        """Fulfil one request after another, to the end."""
        reply: Reply = None
        try:
            while True:
                want = thinking.send(reply)
                self._go_on(want.path)
                match want:
                    case AskModel():
                        reply = await self._think(want)
                    case CallTool():
                        reply = await self._act(want)
                    case Rank():  # its price was not asked about: it is less than that of either thought, which were
                        try:
                            view = self.turn_context.view(want.path)
                            reply = await self.mode.prefer(view, want.one, want.other, self.emit)
                        except LimitReached as limit:
                            reply = None
                            self.emit(Notice(f"Two steps were proposed and could not be compared. {limit.message}"))
                    case Backtrack():
                        reply = self._backtrack(want.to, want.reason)
                    case Draft():
                        reply = await self._draft(want)
                    case RunParallel():
                        reply = await self._parallel.run(self.mode, want.path, self._steps)
        except StopIteration as stop:
            return stop.value
        finally:
            thinking.close()

    @property
    def view(self) -> View:
        """What the next step would see, as far as the turn has come."""
        return self.turn_context.view(self._path)

    def _go_on(self, path: Path) -> None:
        """Go on along this path."""
        self._path = path
        if path.results >= self._best.results:
            self._best = path

    def _backtrack(self, to: Path, reason: str) -> None:
        """Go on from another path, if it is another; says which calls left behind had effects that stay."""
        catalog = self.turn_context.catalog
        pairs = zip(self._path.steps, to.steps, strict=False)
        shared = len(list(takewhile(lambda pair: pair[0] is pair[1], pairs)))
        left = self._path.steps[shared:]
        if left or len(to.steps) > shared:
            registered = self.turn_context.registered(to)
            gone = tuple(name for name in self.turn_context.registered(self._path) if name not in registered)
            calls = tuple(step.call.id for step in to.steps)
            self.emit(BranchLeft(calls, len(left), reason, gone))
            made = (step.call for step in left if not step.observation.refused and step.call.name != TOOL_REGISTER)
            tools = [call.subject for call in made if call.subject in catalog]
            lasting = ", ".join(dict.fromkeys(name for name in tools if catalog.tool(name).effects & LASTING))
            if lasting:
                self.emit(Notice(f"What {lasting} did on the way that was left is not undone by going back."))
        self._go_on(to)

    async def _act(self, want: CallTool) -> tuple[Observation, ...]:
        """The calls of one thought: in order, and those side by side that follow one another, read only and differ."""
        catalog, path, seen = self.turn_context.catalog, want.path, list[Observation]()
        waiting = [*want.calls]
        while waiting:
            group = [waiting.pop(0)]
            registered = self.turn_context.registered(path)
            while waiting:
                both = (group[0], waiting[0])
                read = all(one.name in catalog and catalog.tool(one.name).effects <= {"read"} for one in both)
                if not read or any(same(one, waiting[0]) for one in group):
                    break
                if waiting[0].name not in registered and any(one.name == waiting[0].name for one in group):
                    break  # the first call of a loaded tool registers it
                group.append(waiting.pop(0))
            self._go_on(path)
            try:
                async with asyncio.TaskGroup() as side_by_side:
                    running = [side_by_side.create_task(self._call(path, call)) for call in group]
            except BaseExceptionGroup as several:
                raise several.exceptions[0] from None
            found = [task.result() for task in running]
            path = path.then(*(Step("", call, one) for call, one in zip(group, found, strict=True)))
            seen += found
        return tuple(seen)

    async def _call(self, path: Path, call: Call) -> Observation:
        rationale, role, untold = self._why.pop(call.id, ("", "", False))
        if rationale and untold:
            self.emit(Rationale(rationale, self.mode.role))
        registered = frozenset(self.turn_context.registered(path))
        forgotten = self.turn_context.condensed.forgotten
        context = CallContext(path, registered, self.emit, rationale, role=role, forgotten=forgotten)
        return await self.executor.execute(call, context)

    async def _think(self, want: AskModel) -> Thought:
        def ask(view: View) -> Awaitable[Thought]:
            def hushed(event: Event) -> None:
                """Leave the rationale and the answer of a proposal for when it is taken."""
                answering = isinstance(event, TextArrived) and event.channel == "answer" and not view.closed
                if not (isinstance(event, Rationale) or answering):
                    self.emit(event)

            return self.mode.think(view, hushed if want.proposal else self.emit)

        view, thought = await self._step(want.path, want.tried, ask)
        if view.closed and not _ends(thought):
            raise AnswerNow  # it still wants a tool where none may be used
        return self._told(thought, proposal=want.proposal)

    async def _draft(self, want: Draft) -> Thought | Drafted | None:
        """A parallel plan; None where no tool may be used, so that there is nothing to plan."""
        view = self.turn_context.view(want.path)
        if view.closed or not view.usable:
            return None
        _, found = await self._step(want.path, (), lambda view: self._parallel.draft(self.mode, view, want))
        return self._told(found, proposal=False) if isinstance(found, Thought) else found

    async def _step(self, path: Path, tried: tuple[Tried, ...], ask: Callable[[View], Awaitable[T]]) -> tuple[View, T]:
        """What the mode is asked for here, and the view it had; at a limit the person says how to go on.

        What would conclude the turn is set aside for the path that found most. A context that is full is compacted
        before; a prompt that a provider refuses as too long is compacted and asked once more.
        """
        await self.turn_context.plan.refresh(self.emit)
        view, agreed = self.turn_context.view(path, tried), ""
        refused: ContextExceeded | None = None
        has_retried = False
        while True:
            try:
                if await self.context.make_room(path, tried, refused=refused is not None):
                    view, refused = self.turn_context.view(path, tried), None
                if refused is not None:
                    raise refused
                if agreed != self.mode.model:  # else the person has said already that this step may go on
                    await self.spending.before_step(view, self.emit)
                    await self._follow()
                    agreed = self.mode.model
                await self.mode.hold_answer(self.turn_context.view(self._best))
                self.emit(StepStarted(self._steps + 1, self.mode.role, self.mode.model))
                found = await ask(view)
                break
            except ContextExceeded as exceeded:
                if has_retried:
                    raise
                refused, has_retried = exceeded, True
            except LimitReached as hit:
                await self.spending.at_limit(hit, view, self.emit)
            except ModelError as error:
                if not await fall_back(self.spending.deps, error, self._unavailable, self.emit):
                    raise
            await self._follow()
            await self.turn_context.plan.refresh(self.emit)
            view = self.turn_context.view(path, tried)
        self._steps += 1
        return view, found

    def _told(self, thought: Thought, *, proposal: bool) -> Thought:
        """The thought once it is told of, its call with an id of its own."""
        role, call = thought.by or self.mode.role, thought.call
        if proposal:
            gives_up = call is not None and call.arguments.get("give_up")
            step = call.signature() if call and call.name != FINISH else "give up" if gives_up else "answer"
            self.emit(StepProposed(thought.rationale, step, self.mode.role))
        if _ends(thought):
            self._answerer = role
        if call is None:
            return thought
        if thought.rationale and not thought.told and not proposal:
            self.emit(Rationale(thought.rationale, self.mode.role))
        call = self._identified(call)
        self._why[call.id] = (thought.rationale, role, proposal)
        more = tuple(map(self._identified, thought.more[: MOST_CALLS - 1]))
        self._why |= {one.id: ("", role, False) for one in more}
        if len(more) < len(thought.more):
            made = 1 + len(thought.more)
            self.emit(Notice(f"The model made {made:,} calls in one reply; only the first {MOST_CALLS} run."))
        return replace(thought, call=call, more=more)

    def _identified(self, call: Call) -> Call:
        """The call with an id that no other of the turn has."""
        number, id_ = 1, call.id or f"c{self._steps}"
        while id_ in self._ids:
            number, id_ = number + 1, f"c{self._steps}" if number == 1 else f"c{self._steps}.{number}"
        self._ids.add(id_)
        return replace(call, id=id_)

    async def _follow(self) -> None:
        """Let the model think that the person chose meanwhile; what another had set aside is given back."""
        if self.spending.mode is not self.mode:
            await self._give_back()
            self.mode = self.spending.mode

    async def _end(self, outcome: Outcome) -> Ended:
        self._go_on(outcome.path)
        if outcome.ending == "exhausted":
            limit = f"The step limit of {self._most} was reached"
            why = outcome.why or (limit if self._steps >= self._most else "Every path that was tried failed")
            self.emit(Notice(f"{why}; answering from what there is."))
            return await self._conclude()
        answer, role = outcome.answer, self._answerer
        if outcome.ending == "answered" and not answer.strip():  # it is asked once more; else the result answers
            found = self._path.found
            try:
                answer, role = await self._concluding()
            except ModelBroken:
                if not found:
                    raise
                answer, role = "", ""
            if not answer and not found:
                alone = self._answerer in ("", self.mode.role)
                who, command = (self.mode.model, "/model") if alone else (f"The {self._answerer}", "/role")
                raise ModelBroken(
                    f"{who} gave an empty answer twice{_EMPTY.get(self.mode.finish, '')}.",
                    kept="The session is kept.",
                    fix=f"Ask again, or choose another model with {command}.",
                )
            answer = answer or _quoted(found[-1])
        self.emit(Answer(answer, role=role))
        return Ended(outcome.ending, answer)

    async def _conclude(self) -> Ended:
        """Answer from what there is; without such an answer, quote the last result."""
        await self._follow()
        self._backtrack(self._best, FOUND_MOST)
        text, role = await self._concluding()
        found = self._path.found
        if not text and found:
            quoted = _quoted(found[-1])
            below = "\n\n" if quoted.startswith("```") else " "
            text = f"The last result, as it came from {found[-1].call.subject}:{below}{quoted}"
        if text:
            self.emit(Answer(text, partial=True, role=role))
        return Ended("limit", text)

    async def _concluding(self) -> tuple[str, str]:
        """The answer from what there is and who wrote it, paid from what was set aside; empty where none came."""
        made_room = False
        while True:
            aside = self.mode.answer_hold
            try:
                text = (await self.mode.conclude(self.view, self.emit)).strip()
                return text, aside.account.role if text and aside is not None else ""
            except BudgetError as refused:
                self.emit(Notice(f"No model call fits under the cap any more. {refused.message}"))
                return "", ""
            except ContextExceeded:
                await self._give_back()
                if made_room or not await self.context.make_room(self._path, refused=True):
                    raise
                made_room = True
            except ModelError as error:
                if not await fall_back(self.spending.deps, error, self._unavailable, self.emit):
                    raise
            await self._follow()

    async def _give_back(self) -> None:
        """Release what the mode had set aside; where that fails it keeps counting, and the turn goes on."""
        try:
            await self.mode.release()
        except StoreError as failure:
            self.emit(Notice(f"What was reserved for the answer could not be released. {failure}"))


def _ends(thought: Thought) -> bool:
    """Whether a thought ends the turn with something to say."""
    return thought.call.name == FINISH if thought.call else bool(thought.rationale.strip())


def _quoted(step: Step) -> str:
    """What came of a step, so that Markdown shows it as it is."""
    from ecoshell.sessions.markdown import as_it_is

    return as_it_is(step.observation.text)

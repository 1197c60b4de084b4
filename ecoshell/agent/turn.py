"""The loop of a turn: drives a strategy, whose requests the mode and the guarded tools fulfil."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from ecoshell.agent.advisor import EMPTY_ANSWER, Advisor
from ecoshell.agent.automatic_compaction import ContextKeeper
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.fallback import fall_back
from ecoshell.agent.guards import ReplyCalls
from ecoshell.agent.mode import FillTask, Mode
from ecoshell.agent.spending import AnswerNow, SpendApproval, StopNow
from ecoshell.agent.tool_calls import ToolCalls
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.turn_usage import CapWatch
from ecoshell.agent.view import View
from ecoshell.errors import (
    BudgetError,
    CallBroken,
    ContextExceeded,
    LimitReached,
    ModelBroken,
    ModelError,
    StoreError,
)
from ecoshell.events import (
    Answer,
    BranchLeft,
    Emit,
    Event,
    Notice,
    Rationale,
    Status,
    StepProposed,
    StepStarted,
    TextArrived,
)
from ecoshell.messages import FINISH, TOOL_REGISTER, Call, Observation
from ecoshell.strategies import (
    FOUND_MOST,
    AskModel,
    Backtrack,
    CallTool,
    DraftGraph,
    GraphDraft,
    GraphResult,
    Outcome,
    Path,
    Rank,
    RunGraph,
    Sibling,
    Step,
    Strategy,
    Thinking,
    Thought,
)
from ecoshell.tools import LASTING
from ecoshell.tools.builtin.advisor import ASK_ADVISOR

if TYPE_CHECKING:
    from ecoshell.agent.tool_graph import ToolGraphs

T = TypeVar("T")
Reply = Thought | tuple[Observation, ...] | GraphDraft | GraphResult | None
"""What a strategy receives for a request."""
_EMPTY_REASONS = {
    "endless": ": it continued past max_tokens and was cut off",
    "content_filter": ": the provider's content filter removed it",
    "length": ": it reached its output limit ([agent] max_output_tokens, or a cap) before it answered",
    "stop": " and gave no reason (finish reason: stop)",
}
"""Why an answer was empty, by finish reason."""
_NO_TOOL_AFFORDABLE = "Not enough budget was left for a tool call."


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended."""

    status: Status
    answer: str = ""
    reason: str = ""
    """Why it ended early, if no event of a limit or an error says so."""


@dataclass(eq=False, kw_only=True)
class Turn:
    """One question's way to its answer. Raises ModelError, StoreError and budget errors that no choice can resolve."""

    deps: Dependencies
    start: View
    """The view at the turn's beginning; compaction replaces it."""
    plan: TurnPlan
    mode: Mode
    strategy: Strategy
    step_limit: int
    calls: ToolCalls
    spending: SpendApproval
    context: ContextKeeper
    watch: CapWatch
    advisor: Advisor
    emit: Emit
    offer_again: Callable[[View], Awaitable[View]]
    """Offers the tools at the turn's beginning once more; returns the same view if it has no room for them."""
    offers_tools: bool
    """Whether the budget had room for a tool when they were last offered."""
    _path: Path = field(default_factory=lambda: Path(""))
    _best: Path = field(default_factory=lambda: Path(""))
    """The latest path with the most results; the answer is based on it if the turn must conclude."""
    _steps: int = 0
    _unavailable: set[str] = field(default_factory=set[str])
    _switching: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a fallback model takes over from one that concurrent nodes of a tool graph use."""
    _stopped_text: str = ""
    """What the model had written when a cap in time last stopped a call."""
    _answerer: str = ""
    """The role of the last thought that could end the turn."""

    @cached_property
    def _tool_graphs(self) -> "ToolGraphs":
        """Makes and runs tool graphs, which few strategies need."""
        from ecoshell.agent.tool_graph import ToolGraphs

        calls = self.calls
        return ToolGraphs(self._view, executor=calls.executor, emit=self.emit, quoter=calls.quoter)

    async def run(self) -> TurnEnd:
        """Drive the strategy until it ends, a limit ends it, or the task is cancelled."""
        question = self.start.path.question
        self._go_on(Path(question))
        try:
            return await self._end(await self._drive(self.strategy(question, self.step_limit)))
        except AnswerNow as ending:
            return await self._conclude(str(ending))
        except CallBroken as broken:
            self.emit(Notice(f"{broken.message} Answering with the results so far."))
            try:
                end = await self._conclude(broken.message)
            except ModelBroken:
                raise broken from None
            if not end.answer:
                raise
            return end
        except StopNow:
            return TurnEnd("limit")
        finally:
            await self._release()

    async def _drive(self, thinking: Thinking) -> Outcome:
        """Fulfil the strategy's requests until it ends."""
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
                    case Rank():
                        reply = await self._rank(want)
                    case Backtrack():
                        reply = self._backtrack(want.to, want.reason)
                    case DraftGraph():
                        reply = await self._draft(want)
                    case RunGraph():
                        reply = await self._tool_graphs.run(self._fill, want.path, self._steps)
        except StopIteration as stop:
            return stop.value
        finally:
            thinking.close()

    @property
    def view(self) -> View:
        return self._view(self._path)

    def _view(self, path: Path, siblings: tuple[Sibling, ...] = ()) -> View:
        return self.start.at(
            path, siblings, catalog=self.deps.catalog, forbidden=self.plan.forbidden
        )

    def _go_on(self, path: Path) -> None:
        self._path = path
        if path.results >= self._best.results:
            self._best = path

    def _backtrack(self, to: Path, reason: str) -> None:
        """Continue from another path, and report which abandoned calls had lasting effects."""
        catalog = self.deps.catalog
        pairs = zip(self._path.steps, to.steps, strict=False)
        shared = len(list(takewhile(lambda pair: pair[0] is pair[1], pairs)))
        abandoned = self._path.steps[shared:]
        if abandoned or len(to.steps) > shared:
            names, registered = self.view.registered_names, self._view(to).registered_names
            unregistered = tuple(name for name in names if name not in registered)
            calls = tuple(step.call.id for step in to.steps)
            self.emit(BranchLeft(calls, len(abandoned), reason, unregistered))
            made = [step.call for step in abandoned if not step.observation.refused]
            tools = dict.fromkeys(call.subject for call in made if call.name != TOOL_REGISTER)
            known = [name for name in tools if name in catalog]
            lasting = ", ".join(name for name in known if catalog.tool(name).effects & LASTING)
            if lasting:
                self.emit(Notice(f"Backtracking does not undo the effects of {lasting}."))
        self._go_on(to)

    async def _act(self, want: CallTool) -> tuple[Observation, ...]:
        """Run the calls of one thought in order; consecutive, different calls that only read run concurrently."""
        path, observations = want.path, list[Observation]()
        pending, reply = [*want.calls], ReplyCalls({call.id for call in want.calls})
        while pending:
            self._go_on(path)
            view = self.view
            group = self.calls.next_group(pending)
            del pending[: len(group)]
            results = await self.calls.run(path, view, group, reply)
            path = path.then(*(Step("", *pair) for pair in zip(group, results, strict=True)))
            observations += results
        return tuple(observations)

    async def _think(self, want: AskModel) -> Thought:
        def think(view: View) -> Awaitable[Thought]:
            def emit_proposal(event: Event) -> None:
                """Hold back the rationale and the answer of a proposal until it is chosen."""
                is_answer = (
                    isinstance(event, TextArrived) and event.channel == "answer" and not view.closed
                )
                if not (isinstance(event, Rationale) or is_answer):
                    self.emit(event)

            return self.mode.think(view, emit_proposal if want.proposal else self.emit)

        view, thought = await self._step(want.path, want.siblings, think)
        if view.closed and not _ends(thought):
            raise AnswerNow(_NO_TOOL_AFFORDABLE)  # it wants a tool although none may be used
        return self._reported(thought, proposal=want.proposal)

    async def _rank(self, want: Rank) -> Thought | None:
        """The better of two thoughts; costs less than either, so that the user is not asked."""
        try:
            return await self.mode.prefer(self._view(want.path), want.first, want.second, self.emit)
        except LimitReached as limit:
            self.emit(Notice(f"Two steps were proposed and could not be compared. {limit.message}"))
            return None

    async def _draft(self, want: DraftGraph) -> Thought | GraphDraft | None:
        """A tool graph; None if no tool may be used."""
        view = self._view(want.path)
        if view.closed or not view.usable:
            return None
        _, draft = await self._step(
            want.path, (), lambda view: self._tool_graphs.draft(self.mode, view, want)
        )
        return self._reported(draft, proposal=False) if isinstance(draft, Thought) else draft

    async def _fill(self, path: Path, task: FillTask, emit: Emit) -> Call:
        """The call of a node of a tool graph; a fallback model takes over for all nodes."""
        while True:
            mode = self.mode
            try:
                return await mode.fill(self._view(path), task, emit)
            except ModelError as error:
                async with self._switching:
                    if self.mode is not mode:  # another node has switched
                        continue
                    if not await fall_back(self.deps, error, self._unavailable, self.emit):
                        raise
                    await self._follow()
                    await self.mode.hold_answer(self._view(self._best))

    async def _step(
        self, path: Path, siblings: tuple[Sibling, ...], ask: Callable[[View], Awaitable[T]]
    ) -> tuple[View, T]:
        """Ask the mode for a step and return it with its view; at a limit, the user decides how to go on.

        Before it, the context is compacted if it is full, and the answer's price is reserved for the best path.
        """
        view, approved_model = self.start, ""

        async def attempt(overflow: ContextExceeded | None) -> T:
            nonlocal view, approved_model
            while True:
                await self.plan.refresh(self.emit)
                self.watch.look(self.plan.caps, self.emit)
                view = self._view(path, siblings)
                try:
                    if await self._made_room(view, path, siblings, refused=overflow is not None):
                        view = self._view(path, siblings)
                    elif overflow is not None and overflow.limit is None:
                        raise overflow
                    overflow = None
                    if approved_model != self.mode.model:  # else this step is approved already
                        await self.spending.before_step(view, self.emit)
                        await self._follow()
                        approved_model = self.mode.model
                    is_best = path is self._best and not siblings
                    await self.mode.hold_answer(view if is_best else self._view(self._best))
                    self.emit(StepStarted(self._steps + 1, self.mode.role, self.mode.model))
                    return await ask(view)
                except LimitReached as hit:
                    self._stopped_text = hit.text
                    await self.spending.at_limit(hit, view, self.emit)
                await self._follow()
                if not self.offers_tools:
                    await self._offer_again()

        result = await self._until_done(attempt)
        self._steps += 1
        return view, result

    async def _offer_again(self) -> None:
        """Offer the tools if there is room for one since the user raised the cap or changed the model."""
        await self.plan.follow(self.emit)
        if self.plan.allows_tools:
            again = await self.offer_again(self.start)
            self.offers_tools, self.start = again is not self.start, again

    async def _made_room(
        self, view: View, path: Path, siblings: tuple[Sibling, ...] = (), *, refused: bool
    ) -> bool:
        """Compact the next request of a path if necessary; returns whether anything changed."""
        start = self.start
        self.start = await self.context.make_room(start, view, path, siblings, refused=refused)
        return self.start is not start

    async def _until_done(self, attempt: Callable[[ContextExceeded | None], Awaitable[T]]) -> T:
        """Repeat a request: once after a context overflow, which `attempt` then receives, and with fallback models.

        An overflow that states the context suffices for another attempt: its output is shorter.
        """
        overflow: ContextExceeded | None = None
        has_overflowed = False
        while True:
            try:
                return await attempt(overflow)
            except ContextExceeded as exceeded:
                if has_overflowed:
                    raise
                overflow, has_overflowed = exceeded, True
            except ModelError as error:
                if not await fall_back(self.deps, error, self._unavailable, self.emit):
                    raise
                overflow = None
            await self._follow()

    def _reported(self, thought: Thought, *, proposal: bool) -> Thought:
        """Report a thought, and give its calls unique IDs."""
        role, call = thought.by or self.mode.role, thought.call
        if proposal:
            step = "answer"
            if call is not None and call.name != FINISH:
                step = call.signature()
            elif call is not None and call.arguments.get("give_up"):
                step = "give up"
            self.emit(StepProposed(thought.rationale, step, self.mode.role))
        if _ends(thought):
            self._answerer = role
        if call is None:
            return thought
        if thought.rationale and not thought.announced and not proposal:
            self.emit(Rationale(thought.rationale, self.mode.role))
        unreported_role = self.mode.role if proposal else ""
        return self.calls.accept(thought, call, self._steps, role, unreported_role)

    async def _follow(self) -> None:
        """Switch to the mode that the user or a fallback chose meanwhile, and release the previous reservation."""
        if self.spending.mode is not self.mode:
            await self._release()
            self.mode = self.spending.mode

    async def _end(self, outcome: Outcome) -> TurnEnd:
        self._go_on(outcome.path)
        if outcome.ending == "exhausted":
            reason = outcome.why or "Every path that was tried failed"
            if not outcome.why and self._steps >= self.step_limit:
                reason = f"The step limit of {self.step_limit} was reached"
            self.emit(Notice(f"{reason}; answering with the results so far."))
            return await self._conclude(f"{reason}.")
        answer, role = outcome.answer, self._answerer
        if outcome.ending in ("limit", "error"):
            if outcome.cause is not None:
                self.emit(outcome.cause)
            if answer:
                self.emit(Answer(answer, partial=True))
            return TurnEnd(outcome.ending, answer)
        if outcome.ending == "answered" and not answer.strip():
            await self._advise_after_empty_answer()
            answer, role = await self._second_answer()
        self.emit(Answer(answer, role=role))
        return TurnEnd(outcome.ending, answer)

    async def _advise_after_empty_answer(self) -> None:
        """Ask the advisor once, whose advice the second attempt reads as the result of a call."""
        if self.advisor.may_help:
            call = self.calls.identified(Call(ASK_ADVISOR, {"question": EMPTY_ANSWER}), self._steps)
            self.advisor.use_up()
            (advice,) = await self.calls.run(self._path, self.view, [call], ReplyCalls())
            self._go_on(self._path.then(Step("", call, advice)))

    async def _second_answer(self) -> tuple[str, str]:
        """Ask again after an empty answer; without success, quote the last result or raise ModelBroken."""
        results = self._path.result_steps
        try:
            answer, role = await self._final_text()
        except ModelBroken:
            if not results:
                raise
            answer, role = "", ""
        if not answer and not results:
            subject, command = self.mode.model, "/model"
            if self._answerer not in ("", self.mode.role):
                subject, command = f"The {self._answerer}", "/role"
            attempts = "" if answer is None else " twice"
            reason = _EMPTY_REASONS.get(self.mode.finish, "")
            raise ModelBroken(
                f"{subject} gave an empty answer{attempts}{reason}.",
                kept="The session is kept.",
                fix=f"Ask again, or choose another model with {command}.",
            )
        return answer or _quoted(results[-1]), role

    async def _conclude(self, reason: str) -> TurnEnd:
        """Answer with the results so far; if that fails, quote the last result."""
        await self._follow()
        self._backtrack(self._best, FOUND_MOST)
        text, role = await self._final_text()
        results = self._path.result_steps
        text = text or self._stopped_text.strip()
        if not text and results:
            quote = _quoted(results[-1])
            separator = "\n\n" if quote.startswith("```") else " "
            text = f"The last result, as returned by {results[-1].call.subject}:{separator}{quote}"
        if text:
            self.emit(Answer(text, partial=True, role=role))
        return TurnEnd("limit", text, reason)

    async def _final_text(self) -> tuple[str | None, str]:
        """The answer from the results so far, paid from its reservation, and its role; None if no call is possible."""

        async def attempt(overflow: ContextExceeded | None) -> tuple[str | None, str]:
            if overflow is not None:
                await self._release()
                made_room = await self._made_room(self.view, self._path, refused=True)
                if not made_room and overflow.limit is None:
                    raise overflow
            hold = self.mode.answer_hold
            try:
                text = (await self.mode.conclude(self.view, self.emit)).strip()
            except BudgetError as refused:
                if isinstance(refused, LimitReached) and refused.text.strip():
                    self.emit(Notice(f"The answer is incomplete. {refused.message}"))
                    return refused.text.strip(), hold.account.role if hold is not None else ""
                self.emit(Notice(f"No further model call fits under the cap. {refused.message}"))
                return None, ""
            return text, hold.account.role if text and hold is not None else ""

        return await self._until_done(attempt)

    async def _release(self) -> None:
        """Release the mode's reservation; if that fails, it keeps counting and the turn goes on."""
        try:
            await self.mode.release()
        except StoreError as failure:
            self.emit(Notice(f"The reservation for the answer could not be released. {failure}"))


def _ends(thought: Thought) -> bool:
    """Whether a thought ends the turn with an answer."""
    return thought.call.name == FINISH if thought.call else bool(thought.rationale.strip())


def _quoted(step: Step) -> str:
    """A step's result, escaped so that Markdown shows it verbatim."""
    from ecoshell.sessions.markdown import unchanged

    return unchanged(step.observation.text)

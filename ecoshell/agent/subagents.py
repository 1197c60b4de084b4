"""Subagents: separate conversations that work for a call of `task`, under a share of the remaining budget."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from ecoshell.agent.agent_files import AgentDefinition
from ecoshell.agent.conversation import Conversation
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import Bill
from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.spending import TaskBudget, charging
from ecoshell.agent.task_command import TaskTurn
from ecoshell.agent.turn_setup import Question
from ecoshell.agent.turn_usage import UserTime
from ecoshell.agent.user_interface import CostChoice, NonInteractive, UserInterface
from ecoshell.budget import TASK as SHARE
from ecoshell.budget import (
    Account,
    Amount,
    Unit,
    about,
    amount_text,
    nano_to_usd_text,
    parse_amount,
)
from ecoshell.budget.gate import finished, sharing
from ecoshell.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import EcoshellError, StoreError, ToolError, UsageError, closest_word
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallStarted,
    Consumption,
    CostChosen,
    CostWanted,
    Emit,
    ErrorHappened,
    Event,
    HookRan,
    LimitHit,
    Notice,
    Status,
    SubagentFinished,
    SubagentLimited,
    SubagentProgressed,
    SubagentStarted,
    TurnFinished,
)
from ecoshell.events.turn import ENDINGS
from ecoshell.messages import Call, Observation, Usage, visible_line
from ecoshell.planning.btp.costs import StepCost
from ecoshell.tools import LASTING
from ecoshell.tools.builtin.task import TASK, Delegation

MAX_DEPTH = 2
"""How often a task may be delegated further: a subagent's own subagents delegate nothing."""
UNNAMED = "subagent"
"""The name of a subagent without a definition."""
_COMPARED_TOKENS = (4_000, 1_000)
"""Prompt and output of a typical call, by which the prices of models are compared."""
_CLOSING = (
    "Another agent delegated this to you and reads nothing but your final answer. Work without asking questions, "
    "and end with a short, complete report."
)
_DOING_CHARACTERS = 40
"""Characters of the running tool's name in a report of progress."""


@dataclass(eq=False)
class SubagentUser(NonInteractive):
    """The user as a subagent reaches them: for expensive steps; `Approvals` asks about calls.

    At a limit the subagent answers with its results so far.
    """

    user: UserInterface
    turn: asyncio.Lock

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        async with self.turn:
            return await self.user.at_cost(wanted)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A delegated task that can start."""

    name: str
    question: str
    catalog: Catalog
    models: ActiveModels
    budget: Amount | None


@dataclass(eq=False)
class Subagents:
    """The subagents that the agent of one session started."""

    deps: Dependencies
    session: str
    _slots: asyncio.Semaphore = field(init=False)
    _running: dict[str, tuple[Amount, ...]] = field(default_factory=dict[str, tuple[Amount, ...]])
    """The shares of running subagents by task."""
    _waiting: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """By the call of a task without a share: the calls of the same reply without one, itself included.

    The rest of the budget is divided among all of them, also those that have not arrived here yet.
    """
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lets subagents ask the user one at a time."""
    task_turn: TaskTurn | None = None
    """The running turn of `/task`; None in other turns."""
    user_time: UserTime = field(default_factory=UserTime)
    """The time in which any of the running ones waits for the user, since the others may have to wait, too."""
    notes: set[str] = field(default_factory=set[str])
    """What the running ones have reported to the user."""

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.deps.settings.tasks_at_once)

    async def run(
        self, delegation: Delegation, call: Call, emit: Emit, bill: Bill, reply_calls: set[str]
    ) -> Observation:
        """Run a subagent to its end and return its summary; raises ToolError if it cannot start.

        `reply_calls` has the calls of the same reply that have no share yet; this one is removed when it has one.
        """
        reply_calls.add(call.id)
        self._waiting[call.id] = reply_calls
        try:
            plan = await self._plan(delegation, emit)
        except EcoshellError as error:
            raise ToolError(f"No subagent was started. {error}") from error
        else:
            return await self._start(plan, call, emit, bill)
        finally:
            self._end_waiting(call)

    def _end_waiting(self, call: Call) -> None:
        self._waiting.pop(call.id, set()).discard(call.id)

    async def _start(self, plan: _Plan, call: Call, emit: Emit, bill: Bill) -> Observation:
        """Run a planned subagent when there is room for one more."""
        try:
            async with self._slots:
                account, session = self.deps.budget.account(), ""
                try:
                    session, shares = await self._open(plan, account)
                    self._end_waiting(call)
                    account = replace(account, task=_path(account.task, session))
                    return await _Run(self, plan, session, account, shares, call, emit).run(bill)
                finally:
                    self._running.pop(session, None)
        finally:
            await plan.models.aclose()

    async def _plan(self, delegation: Delegation, emit: Emit) -> _Plan:
        """Check a delegation and prepare its parts; raises EcoshellError."""
        deps = self.deps
        check_delegation(delegation, deps)
        agent = AgentDefinition(UNNAMED)
        if name := delegation.agent.strip():
            agent = await deps.agents().definition(name, deps.user, emit)
        model, budget = model_and_share(delegation, agent, deps)
        catalog = self._catalog(agent, delegation.tools, emit)
        parts = (delegation.instructions.strip(), agent.instructions, _CLOSING)
        models = await asyncio.to_thread(deps.models.lend, model)
        return _Plan(agent.name, "\n\n".join(filter(None, parts)), catalog, models, budget)

    def _catalog(self, agent: AgentDefinition, allowed: Sequence[str], emit: Emit) -> Catalog:
        """The tools of a subagent: those of its definition that the task allows; raises UsageError.

        It knows all skills, which may be named among the tools.
        """
        parents, skills = self.deps.catalog, self.deps.catalog.skills
        where = f" in {agent.file}" if agent.file else ""
        own = [name for name in agent.tools if name not in skills]
        if unknown := [name for name in own if name not in parents]:
            if not agent.is_foreign:
                raise _unknown_tool(unknown[0], parents, where)
            names = visible_line(", ".join(unknown))
            emit(Notice(f"{agent.name} works without tools that are unknown here: {names}."))
            own = [name for name in own if name in parents]
        if unknown := [name for name in allowed if name not in parents and name not in skills]:
            raise _unknown_tool(unknown[0], parents)
        names = own if agent.tools else parents.names
        names = [name for name in names if not allowed or name in allowed]
        could_delegate = _depth(self.deps) + 1 < MAX_DEPTH
        if not could_delegate and TASK not in (*own, *allowed):
            names = [name for name in names if name != TASK]
        catalog = Catalog(parents.tool(name) for name in names)
        catalog.skills = skills
        return catalog

    async def _open(self, plan: _Plan, account: Account) -> tuple[str, tuple[Amount, ...]]:
        """Start the subagent's session with its share; raises ToolError."""
        deps, ledger = self.deps, self.deps.budget.gate.ledger
        workspace = str(deps.environment.workspace.root)
        try:
            async with self._starting:
                if not self._running:  # a question of one that was stopped stays open
                    self.user_time, self.notes = UserTime(), set[str]()
                shares = await self._shares(plan.budget, account)
                session = await deps.log.start(
                    workspace=workspace, model=plan.models.name, parent=self.session
                )
                task = _path(account.task, session)
                await finished(asyncio.to_thread(ledger.set_share, task, shares))
                self._running[session] = shares
        except EcoshellError as error:
            raise ToolError(f"No subagent was started. {error}") from error
        return session, shares

    async def _shares(self, budget: Amount | None, account: Account) -> tuple[Amount, ...]:
        """The caps of a new subagent: the stated budget, or an equal part of the rest; raises UsageError."""
        free = await self._free(account)
        if budget is not None:
            if budget.value > free.get(budget.unit, budget.value):
                rest = amount_text(max(0, free[budget.unit]), budget.unit)
                fix = "Delegate it with less, or let the user raise the cap."
                if self.task_turn is not None:
                    fix = "Name a smaller amount, or raise the cap."
                reason = f"Its share of {budget} is more than the {rest} that is left."
                raise UsageError(reason, fix=fix)
            return (budget,)
        parts = len(set[str]().union(*self._waiting.values())) + 1
        shares = tuple(Amount(amount // parts, unit) for unit, amount in free.items())
        if used_up := next((share for share in shares if share.value <= 0), None):
            words = {"usd": "budget", "tokens": "token budget", "ms": "working time"}[used_up.unit]
            fix = "Continue without one." if self.task_turn is None else "Raise the cap."
            raise UsageError(f"Nothing of the {words} is left for a subagent.", fix=fix)
        return shares

    async def _free(self, account: Account) -> dict[Unit, int]:
        """What the caps leave, without what the shares of running subagents still allow them to spend."""
        ledger = self.deps.budget.gate.ledger
        running = dict(self._running)  # some may end meanwhile
        paths = [account.task, *(_path(account.task, session) for session in running)]
        read = partial(ledger.caps_of_tasks, account.session, account.turn, paths)
        own_caps, *caps_of_running = await asyncio.to_thread(read)
        free: dict[Unit, int] = {}
        for cap in (*own_caps, *await asyncio.to_thread(ledger.shared_caps)):
            free[cap.unit] = min(cap.left, free.get(cap.unit, cap.left))
        for shares, caps in zip(running.values(), caps_of_running, strict=True):
            for unit in free.keys() & {share.unit for share in shares}:
                left = (cap.left for cap in caps if cap.scope == SHARE and cap.unit == unit)
                free[unit] -= next(left, 0)
        return free


@dataclass(eq=False)
class _Run:
    """The work of one subagent."""

    owner: Subagents
    plan: _Plan
    session: str
    account: Account
    shares: tuple[Amount, ...]
    call: Call
    emit: Emit
    _status: Status = "error"
    _answer: str = ""
    _cause: LimitHit | ErrorHappened | None = None
    """The last limit that it met, or its error."""
    _reason: str = ""
    """Why it ended early without either."""
    _doing: str = ""
    _changed_by: dict[str, None] = field(default_factory=dict[str, None])
    """The tools with lasting effects that ran, in order."""
    _cost: StepCost = field(default_factory=StepCost)
    _usage: Usage = field(default_factory=Usage)
    _consumption: Consumption = field(default_factory=Consumption)
    """Price and usage for display."""
    _calls: int = 0
    """Model calls."""
    _started: float = field(default_factory=time.monotonic)

    async def run(self, bill: Bill) -> Observation:
        """Ask the subagent's only question and report its start, progress and end."""
        plan, task_turn = self.plan, self.owner.task_turn
        attachments = () if task_turn is None else task_turn.attachments
        started_working = self.owner.user_time.clock
        identity = (self.call.id, plan.name, self.session)
        dollars = [nano_to_usd_text(share.value) for share in self.shares if share.unit == "usd"]
        question = Question(plan.question, attachments)
        share_usd, share = next(iter(dollars), None), ", ".join(map(str, self.shares))
        self.emit(SubagentStarted(*identity, plan.models.name, share_usd, share))
        try:
            # its calls do not wait for those of other subagents
            with charging(self.account), sharing():
                conversation = await asyncio.to_thread(Conversation, self._deps(), self.session)
                async with aclosing(conversation.ask(question)) as events:
                    async for event in events:
                        self._see(event)
        except asyncio.CancelledError:
            self._status = "interrupted"
            raise
        except StoreError as failure:
            self._cause = ErrorHappened.of(failure)
        finally:
            await finished(self._close())
            nano = self._cost.nano
            bill.delegated_nano += nano or 0
            if self._calls:
                bill.subagent_model = plan.models.name
                bill.worked_seconds = self.owner.user_time.clock - started_working
            ended = SubagentFinished(
                *identity,
                self._status,
                share_usd,
                None if nano is None else nano_to_usd_text(nano),
                share,
                self._spent,
                time.monotonic() - self._started,
                self._usage,
                plan.models.name,
                self._calls,
                tuple(self._changed_by),
                self._consumption.estimate,
                self._consumption.estimate_nano,
            )
            self.emit(ended)
        if task_turn is not None:
            task_turn.status, task_turn.cause = self._status, self._cause_for_user()
        return self._observation()

    def _deps(self) -> Dependencies:
        """The parts of the subagent's conversation."""
        deps, plan = self.owner.deps, self.plan
        ranker, user = Ranker(plan.catalog.schemas), deps.user
        if not isinstance(user, NonInteractive):
            user = SubagentUser(user, self.owner.asking)
        return replace(
            deps,
            catalog=plan.catalog,
            ranker=ranker,
            providers=deps.providers.following(plan.catalog, ranker),
            budget=TaskBudget(deps.budget.gate),
            user=user,
            workspace=deps.workspace.of_subagent(),
            judge=replace(deps.judge, models=lambda: plan.models.current),
            models=plan.models,
            # approvals hold in plan mode
            settings=replace(deps.settings, strategy="react", approval_mode="ask"),
            agent=plan.name,
        )

    def _see(self, event: Event) -> None:
        """Forward what the user must know, and follow the work."""
        self.owner.user_time.see(event)
        match event:
            case TurnFinished():
                self._status, self._answer = event.status, event.answer
                self._reason = event.reason
            case LimitHit() | ErrorHappened():
                self._cause = event
            case CallStarted():
                self._doing = visible_line(event.name, _DOING_CHARACTERS)
                self._report()
            case BudgetHeld() | SubagentProgressed():
                self._report()
            case BudgetSettled():
                self._add(event, calls=1)
                self._report()
                if not event.reported:  # a notice follows an overrun
                    self._note(event)
            case SubagentFinished():
                self._add(event, calls=event.calls)
                self._changed_by |= dict.fromkeys(event.changed_by)
            case CallFinished() if not event.refused and event.name in self.plan.catalog:
                if self.plan.catalog.tool(event.name).effects & LASTING:
                    self._changed_by[event.name] = None
            case ApprovalWanted() | ApprovalGiven() | CostWanted() | CostChosen():  # for the user
                self.emit(event)
            case Notice() | HookRan():
                self._note(event)
            case _:
                pass

    def _note(self, event: Event) -> None:
        """Report in the parent's turn what an event says, once while subagents run."""
        if (line := event.render()) is not None:
            text = f"{self.plan.name}: {line.words}"
            if text not in self.owner.notes:
                self.owner.notes.add(text)
                self.emit(Notice(text))

    def _add(self, event: BudgetSettled | SubagentFinished, *, calls: int) -> None:
        self._cost += StepCost(event.spent_nano, event.usage.total, event.seconds)
        self._usage += event.usage
        self._consumption += event.consumption
        self._calls += calls

    def _report(self) -> None:
        """Report the progress in the parent's turn."""
        plan, total = self.plan, self._consumption
        progressed = SubagentProgressed(
            self.call.id,
            plan.name,
            self.session,
            plan.models.name,
            self._doing,
            ", ".join(map(str, self.shares)),
            self._spent,
            self._cost.nano,
            self._usage,
            self._calls,
            time.monotonic() - self._started,
            total.estimate,
            total.estimate_nano,
        )
        self.emit(progressed)

    @property
    def _spent(self) -> str:
        """The use of each share; without one, the price."""
        units: list[Unit] = [share.unit for share in self.shares] or ["usd"]
        return ", ".join(map(self._spent_in, units))

    def _spent_in(self, unit: Unit) -> str:
        """What it used in a unit, marked if it is partly an estimate."""
        total = self._consumption
        match unit:
            case "usd":
                if total.nano is None:
                    return "an unknown price"
                return about(amount_text(total.nano, unit), estimated=total.estimated_nano)
            case "tokens":
                return about(amount_text(total.usage.total, unit), estimated=total.estimated)
            case "ms":
                return amount_text(self._cost.amount(unit), unit)

    @property
    def _spent_of_share(self) -> str:
        shares = ", ".join(map(str, self.shares))
        return f"{self._spent} of {shares}" if shares else self._spent

    async def _close(self) -> None:
        """End the share, and read from the ledger what was spent."""
        ledger, task = self.owner.deps.budget.gate.ledger, self.account.task
        try:
            await asyncio.to_thread(ledger.end_share, task)
            row = await asyncio.to_thread(ledger.task_row, task)
        except StoreError as failure:  # the sum of the events stands
            self.emit(Notice(f"The share of {self.plan.name} could not be ended. {failure}"))
            return
        if row is not None:
            nano = None if row.unpriced else row.spent_nano
            self._cost = StepCost(nano, row.usage.total, row.seconds or 0.0)
            self._usage, self._calls = row.usage, row.calls
            estimate_nano = None if row.unpriced else row.estimate_nano
            self._consumption = Consumption.of(nano, row.usage, row.estimate, estimate_nano)

    @property
    def _limit(self) -> LimitHit | None:
        """The limit that ended it."""
        cause = self._cause
        return cause if self._status == "limit" and isinstance(cause, LimitHit) else None

    @property
    def _why(self) -> str:
        """The limit, the error or the other reason that ended it early."""
        match self._cause:
            case LimitHit():
                return self._cause.message
            case ErrorHappened():
                return " ".join(filter(None, (self._cause.message, self._cause.fix)))
            case None:
                return self._reason

    def _cause_for_user(self) -> Event | None:
        """The event that reports in the parent's turn what ended it; unlike LimitHit it asks for no decision."""
        if (hit := self._limit) is not None:
            return SubagentLimited(
                self.plan.name, hit.scope, hit.unit, hit.need, hit.left, hit.message
            )
        return self._cause if isinstance(self._cause, ErrorHappened) else None

    def _observation(self) -> Observation:
        """The summary, as the agent that delegated the task reads it."""
        answer = self._answer.strip()
        is_share_used = self._limit is not None and self._limit.scope == SHARE
        text = answer or " ".join(filter(None, ("It gave no answer.", self._why)))
        ending = ENDINGS[self._status]
        if is_share_used:
            ending += " because its share was too small for a further step"
        state = f"{self.plan.name}: {ending}, {self._spent_of_share}, session {self.session}"
        if self._status == "limit" and answer and self._why and not is_share_used:
            state += f". {self._why}"
        is_done = bool(answer) and self._status in ("answered", "limit")
        return Observation(f"{text}\n\n[{state}]", ok=is_done)


def _path(parent: str, session: str) -> str:
    """The path of a task in the ledger."""
    return f"{parent}/{session}" if parent else session


def _depth(deps: Dependencies) -> int:
    """How many delegations lead to the present agent."""
    task = deps.budget.account().task
    return len(task.split("/")) if task else 0


def check_delegation(delegation: Delegation, deps: Dependencies) -> None:
    """Raise UsageError for instructions that no subagent may follow."""
    if not delegation.instructions.strip():
        raise UsageError("The instructions are empty.", fix="Say what to do.")
    if _depth(deps) >= MAX_DEPTH:
        raise UsageError(
            f"Tasks are delegated at most {MAX_DEPTH} deep.", fix="Do this part yourself."
        )


def model_and_share(
    delegation: Delegation, agent: AgentDefinition, deps: Dependencies
) -> tuple[str, Amount | None]:
    """The model of a subagent, and its share if one is stated; raises UsageError."""
    budget = parse_amount(delegation.budget) if delegation.budget.strip() else agent.budget
    default = deps.settings.task_model or cheapest(deps.models)
    return delegation.model.strip() or agent.model or default, budget


def cheapest(models: ActiveModels) -> str:
    """The cheapest of the models in use; those of unknown price come last."""
    candidates = {models.session_model: models.current.model}
    for role, model in models.current.players.items():
        candidates[models.roles.of(role) or models.session_model] = model

    def cost(name: str) -> tuple[bool, int]:
        price = candidates[name].traits.price
        return price is None, 0 if price is None else price.worst(*_COMPARED_TOKENS)

    return min(candidates, key=cost)


def planned(delegation: Delegation, deps: Dependencies) -> tuple[ActiveModels, Amount | None]:
    """The models that a subagent would have, and its stated share; may block; raises EcoshellError."""
    check_delegation(delegation, deps)
    agent = AgentDefinition(UNNAMED)
    if name := delegation.agent.strip():
        agent = deps.agents().untrusted(name)
    model, share = model_and_share(delegation, agent, deps)
    return deps.models.lend(model), share


def _unknown_tool(name: str, catalog: Catalog, where: str = "") -> UsageError:
    match = closest_word(name, catalog.names)
    fix = f"Did you mean {match}?" if match else "tool_search or /tools finds tools."
    return UsageError(f"Unknown tool {visible_line(name)!r}{where}.", fix=fix)

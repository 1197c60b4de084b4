"""Subagents: separate conversations that work for a call of `task`, under a share of the remaining budget."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ecoshell.agent.agent_files import AgentDefinition
from ecoshell.agent.conversation import Conversation
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import Bill
from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.spending import TaskBudget, charging
from ecoshell.agent.turn_setup import Question
from ecoshell.agent.user_interface import CostChoice, NonInteractive, UserInterface
from ecoshell.budget import TASK as SHARE
from ecoshell.budget import Account, Amount, Unit, amount_text, nano_to_usd_text, parse_amount
from ecoshell.budget.costs import CostRow
from ecoshell.budget.gate import finished, sharing
from ecoshell.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import EcoshellError, StoreError, ToolError, UsageError, closest_word
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BudgetSettled,
    CallFinished,
    CallProgressed,
    CallStarted,
    CostChosen,
    CostWanted,
    Emit,
    ErrorHappened,
    Event,
    LimitHit,
    Notice,
    Status,
    SubagentFinished,
    SubagentStarted,
    TurnFinished,
)
from ecoshell.events.turn import ENDINGS
from ecoshell.messages import Call, Observation, Usage, visible_line
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
    _waiting: set[str] = field(default_factory=set[str])
    """The calls of tasks without a share yet, among which the rest of the budget is divided."""
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lets subagents ask the user one at a time."""

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.deps.settings.tasks_at_once)

    async def run(self, delegation: Delegation, call: Call, emit: Emit, bill: Bill) -> Observation:
        """Run a subagent to its end and return its summary; raises ToolError if it cannot start."""
        self._waiting.add(call.id)
        try:
            plan = await self._plan(delegation, emit)
        except EcoshellError as error:
            raise ToolError(f"No subagent was started. {error}") from error
        else:
            return await self._start(plan, call, emit, bill)
        finally:
            self._waiting.discard(call.id)

    async def _start(self, plan: _Plan, call: Call, emit: Emit, bill: Bill) -> Observation:
        """Run a planned subagent when there is room for one more."""
        try:
            async with self._slots:
                account, session = self.deps.budget.account(), ""
                try:
                    session, shares = await self._open(plan, account)
                    self._waiting.discard(call.id)
                    account = replace(account, task=_path(account.task, session))
                    return await _Run(self, plan, session, account, shares, call, emit).run(bill)
                finally:
                    self._running.pop(session, None)
        finally:
            await plan.models.aclose()

    async def _plan(self, delegation: Delegation, emit: Emit) -> _Plan:
        """Check a delegation and prepare its parts; raises EcoshellError."""
        deps = self.deps
        if not delegation.instructions.strip():
            raise UsageError("The instructions are empty.", fix="Say what to do.")
        if _depth(deps) >= MAX_DEPTH:
            raise UsageError(
                f"Tasks are delegated at most {MAX_DEPTH} deep.", fix="Do this part yourself."
            )
        agent = AgentDefinition(UNNAMED)
        if name := delegation.agent.strip():
            agent = await deps.agents().definition(name, deps.user, emit)
        budget = parse_amount(delegation.budget) if delegation.budget.strip() else agent.budget
        catalog = self._catalog(agent, delegation.tools, emit)
        model = (
            delegation.model.strip()
            or agent.model
            or deps.settings.task_model
            or cheapest(deps.models)
        )
        parts = (delegation.instructions.strip(), agent.instructions, _CLOSING)
        models = await asyncio.to_thread(deps.models.lend, model)
        return _Plan(agent.name, "\n\n".join(filter(None, parts)), catalog, models, budget)

    def _catalog(self, agent: AgentDefinition, allowed: Sequence[str], emit: Emit) -> Catalog:
        """The tools of a subagent: those of its definition that the task allows; raises UsageError."""
        parents = self.deps.catalog
        where = f" in {agent.file}" if agent.file else ""
        own = list(agent.tools)
        if unknown := [name for name in own if name not in parents]:
            if not agent.is_foreign:
                raise _unknown_tool(unknown[0], parents, where)
            emit(
                Notice(
                    f"{agent.name} works without tools that are unknown here: {visible_line(', '.join(unknown))}."
                )
            )
            own = [name for name in own if name in parents]
        if unknown := [name for name in allowed if name not in parents]:
            raise _unknown_tool(unknown[0], parents)
        names = [
            name
            for name in (own if agent.tools else parents.names)
            if not allowed or name in allowed
        ]
        # it could not delegate further
        if _depth(self.deps) + 1 >= MAX_DEPTH and TASK not in (
            *own,
            *allowed,
        ):
            names = [name for name in names if name != TASK]
        catalog = Catalog(parents.tool(name) for name in names)
        catalog.skills = parents.skills
        return catalog

    async def _open(self, plan: _Plan, account: Account) -> tuple[str, tuple[Amount, ...]]:
        """Start the subagent's session with its share; raises ToolError."""
        deps, ledger = self.deps, self.deps.budget.gate.ledger
        workspace = str(deps.environment.workspace.root)
        try:
            async with self._starting:
                shares = await self._shares(plan.budget, account)
                session = await deps.log.start(
                    workspace=workspace, model=plan.models.name, parent=self.session
                )
                await finished(
                    asyncio.to_thread(ledger.set_share, _path(account.task, session), shares)
                )
                self._running[session] = shares
        except EcoshellError as error:
            raise ToolError(f"No subagent was started. {error}") from error
        return session, shares

    async def _shares(self, budget: Amount | None, account: Account) -> tuple[Amount, ...]:
        """The caps of a new subagent: the stated budget, or an equal part of the rest; raises UsageError."""
        caps = await self.deps.budget.caps()
        units: set[Unit] = {cap.unit for cap in caps}
        room: dict[Unit, int] = {
            unit: min(cap.left for cap in caps if cap.unit == unit) for unit in units
        }
        free: dict[Unit, int] = {
            unit: amount - await self._promised(unit, account) for unit, amount in room.items()
        }
        if budget is not None:
            if budget.unit in free and budget.value > free[budget.unit]:
                rest = amount_text(max(0, free[budget.unit]), budget.unit)
                fix = "Delegate it with less, or let the user raise the cap."
                raise UsageError(
                    f"Its share of {budget} is more than the {rest} that is left.", fix=fix
                )
            return (budget,)
        shares = tuple(
            Amount(amount // (len(self._waiting) + 1), unit) for unit, amount in free.items()
        )
        if used_up := next((share for share in shares if share.value <= 0), None):
            words = {"usd": "budget", "tokens": "token budget", "ms": "working time"}[used_up.unit]
            raise UsageError(
                f"Nothing of the {words} is left for a subagent.", fix="Continue without one."
            )
        return shares

    async def _promised(self, unit: Unit, account: Account) -> int:
        """What the shares of running subagents still allow them to spend."""
        ledger, promised = self.deps.budget.gate.ledger, 0
        for session, shares in self._running.items():
            if any(share.unit == unit for share in shares):
                task = _path(account.task, session)
                caps = await asyncio.to_thread(
                    ledger.own_caps, account.session, account.turn, task=task
                )
                promised += next(
                    (cap.left for cap in caps if cap.scope == SHARE and cap.unit == unit), 0
                )
        return promised


@dataclass(slots=True)
class _Spending:
    """What a subagent has used, in the units of shares."""

    nano: int | None = 0
    """None if a part of the price is unknown."""
    usage: Usage = field(default_factory=Usage)
    ms: int = 0
    calls: int = 0

    @classmethod
    def of(cls, row: CostRow | None) -> "_Spending":
        """The sum in the ledger."""
        if row is None:
            return cls()
        return cls(None if row.unpriced else row.spent_nano, row.usage, row.ms or 0, row.calls)

    def add(self, nano: int | None, usage: Usage, seconds: float, calls: int = 1) -> None:
        self.nano = None if self.nano is None or nano is None else self.nano + nano
        self.usage += usage
        self.ms += round(1_000 * seconds)
        self.calls += calls

    def text(self, shares: Sequence[Amount]) -> str:
        """The use of each share; without one, the price."""
        used: dict[Unit, int | None] = {"usd": self.nano, "tokens": self.usage.total, "ms": self.ms}
        units: list[Unit] = [share.unit for share in shares] or ["usd"]
        return ", ".join(_amount_text(used[unit], unit) for unit in units)


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
    _error: str = ""
    _doing: str = ""
    _changed_by: dict[str, None] = field(default_factory=dict[str, None])
    """The tools with lasting effects that ran, in order."""
    _spending: _Spending = field(default_factory=_Spending)

    async def run(self, bill: Bill) -> Observation:
        """Ask the subagent's only question and report its start, progress and end."""
        plan, started = self.plan, time.monotonic()
        share_usd = next(
            (nano_to_usd_text(share.value) for share in self.shares if share.unit == "usd"), None
        )
        share = ", ".join(map(str, self.shares))
        self.emit(
            SubagentStarted(
                self.call.id, plan.name, self.session, plan.models.name, share_usd, share
            )
        )
        try:
            # its calls do not wait for those of other subagents
            with (
                charging(self.account),
                sharing(),
            ):
                conversation = await asyncio.to_thread(Conversation, self._deps(), self.session)
                async with aclosing(conversation.ask(Question(plan.question))) as events:
                    async for event in events:
                        self._see(event)
        except asyncio.CancelledError:
            self._status = "interrupted"
            raise
        except StoreError as failure:
            self._error = str(failure)
        finally:
            await finished(self._close())
            spending = self._spending
            bill.delegated_nano += spending.nano or 0
            ended = SubagentFinished(
                self.call.id,
                plan.name,
                self.session,
                self._status,
                share_usd,
                None if spending.nano is None else nano_to_usd_text(spending.nano),
                share,
                spending.text(self.shares),
                time.monotonic() - started,
                spending.usage,
                plan.models.name,
                spending.calls,
                tuple(self._changed_by),
            )
            self.emit(ended)
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
            settings=replace(
                deps.settings, strategy="react", approval_mode="ask"
            ),  # approvals hold in plan mode
            agent=plan.name,
            skills=None,  # the session's turn has read them
        )

    def _see(self, event: Event) -> None:
        """Forward what the user must know, and follow the work."""
        match event:
            case TurnFinished():
                self._status, self._answer = event.status, event.answer
            case LimitHit():
                self._error = event.message
            case ErrorHappened():
                self._error = " ".join(filter(None, (event.message, event.fix)))
            case CallStarted():
                self._doing = visible_line(event.name, _DOING_CHARACTERS)
                self._report()
            case BudgetSettled():
                self._spending.add(event.spent_nano, event.usage, event.seconds)
                self._report()
            case SubagentFinished():
                self._spending.add(event.spent_nano, event.usage, event.seconds, event.calls)
                self._changed_by |= dict.fromkeys(event.changed_by)
            case CallFinished() if not event.refused and event.name in self.plan.catalog:
                if self.plan.catalog.tool(event.name).effects & LASTING:
                    self._changed_by[event.name] = None
            case ApprovalWanted() | ApprovalGiven() | CostWanted() | CostChosen():  # for the user
                self.emit(event)
            case _:
                pass

    def _report(self) -> None:
        """Report the progress in the parent's turn."""
        parts = (self._spent_of_share, self._doing)
        self.emit(CallProgressed(self.call.id, self.call.name, " · ".join(filter(None, parts))))

    @property
    def _spent_of_share(self) -> str:
        spent = self._spending.text(self.shares)
        return f"{spent} of {', '.join(map(str, self.shares))}" if self.shares else spent

    async def _close(self) -> None:
        """End the share, and read from the ledger what was spent."""
        ledger, task = self.owner.deps.budget.gate.ledger, self.account.task
        try:
            await asyncio.to_thread(ledger.end_share, task)
            self._spending = _Spending.of(await asyncio.to_thread(ledger.task_row, task))
        except StoreError as failure:  # the sum of the events stands
            self.emit(Notice(f"The share of {self.plan.name} could not be ended. {failure}"))

    def _observation(self) -> Observation:
        """The summary, as the agent that delegated the task reads it."""
        answer = self._answer.strip()
        text = answer or " ".join(filter(None, ("It gave no answer.", self._error)))
        state = f"{self.plan.name}: {ENDINGS[self._status]}, {self._spent_of_share}, session {self.session}"
        return Observation(
            f"{text}\n\n[{state}]", ok=bool(answer) and self._status in ("answered", "limit")
        )


def _amount_text(value: int | None, unit: Unit) -> str:
    return "an unknown price" if value is None else amount_text(value, unit)


def _path(parent: str, session: str) -> str:
    """The path of a task in the ledger."""
    return f"{parent}/{session}" if parent else session


def _depth(deps: Dependencies) -> int:
    """How many delegations lead to the present agent."""
    task = deps.budget.account().task
    return len(task.split("/")) if task else 0


def cheapest(models: ActiveModels) -> str:
    """The cheapest of the models in use; those of unknown price come last."""
    candidates = {models.session_model: models.current.model}
    for role, model in models.current.players.items():
        candidates[models.roles.of(role) or models.session_model] = model

    def cost(name: str) -> tuple[bool, int]:
        price = candidates[name].traits.price
        return price is None, 0 if price is None else price.worst(*_COMPARED_TOKENS)

    return min(candidates, key=cost)


def _unknown_tool(name: str, catalog: Catalog, where: str = "") -> UsageError:
    match = closest_word(name, catalog.names)
    fix = f"Did you mean {match}?" if match else "tool_search or /tools finds tools."
    return UsageError(f"Unknown tool {visible_line(name)!r}{where}.", fix=fix)

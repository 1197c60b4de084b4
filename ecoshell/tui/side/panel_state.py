"""The state behind the side panels, updated by a session's events and the shell's status."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ecoshell.budget import CapState
from ecoshell.events import (
    BranchLeft,
    BudgetChanged,
    BudgetHeld,
    BudgetReconciled,
    BudgetSettled,
    CallStarted,
    Consumption,
    Event,
    GraphPlanned,
    NodeChanged,
    PlanChanged,
    StepStarted,
    SubagentFinished,
    SubagentProgressed,
    SubagentStarted,
    ToolRegistered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.options import ROLES
from ecoshell.sessions.tool_graphs import ToolGraph

if TYPE_CHECKING:
    from ecoshell.agent.shell_status import ShellStatus


Thinker = tuple[str, str]
Basis = Literal["price", "tokens", "time"]
_ORDER = {role: place for place, role in enumerate(ROLES)}
_MICROSECONDS = 1_000_000
SUBAGENT = "subagent"


@dataclass(frozen=True, slots=True)
class RoleUse:
    """Calls, tokens, price and time of one model in one role; one unknown price makes the sum unknown."""

    role: str
    model: str
    calls: int = 0
    consumption: Consumption = field(default_factory=Consumption)
    seconds: float = 0.0

    def plus(self, event: BudgetSettled | SubagentProgressed | SubagentFinished) -> "RoleUse":
        """Add a call, or the calls of a subagent."""
        calls = 1 if isinstance(event, BudgetSettled) else event.calls
        total, seconds = self.consumption + event.consumption, self.seconds + event.seconds
        return RoleUse(self.role, self.model, self.calls + calls, total, seconds)


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares in percent, with a sum of 100."""

    basis: Basis
    why: str
    """Why the basis is not the price; empty if it is."""
    percent: tuple[int, ...]


def shares(uses: Sequence[RoleUse]) -> Shares | None:
    """Shares of the price if it is known and not zero, else of the tokens, else of the time; None without calls."""
    prices = [use.consumption.nano for use in uses]
    known_prices = [price for price in prices if price is not None]
    priced = len(known_prices) == len(prices)
    why = "free of charge" if priced else "price unknown"
    tokens = [use.consumption.usage.total for use in uses]
    times = [round(use.seconds * _MICROSECONDS) for use in uses]
    choices: tuple[tuple[Basis, str, list[int]], ...] = (
        ("price", "", known_prices if priced else []),
        ("tokens", why, tokens),
        ("time", why, times),
    )
    for basis, reason, parts in choices:
        total = sum(parts)
        if not total:
            continue
        percent = [100 * part // total for part in parts]
        # the largest remainders get what rounding down leaves
        by_remainder = sorted(range(len(parts)), key=lambda at: -(100 * parts[at] % total))
        for at in by_remainder[: 100 - sum(percent)]:
            percent[at] += 1
        return Shares(basis, reason, tuple(percent))
    return None


@dataclass(frozen=True, slots=True)
class ToolState:
    """One known tool; `by` is empty unless it is registered, and `turn` is 0 if unknown."""

    name: str
    tokens: int
    description: str
    by: str = ""
    turn: int = 0
    step: int = 0
    blocked: bool = False
    """Whether the plan of the running turn forbids it."""
    last_used: bool = False
    ahead: bool = False
    """Whether the session's first question will load it."""

    @property
    def registered(self) -> bool:
        return bool(self.by)

    @property
    def loaded(self) -> bool:
        return self.registered or self.ahead


class PanelState:
    """Sums up a session's events for the panels."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, before another session."""
        self.status: ShellStatus | None = None
        self.caps: tuple[CapState, ...] = ()
        self.roles: dict[Thinker, RoleUse] = {}
        """By role and model, in order of their first call."""
        self.turn_roles: dict[Thinker, RoleUse] = {}
        """The same for the running or last turn."""
        self.thinking: Thinker | None = None
        self.turn = 0
        self.running = False
        self.saved_tokens = 0
        """Input tokens saved in this session by leaving schemas unregistered."""
        self.plan: PlanChanged | None = None
        """The plan of the running turn or, before it has one, the last plan."""
        self.changed_rows: frozenset[str] = frozenset()
        """Rows of the plan that its last change altered; emptied when they were shown for a while."""
        self.last_used = ""
        self.graph: ToolGraph | None = None
        """The tool graph of the running or last turn."""
        self.planned_turn = 0
        self.plan_total = 0
        """What the caps left for the turn before it spent anything, in the plan's unit."""
        self.subagents: dict[str, SubagentStarted | SubagentProgressed] = {}
        """The running subagents by call, with what they used so far."""
        self._holds: dict[int, BudgetHeld] = {}
        self._settled: dict[int, BudgetSettled] = {}
        """The settled calls of the session, by entry."""
        self._of_turn: set[int] = set()
        """Entries of the running or last turn."""
        self._registrations: dict[str, tuple[ToolRegistered, int]] = {}

    def end_activity(self) -> None:
        """Mark everything as finished, as after the last event of an ended process; the last plan stays visible."""
        self._between(running=False)

    @property
    def shown_plan(self) -> PlanChanged | None:
        """The plan to show; None without a plan, or if planning is off."""
        return None if self.status is None or self.status.plan == "off" else self.plan

    def handle(self, event: Event) -> bool:
        """Apply an event; return whether panels may look different now."""
        match event:
            case BudgetChanged(caps=caps) if caps == self.caps:
                return False
            case BudgetChanged():
                self.caps = event.caps
            case StepStarted() | BudgetHeld() | BudgetSettled() | SubagentFinished():
                self._count(event)
            case SubagentStarted() | SubagentProgressed():
                self.subagents[event.id] = event
            case BudgetReconciled():
                return self._reconcile(event)
            case CallStarted():
                self.thinking, self.last_used = self._last_holder, event.name
            case ToolRegistered():
                self._registrations[event.name] = event, self.turn
            case ToolUnregistered() | BranchLeft():
                for name in event.unregistered if isinstance(event, BranchLeft) else (event.name,):
                    self._registrations.pop(name, None)
            case GraphPlanned():
                self.graph = ToolGraph(event)
            case NodeChanged():
                self.graph = self.graph.with_change(event) if self.graph else None
            case PlanChanged():
                self._set_plan(event)
            case TurnStarted():
                self.turn, self.graph, self.turn_roles = event.turn, None, {}
                self._of_turn = set()
                self._between(running=True)
            case TurnFinished():
                self.saved_tokens += event.saved_tokens if event.spent_nano else 0
                self._between(running=False)
            case _:
                return False
        return True

    def _count(self, event: StepStarted | BudgetHeld | BudgetSettled | SubagentFinished) -> None:
        """Add a call, or the calls of a subagent, to the consumption of its role."""
        role = SUBAGENT if isinstance(event, SubagentFinished) else event.role
        thinker = (role, event.model)
        # a call between turns belongs to no turn
        for roles in (self.roles, self.turn_roles) if self.running else (self.roles,):
            use = roles.setdefault(thinker, RoleUse(*thinker))
            if isinstance(event, BudgetSettled | SubagentFinished):
                roles[thinker] = use.plus(event)
        match event:
            case BudgetSettled():
                self._settled[event.entry] = event
                if self.running:
                    self._of_turn.add(event.entry)
                self._holds.pop(event.entry, None)
                self.thinking = self._last_holder if self.thinking == thinker else self.thinking
            case BudgetHeld():
                self.thinking = thinker
                self._holds[event.entry] = event
            case StepStarted():
                self.thinking = thinker
                self._holds.clear()  # a rejected call releases its hold without an event
            case SubagentFinished():
                self.subagents.pop(event.id, None)

    def _reconcile(self, event: BudgetReconciled) -> bool:
        """Replace a call's consumption in its role; says whether the call is known."""
        call = self._settled.get(event.entry)
        if call is None:
            return False
        self._settled[event.entry] = event.applied_to(call)
        thinker = (call.role, call.model)
        of_turn = {entry: self._settled[entry] for entry in self._of_turn}
        for roles, calls in ((self.roles, self._settled), (self.turn_roles, of_turn)):
            use = RoleUse(*thinker)
            for settled in calls.values():
                if (settled.role, settled.model) == thinker:
                    use = use.plus(settled)
            if use.calls:
                roles[thinker] = use
        return True

    def update(self, status: "ShellStatus", caps: Sequence[CapState]) -> bool:
        """Store the shell's status; return whether anything changed.

        Registrations the status does not list are dropped, except those of the running turn.
        """
        previous = (self.status, self.caps, self.plan)
        self.status, self.caps = status, tuple(caps)
        registered = {tool.name for tool in status.tools if tool.registered}
        for name, (_, turn) in list(self._registrations.items()):
            if name not in registered and not (self.running and turn == self.turn):
                del self._registrations[name]
        if status.planned is not None and not self.running:
            self._set_plan(status.planned)
        return previous != (self.status, self.caps, self.plan)

    def uses(self, *, session: bool) -> list[RoleUse]:
        """Use per role and model of the session or the turn, including running subagents and roles without a call.

        Sorted by role: planner, caller, summarizer.
        """
        players = self.status.players if self.status else ()
        used = self.roles if session else self.turn_roles
        uses = {player: RoleUse(*player) for player in players} | used
        for event in self.subagents.values():
            if isinstance(event, SubagentProgressed):
                key = (SUBAGENT, event.model)
                uses[key] = uses.get(key, RoleUse(*key)).plus(event)
        return sorted(uses.values(), key=lambda use: _ORDER.get(use.role, len(_ORDER)))

    @property
    def held(self) -> tuple[int | None, int, int]:
        """Reserved price, tokens and milliseconds of running calls; the price is None if any is unknown."""
        nano = [hold.held_nano for hold in self._holds.values()]
        used = sum(hold.held_tokens for hold in self._holds.values())
        ms = sum(hold.held_ms or 0 for hold in self._holds.values())
        return None if None in nano else sum(price or 0 for price in nano), used, ms

    @property
    def planning(self) -> bool:
        return self.running and self.planned_turn != self.turn

    @property
    def tools(self) -> list[ToolState]:
        states: list[ToolState] = []
        plan, blocked = self.shown_plan, set[str]()
        if plan is not None and plan.enforced and self.running and not self.planning:
            blocked = {row.tool for row in plan.rows if row.state == "forbidden"}
        for row in self.status.tools if self.status else ():
            by, turn, step = (row.by or "user") if row.registered else "", 0, 0
            if (registration := self._registrations.get(row.name)) is not None:
                event, turn = registration
                by, step = event.by, event.step
            marks = row.name in blocked, row.name == self.last_used, row.ahead and not by
            states.append(ToolState(row.name, row.tokens, row.description, by, turn, step, *marks))
        return states

    @property
    def context_tokens(self) -> int:
        """Context tokens of loaded schemas and of the names of the other tools."""
        if self.status is None:
            return 0
        new = (
            row for row in self.status.tools if not row.loaded and row.name in self._registrations
        )
        registered = sum(self._registrations[row.name][0].tokens for row in new)
        return min(self.status.context_tokens + registered, self.status.everything_tokens)

    @property
    def _last_holder(self) -> Thinker | None:
        """The role of the running call that started last; nodes of a tool graph run at the same time."""
        last = next(reversed(self._holds.values()), None)
        return (last.role, last.model) if last else None

    def _set_plan(self, event: PlanChanged) -> None:
        is_update = self.plan is not None and event.number > 1 and event.unit == self.plan.unit
        self.plan_total = event.whole or 0
        before = {row.tool: row for row in self.plan.rows} if is_update and self.plan else {}
        changed = (row.tool for row in event.rows if before.get(row.tool, row) != row)
        self.changed_rows = frozenset(changed)
        self.plan, self.planned_turn = event, self.turn

    def _between(self, *, running: bool) -> None:
        """Start or end a turn: no role thinks and no call is running."""
        self.running, self.thinking = running, None
        self.graph = self.graph.closed() if self.graph else None
        self._holds.clear()
        self.subagents.clear()

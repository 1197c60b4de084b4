"""What the panels know: a session's events, past and present, and where the shell last said that it stands."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ecoshell.budget import CapState
from ecoshell.events import (
    BranchLeft,
    BudgetChanged,
    BudgetHeld,
    BudgetSettled,
    CallStarted,
    Consumption,
    Event,
    GraphPlanned,
    NodeChanged,
    PlanChanged,
    StepStarted,
    ToolRegistered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.options import ROLES
from ecoshell.sessions.plans import Branching

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing


Thinker = tuple[str, str]
Basis = Literal["price", "tokens", "time"]
"""What shares are shares of."""
_ORDER = {role: place for place, role in enumerate(ROLES)}
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class RoleUse:
    """What one model has been paid and has taken in one role; an unknown price makes the sum unknown."""

    role: str
    model: str
    calls: int = 0
    consumption: Consumption = field(default_factory=Consumption)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares in percent, 100 together."""

    basis: Basis
    why: str
    """Why they are not of the price; empty where they are."""
    percent: tuple[int, ...]
    """One for each use, in the order of the uses."""


def shares(uses: Sequence[RoleUse]) -> Shares | None:
    """Shares of the price, where it is known and not zero, else of the tokens, else of the time; None without calls."""
    prices = [use.consumption.nano for use in uses]
    known = [price for price in prices if price is not None]
    priced = len(known) == len(prices)
    why = "free of charge" if priced else "price unknown"
    tokens = [use.consumption.usage.total for use in uses]
    times = [round(use.seconds * _MICROSECONDS) for use in uses]
    choices: tuple[tuple[Basis, str, list[int]], ...] = (
        ("price", "", known if priced else []),
        ("tokens", why, tokens),
        ("time", why, times),
    )
    for basis, reason, parts in choices:
        whole = sum(parts)
        if not whole:
            continue
        percent = [100 * part // whole for part in parts]
        # what rounding down leaves goes to the largest remainders, of equals the first
        by_remainder = sorted(range(len(parts)), key=lambda at: -(100 * parts[at] % whole))
        for at in by_remainder[: 100 - sum(percent)]:
            percent[at] += 1
        return Shares(basis, reason, tuple(percent))
    return None


@dataclass(frozen=True, slots=True)
class ToolState:
    """One known tool; `by` is empty while it is not registered, `turn` 0 where nobody heard when it was."""

    name: str
    tokens: int
    description: str
    by: str = ""
    turn: int = 0
    step: int = 0

    @property
    def registered(self) -> bool:
        return bool(self.by)


class PanelState:
    """Hears every event of a session in its order and sums up what panels show; knows no screen."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Know nothing, as another session begins."""
        self.standing: Standing | None = None
        """Where the shell said it stands; None before it has."""
        self.caps: tuple[CapState, ...] = ()
        self.roles: dict[Thinker, RoleUse] = {}
        """In the order in which they first thought."""
        self.turn_roles: dict[Thinker, RoleUse] = {}
        """The same of the turn that runs or, after it, of the last turn."""
        self.thinking: Thinker | None = None
        self.turn = 0
        self.running = False
        self.saved_tokens = 0
        """Input tokens not paid for in this session because documents were not registered."""
        self.plan: PlanChanged | None = None
        """The plan of the turn that runs or, until it has one, of the last that was planned."""
        self.branching: Branching | None = None
        """The parallel plan of the turn that runs or, after it, of the last turn."""
        self.planned_turn = 0
        self.plan_whole = 0
        """What the caps, as they are now, left the turn before it spent anything, in the plan's unit."""
        self._holds: dict[int, BudgetHeld] = {}
        self._registrations: dict[str, tuple[ToolRegistered, int]] = {}
        """What was heard of registrations, and in which turn."""

    def rest(self) -> None:
        """Take it that nothing is under way, as after the events of a process that is gone, and its plan with it."""
        self.plan = None
        self._between(running=False)

    @property
    def shown_plan(self) -> PlanChanged | None:
        """The plan there is to show; None while there is none, and where turns are not planned."""
        return None if self.standing is None or self.standing.plan == "off" else self.plan

    def hear(self, event: Event) -> bool:
        """Take one event into account; says whether panels may show something else now."""
        match event:
            case BudgetChanged(caps=caps) if caps == self.caps:
                return False
            case BudgetChanged():
                self.caps = event.caps
            case StepStarted() | BudgetHeld() | BudgetSettled():
                thinker = (event.role, event.model)
                adding_up = (self.roles, self.turn_roles) if self.running else (self.roles,)
                for roles in adding_up:  # what is asked between two turns, as for a summary, is no turn's
                    use = roles.setdefault(thinker, RoleUse(*thinker))
                    if isinstance(event, BudgetSettled):
                        seconds = use.seconds + event.seconds
                        roles[thinker] = RoleUse(*thinker, use.calls + 1, use.consumption.plus(event), seconds)
                if isinstance(event, BudgetSettled):
                    self._holds.pop(event.entry, None)
                    self.thinking = self._held_by if self.thinking == thinker else self.thinking
                elif isinstance(event, BudgetHeld):
                    self.thinking = thinker
                    self._holds[event.entry] = event
                else:
                    self.thinking = thinker
                    self._holds.clear()  # a call that was turned away gave its hold back without a word
            case CallStarted():
                self.thinking = self._held_by
            case ToolRegistered():
                self._registrations[event.name] = event, self.turn
            case ToolUnregistered() | BranchLeft():
                for name in event.unregistered if isinstance(event, BranchLeft) else (event.name,):
                    self._registrations.pop(name, None)
            case GraphPlanned():
                self.branching = Branching(event)
            case NodeChanged():
                self.branching = self.branching.heard(event) if self.branching else None
            case PlanChanged():
                self._plan(event)
            case TurnStarted():
                self.turn, self.branching, self.turn_roles = event.turn, None, {}
                self._between(running=True)
            case TurnFinished():
                self.saved_tokens += event.saved_tokens if event.spent_nano else 0
                self._between(running=False)
            case _:
                return False
        return True

    def look(self, standing: "Standing", caps: Sequence[CapState]) -> bool:
        """Take over where the shell stands; says whether that is anything new.

        Between turns the shell knows best what is registered; in a turn, what was registered in it stands besides.
        """
        before = (self.standing, self.caps, self.plan)
        self.standing, self.caps = standing, tuple(caps)
        known = {tool.name for tool in standing.tools if tool.registered}
        for name, (_, turn) in list(self._registrations.items()):
            if name not in known and not (self.running and turn == self.turn):
                del self._registrations[name]
        if standing.planned is not None and not self.running:
            self._plan(standing.planned)
        return before != (self.standing, self.caps, self.plan)

    def uses(self, *, session: bool) -> list[RoleUse]:
        """What roles have used in the session or in the turn, those that play now and have not been asked yet included.

        The planner comes first, then the caller and the summarizer; of one role the model that plays it now.
        """
        players = self.standing.players if self.standing else ()
        heard = self.roles if session else self.turn_roles
        uses = ({player: RoleUse(*player) for player in players} | heard).values()
        return sorted(uses, key=lambda use: _ORDER.get(use.role, len(_ORDER)))

    @property
    def held(self) -> tuple[int | None, int]:
        """What running calls may cost at most, None when a price is unknown, and how many tokens they may use."""
        nano = [hold.held_nano for hold in self._holds.values()]
        used = sum(hold.held_tokens for hold in self._holds.values())
        return None if None in nano else sum(one or 0 for one in nano), used

    @property
    def planning(self) -> bool:
        return self.running and self.planned_turn != self.turn

    @property
    def tools(self) -> list[ToolState]:
        states: list[ToolState] = []
        for row in self.standing.tools if self.standing else ():
            by, turn, step = (row.by or "user") if row.registered else "", 0, 0
            if (heard := self._registrations.get(row.name)) is not None:
                event, turn = heard
                by, step = event.by, event.step
            states.append(ToolState(row.name, row.tokens, row.description, by, turn, step))
        return states

    @property
    def context_tokens(self) -> int:
        """Tokens of documents and of other tools' names in the context now."""
        if self.standing is None:
            return 0
        fresh = (row for row in self.standing.tools if not row.registered and row.name in self._registrations)
        registered = sum(self._registrations[row.name][0].tokens for row in fresh)
        return min(self.standing.context_tokens + registered, self.standing.everything_tokens)

    @property
    def _held_by(self) -> Thinker | None:
        """Who of those whose calls run began last; branches of a plan think at the same time."""
        last = next(reversed(self._holds.values()), None)
        return (last.role, last.model) if last else None

    def _plan(self, event: PlanChanged) -> None:
        goes_on = self.plan is not None and event.number > 1 and event.unit == self.plan.unit
        most = max(event.cap or 0, self.plan_whole if goes_on else 0)
        self.plan_whole = most if event.whole is None else event.whole  # old sessions do not say
        self.plan, self.planned_turn = event, self.turn

    def _between(self, *, running: bool) -> None:
        """A turn begins or ends: nobody thinks, and nothing is held by a call."""
        self.running, self.thinking = running, None
        self.branching = self.branching.ended() if self.branching else None
        self._holds.clear()

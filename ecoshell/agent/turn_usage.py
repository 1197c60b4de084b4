"""What a turn consumes, how long it waits for the user, the budget line, and caps that are nearly used up."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.session_settings import SessionSettings
from ecoshell.budget import NEAR_CAP_SHARE, CapState, Unit, amount_text, binding_cap
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BranchLeft,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CapNear,
    Consumption,
    CostChosen,
    CostWanted,
    Emit,
    Event,
    LimitChosen,
    LimitHit,
    Quote,
    QuoteChosen,
    StepStarted,
    SubagentFinished,
    ToolRegistered,
    ToolsOffered,
    TrustGiven,
    TrustWanted,
)
from ecoshell.messages import Usage
from ecoshell.planning.btp.costs import StepCost


class UserTime:
    """Adds up the time in which a question to the user is open; sees every event of the work that asks."""

    def __init__(self) -> None:
        self._open = Counter[str]()
        """How many questions are open, by ID or else by kind."""
        self._since = 0.0
        """Up to when `_ended` counts the time of the open questions."""
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """The time so far; that of questions which are open at once counts once."""
        if not self._open:
            return self._ended
        return self._ended + time.monotonic() - self._since

    @property
    def clock(self) -> float:
        """A clock in seconds that stops while a question is open."""
        return time.monotonic() - self.seconds

    def see(self, event: Event) -> None:
        match event:
            case ApprovalWanted():  # asked again if the user's edits are unusable
                self._set_open(f"{event.agent} {event.id}", 1)
            case ApprovalGiven():
                self._set_open(f"{event.agent} {event.id}", 0)
            case LimitHit() | CostWanted() | TrustWanted():
                kind = event.type.partition("_")[0]
                self._set_open(kind, self._open[kind] + 1)
            case LimitChosen() | CostChosen() | TrustGiven():
                kind = event.type.partition("_")[0]
                self._set_open(kind, self._open[kind] - 1)
            case Quote() if event.reason:
                self._set_open(event.id, 1)
            case QuoteChosen():
                self._set_open(event.id, 0)
            case _:
                pass

    def _set_open(self, question: str, count: int) -> None:
        """Set how many questions are open; none if `count` is not positive."""
        self._ended = self.seconds
        self._since = time.monotonic()
        self._open[question] = count
        self._open = +self._open


@dataclass(slots=True)
class TurnUsage:
    """Adds up a turn's money, tokens, steps and registrations."""

    started: float = field(default_factory=time.monotonic)
    spent: StepCost = field(default_factory=StepCost)
    """Its seconds are those of models and tools, added up; the user's own time is not included."""
    usage: Usage = field(default_factory=Usage)
    consumption: Consumption = field(default_factory=Consumption)
    """Price and usage for display."""
    user_time: UserTime = field(default_factory=UserTime)
    steps: int = 0
    saved_tokens: int = 0
    registered: list[str] = field(default_factory=list[str])
    _next_step: int = 0
    """The step, or the answer instead of one, that counts with its first reservation; 0 after a limit."""
    _sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of the schemas that the agent registered."""
    _loaded: int = 0
    """Tokens of names and loaded schemas."""
    _everything: int = 0
    """Tokens of all schemas."""

    @property
    def worked_seconds(self) -> float:
        """The time so far without the user's own."""
        return self.user_time.clock - self.started

    def see(self, event: Event) -> None:
        self.user_time.see(event)
        match event:
            case BudgetSettled():
                self.spent = self.spent.plus(event)
                self.usage += event.usage
                self.consumption += event.consumption
            case CallFinished():
                self.spent += StepCost(event.spent_nano, 0, event.seconds)
                self.consumption += Consumption(event.spent_nano)
            case SubagentFinished():
                self.spent += StepCost(event.spent_nano, event.usage.total)
                self.usage += event.usage
                self.consumption += event.consumption
            case StepStarted():
                self._next_step = event.step
            case LimitHit():
                self._next_step = 0
            case LimitChosen(choice="answer") | CostChosen(choice="answer"):
                self._next_step = self.steps + 1
            case BudgetHeld() if self._next_step > self.steps:
                self.saved_tokens += max(0, self._everything - self._loaded)
                self.steps = self._next_step
            case ToolsOffered():
                self._loaded, self._everything = event.context_tokens, event.everything_tokens
            case ToolRegistered():
                self._sizes[event.name] = event.tokens if event.by in ("agent", "first_call") else 0
                self._loaded += self._sizes[event.name]
                self.registered.append(event.name)
            case BranchLeft():
                self._loaded -= sum(self._sizes.get(name, 0) for name in event.unregistered)
            case _:
                pass


class BudgetLine:
    """Reports the rest of the cap that binds first and the mean cost of a step, once per change.

    The line is appended to results and stays there, so that a prompt keeps its cached prefix. Brackets separate it from
    the text of a file above it.
    """

    def __init__(self, settings: SessionSettings, models: ActiveModels, usage: TurnUsage) -> None:
        self._settings = settings
        self._models = models
        self._usage = usage
        self._last = ""

    def text(self, caps: Iterable[CapState]) -> str:
        """The line under these caps; empty without a cap, for small models, if disabled, and if unchanged."""
        traits = self._models.current.model.traits
        if not (self._settings.budget_line and traits.capable):
            return ""
        caps = [cap for cap in caps if cap.over(traits.name)]
        if (cap := binding_cap(caps, lambda cap: cap.left)) is None:
            return ""
        left, limit = amount_text(cap.left, cap.unit), amount_text(cap.limit, cap.unit)
        line = f"[Budget: {left} of {limit} left{self._cost(cap)}.]"
        if line == self._last:
            return ""
        self._last = line
        return line

    def _cost(self, cap: CapState) -> str:
        """The mean cost of a step of this turn; empty if unknown."""
        steps, consumption = self._usage.steps, self._usage.consumption
        ms = self._usage.spent.amount("ms")
        spent = {"usd": consumption.nano, "tokens": consumption.usage.total, "ms": ms}[cap.unit]
        if steps and spent:
            return f"; a step costs about {amount_text(spent // steps, cap.unit)}"
        return ""


class CapWatch:
    """Remembers what a session has reported; a raised cap is reported again."""

    def __init__(self, past: Sequence[Event] = ()) -> None:
        """`past` holds the session's earlier events."""
        self._limits: dict[tuple[str, Unit], int] = {
            (event.scope, event.unit): event.limit for event in past if isinstance(event, CapNear)
        }
        """The limit of each reported cap."""

    def look(self, caps: Iterable[CapState], emit: Emit) -> None:
        """Report every cap that came near its limit since the last call."""
        for cap in caps:
            key = (cap.scope, cap.unit)
            if cap.spent < NEAR_CAP_SHARE * cap.limit:
                self._limits.pop(key, None)  # raised, or a new day
            elif self._limits.get(key) != cap.limit:
                self._limits[key] = cap.limit
                emit(CapNear(cap.scope, cap.unit, cap.limit, cap.spent))

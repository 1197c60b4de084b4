"""What a turn consumes, the budget line that models read, and caps that are nearly used up."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.session_settings import SessionSettings
from ecoshell.budget import NEAR_CAP_SHARE, CapState, Unit, amount_text
from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CapNear,
    Consumption,
    Emit,
    Event,
    StepStarted,
    SubagentFinished,
    ToolRegistered,
    ToolsOffered,
)
from ecoshell.messages import Usage


@dataclass(slots=True)
class TurnUsage:
    """Adds up a turn's money, tokens, steps and registrations."""

    started: float = field(default_factory=time.monotonic)
    known_nano: int = 0
    unpriced: int = 0
    """Number of model calls of unknown cost."""
    usage: Usage = field(default_factory=Usage)
    consumption: Consumption = field(default_factory=Consumption)
    """Price and usage for display."""
    steps: int = 0
    worked: float = 0.0
    """Seconds spent by models and tools, added up; the user's own time is not included."""
    saved_tokens: int = 0
    registered: list[str] = field(default_factory=list[str])
    _sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of the schemas that the agent registered."""
    _loaded: int = 0
    """Tokens of names and loaded schemas."""
    _everything: int = 0
    """Tokens of all schemas."""

    @property
    def spent_nano(self) -> int | None:
        """The money spent; None if any part is unknown."""
        return None if self.unpriced else self.known_nano

    def see(self, event: Event) -> None:
        """Count one event."""
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
            case SubagentFinished():
                self.known_nano += event.spent_nano or 0
                self.unpriced += event.spent_nano is None
                self.usage += event.usage
                self.consumption = self.consumption.plus_subagent(event.spent_nano, event.usage)
            case StepStarted():
                if event.step > self.steps:  # a step that met a limit starts twice
                    self.saved_tokens += max(0, self._everything - self._loaded)
                self.steps = event.step
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
    """Reports the rest of the tightest cap and the mean cost of a step, once per change.

    The line is appended to results and stays there, so that a prompt keeps its cached prefix.
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
        if not caps:
            return ""
        cap = min(caps, key=lambda cap: cap.left / max(1, cap.limit))
        line = f"Budget: {amount_text(cap.left, cap.unit)} of {amount_text(cap.limit, cap.unit)} left{self._cost(cap)}."
        if line == self._last:
            return ""
        self._last = line
        return line

    def _cost(self, cap: CapState) -> str:
        """The mean cost of a step of this turn; empty if unknown."""
        steps, consumption = self._usage.steps, self._usage.consumption
        ms = round(1_000 * self._usage.worked)
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

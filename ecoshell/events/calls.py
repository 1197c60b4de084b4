"""Events of tools: registered, called, approved, and judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ecoshell.events.base import Event
from ecoshell.messages import Effect


@dataclass(frozen=True, slots=True)
class ToolRegistered(Event):
    """A tool's document is now before the model."""

    type: ClassVar[str] = "tool_registered"
    name: str
    tokens: int
    exact: bool
    step: int
    by: Literal["agent", "user", "upfront"]
    id: str = ""
    """The agent's call that registered it."""


@dataclass(frozen=True, slots=True)
class ToolUnregistered(Event):
    """A tool was taken out by the user."""

    type: ClassVar[str] = "tool_unregistered"
    name: str


@dataclass(frozen=True, slots=True)
class ApprovalWanted(Event):
    """A call waits for a person's word."""

    type: ClassVar[str] = "approval_wanted"
    id: str
    name: str
    arguments: Mapping[str, Any]
    effects: tuple[Effect, ...]
    reason: str
    """What the call would do, and what "always" would stand for."""
    rationale: str = ""
    """Why the agent wants it, in its own words."""
    price_nano: int = 0
    """What one use of the tool costs."""
    changes: str = ""
    """What the call would change in files, as a unified diff; empty where the tool cannot tell."""
    fault: str = ""
    """What is wrong with the arguments, when they are the person's and the tool cannot take them: asked once more."""


@dataclass(frozen=True, slots=True)
class ApprovalGiven(Event):
    """A call was allowed or refused."""

    type: ClassVar[str] = "approval_given"
    id: str
    decision: str
    by: str
    """Who decided: the person, a rule, or nobody (no person and no --yes)."""
    arguments: Mapping[str, Any] | None = None
    """What the person made of the arguments; None when they stayed as they were."""
    instead: str = ""
    """What the person wants in the place of a call that they refused."""


@dataclass(frozen=True, slots=True)
class CallStarted(Event):
    """A call is on its way through the guards."""

    type: ClassVar[str] = "call_started"
    id: str
    name: str
    arguments: Mapping[str, Any]
    through: str = ""
    """The meta-tool the model called it through; empty when it was called directly."""
    role: str = ""
    """Who made the call; empty where no model did, and in sessions of old versions."""


@dataclass(frozen=True, slots=True)
class CallFinished(Event):
    """What a call came to."""

    type: ClassVar[str] = "call_finished"
    id: str
    name: str
    ok: bool
    observation: str
    truncated: bool
    seconds: float
    refused: str = ""
    """Which guard refused the call (unknown, unregistered, forbidden, unaffordable, unapproved), or `stopped` where the
    turn ended before it ran; empty when the tool ran."""
    spent_nano: int = 0
    """What the tool itself cost; model calls are settled on their own."""
    changes: str = ""
    """What changed in files, as a unified diff; empty when nothing did."""
    memory_mb: float | None = None
    """The most memory the run held, on CPU and GPU, in MB of 2^20 bytes; None when it is not known."""
    units: float | None = None
    """What the run cost by its time and memory, in OpenCATP's price units; None when its memory is not known."""


@dataclass(frozen=True, slots=True)
class CallJudged(Event):
    """Whether a call's result helped, which decides what it may still be used for (BTP §2.4)."""

    type: ClassVar[str] = "call_judged"
    id: str
    name: str
    helpful: bool | None
    """None when nobody could tell."""
    by: str
    """`rules`, `classifier` or `model`; empty when nobody judged."""
    reason: str = ""
    note: str = ""
    """What the model reads after the result: what may not be used any more, and what is left."""


@dataclass(frozen=True, slots=True)
class CallMarked(Event):
    """The person's own word on a result, which outweighs any other."""

    type: ClassVar[str] = "call_marked"
    turn: int
    id: str
    name: str
    helpful: bool | None
    """None takes the mark back."""

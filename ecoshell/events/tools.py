"""Events of tools: registration, approval, calls and their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ecoshell.events.base import Event
from ecoshell.messages import Effect, Image
from ecoshell.options import HookPoint


@dataclass(frozen=True, slots=True)
class ToolRegistered(Event):
    """A tool's schema, or a skill's text, was added to the model's context."""

    type: ClassVar[str] = "tool_registered"
    name: str
    tokens: int
    exact: bool
    step: int
    by: Literal["agent", "first_call", "user", "upfront"]
    """A first call registers a tool that was known by name, or that the provider's tool search loaded."""
    id: str = ""
    """The agent's call that registered it."""
    group: str = ""
    """The reply that made the call."""
    loaded: int = 0
    """Tools that are loaded now, this one included; 0 in sessions of old versions."""
    total: int = 0
    """All tools, loaded or known by name."""
    text: str = ""
    """What the model reads of a skill; empty for a tool."""


@dataclass(frozen=True, slots=True)
class ToolUnregistered(Event):
    """The user unregistered a tool."""

    type: ClassVar[str] = "tool_unregistered"
    name: str


@dataclass(frozen=True, slots=True)
class ApprovalWanted(Event):
    """A call waits for the user's approval."""

    type: ClassVar[str] = "approval_wanted"
    id: str
    name: str
    arguments: Mapping[str, Any]
    effects: tuple[Effect, ...]
    reason: str
    """What the call would do, and what "always" would allow."""
    rationale: str = ""
    """The agent's reason for the call."""
    price_nano: int = 0
    """The price of one use of the tool."""
    changes: str = ""
    """The file changes as a unified diff; empty if the tool cannot predict them."""
    fault: str = ""
    """Why the tool cannot use the arguments that the user edited, which repeats the question."""
    agent: str = ""
    """The subagent that makes the call; empty for the session's own agent."""

    @property
    def of_server(self) -> str:
        """The MCP server that asks, if this is not about a call; tool names contain no colon."""
        return self.name.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class ApprovalGiven(Event):
    """A call was approved or denied."""

    type: ClassVar[str] = "approval_given"
    id: str
    decision: str
    by: str
    """`person`, `rule`, `plan mode`, or `nobody` if the user could not be asked and --yes was not set."""
    arguments: Mapping[str, Any] | None = None
    """The arguments as the user edited them; None if unchanged."""
    instead: str = ""
    """What the user wants instead of a denied call."""
    agent: str = ""
    """The subagent that made the call."""


@dataclass(frozen=True, slots=True)
class SandboxBlocked(Event):
    """A program seems to have failed because of the sandbox."""

    type: ClassVar[str] = "sandbox_blocked"
    id: str
    name: str
    lacked: Literal["network", "outside"]
    """The network, or files outside the workspace."""
    allowed: bool
    """Whether the user allowed it, so that the call ran again."""


@dataclass(frozen=True, slots=True)
class BackgroundStarted(Event):
    """A command runs in the background."""

    type: ClassVar[str] = "background_started"
    id: str
    command: str


@dataclass(frozen=True, slots=True)
class BackgroundEnded(Event):
    """A background command ended."""

    type: ClassVar[str] = "background_ended"
    id: str
    command: str
    status: int | None
    """The exit status; None if it was stopped."""
    seconds: float


@dataclass(frozen=True, slots=True)
class CallStarted(Event):
    """A call enters the guards."""

    type: ClassVar[str] = "call_started"
    id: str
    name: str
    arguments: Mapping[str, Any]
    through: str = ""
    """The meta-tool that the model used for the call; empty for a direct call."""
    role: str = ""
    """The role that made the call; empty if no model did, and in sessions of old versions."""
    group: str = ""
    """The reply that made the call: equal for all calls of one reply, empty if no model made it."""


@dataclass(frozen=True, slots=True)
class CallProgressed(Event):
    """Progress of a running call, in the tool's own words."""

    type: ClassVar[str] = "call_progressed"
    id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished(Event):
    """A call returned a result or was refused."""

    type: ClassVar[str] = "call_finished"
    id: str
    name: str
    ok: bool
    observation: str
    truncated: bool
    seconds: float
    refused: str = ""
    """The guard that refused the call (unknown, repeated, unregistered, forbidden, unaffordable, unapproved, hook),
    or `stopped` if the turn ended before the call ran; empty if the tool ran."""
    spent_nano: int = 0
    """The price of the tool itself; model calls are settled separately."""
    changes: str = ""
    """The file changes as a unified diff."""
    memory_mb: float | None = None
    """Peak memory on CPU and GPU, in MB of 2^20 bytes; None if unknown."""
    units: float | None = None
    """The run's cost in OpenCATP's price units, from its time and memory; None if the memory is unknown."""
    group: str = ""
    """The reply that made the call, as in `call_started`."""
    images: tuple[Image, ...] = ()
    """Images for models with vision; `ask --json` leaves their data empty."""


@dataclass(frozen=True, slots=True)
class HookRan(Event):
    """A hook of the user or the project ran."""

    type: ClassVar[str] = "hook_ran"
    event: HookPoint
    name: str
    command: str
    status: int | None
    """The exit status; None if it could not be started, or was stopped after its time limit."""
    seconds: float
    blocked: bool
    """Whether it refused a call."""
    text: str = ""
    """The beginning and the end of its standard error, or why it was stopped."""


@dataclass(frozen=True, slots=True)
class CallJudged(Event):
    """A result was judged, which decides how often the tool may still be used (BTP §2.4)."""

    type: ClassVar[str] = "call_judged"
    id: str
    name: str
    helpful: bool | None
    """None if undecided."""
    by: str
    """`rules`, `classifier`, `model` or `plugin`; empty if undecided."""
    reason: str = ""
    note: str = ""
    """Text added after the result for the model: what is now forbidden and how much is left."""


@dataclass(frozen=True, slots=True)
class CallMarked(Event):
    """The user marked a result as helpful or unhelpful, which overrides every other judgement."""

    type: ClassVar[str] = "call_marked"
    turn: int
    id: str
    name: str
    helpful: bool | None
    """None removes the mark."""

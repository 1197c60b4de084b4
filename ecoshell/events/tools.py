"""Events of tools: registration, approval, calls and their results."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ecoshell.budget import amount_text, counted
from ecoshell.events.base import Event
from ecoshell.events.figures import duration
from ecoshell.events.lines import Line
from ecoshell.messages import Effect, Image, visible_line
from ecoshell.options import HookPoint

MAX_RESULT_CHARS = 200
"""Characters of an observation in a line."""
_MAX_VALUE_CHARS = 60
"""Characters of an argument in a line."""
MAX_COMMAND_CHARS = 80
"""Characters of a background command in a line."""
_REGISTRATIONS = {"user": "registered by you", "upfront": "registered for this question"}
_DECISIONS = {
    "once": "approved",
    "session": "approved for this session",
    "project": "approved for this project",
    "no": "denied",
}
_DECIDERS = {
    "person": " by you",
    "rule": " by a rule in the settings",
    "plan mode": " in plan mode",
    "nobody": ": no one was available to ask",
}
_REFUSALS = {
    "unapproved": "denied",
    "stopped": "not run: the turn was stopped",
    "hook": "blocked by a hook",
}
_TEXTS_OF_CHANGES = frozenset({"content", "old", "new"})
"""Arguments of write_file and edit_file that their file changes show."""
_CUT_CHANGES = re.compile(r"^\[|…$", re.MULTILINE)
"""A note that a diff is not complete, or a line that was cut; no line of a diff begins with a bracket."""
_LACKS = {"network": "no network", "outside": "no files outside the workspace"}


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

    def render(self) -> Line:
        skill = "skill " if self.text else ""
        size = f"{'' if self.exact else 'about '}{counted(self.tokens, 'token')}"
        loaded = f" · {self.loaded} of {self.total} loaded" if self.loaded else ""
        text = f"{self.name} {skill}{_REGISTRATIONS.get(self.by, 'registered')}"
        return Line("good", "+", text, f"{size}{loaded}")


@dataclass(frozen=True, slots=True)
class ToolUnregistered(Event):
    """A tool was unregistered."""

    type: ClassVar[str] = "tool_unregistered"
    name: str
    by_user: bool = True
    """False for a tool that does not exist anymore."""

    def render(self) -> Line:
        return Line("warning", "−", f"{self.name} unregistered")


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

    @property
    def shown_arguments(self) -> Mapping[str, Any]:
        """The arguments without the texts that the file changes show completely."""
        is_complete = bool(self.changes) and not _CUT_CHANGES.search(self.changes)
        hidden = _TEXTS_OF_CHANGES if is_complete else ()
        return {name: value for name, value in self.arguments.items() if name not in hidden}

    def render(self) -> Line:
        agent = f"{self.agent}: " if self.agent else ""
        text = f"{self.of_server} asks" if self.of_server else f"{agent}may {self.name} run"
        detail = self.reason
        if self.price_nano:
            detail += f" One use costs {amount_text(self.price_nano, 'usd')}."
        return Line("question", "?", text, detail)


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

    def render(self) -> Line:
        """Return the decision and who made it; the detail is what to do instead."""
        decision = _DECISIONS.get(self.decision, self.decision)
        decider = _DECIDERS.get(self.by, f" by {self.by}")
        instead = f"do this instead: {self.instead}" if self.instead else ""
        kind = "warning" if self.decision == "no" else "info"
        return Line(kind, "?", f"{decision}{decider}", instead)


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

    def render(self) -> Line:
        ending = "the user allowed it" if self.allowed else "not allowed"
        return Line("warning", "?", f"sandbox: {self.name} had {_LACKS[self.lacked]}; {ending}")


@dataclass(frozen=True, slots=True)
class BackgroundStarted(Event):
    """A command runs in the background."""

    type: ClassVar[str] = "background_started"
    id: str
    command: str

    def render(self) -> Line:
        text = f"background {self.id} started: {visible_line(self.command, MAX_COMMAND_CHARS)}"
        return Line("info", "►", text)


@dataclass(frozen=True, slots=True)
class BackgroundEnded(Event):
    """A background command ended."""

    type: ClassVar[str] = "background_ended"
    id: str
    command: str
    status: int | None
    """The exit status; None if it was stopped."""
    seconds: float

    def render(self) -> Line:
        ending = "was stopped" if self.status is None else "ended"
        status = "" if self.status is None else f" (exit status {self.status})"
        command = visible_line(self.command, MAX_COMMAND_CHARS)
        text = f"background {self.id} {ending} after {self.seconds:.0f} s{status}: {command}"
        return Line("info", "►", text)


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

    def render(self) -> Line:
        """Return the call with its arguments, each on one line and cut to a readable length."""
        arguments: list[str] = []
        for key, value in self.arguments.items():
            text = argument_text(value)[: 8 * _MAX_VALUE_CHARS]
            arguments.append(f"{visible_line(key)}={visible_line(text, _MAX_VALUE_CHARS)}")
        return Line("call", "►", f"{self.name}({', '.join(arguments)})")


def argument_text(value: object) -> str:
    """An argument of a call as a user reads it: strings as they are, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True, slots=True)
class CallProgressed(Event):
    """Progress of a running call, in the tool's own words."""

    type: ClassVar[str] = "call_progressed"
    id: str
    name: str
    text: str

    def render(self) -> Line:
        return Line("progress", "·", self.text)


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

    def render(self) -> Line:
        """Return the price and duration of a call, or why it did not run; the detail begins its result."""
        cost = duration(self.seconds)
        if self.spent_nano:
            cost = f"{amount_text(self.spent_nano, 'usd')} · {cost}"
        text = cost if self.ok else f"failed after {cost}"
        if self.refused:
            text = _REFUSALS.get(self.refused, f"refused: {self.refused}")
        if self.truncated:
            text += " · output truncated"
        first, *more = self.observation.strip().splitlines() or ["(nothing)"]
        count = f" (and {counted(len(more), 'more line')})" if more else ""
        detail = f"{visible_line(first, MAX_RESULT_CHARS)}{count}"
        return Line("result" if self.ok else "failure", "└", text, detail)


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

    def render(self) -> Line | None:
        if self.status == 0 or self.blocked:  # a blocked call's result gives the reason
            return None
        outcome = f"ended with exit status {self.status}"
        if self.status is None:
            outcome = "was stopped or not started"
        text = f"the hook {self.name} ({self.event}) {outcome}"
        return Line("warning", "!", text, visible_line(self.text, MAX_RESULT_CHARS))


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

    def render(self) -> Line | None:
        if self.helpful is None:
            return None
        if self.helpful:
            return Line("good", "√", "helpful", self.reason)
        return Line("warning", "×", "unhelpful", self.reason)


@dataclass(frozen=True, slots=True)
class CallMarked(Event):
    """The user marked a result as helpful or unhelpful, which overrides every other judgement."""

    type: ClassVar[str] = "call_marked"
    turn: int
    id: str
    name: str
    helpful: bool | None
    """None removes the mark."""

    def render(self) -> Line:
        call = f"{self.name} of turn {self.turn}"
        if self.helpful is None:
            return Line("info", "·", "mark removed", call)
        if self.helpful:
            return Line("good", "√", "helpful, marked by you", call)
        return Line("warning", "×", "unhelpful, marked by you", call)

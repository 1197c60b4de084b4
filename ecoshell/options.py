"""The options of one run, from the command line; None leaves the decision to the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

Registration = Literal["auto", "names", "all", "all_text"]
Presentation = Literal["auto", "grow", "stable"]
ModeName = Literal["single", "umi"]
RoleName = Literal["planner", "caller", "summarizer"]
Effort = Literal["auto", "off", "low", "medium", "high", "max"]
"""How much a model reasons before it answers; `auto` leaves it to the provider."""

ApprovalMode = Literal["ask", "plan", "edits"]
APPROVAL_MODES: Mapping[ApprovalMode, str] = {
    "ask": "Calls that write, execute or reach the network ask for approval.",
    "plan": "Plan mode: only tools that read run, and the answer is a plan. /plan accept carries it out.",
    "edits": "Edits are accepted: writes inside the workspace run without asking; commands still ask.",
}
HookPoint = Literal[
    "before_tool", "after_tool", "turn_start", "turn_end", "session_start", "session_end", "cap"
]
"""When a hook runs."""

EFFORTS: Mapping[Effort, str] = {
    "auto": "as the provider decides",
    "off": "no reasoning, or as little as the model allows",
    "low": "a little",
    "medium": "moderate",
    "high": "a lot",
    "max": "as much as the model allows",
}

ADVISOR = "advisor"
"""The role of the model that the session's model asks for advice, in any mode."""
ROLES: Mapping[RoleName, str] = {
    "planner": "decides what comes next, and why",
    "caller": "makes the tool call",
    "summarizer": "writes the answer",
}
RETRY_SECONDS = 120
"""How long a failed model call is retried by default."""
LATEST_SESSION = "."
"""Instead of an ID: the workspace's most recent session."""
EMBEDDED = "embedded"
"""The name of the packaged demo model."""
SESSION_MODEL = "-"
"""In a role: the session's model."""


def role_named(name: str) -> RoleName | None:
    """Return the role with this name, or None."""
    return next((role for role in ROLES if role == name), None)


@dataclass(frozen=True, slots=True)
class RoleModels:
    """The model name of each role of the mode umi; None means the session's model."""

    planner: str | None = None
    caller: str | None = None
    summarizer: str | None = None

    def of(self, role: RoleName) -> str | None:
        """Return the model name of a role."""
        return {"planner": self.planner, "caller": self.caller, "summarizer": self.summarizer}[role]

    def with_role(self, role: RoleName, model: str | None) -> "RoleModels":
        """Return a copy in which one role has another model; None means the session's model."""
        return replace(self, **{role: model})

    def over(self, defaults: "RoleModels") -> "RoleModels":
        """Fill unset roles from `defaults`; SESSION_MODEL sets a role to the session's model."""
        names = ((role, self.of(role) or defaults.of(role)) for role in ROLES)
        return RoleModels(**{role: name for role, name in names if name != SESSION_MODEL})


NO_ROLE_MODELS = RoleModels()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options shared by the chat, the line shell and `ask`."""

    model: str | None = None
    budget: str | None = None
    """The session's cap as typed, such as `0.50` or `20000tok`; already validated."""
    registration: Registration | None = None
    presentation: Presentation | None = None
    max_steps: int | None = None
    workspace: Path | None = None
    yes: bool = False
    """Skip approval prompts; deny rules still apply."""
    force: bool = False
    """Let tools overwrite a file with shorter content without asking."""
    trust_project: bool = False
    """Follow the workspace's `AGENTS.md` without asking, in this run."""
    read_only: bool = False
    """Refuse every tool that writes or executes."""
    resume: str | None = None
    """A session ID or a unique prefix."""
    price: tuple[Decimal, Decimal] | None = None
    """Dollars per million input and output tokens."""
    mode: ModeName | None = None
    roles: RoleModels = NO_ROLE_MODELS
    """Models of single roles; SESSION_MODEL overrides the settings with the session's model."""
    strategy: str | None = None
    effort: Effort | None = None
    approval_mode: ApprovalMode | None = None
    advisor: str | None = None
    """The model that gives advice."""

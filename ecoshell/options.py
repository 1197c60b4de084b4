"""What the command line says about one run; None wherever it says nothing, so that the settings decide."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

Registration = Literal["auto", "names", "all", "all_text"]
Presentation = Literal["auto", "grow", "stable"]
ModeName = Literal["single", "umi", "auto"]
RoleName = Literal["planner", "caller", "summarizer"]
Effort = Literal["auto", "off", "low", "medium", "high", "max"]
"""How much a model reasons before it answers; `auto` leaves it to the provider."""

EFFORTS: Mapping[Effort, str] = {
    "auto": "as the provider decides",
    "off": "no reasoning, or as little as the model allows",
    "low": "a little",
    "medium": "moderate",
    "high": "a lot",
    "max": "as much as the model allows",
}

ROLES: Mapping[RoleName, str] = {
    "planner": "decides what comes next, and why",
    "caller": "makes the tool call",
    "summarizer": "writes the answer",
}
"""The roles of the mode umi, and what each does."""
RETRY_SECONDS = 120
"""How long a model call that failed is tried again by default."""
LATEST_SESSION = "."
"""Stands for the session last used in the workspace where a session's id is expected."""
SESSION_MODEL = "-"
"""Stands for the session's model where a model's name is expected."""


def role_named(name: str) -> RoleName | None:
    """The role of this name."""
    return next((role for role in ROLES if role == name), None)


@dataclass(frozen=True, slots=True)
class RoleModels:
    """The model of each role of the mode umi, by name; None is the session's."""

    planner: str | None = None
    caller: str | None = None
    summarizer: str | None = None

    def of(self, role: RoleName) -> str | None:
        """The name given to a role."""
        return {"planner": self.planner, "caller": self.caller, "summarizer": self.summarizer}[role]

    def with_role(self, role: RoleName, model: str | None) -> "RoleModels":
        """The same, but for one role; None gives it back to the session's model."""
        return replace(self, **{role: model})

    def over(self, other: "RoleModels") -> "RoleModels":
        """What is given here, and the rest as it is in the other; SESSION_MODEL takes what the other gives away."""
        given = {role: self.of(role) or other.of(role) for role in ROLES}
        return RoleModels(**{role: None if name == SESSION_MODEL else name for role, name in given.items()})


NO_ROLE_MODELS = RoleModels()
"""The session's model in every role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that the chat, the line shell and `ask` share."""

    model: str | None = None
    budget: str | None = None
    """The session's cap as typed, such as `0.50` or `20000tok`; already known to be an amount."""
    registration: Registration | None = None
    presentation: Presentation | None = None
    max_steps: int | None = None
    workspace: Path | None = None
    yes: bool = False
    """Allow what no rule denies, without asking."""
    force: bool = False
    """Let tools write less over a file than it held, without asking."""
    trust_project: bool = False
    """Read the workspace's `AGENTS.md` without asking, in this run."""
    read_only: bool = False
    """Refuse every tool that writes or executes."""
    resume: str | None = None
    """A session's id, or the beginning of one."""
    price: tuple[Decimal, Decimal] | None = None
    """The model's price: dollars per million input and output tokens."""
    mode: ModeName | None = None
    roles: RoleModels = NO_ROLE_MODELS
    """Models of single roles; SESSION_MODEL where the settings' is to give way to the session's."""
    strategy: str | None = None
    effort: Effort | None = None

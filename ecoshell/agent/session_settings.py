"""The settings that may change while a session runs, and the limits that follow the model where they say `auto`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

from ecoshell.budget import NANO
from ecoshell.errors import UsageError
from ecoshell.models import Traits
from ecoshell.options import EFFORTS, ApprovalMode, Effort, Presentation, Registration, RoleModels

Limit = int | Literal["auto"]

DEFAULT_OUTPUT = 16_384
"""Output tokens of a model whose maximum is unknown and whose context is large or unknown."""
SMALL_MODEL_OUTPUT = 1_024
SMALL_MODEL_STEPS = 24
STEPS = 200
UNLIMITED_STEPS = 1_000_000
_LARGE_CONTEXT = 65_536

_LEAST_RESULT, _MOST_RESULT = 8_000, 50_000
_LEAST_CONTEXT, _MOST_CONTEXT = 8_192, 131_072
"""Contexts, in tokens, at which a result has the least and the most characters."""


def output_limit(traits: Traits, setting: Limit) -> int:
    """Output tokens of one reply, reasoning included."""
    if setting != "auto":
        return setting
    if traits.small:
        return SMALL_MODEL_OUTPUT
    if traits.max_output is not None:
        return traits.max_output
    if traits.context is None or traits.context >= _LARGE_CONTEXT:
        return DEFAULT_OUTPUT
    return traits.context // 4


def step_limit(traits: Traits, setting: Limit, *, capped: bool) -> int:
    """Steps of one turn: few for a small local model; a capable model under a cap is limited by the cap."""
    if setting != "auto":
        return setting
    if traits.local and not traits.capable:
        return SMALL_MODEL_STEPS
    return UNLIMITED_STEPS if capped else STEPS


def result_characters(context: int | None) -> int:
    """Characters of one tool result, for models with this context in tokens."""
    if context is None or context >= _MOST_CONTEXT:
        return _MOST_RESULT
    share = max(0, context - _LEAST_CONTEXT) / (_MOST_CONTEXT - _LEAST_CONTEXT)
    return _LEAST_RESULT + int(share * (_MOST_RESULT - _LEAST_RESULT))


def effort_named(name: str) -> Effort:
    """The level with this name; raises UsageError."""
    for level in EFFORTS:
        if level == name:
            return level
    raise UsageError(f"Unknown effort {name!r:.40}.", fix=f"Available: {', '.join(EFFORTS)}.")


PlanMode = Literal["off", "btp", "prompt", "btp+prompt"]
"""How turns are planned: not at all, with refused calls (btp), with advice to the model (prompt), or both."""


@dataclass(slots=True)
class SessionSettings:
    """Settings except caps and models; changes apply from the next turn on.

    A field with a `key` is set by that key of the settings file, and by an option of its name for one run.
    """

    strategy: str = field(default="react", metadata={"key": "agent.strategy"})
    registration: Registration = field(default="auto", metadata={"key": "agent.registration"})
    presentation: Presentation = field(default="auto", metadata={"key": "agent.presentation"})
    max_steps: Limit = field(default="auto", metadata={"key": "agent.max_steps"})
    effort: Effort = field(default="auto", metadata={"key": "agent.effort"})
    task_model: str | None = field(default=None, metadata={"key": "agent.task_model"})
    """The model of subagents; None is the cheapest of the session's models."""
    tasks_at_once: int = field(default=4, metadata={"key": "agent.tasks_at_once"})
    """Subagents of one agent that run at the same time."""
    advisor: str | None = field(default=None, metadata={"key": "agent.advisor"})
    """The model that gives advice; None without one."""
    advisor_share: float = field(default=0.3, metadata={"key": "agent.advisor_share"})
    """Share of what the caps leave that advice may cost in a turn."""
    approval_mode: ApprovalMode = field(default="ask", metadata={"key": "approval.mode"})
    compact_model: str | None = field(default=None, metadata={"key": "agent.compact_model"})
    """The model that writes summaries for /compact; None is the session's model."""
    compact_at: float | Literal["off"] = field(default=0.8, metadata={"key": "agent.compact_at"})
    """Share of the context at which it is compacted automatically."""
    names_share: float = field(default=0.1, metadata={"key": "registration.names_share"})
    """Share of the context that names may take before only a shortlist is shown."""
    ask_above_nano: int | None = field(default=None, metadata={"key": "budget.ask_above"})
    """The user approves a step that may cost more; None never asks."""
    plan: PlanMode = field(default="btp", metadata={"key": "plan.mode"})
    threshold: float = field(default=0.15, metadata={"key": "plan.threshold"})
    """τ: the value from which a tool with a history is worth a use."""
    strict: bool = field(default=False, metadata={"key": "plan.strict"})
    """Whether every unplanned call is refused, as in the paper. Otherwise the plan is advice, and a call is refused
    only if a better use or the answer would become unaffordable, or if the tool has a bad record."""
    earned: bool = field(default=True, metadata={"key": "plan.earned_uses"})
    """Whether a helpful use allows a further use of the tool in its turn."""
    budget_line: bool = field(default=True, metadata={"key": "plan.budget_line"})
    judge: str = field(default="rules", metadata={"key": "plan.judge"})
    fallback: Sequence[str] = field(default=(), metadata={"key": "models.fallback"})
    """Models that replace an unavailable model, in this order."""
    hour_nano: int | None = field(default=None, metadata={"key": "plan.time_price"})
    """Price of an hour of waiting; None is 0."""
    recording: bool = field(default=True, metadata={"key": "experience.record"})
    alpha: float = field(default=0.5, metadata={"key": "graph.alpha"})
    """Weight of performance against cost in the score of a tool graph."""
    most_nano: int = field(default=NANO // 20, metadata={"key": "graph.max_cost"})
    """C_max: the largest cost of a tool graph if no cap is lower."""
    checker: str | None = field(default=None, metadata={"key": "graph.checker"})
    """A command that checks an answer: it reads the answer from standard input, and status 0 means correct."""
    quote: Literal["ask", "show", "off"] = field(default="ask", metadata={"key": "agent.quote"})
    """Whether work of several nodes is quoted, and may ask before it starts."""
    quote_share: float = field(default=0.25, metadata={"key": "agent.quote_share"})
    """Share of what a cap leaves from which a quote asks."""
    presets: Mapping[str, RoleModels] = field(default_factory=dict[str, RoleModels])
    """Named combinations of role models."""
    named_models: Sequence[str] = ()
    readers: set[str] = field(default_factory=set[str])
    """Models other than the session's that were announced to the user before they read the conversation."""

    @property
    def judged_by(self) -> str:
        """The judge in use: no model is paid to judge if no plan depends on it."""
        return "rules" if self.plan == "off" and self.judge == "model" else self.judge


SETTING_KEYS: Mapping[str, str] = {
    setting.metadata["key"]: setting.name
    for setting in fields(SessionSettings)
    if "key" in setting.metadata
}
"""The field of each key of the settings file."""

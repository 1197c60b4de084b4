"""The interface through which a turn asks the user, and the values that the user's decisions take."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from ecoshell.budget import typed_amount
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, Quote, TrustWanted

Decision = Literal["once", "session", "project", "no"]
Trust = Literal["yes", "no", "later"]
"""The user's decision on a project's instructions: `yes` and `no` hold until they change, `later` for this session."""


@dataclass(frozen=True, slots=True)
class Approval:
    """The user's decision on a call."""

    decision: Decision
    arguments: Mapping[str, Any] | None = None
    """Edited arguments that replace the agent's."""
    instead: str = ""
    """With `no`: what the model should do instead."""


@dataclass(frozen=True, slots=True)
class LimitChoice:
    """What to do at a limit.

    `raise` the cap to `value` (as typed: 0.50, 20000tok), switch to the `model` named by `value`, `answer` from the
    results so far, or `stop`.
    """

    kind: Literal["raise", "model", "answer", "stop"]
    value: str = ""


@dataclass(frozen=True, slots=True)
class CostChoice:
    """What to do before an expensive step.

    `go` on, go on without asking again in this session (`always`), switch to the `model` named by `value`, `answer`
    from the results so far, or `stop`.
    """

    kind: Literal["go", "always", "model", "answer", "stop"]
    value: str = ""


@dataclass(frozen=True, slots=True)
class QuoteChoice:
    """What to do with quoted work: `start` it, `trim` it by the nodes in `without`, or `refuse` it."""

    kind: Literal["start", "trim", "refuse"]
    without: tuple[str, ...] = ()


class UserInterface(Protocol):
    """Decides on behalf of the user. A call may wait indefinitely; the turn can be cancelled meanwhile.

    Methods that a subclass does not define decide as NonInteractive does.
    """

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return Approval("no")

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        return LimitChoice("answer")

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        return CostChoice("go")

    async def at_quote(self, quoted: Quote) -> QuoteChoice:
        return QuoteChoice("refuse" if quoted.is_beyond else "start")

    async def trust(self, wanted: TrustWanted) -> Trust:
        return "later"


class NonInteractive(UserInterface):
    """Decides without a user: denies calls that need approval, and answers from the results so far at a limit.

    It does not trust a project's instructions. It allows expensive steps, because the caps bound the run.
    """


def enough_text(hit: LimitHit) -> str:
    """The cap that a limit proposes, as the user would type it; empty if unknown."""
    return typed_amount(hit.enough, hit.unit) if hit.enough else ""


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse a call's arguments as typed by the user; raises UsageError that says where the JSON is invalid."""
    try:
        arguments = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"This is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"This JSON cannot be used: {error}.") from error
    if not isinstance(arguments, dict):
        raise UsageError(
            "The arguments must be one JSON object.", fix='Write them as {"name": value, …}.'
        )
    return cast("dict[str, Any]", arguments)

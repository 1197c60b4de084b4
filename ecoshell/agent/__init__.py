"""The agent: a turn from question to answer; here is how it asks a person, whatever interface that sits before."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from ecoshell.budget import nano_to_usd_text
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, TrustWanted

Decision = Literal["once", "session", "project", "no"]
Trust = Literal["yes", "no", "later"]
"""A person's word on a project's instructions: `yes` and `no` stand until they change, `later` for now."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's word on a call; with `arguments`, the call runs with those in the place of the agent's.

    With `no`, `instead` is what the model is told to do in its place.
    """

    decision: Decision
    arguments: Mapping[str, Any] | None = None
    instead: str = ""


@dataclass(frozen=True, slots=True)
class LimitChoice:
    """What to do at a limit.

    `raise` the cap that was hit to `value` (as typed: 0.50, 20000tok), go on with the `model` that `value` names,
    `answer` from what there is, or `stop`.
    """

    kind: Literal["raise", "model", "answer", "stop"]
    value: str = ""


@dataclass(frozen=True, slots=True)
class CostChoice:
    """What to do before an expensive step.

    `go` on, go on and not be asked again in this session (`always`), go on with the `model` that `value` names,
    `answer` from what there is, or `stop`.
    """

    kind: Literal["go", "always", "model", "answer", "stop"]
    value: str = ""


class UserInterface(Protocol):
    """Whoever decides. Every call may wait as long as it likes; the turn can be cancelled meanwhile.

    What a class derived of this does not say is decided as it is where no person is there: see NonInteractive.
    """

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return Approval("no")

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        return LimitChoice("answer")

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        return CostChoice("go")

    async def trust(self, wanted: TrustWanted) -> Trust:
        return "later"


class NonInteractive(UserInterface):
    """No person is there: nothing that needs approval runs, and at a limit the answer is written from what there is.

    A project's instructions are not trusted. An expensive step goes on: the caps bound a run that nobody watches.
    """


def enough_text(hit: LimitHit) -> str:
    """The cap a limit proposes, as a person would type it; empty when none is known."""
    if not hit.enough:
        return ""
    return nano_to_usd_text(hit.enough) if hit.unit == "usd" else f"{hit.enough}tok"


def parse_arguments(text: str) -> dict[str, Any]:
    """A call's arguments as a person typed them; raises UsageError that says where the JSON breaks."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as wrong:
        raise UsageError(f"This is not JSON: {wrong.msg} (line {wrong.lineno}, column {wrong.colno}).") from wrong
    except (ValueError, RecursionError) as wrong:
        raise UsageError(f"This JSON cannot be taken: {wrong}.") from wrong
    if not isinstance(found, dict):
        raise UsageError("The arguments must be one JSON object.", fix='Write them as {"name": value, …}.')
    return cast("dict[str, Any]", found)

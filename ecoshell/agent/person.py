"""How the core asks a person: a screen, a line shell and nobody at all are the same to it."""

from dataclasses import dataclass
from typing import Literal, Protocol

from ecoshell.events import ApprovalWanted, LimitHit

Decision = Literal["once", "session", "project", "no"]


@dataclass(frozen=True, slots=True)
class LimitChoice:
    """What to do at a limit.

    `raise` the cap that was hit to `value` (as typed: 0.50, 20000tok), go on with the `model` that `value` names,
    `answer` from what there is, or `stop`.
    """

    kind: Literal["raise", "model", "answer", "stop"]
    value: str = ""


class Person(Protocol):
    """Whoever decides. Both calls may wait as long as they like; the turn can be cancelled meanwhile."""

    async def approve(self, wanted: ApprovalWanted) -> Decision: ...

    async def at_limit(self, hit: LimitHit) -> LimitChoice: ...


class Nobody:
    """No person is there: nothing that needs approval runs, and at a limit the answer is written from what there is."""

    async def approve(self, wanted: ApprovalWanted) -> Decision:
        return "no"

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        return LimitChoice("answer")

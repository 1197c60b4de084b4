"""How turns are planned: the choices a person may change, what was experienced before, and what a plan is to a turn."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Literal, Protocol

from ecoshell.budget.money import NANO
from ecoshell.errors import StoreError
from ecoshell.events import Emit, Notice
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import Experienced
from ecoshell.planning.catp.costs import ALPHA, CostTable
from ecoshell.planning.judging.rules import Verdict

PlanMode = Literal["off", "btp", "prompt", "btp+prompt"]
JudgeKind = Literal["rules", "classifier", "model"]
_MOST_UNKEPT = 200
"""Uses and attempts that wait for a store that cannot be written; of more, the earliest are given up."""
PLAN_MODES: tuple[PlanMode, ...] = ("off", "btp", "prompt", "btp+prompt")


class Records(Protocol):
    """Where uses and attempts are kept; any method may block and raise StoreError."""

    def add(self, items: Iterable[Experienced]) -> None: ...

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool: ...

    def close(self) -> None: ...


class Judge(Protocol):
    """Who says whether a result helped; never ends a turn."""

    async def judge(self, query: str, call: Call, observation: Observation, emit: Emit) -> Verdict: ...


@dataclass(slots=True)
class Standard:
    """By what finished parallel plans are scored."""

    alpha: float = ALPHA
    """How much performance weighs beside cost."""
    most_nano: int = NANO // 20
    """What a plan may cost at most, C_max, where no cap allows less."""
    unit_nano: int = 0
    """What one of OpenCATP's price units is worth; 0 is nothing."""
    checker: str = ""
    """A command that tells by its exit status whether an answer, on its standard input, is right; empty is none."""


@dataclass(slots=True)
class Planning:
    """How turns are planned from the next one on."""

    records: Records
    past: Past
    """What was experienced says of tools and modes; may block, and raise StoreError."""
    judge: Judge
    mode: PlanMode = "btp"
    threshold: float = 0.15
    """τ: the value from which on a tool with a history is worth a use."""
    strict: bool = False
    """Whether what is not planned is forbidden, as in the paper; else the plan is advice, and a call that is asked for
    is refused only where it would leave the answer or a better use unpaid, or where the tool's record is bad."""
    earned: bool = True
    """Whether a use that helped earns the tool a further one in its turn."""
    judge_kind: JudgeKind = "rules"
    hour_nano: int = 0
    """What an hour of waiting is worth."""
    resources: Mapping[str, int] = field(default_factory=dict[str, int])
    """What the time and memory of one run of a profiled tool are worth, in nano-dollars; unlike its price, unpaid."""
    profiled: Callable[[], CostTable] = CostTable
    """What tools cost by the size of what they are given, as `ecoshell profile` has found out; may block."""
    standard: Standard = field(default_factory=Standard)
    recording: bool = True
    unkept: list[Experienced] = field(default_factory=list[Experienced])
    """What could not be kept yet; it is with the next use or attempt."""
    _keeping: Lock = field(default_factory=Lock, repr=False, compare=False)

    def keep(self, *items: Experienced) -> None:
        """Remember these, and those that wait; may block. What cannot be kept waits for the next.

        Raises StoreError where it is the first that waits; those after it add nothing to that.
        """
        with self._keeping:  # branches of a plan finish at the same time
            others_wait = bool(self.unkept)
            self.unkept = [*self.unkept, *items][-_MOST_UNKEPT:]
            if not self.unkept:
                return
            try:
                self.records.add(self.unkept)
                self.unkept = []
            except StoreError:
                if not others_wait:
                    raise

    @property
    def judged_by(self) -> JudgeKind:
        """Who judges results; without a plan nothing depends on it, so nobody is paid for it."""
        return "rules" if self.mode == "off" and self.judge_kind == "model" else self.judge_kind

    @property
    def binds(self) -> bool:
        """Whether calls may be refused by the plan."""
        return "btp" in self.mode

    @property
    def tells(self) -> bool:
        """Whether costs and budget are written into the prompt, the paper's +Prompt."""
        return "prompt" in self.mode


async def remember(planning: Planning, made: Callable[[], Experienced], emit: Emit) -> None:
    """Keep what is made in a thread; that it cannot be kept yet is told when it is the first that waits."""
    if not planning.recording:
        return
    try:
        await asyncio.to_thread(lambda: planning.keep(made()))
    except StoreError as failure:
        emit(Notice(f"What this turn came to is not remembered for planning yet. {failure}"))


def now() -> str:
    """The time as experience keeps it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one use of a tool is expected to take; unknown is None."""

    price_nano: int | None = None
    seconds: float | None = None


class PlanPolicy(Protocol):
    """The plan of one turn, as the driver and the guards see it."""

    @property
    def forbidden(self) -> Mapping[str, str]:
        """Tools that may not be used now, whoever asks, each with the reason in a word: budget, quota or blacklist."""
        ...

    def refusal(self, tool: str) -> str:
        """Why a call of the tool that is asked for would be refused now, and what is affordable instead.

        Empty where it would not. May take a moment.
        """
        ...

    def allows(self, tool: str) -> int | None:
        """How many more uses of a tool are allowed now; None where nothing limits them."""
        ...

    def expected(self, tool: str) -> Estimate:
        """What one use of a tool is expected to take; may block."""
        ...

    async def refresh(self, emit: Emit) -> None:
        """Plan anew if something has changed since."""
        ...

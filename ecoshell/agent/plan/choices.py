"""What planning is equipped with: the choices a person may change, and what was experienced before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ecoshell.events import Emit
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.base import Evidence, Use
from ecoshell.planning.judging.judges import Verdict

PlanMode = Literal["off", "btp", "prompt", "btp+prompt"]
JudgeKind = Literal["rules", "classifier", "model"]
PLAN_MODES: tuple[PlanMode, ...] = ("off", "btp", "prompt", "btp+prompt")


class Records(Protocol):
    """Where uses are kept; any method may block and raise StoreError."""

    def add(self, uses: Iterable[Use]) -> None: ...

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool: ...

    def close(self) -> None: ...


class PastUses(Protocol):
    """What past uses say of tools; may block."""

    def evidence(self, query: str, hashes: Mapping[str, str], model: str) -> Mapping[str, Evidence]: ...


class Judge(Protocol):
    """Who says whether a result helped; never ends a turn."""

    async def judge(self, query: str, call: Call, observation: Observation, emit: Emit) -> Verdict: ...


@dataclass(slots=True)
class Planning:
    """How turns are planned from the next one on."""

    records: Records
    past: PastUses
    judge: Judge
    mode: PlanMode = "btp"
    threshold: float = 0.15
    """τ: the value from which on a tool with a history is worth a use."""
    earned: bool = True
    """Whether a use that helped earns the tool a further one in its turn."""
    judge_kind: JudgeKind = "rules"
    hour_nano: int = 0
    """What an hour of waiting is worth."""
    recording: bool = True
    unkept: list[Use] = field(default_factory=list[Use])
    """Uses that could not be kept yet; they are with the next one."""

    @property
    def judged_by(self) -> JudgeKind:
        """Who judges results; without a plan nothing depends on it, so nobody is paid for it."""
        return "rules" if self.mode == "off" and self.judge_kind == "model" else self.judge_kind

    @property
    def binds(self) -> bool:
        """Whether tools outside the plan are forbidden."""
        return "btp" in self.mode

    @property
    def tells(self) -> bool:
        """Whether costs and budget are written into the prompt, the paper's +Prompt."""
        return "prompt" in self.mode

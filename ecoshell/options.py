"""What the command line says about one run; None wherever it says nothing, so that the settings decide."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

Registration = Literal["auto", "names", "all"]
Presentation = Literal["auto", "grow", "stable"]
ModeName = Literal["single", "umi"]
StrategyName = Literal["react", "dfsdt", "tot"]


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
    read_only: bool = False
    """Refuse every tool that writes or executes."""
    resume: str | None = None
    """A session's id, or the beginning of one."""
    price: tuple[Decimal, Decimal] | None = None
    """The model's price: dollars per million input and output tokens."""
    mode: ModeName | None = None
    strategy: StrategyName | None = None

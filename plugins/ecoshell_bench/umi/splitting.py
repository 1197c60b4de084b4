"""Which tasks are held back for measuring, by their ids alone: what learns from trajectories takes the rest.

A third is held: of the 240 steps that LiveMCPBench's recordings give, a fifth would leave fewer than a hundred.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, get_args

from ecoshell.errors import UsageError

if TYPE_CHECKING:
    from ecoshell_bench.umi.reference import Trajectory

Split = Literal["held", "rest", "all"]
SPLITS: tuple[Split, ...] = get_args(Split)
_PARTS = 3
_BYTES = 8


def is_held(identity: str) -> bool:
    """Whether the task with this id is held: the first 64 bits of its SHA-256 divide by three."""
    digest = sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:_BYTES], "big") % _PARTS == 0


def take(trajectories: "Iterable[Trajectory]", split: Split) -> "list[Trajectory]":
    """The trajectories of a split, in their order; raises UsageError where there is none."""
    found = [one for one in trajectories if split == "all" or is_held(one.id) == (split == "held")]
    if not found:
        raise UsageError(f"No task of the file is in the split {split!r}.", fix="Leave out --split, or add tasks.")
    return found

"""How many plans of a random policy are valid, with the mask and without (CATP-LLM Table 4)."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from ecoshell.planning.catp.masking import Mask
from ecoshell.planning.catp.policy import random_plan
from ecoshell.planning.catp.tasks import problems
from ecoshell.planning.catp.validity import valid
from ecoshell_bench.catp.recordings import Constants


@dataclass(frozen=True, slots=True)
class Validity:
    """Shares of valid plans, 0 to 1, for one kind of task."""

    task: str
    """What it gives and what it wants, such as `image→text+text`."""
    masked: float
    unmasked: float
    plans: int
    """Drawn with the mask, and as many without."""


def validity(constants: Constants, plans: int) -> Iterator[Validity]:
    """The shares for every combination of task types; the same plans are drawn each time."""
    for task, problem in problems(constants.types).items():
        mask = Mask(problem)

        def share(*, masked: bool, mask: Mask = mask) -> float:
            rng = Random(0)
            written = (random_plan(mask, rng, masked=masked) for _ in range(plans))
            return sum(valid(one, mask.problem) for one in written) / plans

        yield Validity(task, masked=share(masked=True), unmasked=share(masked=False), plans=plans)

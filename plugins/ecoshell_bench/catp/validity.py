"""How many plans of a random policy are valid, with the mask and without (CATP-LLM Table 4)."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from ecoshell.planning.catp.rules import Problem
from ecoshell_bench.catp.random_plans import problems, random_plan, valid
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

        def share(*, masked: bool, problem: Problem = problem) -> float:
            rng = Random(0)
            written = (random_plan(problem, rng, masked=masked) for _ in range(plans))
            return sum(valid(one, problem) for one in written) / plans

        yield Validity(task, masked=share(masked=True), unmasked=share(masked=False), plans=plans)

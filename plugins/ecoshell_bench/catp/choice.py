"""Which recorded plan the cost model would pick, beside the best one and the cheapest, which only hindsight knows.

For a sample of a task several plans were recorded. The model sees of them what stands in the plan, and learns from
the plans of all other tasks: each tool's cost by the size of its input, and how much a tool in the plan raised the
score above that of other plans for the same sample. What the plans of this task cost and scored it never sees.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING

from ecoshell.planning.catp.costs import CostVector, cost_vector, level_of, quality
from ecoshell.planning.catp.plan import TASK
from ecoshell_bench.catp.recordings import Constants, RecordedPlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GIVEN = 1
"""The size level of what a task gives: the second, that of ordinary photographs, as the pools do not record sizes."""
_ENLARGED = {"image_super_resolution": 4.0}
"""Pixels a tool gives for each it takes; the recorded GPU memory of tools behind it grows as much."""
_RIDGE = 10.0
"""How strongly the effects of tools on the score are drawn to nothing."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Mean QoP over all samples for which there are several plans."""

    ours: float
    best: float
    cheapest: float
    average: float
    """Of a plan drawn at random."""
    samples: int


def choose(plans: Sequence[RecordedPlan], constants: Constants) -> Choice | None:
    """The choices on all samples; None when there is none with several plans."""
    samples = _samples(plans)
    if not samples:
        return None
    chosen: list[RecordedPlan] = []
    for task, own in groupby(samples, key=lambda same: same[0].task):
        foresight = Foresight.of([one for one in plans if one.task != task], constants)
        chosen += [max(same, key=foresight.estimate) for same in own]

    def worth(one: RecordedPlan) -> float:
        return quality(one.score, one.price, alpha=constants.alpha, most=constants.most_cost)

    return Choice(
        ours=statistics.fmean(map(worth, chosen)),
        best=statistics.fmean(max(map(worth, same)) for same in samples),
        cheapest=statistics.fmean(worth(min(same, key=lambda one: one.price)) for same in samples),
        average=statistics.fmean(statistics.fmean(map(worth, same)) for same in samples),
        samples=len(samples),
    )


@dataclass(frozen=True, slots=True)
class Foresight:
    """What the plans of some tasks say of one of another task."""

    constants: Constants
    costs: Mapping[str, CostVector]
    effects: Mapping[str, float]
    """By how much a tool in the plan raises its score."""

    @classmethod
    def of(cls, plans: Sequence[RecordedPlan], constants: Constants) -> "Foresight":
        """What can be learned from these plans."""
        runs: dict[str, list[tuple[float, Decimal]]] = {}
        for one in plans:
            for tool, size, price in zip(_tools(one), _sizes(one, constants), one.prices, strict=True):
                runs.setdefault(tool, []).append((size, price))
        vectors = {tool: cost_vector(some, constants.image_levels) for tool, some in runs.items()}
        known = {tool: vector for tool, vector in vectors.items() if vector is not None}
        return cls(constants, known, _effects(_samples(plans), sorted(known)))

    def estimate(self, one: RecordedPlan) -> float:
        """The expected QoP, but for what all plans of the sample have in common; reads nothing but the plan."""
        sizes = zip(_tools(one), _sizes(one, self.constants), strict=True)
        cost = sum((self._cost(tool, size) for tool, size in sizes), Decimal(0))
        gain = sum(self.effects.get(tool, 0.0) for tool in _tools(one))
        return quality(gain, cost, alpha=self.constants.alpha, most=self.constants.most_cost)

    def _cost(self, tool: str, size: float) -> Decimal:
        """What the tool costs on this size; a tool that no other task used costs as much as the dearest known."""
        level = level_of(size, self.constants.image_levels)
        vector = self.costs.get(tool)
        return vector.at(level) if vector else max((one.at(level) for one in self.costs.values()), default=Decimal(0))


def _samples(plans: Sequence[RecordedPlan]) -> list[list[RecordedPlan]]:
    """The plans for each sample of a task that has several, task by task."""
    ordered = sorted(plans, key=lambda one: (one.task, one.sample))
    grouped = [[*same] for _, same in groupby(ordered, key=lambda one: (one.task, one.sample))]
    return [same for same in grouped if len(same) > 1]


def _tools(one: RecordedPlan) -> list[str]:
    return [node.tool for node in one.plan.nodes]


def _sizes(one: RecordedPlan, constants: Constants) -> list[float]:
    """Pixels that reach each node by way of the plan; texts have none."""
    given = constants.image_levels[min(_GIVEN, len(constants.image_levels) - 1)]
    after: dict[str, float] = {TASK: given}
    taken: list[float] = []
    for node in one.plan.nodes:
        size = max(after[label] for label in node.after)
        taken.append(size)
        gives = constants.types.get(node.tool, ((), "image"))[1]
        after[node.label] = size * _ENLARGED.get(node.tool, 1.0) if gives == "image" else 0.0
    return taken


def _effects(samples: Sequence[Sequence[RecordedPlan]], tools: Sequence[str]) -> dict[str, float]:
    """Ridge regression of a plan's score on its tools, both as differences from the means of the same sample."""
    import numpy as np

    if not samples:
        return {}
    present = np.vstack([_centred([_present(one, tools) for one in same]) for same in samples])
    scores = np.concatenate([_centred([[one.score] for one in same])[:, 0] for same in samples])
    found = np.linalg.solve(present.T @ present + _RIDGE * np.eye(len(tools)), present.T @ scores)
    return dict(zip(tools, map(float, found), strict=True))


def _present(one: RecordedPlan, tools: Sequence[str]) -> list[float]:
    used = {*_tools(one)}
    return [float(tool in used) for tool in tools]


def _centred(rows: Iterable[Sequence[float]]) -> "NDArray[np.float64]":
    import numpy as np

    values = np.array([*rows], np.float64)
    return values - values.mean(axis=0)

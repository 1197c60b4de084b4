"""Sums over past uses, weighed by how near their questions are to a new one: arrays in, a figure per tool out."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ecoshell.planning.btp.base import Figure

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.signedinteger[Any]]
    Truths = NDArray[np.bool_]

OTHER_DOCUMENT = 0.5
"""What a use under another document of its tool weighs, beside one under the present document."""
NEARNESS = 3
"""The power of the cosine by which a past task counts towards the chance of use.

`exp(cos − 1)` hardly tells near from far: 40,000 tasks of another kind would outweigh one that is the same. With
`value.RANKER_WEIGHT` near the best of 96 settings, by the log-likelihood of the tools that LiveMCPBench's 48 runs used,
each left out in turn: −548 by words and −549 by embeddings, against −625 of the ranker's chances alone. With a setting
chosen without the run it is tried on, a power of the cosine has −550 and −551, and `exp(k·(cos − 1))` −579 and −563.
"""


@dataclass(frozen=True, slots=True)
class Uses:
    """Uses as parallel columns, of one number each; unknown is NaN."""

    query: "Integers"
    """Where the question stands among the cosines."""
    task: "Integers"
    tool: "Integers"
    document: "Integers"
    model: "Integers"
    helpful: "Integers"
    """1, 0, or −1 where nobody could tell."""
    price: "Floats"
    seconds: "Floats"
    step_nano: "Floats"
    step_tokens: "Floats"

    def only(self, kept: "Truths") -> "Uses":
        """The uses that are kept."""
        return Uses(*(getattr(self, one.name)[kept] for one in fields(self)))

    def followed_by(self, later: "Uses") -> "Uses":
        """These uses, then those."""
        import numpy as np

        pairs = ((getattr(self, one.name), getattr(later, one.name)) for one in fields(self))
        return Uses(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Each past task with each tool it used, once."""

    of_use: "Integers"
    """The pair each use belongs to."""
    tool: "Integers"
    query: "Integers"
    frequency: "Floats"
    """F(q, t): the uses in that task; one where none of them is known to have helped (SPEC §2)."""
    tasks: "Integers"
    """The question of each task, once."""

    @classmethod
    def of(cls, uses: Uses, tools: int) -> "Pairs":
        """The pairs in these uses of so many different tools."""
        import numpy as np

        keys = uses.task.astype(np.int64) * tools + uses.tool
        _, first, of_use, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        helped = np.bincount(of_use, uses.helpful == 1) > 0
        _, first_of_task = np.unique(uses.task, return_index=True)
        frequency = np.where(helped, counts, 1).astype(np.float64)
        return cls(of_use, uses.tool[first], uses.query[first], frequency, uses.query[first_of_task])


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of `base.Evidence`, one of each for every tool."""

    uses: "Integers"
    weight: "Floats"
    helpful_weight: "Floats"
    query_weight: "Floats"
    frequency_weight: "Floats"
    chance: "Floats"
    near: float
    """What all past tasks together weigh towards the chance of use."""


def sums(uses: Uses, pairs: Pairs, cosines: "Floats", current: "Truths", tools: int) -> Sums:
    """Weigh every use by `exp(cos − 1)` (BTP §2.2, eq. 3 and 4; SPEC §2); `current` tells uses of present documents.

    A use that nobody judged does not count towards the value. A tool's document has no say in how likely a task is to
    use it.
    """
    import numpy as np

    def by_tool(part: Uses | Pairs, amounts: "Floats") -> "Floats":
        return np.bincount(part.tool, amounts, minlength=tools).astype(np.float64)

    weights = np.exp(cosines - 1)
    of_use = weights[uses.query] * np.where(current, 1.0, OTHER_DOCUMENT)
    of_pair = weights[pairs.query] * np.where(np.bincount(pairs.of_use, current) > 0, 1.0, OTHER_DOCUMENT)
    nearness = np.maximum(cosines, 0.0) ** NEARNESS
    near = float(nearness[pairs.tasks].sum())
    used = by_tool(pairs, nearness[pairs.query])
    return Sums(
        uses=np.bincount(uses.tool, minlength=tools),
        weight=by_tool(uses, of_use * (uses.helpful >= 0)),
        helpful_weight=by_tool(uses, of_use * (uses.helpful == 1)),
        query_weight=by_tool(pairs, of_pair),
        frequency_weight=by_tool(pairs, of_pair * pairs.frequency),
        chance=np.minimum(1.0, used / near) if near else np.zeros(tools),
        near=near,
    )


def figures(tool: "Integers", samples: "Floats", shares: "Floats", tools: int) -> list[Figure]:
    """Mean and standard deviation of the known samples of each tool, each counting by its share."""
    import numpy as np

    known = ~np.isnan(samples)
    tool, samples, shares = tool[known], samples[known], shares[known]
    total = np.maximum(np.bincount(tool, shares, minlength=tools), np.finfo(np.float64).tiny)
    means = np.bincount(tool, shares * samples, minlength=tools) / total
    squares = np.bincount(tool, shares * (samples - means[tool]) ** 2, minlength=tools)
    counts = np.bincount(tool, minlength=tools)
    columns = (counts.tolist(), means.tolist(), np.sqrt(squares / total).tolist())
    return [Figure(*row) for row in zip(*columns, strict=True)]

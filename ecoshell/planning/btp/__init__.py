"""BTP, budget-constrained tool learning with planning (SPEC §2): what the budget allows of each tool in one task."""

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from ecoshell.events import PlanRow, PlanWhy
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence

TAU = 0.15
"""The value from which on a tool is worth a use (BTP §2.2)."""
HELPFUL_PRIOR = 0.1
WEIGHT_PRIOR = 1.0
"""A tool begins as if used once for the same question with a tenth of a helpful result; not in the paper, but in its
authors' code: without it a tool that nobody tried has no value at all (SPEC §2)."""

RANKER_WEIGHT = 0.2
"""How much the chance of a usual tool weighs beside past tasks, of which one with the same question weighs 1.

Chosen together with `evidence.NEARNESS`, which says how; on runs left out in turn the product of odds has a
log-likelihood of −533, where the average of both had −544 and the ranker alone −620.
"""
LEAST_LIFT = 0.2
"""A tool that past tasks did not use may be new: its odds fall to this part of the ranker's, and no further."""
SUREST = 0.97
"""No experience makes a tool surer than this to be used."""


def value(evidence: Evidence, prior: float = HELPFUL_PRIOR) -> float:
    """v = (Σ w·helpful + 0.1) / (Σ w + 1.0), the expected value of one use (BTP §2.2, eq. 3; SPEC §2); in (0, 1).

    `prior` is what a tool is worth that nobody tried: the paper's flat 0.1, or what `priors` gives.
    """
    return (evidence.helpful_weight + prior * WEIGHT_PRIOR) / (evidence.weight + WEIGHT_PRIOR)


def priors(evidence: Mapping[str, Evidence], fits: Mapping[str, float], kinds: Mapping[str, str]) -> dict[str, float]:
    """What each tool in `kinds`, which gives its server, is worth before its own history: 0 to 1.

    The share of helpful uses among the other tools of its server, which begin with that of all other tools, and these
    with how well the tool fits the question (the local ranker's chance), so that it decides while nothing was used.
    """
    sums: dict[str, tuple[float, float]] = {}
    for tool, kind in kinds.items():
        past, (helpful, weight) = evidence.get(tool, NO_EVIDENCE), sums.get(kind, (0.0, 0.0))
        sums[kind] = helpful + past.helpful_weight, weight + past.weight
    helpful, weight = (math.fsum(parts) for parts in zip(*sums.values(), strict=True)) if sums else (0.0, 0.0)
    found: dict[str, float] = {}
    for tool, kind in kinds.items():
        own, (like_helpful, like_weight) = evidence.get(tool, NO_EVIDENCE), sums[kind]
        fit = max(HELPFUL_PRIOR, fits.get(tool, 0.0))
        usual = (helpful - own.helpful_weight + fit) / (weight - own.weight + WEIGHT_PRIOR)
        found[tool] = (like_helpful - own.helpful_weight + usual) / (like_weight - own.weight + WEIGHT_PRIOR)
    return found


def frequency_bound(evidence: Evidence, value: float, threshold: float) -> int:
    """F, how often the tool may be used in one task (BTP §2.2, eq. 4; SPEC §2).

    Without a judged use it is 1, whatever the threshold; below the threshold 0; else the weighted mean of the uses per
    past task, halves rounded up, at least 1.
    """
    if evidence.weight <= 0:
        return 1
    if value < threshold:
        return 0
    mean = round(mean_frequency(evidence), 9)  # a half is one whatever the order in which it was summed
    return max(1, math.floor(mean + 0.5))


def mean_frequency(evidence: Evidence) -> float:
    """How often past questions that used the tool did so, by weight; 1 where none tells."""
    return evidence.frequency_weight / evidence.query_weight if evidence.query_weight else 1.0


def chance(evidence: Evidence, prior: float, usual: float) -> float:
    """How likely a task uses the tool: the odds the ranker gives it, times those it has by past tasks like this one.

    The latter are told beside the odds of a usual tool, whose chance `usual` is: its fit with the question and its
    record are taken as independent evidence (naive Bayes).
    """
    weight = evidence.chance_weight
    odds = _odds(prior)
    if weight:
        share = (RANKER_WEIGHT * usual + weight * evidence.chance) / (RANKER_WEIGHT + weight)
        odds *= max(_odds(share) / _odds(usual), LEAST_LIFT)
    return min(odds / (1 + odds), max(SUREST, prior))


def _odds(chance: float) -> float:
    bounded = min(max(chance, 1e-6), 1 - 1e-6)
    return bounded / (1 - bounded)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool as the plan sees it; `cost` and `spread` are of one use, in the unit of the budget."""

    tool: str
    value: float
    bound: int
    """The frequency bound F."""
    cost: int
    spread: int = 0
    known: bool = True
    """Whether it has a history: whether any use of it was judged."""
    chance: float = 1.0
    """How likely the task uses it at all; 1 for tools a retriever has chosen, as the paper's are."""

    @property
    def worth(self) -> float:
        """What one planned use is expected to bring."""
        return self.value * self.chance


@dataclass(frozen=True, slots=True)
class Bound:
    """How often a tool may be used in one task, whatever it costs, and what that is made of."""

    frequency: int
    """F, by what was known before the task."""
    used: int = 0
    helped: int = 0
    """Uses that helped, of which one further use comes."""
    given_back: int = 0
    """Uses that said nothing about the tool, as a mistake in the call does; 0 while the tool has brought nothing."""
    blacklisted: bool = False

    @property
    def earned(self) -> int:
        """What is missing from F to one use more than those that helped."""
        return max(0, self.helped + 1 - self.frequency) if self.helped else 0

    @property
    def total(self) -> int:
        return self.used if self.blacklisted else self.frequency + self.earned + self.given_back


@dataclass(frozen=True, slots=True)
class Plan:
    """What may be used from here, and why: a row for each candidate, in their order."""

    rows: tuple[PlanRow, ...] = ()
    budget: int | None = None
    """R as it was planned with; None without a cap."""
    forbidden: Mapping[str, PlanWhy] = field(default_factory=dict[str, PlanWhy], compare=False, repr=False)
    """Tools that may not be used now, each with the reason: in the strict reading all that have f = 0, by default those
    whose cost is above what remains, and the blacklist (SPEC §2)."""
    earned: bool = field(default=False, compare=False)
    """Whether uses earn further ones."""
    beyond: Container[str] = field(default=(), compare=False, repr=False)
    """Tools that are too dear for another budget."""
    bounds: Mapping[str, Bound] = field(default_factory=dict[str, Bound], compare=False, repr=False)
    """What the bounds of tools that were used are made of."""
    _new: Container[str] = field(default=(), compare=False, repr=False)
    """Tools without a history."""

    def row(self, tool: str) -> PlanRow | None:
        """The tool's row; None for a tool that was no candidate."""
        return next((row for row in self.rows if row.tool == tool), None)

    @property
    def cost(self) -> int:
        """What the uses that are left are expected to cost."""
        return sum(row.left * row.cost for row in self.rows)

    def better(self, tool: str) -> PlanRow | None:
        """The planned use with better reason than one of this tool, where it could not be paid after it; else None.

        That the tool is asked for is evidence that it is needed: its chance counts as 1. A use is better that is worth
        more and costs less; it is lost where no plan within what the tool would leave has room for it. What a tool
        without a history is worth is a guess, against which no use is known to be better.
        """
        asked = self.row(tool)
        if self.budget is None or asked is None or asked.left or tool in self._new:
            return None
        room = self.budget - asked.cost
        better = (row for row in self.rows if row.left and room < row.cost < asked.cost and row.worth > asked.value)
        return max(better, key=lambda row: row.worth, default=None)


class TaskPlan:
    """Counts uses and judgments of one task, and plans what remains."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        threshold: float = TAU,
        strict: bool = False,
        earned: bool = False,
        blacklisting: bool = True,
    ) -> None:
        """`strict`: what is not planned is forbidden, as by the paper; else `threshold` is τ for the blacklist.

        `earned`: a use that helped earns a further one, and of a tool that has helped one that says nothing is given
        back; not by the paper.
        """
        self.candidates = tuple(candidates)
        """What was first planned with."""
        self._threshold = threshold
        self._strict = strict
        self._earned = earned
        self._blacklisting = blacklisting
        self.uses: Counter[str] = Counter()
        """How often each tool was used so far."""
        self._helped: Counter[str] = Counter()
        self._unjudged: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def copy(self) -> "TaskPlan":
        """The same counts, which go on by themselves from here."""
        twin = copy(self)
        twin.uses, twin._helped = Counter(self.uses), Counter(self._helped)
        twin._unjudged, twin._failed = Counter(self._unjudged), Counter(self._failed)
        return twin

    def count(self, tool: str, helpful: bool | None) -> None:
        """Count one use and its judgment; None says nothing about the tool."""
        self.uses[tool] += 1
        judged = self._unjudged if helpful is None else self._helped if helpful else self._failed
        judged[tool] += 1

    def _blacklisted(self, one: Candidate) -> bool:
        """Whether the tool's record is bad: it did not help in this task, and never has (BTP §2.4).

        Strictly the first such result is enough. By default what was known before counts as one use beside them, and
        the record is bad where that makes a value below τ: the next call of a tool that helps otherwise often does.
        """
        failed = self._failed[one.tool]
        if not self._blacklisting or not failed or self._helped[one.tool]:
            return False
        return self._strict or one.value / (1 + failed) < self._threshold

    def solve(
        self, budget: int | None, candidates: Sequence[Candidate] | None = None, *, beyond: Container[str] = ()
    ) -> Plan:
        """The plan for what remains of the budget, in the candidates' unit; None is no limit.

        `candidates` take the place of the first ones, as their costs have changed; tools in `beyond` are too dear for
        another budget.
        """
        wanted = self.candidates if candidates is None else candidates
        bounds: dict[str, Bound] = {}
        for one in wanted:
            if used := self.uses.get(one.tool):
                helped, unjudged = self._helped[one.tool], self._unjudged[one.tool]
                earned = (helped, unjudged) if self._earned and helped else (0, 0)
                bounds[one.tool] = Bound(one.bound, used, *earned, self._blacklisted(one))
        most = [bounds[one.tool].total if one.tool in bounds else one.bound for one in wanted]
        left = [
            0 if one.tool in beyond else max(0, bound - self.uses[one.tool])
            for one, bound in zip(wanted, most, strict=True)
        ]
        if budget is None:
            counts: Sequence[int] = left
        else:
            from ecoshell.planning.btp.knapsack import solve

            counts = solve([one.worth for one in wanted], [one.cost for one in wanted], left, budget)
        rows: list[PlanRow] = []
        for one, bound, count in zip(wanted, most, counts, strict=True):
            used, tool = self.uses[one.tool], bounds.get(one.tool)
            if count:
                state, why = "planned", "value" if one.known else "new"
            elif tool is not None and tool.blacklisted:
                state, why = "forbidden", "blacklist"
            elif not self._strict and (one.tool in beyond or (budget is not None and one.cost > budget)):
                state, why = "forbidden", "budget"  # not even one use fits what is left
            elif one.bound == 0 and not used:
                state, why = "unplanned", "below τ"
            else:
                state, why = "forbidden" if self._strict else "unplanned", "quota" if bound <= used else "budget"
            row = PlanRow(
                tool=one.tool,
                value=round(one.value, 4),
                cost=one.cost,
                spread=one.spread,
                bound=bound,
                planned=used + count,
                used=used,
                state=state,
                why=why,
                chance=round(one.chance, 4),
            )
            rows.append(row)
        barring = ("forbidden", "unplanned") if self._strict else ("forbidden",)
        forbidden: dict[str, PlanWhy] = {row.tool: row.why for row in rows if row.state in barring}
        new = {one.tool for one in wanted if not one.known}
        return Plan(tuple(rows), budget, forbidden, self._earned, beyond, bounds, new)

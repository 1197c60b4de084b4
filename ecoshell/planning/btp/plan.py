"""Plans of the uses that a budget allows in one task, as a bounded knapsack (BTP §2.2 to §2.4, SPEC §2)."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from ecoshell.events import PlanRow, PlanWhy
from ecoshell.planning.btp.value import TAU


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool to plan for; `cost` and `spread` are per use, in the unit of the budget."""

    tool: str
    value: float
    bound: int
    """The frequency bound F."""
    cost: int
    spread: int = 0
    is_judged: bool = True
    """Whether any use of the tool was judged."""
    chance: float = 1.0
    """Probability that the task uses the tool; 1 for tools selected by a retriever, as in the paper."""
    is_cost_known: bool = True

    @property
    def worth(self) -> float:
        """The expected benefit of one planned use."""
        return self.value * self.chance


@dataclass(frozen=True, slots=True)
class Bound:
    """The maximum number of uses of a tool in one task, regardless of cost, and its components."""

    frequency: int
    """F, from evidence before the task."""
    used: int = 0
    helped: int = 0
    """Uses that helped; with any, one use more than these is allowed."""
    refunded: int = 0
    """Uses that do not count, such as mistakes in the call; 0 until the tool has helped."""
    blacklisted: bool = False

    @property
    def earned(self) -> int:
        """Uses added to F so that one use more than those that helped is allowed."""
        return max(0, self.helped + 1 - self.frequency) if self.helped else 0

    @property
    def total(self) -> int:
        if self.blacklisted:
            return self.used
        return self.frequency + self.earned + self.refunded if self.helped else self.frequency


@dataclass(frozen=True, slots=True)
class Plan:
    """The uses allowed from now on, with reasons: one row per candidate, in order."""

    rows: tuple[PlanRow, ...] = ()
    budget: int | None = None
    """R, or None without a cap."""
    forbidden: Mapping[str, PlanWhy] = field(
        default_factory=dict[str, PlanWhy], compare=False, repr=False
    )
    """Forbidden tools with reasons: the blacklist and, if strict, all with f = 0, else those that cost more than the
    remaining budget (SPEC §2)."""
    earned: bool = field(default=False, compare=False)
    """Whether helpful uses earn further ones."""
    unaffordable: Container[str] = field(default=(), compare=False, repr=False)
    """Tools that exceed another budget."""
    bounds: Mapping[str, Bound] = field(default_factory=dict[str, Bound], compare=False, repr=False)
    _new: Container[str] = field(default=(), compare=False, repr=False)
    """Tools without a judged use."""

    def row(self, tool: str) -> PlanRow | None:
        """Return the row of a tool; None if it is not a candidate."""
        return next((row for row in self.rows if row.tool == tool), None)

    @property
    def cost(self) -> int:
        """The expected cost of the remaining uses."""
        return sum(
            [(row.planned - row.used) * row.cost for row in self.rows if row.state == "planned"]
        )

    def better(self, tool: str, *, cost: int, budget: int | None) -> PlanRow | None:
        """Return the best planned use that `cost` of `budget` for this tool would make unaffordable, else None.

        A planned use is better if it is worth more and costs less. The requested tool counts with chance 1, because
        the request is evidence that it is needed. Nothing is better than a tool without a judged use, whose value is a
        guess.
        """
        requested = self.row(tool)
        if budget is None or requested is None or requested.left or tool in self._new:
            return None
        room = budget - cost
        better = (
            row
            for row in self.rows
            if row.left and room < row.cost < cost and row.worth > requested.value
        )
        return max(better, key=lambda row: row.worth, default=None)


class TaskPlan:
    """Counts uses and judgments of one task, and plans the remaining uses."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        threshold: float = TAU,
        strict: bool = False,
        earned: bool = False,
        blacklisting: bool = True,
        spared: Container[str] = (),
    ) -> None:
        """`strict` forbids unplanned uses, as in the paper; otherwise `threshold` is τ for the blacklist.

        The blacklist leaves out `spared` tools. With `earned`, which is not in the paper, a helpful use earns
        another one, and a helpful tool gets back uses that do not count.
        """
        self.candidates = tuple(candidates)
        """The initial candidates."""
        self._threshold = threshold
        self._strict = strict
        self._earned = earned
        self._blacklisting = blacklisting
        self._spared = spared
        self.uses: Counter[str] = Counter()
        """Uses of each tool so far."""
        self._helped: Counter[str] = Counter()
        self._unjudged: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def copy(self) -> "TaskPlan":
        """Return an independent copy of the counts."""
        twin = copy(self)
        twin.uses, twin._helped = Counter(self.uses), Counter(self._helped)
        twin._unjudged, twin._failed = Counter(self._unjudged), Counter(self._failed)
        return twin

    def count(self, tool: str, helpful: bool | None) -> None:
        """Count one use and its judgment; None does not count for or against the tool."""
        self.uses[tool] += 1
        judged = self._unjudged if helpful is None else self._helped if helpful else self._failed
        judged[tool] += 1

    def _is_blacklisted(self, candidate: Candidate) -> bool:
        """Whether the tool failed in this task and never helped in it (BTP §2.4).

        If strict, one failure is enough. By default, earlier evidence counts as one use, and the resulting value must
        be below τ: a tool that usually helps often does so in the next call.
        """
        failed = self._failed[candidate.tool]
        if not self._blacklisting or not failed or self._helped[candidate.tool]:
            return False
        if candidate.tool in self._spared:
            return False
        return self._strict or candidate.value / (1 + failed) < self._threshold

    def solve(
        self,
        budget: int | None,
        candidates: Sequence[Candidate] | None = None,
        *,
        unaffordable: Container[str] = (),
    ) -> Plan:
        """Plan the remaining budget, in the candidates' unit; None means no limit.

        `candidates` replace the initial ones when costs have changed; `unaffordable` tools exceed another budget.
        """
        candidates = self.candidates if candidates is None else candidates
        bounds = {candidate.tool: self._bound(candidate) for candidate in candidates}
        remaining = [
            0 if tool in unaffordable else max(0, bound.total - bound.used)
            for tool, bound in bounds.items()
        ]
        if budget is None:
            counts: Sequence[int] = remaining
        else:
            from ecoshell.planning.btp.knapsack import solve

            counts = solve(
                [candidate.worth for candidate in candidates],
                [candidate.cost for candidate in candidates],
                remaining,
                budget,
            )
        rows: list[PlanRow] = []
        for candidate, count in zip(candidates, counts, strict=True):
            tool, is_dear = candidate.tool, budget is not None and candidate.cost > budget
            is_unaffordable = tool in unaffordable or is_dear
            row = self._row(candidate, bounds[tool], count, is_unaffordable=is_unaffordable)
            rows.append(row)
        forbidding = ("forbidden", "unplanned") if self._strict else ("forbidden",)
        forbidden: dict[str, PlanWhy] = {
            row.tool: row.why for row in rows if row.state in forbidding
        }
        new = {candidate.tool for candidate in candidates if not candidate.is_judged}
        return Plan(tuple(rows), budget, forbidden, self._earned, unaffordable, bounds, new)

    def _bound(self, candidate: Candidate) -> Bound:
        tool = candidate.tool
        helped = self._helped[tool]
        earned = (helped, self._unjudged[tool]) if self._earned and helped else (0, 0)
        return Bound(candidate.bound, self.uses[tool], *earned, self._is_blacklisted(candidate))

    def _row(
        self, candidate: Candidate, bound: Bound, count: int, *, is_unaffordable: bool
    ) -> PlanRow:
        """Return the row of a candidate with `count` planned further uses."""
        used, limit = bound.used, bound.total
        if count:
            state, why = "planned", "value" if candidate.is_judged else "new"
        elif bound.blacklisted:
            state, why = "forbidden", "blacklist"
        elif not self._strict and is_unaffordable:
            state, why = "forbidden", "budget"
        elif candidate.bound == 0 and not used:
            state, why = "unplanned", "below τ"
        else:
            state = "forbidden" if self._strict else "unplanned"
            why = "quota" if limit <= used else "budget"
        return PlanRow(
            tool=candidate.tool,
            value=round(candidate.value, 4),
            cost=candidate.cost,
            spread=candidate.spread,
            bound=limit,
            planned=used + count,
            used=used,
            state=state,
            why=why,
            chance=round(candidate.chance, 4),
            is_cost_known=candidate.is_cost_known,
        )

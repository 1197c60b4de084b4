"""The plan of one task: what the budget allows of each tool, counted down by uses (BTP §2.2 to §2.4).

Budget, quotas and blacklist belong to the task, whatever branches a search takes.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ecoshell.events import PlanRow, PlanState, PlanWhy
from ecoshell.planning.btp.knapsack import solve


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool as the plan sees it; `cost` and `spread` are of one use, in the unit of the budget."""

    tool: str
    value: float
    bound: int
    """The frequency bound F (planning/btp/value)."""
    cost: int
    spread: int = 0
    known: bool = True
    """Whether it has a history."""
    chance: float = 1.0
    """How likely the task uses it at all; 1 for tools a retriever has chosen, as the paper's are."""

    @property
    def worth(self) -> float:
        """What one planned use is expected to bring."""
        return self.value * self.chance


@dataclass(frozen=True, slots=True)
class Plan:
    """What may be used from here, and why: a row for each candidate, in their order."""

    rows: tuple[PlanRow, ...] = ()
    budget: int | None = None
    """R as it was planned with; None without a cap."""
    forbidden: Mapping[str, PlanWhy] = field(default_factory=dict[str, PlanWhy], compare=False, repr=False)
    """Tools that may not be used now, each with the reason (SPEC §2: f = 0, or a cost above what remains)."""
    _by_tool: Mapping[str, PlanRow] = field(default_factory=dict[str, PlanRow], compare=False, repr=False)

    @classmethod
    def of(cls, rows: Iterable[PlanRow], budget: int | None) -> "Plan":
        """A plan of these rows."""
        known = {row.tool: row for row in rows}
        forbidden: dict[str, PlanWhy] = {row.tool: row.why for row in known.values() if row.state != "planned"}
        return cls(tuple(known.values()), budget, forbidden, known)

    def row(self, tool: str) -> PlanRow | None:
        """The tool's row; None for a tool that was no candidate."""
        return self._by_tool.get(tool)

    @property
    def cost(self) -> int:
        """What the uses that are left are expected to cost."""
        return sum(row.left * row.cost for row in self.rows)


class TaskPlan:
    """Counts uses and judgments of one task, and plans what remains."""

    def __init__(self, candidates: Sequence[Candidate], *, earned: bool = False, blacklisting: bool = True) -> None:
        """`earned`: a use that helped, or that says nothing about the tool, earns a further one, beyond the paper."""
        self._candidates = tuple(candidates)
        self._earned = earned
        self._blacklisting = blacklisting
        self._uses: Counter[str] = Counter()
        self._helped: Counter[str] = Counter()
        self._unjudged: Counter[str] = Counter()
        self._blacklist: set[str] = set()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What was first planned with."""
        return self._candidates

    @property
    def uses(self) -> Mapping[str, int]:
        """How often each tool was used so far."""
        return self._uses

    def count(self, tool: str, helpful: bool | None) -> None:
        """Count one use and its judgment; a tool that has not helped yet is blacklisted for it (BTP §2.4)."""
        self._uses[tool] += 1
        if helpful:
            self._helped[tool] += 1
            self._blacklist.discard(tool)
        elif helpful is None:
            self._unjudged[tool] += 1
        elif self._blacklisting and not self._helped[tool]:
            self._blacklist.add(tool)

    def bound(self, candidate: Candidate) -> int:
        """How often the tool may be used in this task, whatever it costs."""
        if candidate.tool in self._blacklist:
            return self._uses[candidate.tool]
        spared = self._helped[candidate.tool] + self._unjudged[candidate.tool]
        return max(candidate.bound, spared + 1) if self._earned and spared else candidate.bound

    def solve(
        self, budget: int | None, candidates: Sequence[Candidate] | None = None, *, beyond: Container[str] = ()
    ) -> Plan:
        """The plan for what remains of the budget, in the candidates' unit; None is no limit.

        `candidates` take the place of the first ones, as their costs have changed; tools in `beyond` are too dear for
        another budget.
        """
        wanted = self._candidates if candidates is None else candidates
        left = [0 if one.tool in beyond else max(0, self.bound(one) - self._uses[one.tool]) for one in wanted]
        if budget is None:
            counts: Sequence[int] = left
        else:
            counts = solve([one.worth for one in wanted], [one.cost for one in wanted], left, budget)
        return Plan.of((self._row(one, int(count)) for one, count in zip(wanted, counts, strict=True)), budget)

    def _row(self, one: Candidate, count: int) -> PlanRow:
        state, why = self._state(one, count)
        used = self._uses[one.tool]
        return PlanRow(
            tool=one.tool,
            value=round(one.value, 4),
            cost=one.cost,
            spread=one.spread,
            bound=self.bound(one),
            planned=used + count,
            used=used,
            state=state,
            why=why,
            chance=round(one.chance, 4),
        )

    def _state(self, one: Candidate, count: int) -> tuple[PlanState, PlanWhy]:
        if count:
            return "planned", "value" if one.known else "new"
        if one.tool in self._blacklist:
            return "forbidden", "blacklist"
        if one.bound == 0 and not self._uses[one.tool]:
            return "unplanned", "below τ"
        return "forbidden", "quota" if self.bound(one) <= self._uses[one.tool] else "budget"

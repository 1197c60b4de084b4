"""The plan of one task: what the budget allows of each tool, counted down by uses (BTP §2.2 to §2.4).

Budget, quotas and blacklist belong to the task, whatever branches a search takes.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
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
class Bound:
    """How often a tool may be used in one task, whatever it costs, and what that is made of."""

    frequency: int
    """F, by what was known before the task."""
    used: int = 0
    helped: int = 0
    """Uses that helped, of which one further use comes."""
    given_back: int = 0
    """Uses that said nothing about the tool, as a mistake in the call does."""
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
    """Tools that may not be used now, each with the reason (SPEC §2: f = 0, or a cost above what remains)."""
    earned: bool = field(default=False, compare=False)
    """Whether uses earn further ones."""
    beyond: Container[str] = field(default=(), compare=False, repr=False)
    """Tools that are too dear for another budget."""
    _bounds: Mapping[str, Bound] = field(default_factory=dict[str, Bound], compare=False, repr=False)
    """Of tools that were used."""
    _by_tool: Mapping[str, PlanRow] = field(default_factory=dict[str, PlanRow], compare=False, repr=False)

    @classmethod
    def of(
        cls,
        rows: Iterable[PlanRow],
        budget: int | None,
        bounds: Mapping[str, Bound],
        *,
        earned: bool,
        beyond: Container[str],
    ) -> "Plan":
        """A plan of these rows, with the bounds of the tools that were used."""
        known = {row.tool: row for row in rows}
        forbidden: dict[str, PlanWhy] = {row.tool: row.why for row in known.values() if row.state != "planned"}
        return cls(tuple(known.values()), budget, forbidden, earned, beyond, bounds, known)

    def row(self, tool: str) -> PlanRow | None:
        """The tool's row; None for a tool that was no candidate."""
        return self._by_tool.get(tool)

    def bound(self, row: PlanRow) -> Bound:
        """What the bound of a row is made of."""
        return self._bounds.get(row.tool) or Bound(row.bound)

    @property
    def cost(self) -> int:
        """What the uses that are left are expected to cost."""
        return sum(row.left * row.cost for row in self.rows)


class TaskPlan:
    """Counts uses and judgments of one task, and plans what remains."""

    def __init__(self, candidates: Sequence[Candidate], *, earned: bool = False, blacklisting: bool = True) -> None:
        """`earned`: a use that helped earns a further one, one that says nothing is given back; not by the paper."""
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

    def copy(self) -> "TaskPlan":
        """The same counts, which go on by themselves from here."""
        twin = copy(self)
        twin._uses, twin._helped, twin._unjudged = Counter(self._uses), Counter(self._helped), Counter(self._unjudged)
        twin._blacklist = set(self._blacklist)
        return twin

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

    def _bound(self, candidate: Candidate) -> Bound:
        """How often the tool may be used in this task, whatever it costs."""
        tool = candidate.tool
        return Bound(
            candidate.bound,
            self._uses[tool],
            self._helped[tool] if self._earned else 0,
            self._unjudged[tool] if self._earned else 0,
            tool in self._blacklist,
        )

    def solve(
        self, budget: int | None, candidates: Sequence[Candidate] | None = None, *, beyond: Container[str] = ()
    ) -> Plan:
        """The plan for what remains of the budget, in the candidates' unit; None is no limit.

        `candidates` take the place of the first ones, as their costs have changed; tools in `beyond` are too dear for
        another budget.
        """
        wanted = self._candidates if candidates is None else candidates
        bounds = {one.tool: self._bound(one) for one in wanted if one.tool in self._uses}
        most = [bounds[one.tool].total if one.tool in bounds else one.bound for one in wanted]
        left = [
            0 if one.tool in beyond else max(0, bound - self._uses[one.tool])
            for one, bound in zip(wanted, most, strict=True)
        ]
        if budget is None:
            counts: Sequence[int] = left
        else:
            counts = solve([one.worth for one in wanted], [one.cost for one in wanted], left, budget)
        rows = (self._row(one, bound, int(count)) for one, bound, count in zip(wanted, most, counts, strict=True))
        return Plan.of(rows, budget, bounds, earned=self._earned, beyond=beyond)

    def _row(self, one: Candidate, bound: int, count: int) -> PlanRow:
        state, why = self._state(one, bound, count)
        used = self._uses[one.tool]
        return PlanRow(
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

    def _state(self, one: Candidate, bound: int, count: int) -> tuple[PlanState, PlanWhy]:
        if count:
            return "planned", "value" if one.known else "new"
        if one.tool in self._blacklist:
            return "forbidden", "blacklist"
        if one.bound == 0 and not self._uses[one.tool]:
            return "unplanned", "below τ"
        return "forbidden", "quota" if bound <= self._uses[one.tool] else "budget"

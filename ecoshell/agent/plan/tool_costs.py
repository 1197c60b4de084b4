"""What tools are expected to cost in one turn: by experience before it, and by what its own steps have taken."""

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace

from ecoshell.budget.money import Unit
from ecoshell.catalog.catalog import Catalog
from ecoshell.events import BudgetSettled
from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence, Figure
from ecoshell.planning.btp.costs import Expected, Step, expected_cost, pooled, with_sample, with_use


@dataclass(frozen=True, slots=True)
class Thought:
    """What a model step has taken; unknown money is None."""

    nano: int | None = 0
    tokens: int = 0
    seconds: float = 0.0

    def plus(self, settled: BudgetSettled) -> "Thought":
        """The same with one more call."""
        return self + Thought(settled.spent_nano, settled.usage.total, settled.seconds)

    def __add__(self, other: "Thought") -> "Thought":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return Thought(nano, self.tokens + other.tokens, self.seconds + other.seconds)

    def amount(self, unit: Unit) -> int:
        """What of it counts against a budget in this unit."""
        return self.tokens if unit == "tokens" else self.nano or 0

    def part(self, of: int) -> "Thought":
        """One of so many equal parts; amounts are rounded up, as costs are."""
        nano = None if self.nano is None else -(-self.nano // of)
        return Thought(nano, -(-self.tokens // of), self.seconds / of)


class ToolCosts:
    """The expected cost of one use of each tool of a catalog; learns from the uses and steps of the turn."""

    def __init__(
        self,
        catalog: Catalog,
        evidence: Mapping[str, Evidence],
        registered: Iterable[str],
        *,
        resources: Mapping[str, int],
    ) -> None:
        """`resources` is what the time and memory of one use of a tool are worth, in nano-dollars."""
        self._resources = resources
        self._catalog = catalog
        self._evidence = dict(evidence)
        self._registered = set(registered)
        self._tokens = Figure()
        self._nano = Figure()
        self._usual_tokens = pooled(known.step_tokens for known in evidence.values())
        self._usual_nano = pooled(known.step_nano for known in evidence.values())

    @property
    def registered(self) -> frozenset[str]:
        """Tools that can be called without registering them first."""
        return frozenset(self._registered)

    @property
    def priced(self) -> bool:
        """Whether any of the tools has a price of its own."""
        return any(self._catalog.tool(name).price_nano for name in self._catalog.names)

    def copy(self) -> "ToolCosts":
        """The same costs, which learn by themselves from here on."""
        twin = copy(self)
        twin._evidence, twin._registered = dict(self._evidence), set(self._registered)
        return twin

    def register(self, tool: str) -> None:
        """The tool can be called from now on."""
        self._registered.add(tool)

    def unregister(self, tools: Iterable[str]) -> None:
        """A search has gone back behind their registration."""
        self._registered.difference_update(tools)

    def learn(self, tool: str, thought: Thought, *, price: int, seconds: float) -> None:
        """One use has cost this, and the step that called for it took `thought`."""
        step = Step(thought.nano, thought.tokens)
        known = self._evidence.get(tool, NO_EVIDENCE)
        self._evidence[tool] = with_use(known, price=price, seconds=seconds + thought.seconds, step=step)
        self._tokens = with_sample(self._tokens, step.tokens)
        if step.nano is not None:
            self._nano = with_sample(self._nano, step.nano)

    def expected(self, unit: Unit, guess: Step, *, hour_nano: int, freely: bool) -> dict[str, Expected]:
        """What one use costs, with the step that registers the tool where this is still to come.

        `guess` is what a step is estimated to take, until the turn has seen some; `freely` says that registering takes
        no step.
        """
        step = self._step(guess)
        registering = 0 if freely else step.tokens if unit == "tokens" else step.nano or 0
        costs: dict[str, Expected] = {}
        for name in self._catalog.names:
            declared = self._catalog.tool(name).price_nano
            cost = expected_cost(self._evidence.get(name, NO_EVIDENCE), declared, step, unit, hour_nano=hour_nano)
            if unit == "usd":
                cost = replace(cost, tool=cost.tool + self._resources.get(name, 0))
            costs[name] = cost if name in self._registered else replace(cost, registering=registering)
        return costs

    def of_one_use(self, tool: str) -> tuple[int, float | None]:
        """The price of one use in nano-dollars, and its seconds, thinking of the call included; None is unknown."""
        known = self._evidence.get(tool, NO_EVIDENCE)
        price = math.ceil(known.price.mean) if known.price.count else self._catalog.tool(tool).price_nano
        return price, known.seconds.mean if known.seconds.count else None

    def _step(self, guess: Step) -> Step:
        """What a step takes: the mean of this turn's, else of all uses with this model, else the guess."""
        tokens = self._tokens if self._tokens.count else self._usual_tokens
        nano = self._nano if self._nano.count else self._usual_nano
        return Step(
            math.ceil(nano.mean) if nano.count else guess.nano,
            math.ceil(tokens.mean) if tokens.count else guess.tokens,
        )

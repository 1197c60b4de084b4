"""`ecoshell bench quote`: how many bills the 90 % intervals of quotes hold, over recorded, generated and own runs.

The costs of tools come from one half of the runs, and the quotes of the other half are compared with their bills.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Any

from ecoshell.assembly import open_store
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import Bill
from ecoshell.paths import user_paths
from ecoshell.planning.btp.evidence import Figure
from ecoshell.planning.catp.plan import longest_path
from ecoshell.planning.quote import COVERAGE, Interval, Part, quote
from ecoshell_bench.printing import show_record

_MS = 1_000
_TOOLS = 24
_SHAPES = (1.5, 4.0, 20.0)
"""Shapes of the gamma distributions of generated costs, from skewed to even."""
_HISTORIES = (3, 6, 12, 40)
"""Past uses of a generated tool."""
_COMMON_SHAPE = 40.0
"""Shape of the factor that all costs of a generated run share."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a plan: its nodes as label, tool, inputs, price and seconds."""

    nodes: Sequence[tuple[str, str, Sequence[str], float, float]]

    @property
    def price(self) -> float:
        return sum(price for *_, price, _ in self.nodes)

    @property
    def seconds(self) -> float:
        """The duration of the longest path."""
        waits = {label: after for label, _, after, _, _ in self.nodes}
        return longest_path(waits, {label: seconds for label, *_, seconds in self.nodes})[0]


@dataclass(slots=True)
class Coverage:
    """How many amounts lie within, below and above their intervals."""

    runs: int = 0
    within: int = 0
    below: int = 0
    widths: float = 0.0

    def add(self, amount: float, interval: Interval | None) -> None:
        """Count one amount of training interval."""
        if interval is not None:
            self.runs += 1
            self.within += interval.low <= amount <= interval.high
            self.below += amount < interval.low
            self.widths += (
                (interval.high - interval.low) / interval.expected if interval.expected else 0.0
            )

    def record(self) -> dict[str, Any]:
        """The shares; None without runs."""
        shares = {
            "within": self.within,
            "below": self.below,
            "above": self.runs - self.within - self.below,
        }
        share = {
            name: round(count / self.runs, 4) if self.runs else None
            for name, count in shares.items()
        }
        return {
            "runs": self.runs,
            **share,
            "width": round(self.widths / self.runs, 3) if self.runs else None,
        }


def run(args: argparse.Namespace) -> int:
    """Measure and print; raises UsageError."""
    if bool(args.pool) != (args.constants is not None):
        raise UsageError(
            "--pool and --constants belong together.",
            fix="Give OpenCATP's pools and constants.json.",
        )
    record: dict[str, Any] = {"interval": COVERAGE}
    if args.pool:
        record["recorded"] = measured(*_recorded(args))
    record["generated"] = measured(*generated(args.runs, Random(args.seed)))
    if own := _own():
        record["own"] = own
    notes = "\nThe share of bills within the 90 % interval of their quote, on runs that the quote has not seen."
    show_record(record, as_json=args.json, notes=notes)
    return 0


def measured(history: Mapping[str, tuple[Figure, Figure]], runs: Iterable[Run]) -> dict[str, Any]:
    """The coverage of price and time for runs of tools with this history."""
    price, seconds = Coverage(), Coverage()
    for each in runs:
        parts = [
            Part(label, *history[tool], after)
            for label, tool, after, _, _ in each.nodes
            if tool in history
        ]
        if len(parts) < len(each.nodes):
            continue
        costs = quote(parts)
        price.add(each.price, costs.price)
        seconds.add(each.seconds, costs.seconds)
    return {"price": price.record(), "time": seconds.record()}


def _recorded(args: argparse.Namespace) -> tuple[dict[str, tuple[Figure, Figure]], list[Run]]:
    """The history of one half of OpenCATP's samples, and the runs of the other half."""
    from ecoshell_train.caorl_data import read_constants, read_plans

    plans = read_plans([*dict.fromkeys(args.pool)], read_constants(args.constants))
    samples = sorted({(plan.task, plan.sample) for plan in plans})
    Random(args.seed).shuffle(samples)
    training, past, held_out = set(samples[: len(samples) // 2]), list[Run](), list[Run]()
    for plan in plans:
        costs = zip(plan.plan.nodes, plan.prices, plan.milliseconds, strict=True)
        nodes = [
            (node.label, node.tool, node.after, float(price), ms / _MS) for node, price, ms in costs
        ]
        (past if (plan.task, plan.sample) in training else held_out).append(Run(nodes))
    return history_of(past), held_out


def history_of(runs: Iterable[Run]) -> dict[str, tuple[Figure, Figure]]:
    """Mean and spread of price and time of each tool."""
    costs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in runs:
        for _, tool, _, price, seconds in each.nodes:
            costs[tool].append((price, seconds))
    return {
        tool: (_figure([p for p, _ in pairs]), _figure([s for _, s in pairs]))
        for tool, pairs in costs.items()
    }


def generated(count: int, random: Random) -> tuple[dict[str, tuple[Figure, Figure]], list[Run]]:
    """Tools with skewed costs and few past uses, and runs of 2 to 8 nodes whose costs share a factor."""
    means = {
        f"tool{at}": (10 ** random.uniform(-4, -1), 10 ** random.uniform(-1, 1))
        for at in range(_TOOLS)
    }
    shapes = {tool: random.choice(_SHAPES) for tool in means}

    def drawn(tool: str, common: float = 1.0) -> tuple[float, float]:
        price, seconds = means[tool]
        factors = [common * random.gammavariate(shapes[tool], 1 / shapes[tool]) for _ in range(2)]
        return price * factors[0], seconds * factors[1]

    history: dict[str, tuple[Figure, Figure]] = {}
    for tool in means:
        pairs = [drawn(tool) for _ in range(random.choice(_HISTORIES))]
        history[tool] = (
            _figure([price for price, _ in pairs]),
            _figure([seconds for _, seconds in pairs]),
        )
    runs: list[Run] = []
    for _ in range(count):
        common, nodes = random.gammavariate(_COMMON_SHAPE, 1 / _COMMON_SHAPE), list[Any]()
        for at in range(random.randint(2, 8)):
            tool = random.choice([*means])
            after = [f"n{earlier}" for earlier in range(at) if random.random() < 0.3]
            nodes.append((f"n{at}", tool, after, *drawn(tool, common)))
        runs.append(Run(nodes))
    return history, runs


def _figure(values: Sequence[float]) -> Figure:
    return Figure(
        len(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    )


def _own() -> dict[str, Any]:
    """The coverage of the user's own quotes; empty without bills."""
    price, seconds = Coverage(), Coverage()
    try:
        with closing(open_store(user_paths())) as store:
            bills = [bill for _, bill in store.events_of(Bill)]
    except StoreError:
        return {}
    for bill in bills:
        if bill.spent_usd is not None and bill.low_usd is not None and bill.high_usd is not None:
            price.add(float(bill.spent_usd), Interval(bill.low_usd, bill.high_usd, bill.high_usd))
        if bill.low_seconds is not None and bill.high_seconds is not None:
            seconds.add(
                bill.seconds, Interval(bill.low_seconds, bill.high_seconds, bill.high_seconds)
            )
    return {"price": price.record(), "time": seconds.record()} if bills else {}

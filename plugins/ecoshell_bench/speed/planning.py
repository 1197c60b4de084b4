"""How soon there is a plan: the knapsack beside OR-tools', what experience says of tools, and the ledger."""

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from ecoshell.budget.gate import Gate
from ecoshell.budget.holds import Account, Ask
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.money import NANO, Amount
from ecoshell.budget.price import Price, Rates
from ecoshell.messages import Usage
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import ExperienceStore, Use
from ecoshell.planning.btp.knapsack import solve
from ecoshell.planning.btp.similarity import WordEncoder
from ecoshell_bench.speed.knapsacks import OrTools, instances
from ecoshell_bench.speed.measuring import Measurement, Take, against, told

SIZES = ((5, 20), (500, 10_000), (16_464, 10_000))
"""Tools and units of budget: a question of BTP's experiments, a large catalog, and all the tools of ToolBench."""
_MODEL = "script:measured"
_HASH = "0" * 16
_PEAK = """
import json
from pathlib import Path
import numpy
from ecoshell_bench.speed.knapsacks import instances
from ecoshell.planning.btp.knapsack import solve
for one in instances({tools}, {budget}):
    solve(one.values, one.costs, one.bounds, one.budget)
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({{"megabytes": int(status["VmHWM"].split()[0]) * 1024 / 1e6}}))
"""
"""A process that makes plans and says how much memory it held at most."""


def measure_planning(repeat: int) -> Iterator[Measurement]:
    """Seconds and megabytes; the memory comes from Linux's /proc, and is left out where there is none."""
    for tools, budget in SIZES:
        yield measure_knapsack(tools, budget, repeat if tools < 10_000 else max(1, repeat // 5))
    if Path("/proc/self/status").exists():
        yield measure_memory(*SIZES[-1], max(1, repeat // 5))
    yield measure_experience(repeat)


def measure_knapsack(tools: int, budget: int, repeat: int) -> Measurement:
    """Mean seconds of a plan over instances of several kinds; the baseline is OR-tools', where that is installed."""
    what, made, rounds = f"knapsack_{tools}", instances(tools, budget), max(1, 100 // tools)

    def mean(plans: Sequence[Callable[[], object]]) -> Take:
        return lambda: _seconds(lambda: [plan() for _ in range(rounds) for plan in plans]) / (rounds * len(plans))

    ours = mean([partial(solve, one.values, one.costs, one.bounds, one.budget) for one in made])
    if find_spec("ortools") is None:
        return Measurement(what, median(ours() for _ in range(repeat + 1)), "s")
    return against(what, ours, mean([OrTools(one).solve for one in made]), repeat)


def measure_memory(tools: int, budget: int, repeat: int) -> Measurement:
    """Megabytes that a process holds at most while it makes these plans; the baseline makes none."""
    ours, idle = (
        told((sys.executable, "-c", _PEAK.format(tools=number, budget=budget)), os.environ, "megabytes")
        for number in (tools, 0)
    )
    return against(f"knapsack_{tools}_peak", ours, idle, repeat, "MB")


def measure_experience(repeat: int, uses: int = 100_000, questions: int = 20_000, tools: int = 500) -> Measurement:
    """Seconds in which a shell that has read its experience says what is known of every tool for a new question."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 10))) for _ in range(5_000)]
    asked = [" ".join(draw.choices(words, k=draw.randint(6, 20))) for _ in range(questions + repeat)]
    hashes = dict.fromkeys((f"tool_{number}" for number in range(tools)), _HASH)
    with TemporaryDirectory(prefix="ecoshell-speed-") as folder, closing(ExperienceStore(Path(folder) / "db")) as store:
        store.add(_use(draw, asked[number % questions], number, tools) for number in range(uses))
        past, encoder = Past(store, WordEncoder()), WordEncoder()
        while len(store.vectors(encoder.name)) < questions:  # some are encoded with every question
            past.evidence(asked[0], hashes, _MODEL)
        taken = [_seconds(lambda text=text: past.evidence(text, hashes, _MODEL)) for text in asked[questions:]]
    return Measurement(f"experience_{tools}", median(taken), "s")


def _use(draw: random.Random, question: str, number: int, tools: int) -> Use:
    return Use(
        query=question,
        tool=f"tool_{draw.randrange(tools)}",
        document_hash=_HASH,
        arguments="{}",
        result="done",
        result_hash=_HASH,
        ok=True,
        helpful=draw.random() < 0.7,
        judged_by="rules",
        model=_MODEL,
        price_nano=1_000,
        step_nano=draw.randrange(10_000),
        step_tokens=draw.randrange(1_000),
        seconds=draw.random(),
        size_level=0,
        session=f"s{number}",
        turn=1,
        call="c1",
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# The ledger

_ACCOUNT = Account(session="bench", turn=1, role="single", model="bench", purpose="step")
_RATES = Rates(Decimal("2.5"), Decimal("1.25"), Decimal("2.5"), Decimal(10), Decimal(10))
_ASK = Ask(Price(_RATES), prompt_tokens=2000, max_tokens=500, account=_ACCOUNT)
_USAGE = Usage(input=1500, output=120, cached=1000)


def measure_reserve_settle(rows: int = 10_000, repeat: int = 200) -> Measurement:
    """Median seconds of a hold and its settlement through the gate, under four caps, with `rows` entries before it.

    The baseline is the same on a fresh ledger, so the ratio says what the entries cost.
    """
    with TemporaryDirectory() as folder:
        fresh = asyncio.run(_settling(Path(folder) / "fresh.sqlite", 0, repeat))
        filled = asyncio.run(_settling(Path(folder) / "filled.sqlite", rows, repeat))
    return Measurement("reserve_settle", filled, "s", fresh, filled / fresh)


async def _settling(path: Path, rows: int, repeat: int) -> float:
    ledger = Ledger(path)
    try:
        for scope in ("turn", "session", "day", "month"):
            ledger.set_cap(_ACCOUNT.session, scope, Amount(1_000_000 * NANO, "usd"))
        for _ in range(rows):
            ledger.settle(ledger.hold(_ASK), _USAGE)
        gate, times = Gate(ledger), list[float]()
        for _ in range(repeat):
            started = time.perf_counter()
            await gate.settle(await gate.hold(_ASK), _USAGE)
            times.append(time.perf_counter() - started)
        return median(times)
    finally:
        ledger.close()

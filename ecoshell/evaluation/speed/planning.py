"""How soon there is a plan: the knapsack beside OR-tools', the memory it takes, and what experience says of tools."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from ecoshell.evaluation.measurement import Measurement
from ecoshell.evaluation.speed.knapsacks import Instance, Rival, instances
from ecoshell.evaluation.speed.timing import Take, against, told
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import ExperienceStore, Use
from ecoshell.planning.btp.knapsack import solve
from ecoshell.planning.btp.similarity import WordEncoder

SIZES = ((5, 20), (500, 10_000), (16_464, 10_000))
"""Tools and units of budget: a question of BTP's experiments, a large catalog, and all the tools of ToolBench."""
_MODEL = "script:measured"
_HASH = "0" * 16
_PEAK = """
import json
from pathlib import Path
import numpy
from ecoshell.evaluation.speed.knapsacks import instances
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
    what, made = f"knapsack_{tools}", instances(tools, budget)
    rounds = max(1, 100 // tools)
    ours = _mean(rounds, [_plan(one) for one in made])
    if find_spec("ortools") is None:
        return Measurement(what, median(ours() for _ in range(repeat + 1)), "s")
    return against(what, ours, _mean(rounds, [Rival(one).solve for one in made]), repeat)


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


def _plan(one: Instance) -> Callable[[], Sequence[int]]:
    return lambda: solve(one.values, one.costs, one.bounds, one.budget)


def _mean(rounds: int, plans: Sequence[Callable[[], object]]) -> Take:
    """Mean seconds of one of these, over so many rounds."""

    def rounds_of_all() -> None:
        for _ in range(rounds):
            for plan in plans:
                plan()

    return lambda: _seconds(rounds_of_all) / (rounds * len(plans))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started

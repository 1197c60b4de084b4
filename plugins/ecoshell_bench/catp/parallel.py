"""How long recorded plans take when their branches run at the same time: by reckoning, and by the executor's clock."""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoshell.planning.catp.executor import run_graph
from ecoshell.planning.catp.plan import Node, longest_path
from ecoshell_bench.catp.recordings import RecordedPlan

_AT_ONCE = 64
"""Plans that are carried out at the same time; their tools only sleep."""
_MS = 1_000


@dataclass(frozen=True, slots=True)
class Parallel:
    """Mean seconds of a plan with branches: one tool after the other, its longest path, and carried out."""

    sum_s: float
    critical_s: float
    clock_s: float
    plans: int


def carried_out(plans: Sequence[RecordedPlan]) -> Parallel | None:
    """Carry out all plans that have branches, with tools that sleep as long as was recorded; None without any."""
    branching = [one for one in plans if _branches(one)]
    if not branching:
        return None
    return Parallel(
        sum_s=statistics.fmean(sum(one.milliseconds) for one in branching) / _MS,
        critical_s=statistics.fmean(_longest(one) for one in branching),
        clock_s=statistics.fmean(asyncio.run(_clocks(branching))),
        plans=len(branching),
    )


def _longest(one: RecordedPlan) -> float:
    return longest_path({node.label: node.after for node in one.plan.nodes}, _times(one))[0]


async def _clocks(plans: Sequence[RecordedPlan]) -> list[float]:
    """The seconds each plan took by the executor's clock."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one_clock(one: RecordedPlan) -> float:
        times = _times(one)

        async def sleep(node: Node, given: Mapping[str, None]) -> None:
            await asyncio.sleep(times[node.label])

        async with room:
            return (await run_graph(one.plan, sleep, parallel=len(one.plan.nodes))).seconds

    return await asyncio.gather(*map(one_clock, plans))


def _times(one: RecordedPlan) -> dict[str, float]:
    """Seconds of each node, by its label."""
    labels = [node.label for node in one.plan.nodes]
    return {label: taken / _MS for label, taken in zip(labels, one.milliseconds, strict=True)}


def _branches(one: RecordedPlan) -> bool:
    """Whether some nodes could run at the same time."""
    return len({node.after for node in one.plan.nodes}) < len(one.plan.nodes)

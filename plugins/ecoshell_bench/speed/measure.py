"""All the figures of `ecoshell bench speed`, one after the other."""

import sys
from collections.abc import Iterator
from pathlib import Path

from ecoshell_bench.measurement import Measurement
from ecoshell_bench.reserve import measure_reserve_settle
from ecoshell_bench.speed.planning import measure_planning
from ecoshell_bench.speed.roles import measure_roles
from ecoshell_bench.speed.startup import measure_processes


def measure_speed(repeat: int = 15, adapter: Path | None = None) -> Iterator[Measurement]:
    """The figures as they are taken; the longer one takes, the fewer runs are behind its median.

    Most need a pseudo-terminal, and those of memory Linux's /proc: they are left out where there is none. So are those
    of roles without the embedded model, and that of switching without a LoRA `adapter` for it.
    """
    yield from measure_processes(repeat)
    yield measure_reserve_settle()
    yield from measure_planning(repeat)
    yield from measure_roles(repeat, adapter)
    if sys.platform != "win32":
        yield from _on_a_terminal(repeat)


def _on_a_terminal(repeat: int) -> Iterator[Measurement]:
    from ecoshell_bench.speed.idle import measure_idle  # these need pseudo-terminals, which Windows has none of
    from ecoshell_bench.speed.opening import measure_opening
    from ecoshell_bench.speed.startup import measure_ready
    from ecoshell_bench.speed.streams import measure_floods, measure_pace

    yield measure_ready(repeat)
    if Path("/proc/self/statm").exists():
        yield from measure_idle(repeat)
    yield measure_opening(repeat)
    yield from measure_floods(repeat)
    yield from measure_pace(repeat)

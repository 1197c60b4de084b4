"""The open chat with nothing to do, beside the least application: memory, processor, and how soon a key is shown."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ecoshell_bench.measurement import Measurement
from ecoshell_bench.speed.apps import MINIMAL_COMMAND, READY, TAKES_OVER, Home, new_home
from ecoshell_bench.speed.terminal import Terminal
from ecoshell_bench.speed.timing import compared, cpu_seconds, resident_mb

KEYS = tuple(map(chr, range(0x3B1, 0x3C9)))
"""Letters that no program writes of its own accord, so that each is known when it comes back."""
_SETTLING = 2.0
_BETWEEN_KEYS = 0.1


@dataclass(frozen=True, slots=True)
class _Idle:
    resident_mb: float
    cpu_percent: float
    echo_ms: float


def measure_idle(repeat: int, seconds: float = 10.0) -> Iterator[Measurement]:
    """Both programs at the same time; megabytes, percent of one processor over some seconds, milliseconds."""
    with new_home() as home:
        pairs = [_pair(home, seconds) for _ in range(max(1, repeat // 5))]
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    yield compared("idle_rss", [one.resident_mb for one in ours], [one.resident_mb for one in theirs], "MB")
    yield compared("idle_cpu", [one.cpu_percent for one in ours], [one.cpu_percent for one in theirs], "%")
    yield compared("echo", [one.echo_ms for one in ours], [one.echo_ms for one in theirs], "ms")


def echoes_ms(terminal: Terminal, keys: Sequence[str]) -> list[float]:
    """Milliseconds from each key to its first showing."""
    taken: list[float] = []
    for key in keys:
        since, typed = terminal.length, time.monotonic()
        terminal.type(key)
        taken.append((terminal.wait_for(key, since) - typed) * 1000)
        time.sleep(_BETWEEN_KEYS)
    return taken


def _pair(home: Home, seconds: float) -> tuple[_Idle, _Idle]:
    """The chat, its shell open over a model that loads nothing, and the least application."""
    chat = Terminal(home.chat("--model", home.script()), environ=home.environ)
    minimal = Terminal(MINIMAL_COMMAND, environ=home.environ)
    try:
        chat.wait_for(READY)
        minimal.wait_for(TAKES_OVER)
        time.sleep(_SETTLING)
        before = [cpu_seconds(one.pid) for one in (chat, minimal)]
        time.sleep(seconds)
        percent = [
            (cpu_seconds(one.pid) - then) / seconds * 100 for one, then in zip((chat, minimal), before, strict=True)
        ]
        held = [resident_mb(one.pid) for one in (chat, minimal)]
        echoes = [statistics.median(echoes_ms(one, KEYS)) for one in (chat, minimal)]
    finally:
        chat.close()
        minimal.close()
    return _Idle(held[0], percent[0], echoes[0]), _Idle(held[1], percent[1], echoes[1])

"""Answers on their way through the whole shell: as fast as it takes them, and at a model's usual pace."""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ecoshell_bench.measurement import Measurement
from ecoshell_bench.speed.apps import READY, Home, new_home
from ecoshell_bench.speed.idle import KEYS, echoes_ms
from ecoshell_bench.speed.prose import LAST_WORD, markdown
from ecoshell_bench.speed.terminal import Terminal
from ecoshell_bench.speed.timing import compared, percentile

SHORT, LONG = 10_000, 50_000
"""Tokens of a long answer and of a very long one."""
_DONE = "1 step"
"""What stands below an answer that is complete."""
_RATE = 50
"""Tokens a second: what a quick model writes."""


@dataclass(frozen=True, slots=True)
class _Paced:
    """What a chat reports that was measured while it was written to, and the echoes of keys after that."""

    lag_p99_ms: float
    cpu_percent: float
    frames_per_second: float
    tokens_per_second: float
    echoes_ms: tuple[float, ...]


def measure_floods(repeat: int, short: int = SHORT, long: int = LONG) -> Iterator[Measurement]:
    """Tokens a second of a long answer, and how many times longer the very long one takes."""
    with new_home() as home:
        runs = [(_flood(home, short), _flood(home, long)) for _ in range(max(1, repeat // 5))]
    seconds = [run[0] for run in runs]
    yield Measurement("stream_flood_10k", short / statistics.median(seconds), "tokens/s")
    growth = statistics.median(run[1] for run in runs) / statistics.median(seconds)
    yield Measurement("stream_growth_50k_10k", growth, "times", 1.0, growth)


def measure_pace(repeat: int, history: int = SHORT, seconds: float = 6.0) -> Iterator[Measurement]:
    """An even stream below a long answer, the baseline one below nothing; typing goes on below the long answer."""
    with new_home() as home:
        pairs = [(_paced(home, history, seconds), _paced(home, 0, seconds)) for _ in range(max(1, repeat // 8))]
    below, alone = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for what, unit in (("lag_p99_ms", "ms"), ("cpu_percent", "%"), ("frames_per_second", "frames/s")):
        yield compared(
            f"paced_{what}", [getattr(one, what) for one in below], [getattr(one, what) for one in alone], unit
        )
    echoes = [echo for one in below for echo in one.echoes_ms]
    yield Measurement("typing_p95_ms", percentile(echoes, 95), "ms")


def _flood(home: Home, tokens: int) -> float:
    """Seconds from the question to the line below the complete answer."""
    terminal = Terminal(home.chat("--model", home.script(markdown(tokens))), environ=home.environ)
    try:
        terminal.wait_for(READY)
        return _asked(terminal)
    finally:
        terminal.close()


def _paced(home: Home, history: int, seconds: float) -> _Paced:
    """An answer of so many tokens, where there is to be one; then one at an even pace, and typing meanwhile."""
    texts = [markdown(tokens) for tokens in (history, round(_RATE * 4 * seconds)) if tokens]
    options = ("--rate", str(_RATE), "--first", str(len(texts)), "--seconds", str(seconds))
    command = (sys.executable, "-m", "ecoshell.tui.paced", home.script(*texts), *options)
    terminal = Terminal(command, environ=home.environ, reports=True)
    try:
        terminal.wait_for(READY)
        if history:
            _asked(terminal)
        terminal.type("go on\r")
        measured = json.loads(terminal.report())
        echoes = echoes_ms(terminal, KEYS)
    finally:
        terminal.close()
    return _Paced(**measured, echoes_ms=tuple(echoes))


def _asked(terminal: Terminal) -> float:
    """Ask, and wait for the whole answer; seconds."""
    since, asked = terminal.length, time.monotonic()
    terminal.type("go on\r")
    terminal.wait_for(LAST_WORD, since)
    return terminal.wait_for(_DONE, since) - asked

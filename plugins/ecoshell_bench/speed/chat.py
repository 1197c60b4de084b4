"""The chat from outside: how soon it starts, what it takes, and how it shows streams and long sessions."""

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from itertools import count, islice
from pathlib import Path
from typing import Literal

from ecoshell.budget import CapState
from ecoshell.events import (
    Answer,
    BudgetChanged,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallStarted,
    Event,
    Rationale,
    StepStarted,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.sessions import SessionStore
from ecoshell_bench.speed.measuring import (
    MINIMAL_COMMAND,
    READY,
    TAKES_OVER,
    Home,
    Measurement,
    Take,
    Terminal,
    against,
    compared,
    cpu_seconds,
    new_home,
    percentile,
    resident_mb,
    told,
    wall,
)

_PLAIN = (sys.executable, "-c", "pass")
_VERSION = (sys.executable, "-c", "import sys; from ecoshell.cli import main; sys.exit(main(['--version']))")
_CORE = (sys.executable, "-c", "import ecoshell.assembly.shell")
_FRAME = (sys.executable, "-m", "ecoshell_bench.speed.first_frame")
_KEY = "ø"
KEYS = tuple(map(chr, range(0x3B1, 0x3C9)))
"""Letters that no program writes of its own accord, so that each is known when it comes back."""
_SETTLING = 2.0
_BETWEEN_KEYS = 0.1
SHORT, LONG = 10_000, 50_000
"""Tokens of a long answer and of a very long one."""
_DONE = "1 step"
"""What stands below an answer that is complete."""
_RATE = 50
"""Tokens a second: what a quick model writes."""
TURNS = 2_000


def measure_chat(repeat: int) -> Iterator[Measurement]:
    """The figures that need a terminal; those of memory and processor are left out where there is no /proc."""
    yield measure_ready(repeat)
    if Path("/proc/self/statm").exists():
        yield from measure_idle(repeat)
    yield measure_opening(repeat)
    yield from measure_floods(repeat)
    yield from measure_pace(repeat)


# Starting


def measure_processes(repeat: int) -> Iterator[Measurement]:
    """From the start of a process to its end, or to its first frame; seconds, and no terminal is needed."""
    yield against("version", wall(_VERSION), wall(_PLAIN), repeat)
    with new_home() as home:
        frame, minimal = told(_FRAME, home.environ), told(MINIMAL_COMMAND, home.environ)
        yield against("first_frame", frame, minimal, max(1, repeat // 3))
    yield against("import_core", wall(_CORE), wall(_PLAIN), max(1, repeat // 3))


def measure_ready(repeat: int) -> Measurement:
    """Seconds from the start to the first shown key, typed as soon as the program has taken the screen over."""

    def ready(home: Home, command: Sequence[str]) -> Take:
        def run() -> float:
            with home.terminal(command) as terminal:
                terminal.wait_for(TAKES_OVER)
                return terminal.type_until_shown(_KEY) - terminal.started

        return run

    with new_home() as home:
        chat = home.chat("--model", home.script())
        return against("ready", ready(home, chat), ready(home, MINIMAL_COMMAND), max(1, repeat // 3))


# Nothing to do


@dataclass(frozen=True, slots=True)
class Idle:
    """What a program takes that has nothing to do."""

    resident_mb: float
    cpu_percent: float
    echo_ms: float


def measure_idle(repeat: int, seconds: float = 10.0) -> Iterator[Measurement]:
    """The open chat and the least application at the same time; MB, percent of a processor, milliseconds to a key."""
    with new_home() as home:
        pairs = [idle_pair(home, seconds) for _ in range(max(1, repeat // 5))]
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    yield compared("idle_rss", [one.resident_mb for one in ours], [one.resident_mb for one in theirs], "MB")
    yield compared("idle_cpu", [one.cpu_percent for one in ours], [one.cpu_percent for one in theirs], "%")
    yield compared("echo", [one.echo_ms for one in ours], [one.echo_ms for one in theirs], "ms")


def idle_pair(home: Home, seconds: float) -> tuple[Idle, Idle]:
    """The chat, its shell open over a model that loads nothing, and the least application."""
    with (
        home.terminal(home.chat("--model", home.script())) as chat,
        home.terminal(MINIMAL_COMMAND) as minimal,
    ):
        chat.wait_for(READY)
        minimal.wait_for(TAKES_OVER)
        both = (chat, minimal)
        time.sleep(_SETTLING)
        before = [cpu_seconds(one.pid) for one in both]
        time.sleep(seconds)
        percent = [(cpu_seconds(one.pid) - then) / seconds * 100 for one, then in zip(both, before, strict=True)]
        held = [resident_mb(one.pid) for one in both]
        echoes = [statistics.median(echoes_ms(one)) for one in both]
    return Idle(held[0], percent[0], echoes[0]), Idle(held[1], percent[1], echoes[1])


def echoes_ms(terminal: Terminal) -> list[float]:
    """Milliseconds from each key to its first showing."""
    taken: list[float] = []
    for key in KEYS:
        since, typed = terminal.length, time.monotonic()
        terminal.type(key)
        taken.append((terminal.wait_for(key, since) - typed) * 1000)
        time.sleep(_BETWEEN_KEYS)
    return taken


# Answers on their way through the whole shell


@dataclass(frozen=True, slots=True)
class Paced:
    """What a chat reports that was measured while it was written to, and the echoes of keys after that."""

    lag_p99_ms: float
    cpu_percent: float
    frames_per_second: float
    tokens_per_second: float
    echoes_ms: tuple[float, ...]


def measure_floods(repeat: int, short: int = SHORT, long: int = LONG) -> Iterator[Measurement]:
    """Tokens a second of a long answer as fast as it is taken, and how many times longer the very long one takes."""
    with new_home() as home:
        runs = [(flood(home, short), flood(home, long)) for _ in range(max(1, repeat // 5))]
    seconds = statistics.median(run[0] for run in runs)
    yield Measurement("stream_flood_10k", short / seconds, "tokens/s")
    growth = statistics.median(run[1] for run in runs) / seconds
    yield Measurement("stream_growth_50k_10k", growth, "times", 1.0, growth)


def measure_pace(repeat: int, history: int = SHORT, seconds: float = 6.0) -> Iterator[Measurement]:
    """An even stream below a long answer, the baseline one below nothing; typing goes on below the long answer."""
    with new_home() as home:
        pairs = [(paced(home, history, seconds), paced(home, 0, seconds)) for _ in range(max(1, repeat // 8))]
    for what, unit in (("lag_p99_ms", "ms"), ("cpu_percent", "%"), ("frames_per_second", "frames/s")):
        below, alone = ([getattr(pair[place], what) for pair in pairs] for place in (0, 1))
        yield compared(f"paced_{what}", below, alone, unit)
    yield Measurement("typing_p95_ms", percentile([echo for pair in pairs for echo in pair[0].echoes_ms], 95), "ms")


def flood(home: Home, tokens: int) -> float:
    """Seconds from the question to the line below the complete answer."""
    with home.terminal(home.chat("--model", home.script(markdown(tokens)))) as terminal:
        terminal.wait_for(READY)
        return _asked(terminal)


def paced(home: Home, history: int, seconds: float) -> Paced:
    """An answer of so many tokens, where there is to be one; then one at an even pace, and typing meanwhile."""
    texts = [markdown(tokens) for tokens in (history, round(_RATE * 4 * seconds)) if tokens]
    call = f"main({home.script(*texts)!r}, rate={_RATE}, first={len(texts)}, seconds={seconds})"
    command = (sys.executable, "-c", f"from ecoshell_bench.speed.paced import main; {call}")
    with home.terminal(command, reports=True) as terminal:
        terminal.wait_for(READY)
        if history:
            _asked(terminal)
        terminal.type("go on\r")
        measured = json.loads(terminal.report())
        return Paced(**measured, echoes_ms=tuple(echoes_ms(terminal)))


def _asked(terminal: Terminal) -> float:
    """Ask, and wait for the whole answer; seconds."""
    since, asked = terminal.length, time.monotonic()
    terminal.type("go on\r")
    terminal.wait_for(LAST_WORD, since)
    return terminal.wait_for(_DONE, since) - asked


LAST_WORD = "Finis."
"""How every text ends."""


def markdown(tokens: int) -> str:
    """Markdown that a script model streams in so many pieces, always the same."""
    section = (files("ecoshell_bench.speed") / "section.md").read_text(encoding="utf-8")
    pieces = (piece for number in count(1) for piece in section.format(number=number).split(" "))
    return " ".join([*islice(pieces, max(0, tokens - 1)), LAST_WORD])


# Going on with a very long session

_MODEL = "script:long"
_THOUGHT = "The file has to be read before anything can be said about it."
_END = "{number} lines in all."
_ANSWER = (
    """The file says so itself:

- line 1 is its title,
- line {number} is its end.

```text
lines: {number}
```

That is """
    + _END
)
_CAP = CapState("session", "usd", 500_000_000, 91_200_000, 0)
_USAGE = Usage(input=900, output=60)


def measure_opening(repeat: int, turns: int = TURNS) -> Measurement:
    """Seconds from `/resume` in an open chat to the last lines of a stored session; the baseline has one turn."""
    with new_home() as home:
        chat = home.chat("--model", home.script())

        def resumed(session: str, turns: int) -> Take:
            def run() -> float:
                with home.terminal(chat) as terminal:
                    terminal.wait_for(READY)
                    terminal.type(f"/resume {session}")
                    terminal.wait_for(session)
                    since, asked = terminal.length, time.monotonic()
                    terminal.type("\r")
                    return terminal.wait_for(_END.format(number=turns), since) - asked

            return run

        long, short = resumed(store_session(home, turns), turns), resumed(store_session(home, 1), 1)
        return against("open_2000_turns", long, short, max(1, repeat // 5))


def store_session(home: Home, turns: int) -> str:
    """Write a session of so many turns into a home; gives its id."""
    with closing(SessionStore(home.folder / "data" / "sessions.sqlite")) as store:
        session = store.create(workspace=str(home.folder), model=_MODEL)
        store.append(session, [event for number in range(1, turns + 1) for event in _turn(number)])
    return session


def _turn(number: int) -> Iterator[Event]:
    """A question, a thought, a call, and an answer: everything that is kept of such a turn."""
    answer, call = _ANSWER.format(number=number), f"c{number}"
    yield TurnStarted(number, f"How long is file {number}?", _MODEL, "single", "react")
    yield ToolsOffered(("read_file", "write_file"), (), "grow", 180, 1_400, exact=True, why="names only is cheaper")
    yield from _step(1, _THOUGHT, "thought")
    yield Rationale(_THOUGHT, "single")
    if number == 1:
        yield ToolRegistered("read_file", 69, exact=True, step=1, by="agent")
    yield CallStarted(call, "read_file", {"path": f"file-{number}.txt"})
    yield CallFinished(call, "read_file", True, f"lines: {number}\n" * 12, False, 0.012)
    yield from _step(2, answer, "answer")
    yield Answer(answer)
    yield BudgetChanged((_CAP,))
    yield TurnFinished(number, "answered", answer, 3_100_000, _USAGE, 2, ("read_file",), 2.1, 4_200)


def _step(step: int, text: str, channel: Literal["thought", "answer"]) -> Iterator[Event]:
    """A call of the model: reserved, streamed a word at a time, settled."""
    yield StepStarted(step, "single", _MODEL)
    yield BudgetHeld(step, "single", _MODEL, 7_100_000, 2_000, 1_024, clamped=False)
    for word in text.split(" "):
        yield TextArrived(f"{word} ", channel, "single")
    yield BudgetSettled(step, "single", _MODEL, 1_550_000, _USAGE, reported=True, seconds=1.0)

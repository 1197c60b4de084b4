"""Measure the chat from outside: start, memory and processor time, streams and long sessions."""

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
    ALTERNATE_SCREEN,
    MINIMAL_COMMAND,
    READY,
    Home,
    Measurement,
    Take,
    Terminal,
    against,
    compared,
    cpu_seconds,
    new_home,
    percentile,
    reported,
    resident_mb,
    wall,
)

_BARE_PYTHON = (sys.executable, "-c", "pass")
_VERSION = (
    sys.executable,
    "-c",
    "import sys; from ecoshell.cli import main; sys.exit(main(['--version']))",
)
_CORE = (sys.executable, "-c", "import ecoshell.assembly.shell")
_FRAME = (sys.executable, "-m", "ecoshell_bench.speed.first_frame")
_KEY = "ø"
KEYS = tuple(map(chr, range(0x3B1, 0x3C9)))
"""Letters that no program writes unprompted, so that each echo is recognized."""
_SETTLE_SECONDS = 2.0
_KEY_INTERVAL_SECONDS = 0.1
SHORT_ANSWER_TOKENS = 10_000
LONG_ANSWER_TOKENS = 50_000
_END_OF_TURN = "1 step"
"""Shown below a complete answer."""
_TOKENS_PER_SECOND = 50
"""The rate of a fast model."""
TURNS = 2_000


def measure_chat(repeat: int) -> Iterator[Measurement]:
    """Yield the measurements that need a terminal; memory and processor time are skipped without /proc."""
    yield measure_ready(repeat)
    if Path("/proc/self/statm").exists():
        yield from measure_idle(repeat)
    yield measure_opening(repeat)
    yield from measure_floods(repeat)
    yield from measure_pace(repeat)


# Starting


def measure_processes(repeat: int) -> Iterator[Measurement]:
    """Measure seconds from the start of a process to its end or first frame, without a terminal."""
    yield against("version", wall(_VERSION), wall(_BARE_PYTHON), repeat)
    with new_home() as home:
        frame, minimal = reported(_FRAME, home.environ), reported(MINIMAL_COMMAND, home.environ)
        yield against("first_frame", frame, minimal, max(1, repeat // 3))
    yield against("import_core", wall(_CORE), wall(_BARE_PYTHON), max(1, repeat // 3))


def measure_ready(repeat: int) -> Measurement:
    """Measure seconds from the start to the first echoed key, typed once the program uses the screen."""

    def ready(home: Home, command: Sequence[str]) -> Take:
        def run() -> float:
            with home.terminal(command) as terminal:
                terminal.wait_for(ALTERNATE_SCREEN)
                return terminal.type_until_shown(_KEY) - terminal.started

        return run

    with new_home() as home:
        chat = home.chat("--model", home.script())
        return against(
            "ready", ready(home, chat), ready(home, MINIMAL_COMMAND), max(1, repeat // 3)
        )


# Idle


@dataclass(frozen=True, slots=True)
class Idle:
    """The figures of an idle program."""

    resident_mb: float
    cpu_percent: float
    echo_ms: float


def measure_idle(repeat: int, seconds: float = 10.0) -> Iterator[Measurement]:
    """Measure the open chat and a minimal application at the same time: MB, % of a processor, ms to echo a key."""
    pairs: list[tuple[Idle, Idle]] = []
    for _ in range(max(1, repeat // 5)):
        # The typed keys stay as a draft, for which the next chat in this home would load a model.
        with new_home() as home:
            pairs.append(idle_pair(home, seconds))
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for name, field, unit in (
        ("idle_rss", "resident_mb", "MB"),
        ("idle_cpu", "cpu_percent", "%"),
        ("echo", "echo_ms", "ms"),
    ):
        yield compared(
            name,
            [getattr(idle, field) for idle in ours],
            [getattr(idle, field) for idle in theirs],
            unit,
        )


def idle_pair(home: Home, seconds: float) -> tuple[Idle, Idle]:
    """Measure the chat with an open shell and a scripted model, and the minimal application."""
    with (
        home.terminal(home.chat("--model", home.script())) as chat,
        home.terminal(MINIMAL_COMMAND) as minimal,
    ):
        chat.wait_for(READY)
        minimal.wait_for(ALTERNATE_SCREEN)
        terminals = (chat, minimal)
        time.sleep(_SETTLE_SECONDS)
        start = [cpu_seconds(terminal.pid) for terminal in terminals]
        time.sleep(seconds)
        used = [
            cpu_seconds(terminal.pid) - begin
            for terminal, begin in zip(terminals, start, strict=True)
        ]
        memory = [resident_mb(terminal.pid) for terminal in terminals]
        echoes = [statistics.median(echoes_ms(terminal)) for terminal in terminals]
    ours, theirs = map(Idle, memory, [each / seconds * 100 for each in used], echoes)
    return ours, theirs


def echoes_ms(terminal: Terminal) -> list[float]:
    """Return the milliseconds from typing each key to its echo."""
    milliseconds: list[float] = []
    for key in KEYS:
        since, typed = terminal.length, time.monotonic()
        terminal.type(key)
        milliseconds.append((terminal.wait_for(key, since) - typed) * 1000)
        time.sleep(_KEY_INTERVAL_SECONDS)
    return milliseconds


# Streams


@dataclass(frozen=True, slots=True)
class Paced:
    """The figures a chat reports for a paced stream, and key echoes measured afterwards."""

    lag_p99_ms: float
    cpu_percent: float
    frames_per_second: float
    tokens_per_second: float
    echoes_ms: tuple[float, ...]


def measure_floods(
    repeat: int, short: int = SHORT_ANSWER_TOKENS, long: int = LONG_ANSWER_TOKENS
) -> Iterator[Measurement]:
    """Measure tokens per second of an unpaced answer, and the time of a longer one relative to it."""
    with new_home() as home:
        runs = [(flood(home, short), flood(home, long)) for _ in range(max(1, repeat // 5))]
    seconds = statistics.median(run[0] for run in runs)
    yield Measurement("stream_flood_10k", short / seconds, "tokens/s")
    growth = statistics.median(run[1] for run in runs) / seconds
    yield Measurement("stream_growth_50k_10k", growth, "times", 1.0, growth)


def measure_pace(
    repeat: int, history: int = SHORT_ANSWER_TOKENS, seconds: float = 6.0
) -> Iterator[Measurement]:
    """Measure a paced stream and typing below a long answer; the baseline is a stream in an empty chat."""
    with new_home() as home:
        pairs = [
            (paced(home, history, seconds), paced(home, 0, seconds))
            for _ in range(max(1, repeat // 8))
        ]
    for figure, unit in (
        ("lag_p99_ms", "ms"),
        ("cpu_percent", "%"),
        ("frames_per_second", "frames/s"),
    ):
        long_chat, empty_chat = (
            [getattr(pair[index], figure) for pair in pairs] for index in (0, 1)
        )
        yield compared(f"paced_{figure}", long_chat, empty_chat, unit)
    yield Measurement(
        "typing_p95_ms",
        percentile([echo for pair in pairs for echo in pair[0].echoes_ms], 95),
        "ms",
    )


def flood(home: Home, tokens: int) -> float:
    """Return the seconds from the question to the line below the complete answer."""
    with home.terminal(home.chat("--model", home.script(markdown(tokens)))) as terminal:
        terminal.wait_for(READY)
        return _ask(terminal)


def paced(home: Home, history: int, seconds: float) -> Paced:
    """Measure a paced answer and key echoes, after an answer of `history` tokens unless that is 0."""
    texts = [
        markdown(tokens) for tokens in (history, round(_TOKENS_PER_SECOND * 4 * seconds)) if tokens
    ]
    call = f"main({home.script(*texts)!r}, rate={_TOKENS_PER_SECOND}, first={len(texts)}, seconds={seconds})"
    command = (sys.executable, "-c", f"from ecoshell_bench.speed.paced import main; {call}")
    with home.terminal(command, reports=True) as terminal:
        terminal.wait_for(READY)
        if history:
            _ask(terminal)
        terminal.type("go on\r")
        figures = json.loads(terminal.report())
        return Paced(**figures, echoes_ms=tuple(echoes_ms(terminal)))


def _ask(terminal: Terminal) -> float:
    """Ask and return the seconds to the complete answer."""
    since, started = terminal.length, time.monotonic()
    terminal.type("go on\r")
    terminal.wait_for(LAST_WORD, since)
    return terminal.wait_for(_END_OF_TURN, since) - started


LAST_WORD = "Finis."


def markdown(tokens: int) -> str:
    """Return a fixed Markdown text that a scripted model streams in this many pieces, ending in LAST_WORD."""
    section = (files("ecoshell_bench.speed") / "section.md").read_text(encoding="utf-8")
    pieces = (piece for number in count(1) for piece in section.format(number=number).split(" "))
    return " ".join([*islice(pieces, max(0, tokens - 1)), LAST_WORD])


# A long session

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
    """Measure seconds from `/resume` in an open chat to the last lines of the session; the baseline has one turn."""
    with new_home() as home:
        chat = home.chat("--model", home.script())

        def resume(session: str, turns: int) -> Take:
            def run() -> float:
                with home.terminal(chat) as terminal:
                    terminal.wait_for(READY)
                    terminal.type(f"/resume {session}")
                    terminal.wait_for(session)
                    since, started = terminal.length, time.monotonic()
                    terminal.type("\r")
                    return terminal.wait_for(_END.format(number=turns), since) - started

            return run

        long, short = resume(store_session(home, turns), turns), resume(store_session(home, 1), 1)
        return against("open_2000_turns", long, short, max(1, repeat // 5))


def store_session(home: Home, turns: int) -> str:
    """Store a session with this many turns and return its ID."""
    with closing(SessionStore(home.folder / "data" / "sessions.sqlite")) as store:
        session = store.create(workspace=str(home.folder), model=_MODEL)
        store.append(session, [event for number in range(1, turns + 1) for event in _turn(number)])
    return session


def _turn(number: int) -> Iterator[Event]:
    """Yield the stored events of a turn with a thought, a call and an answer."""
    answer, call = _ANSWER.format(number=number), f"c{number}"
    yield TurnStarted(number, f"How long is file {number}?", _MODEL, "single", "react")
    yield ToolsOffered(
        ("read_file", "write_file"), (), "grow", 180, 1_400, exact=True, why="names only is cheaper"
    )
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
    """Yield the events of a model call: reserve, text word by word, settle."""
    yield StepStarted(step, "single", _MODEL)
    yield BudgetHeld(step, "single", _MODEL, 7_100_000, 2_000, 1_024, clamped=False)
    for word in text.split(" "):
        yield TextArrived(f"{word} ", channel, "single")
    yield BudgetSettled(step, "single", _MODEL, 1_550_000, _USAGE, reported=True, seconds=1.0)

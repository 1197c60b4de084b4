"""Going on with a very long session: how soon its end can be read."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Literal

from ecoshell.budget.caps import CapState
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
from ecoshell.sessions.store import SessionStore
from ecoshell_bench.measurement import Measurement
from ecoshell_bench.speed.apps import READY, Home, new_home
from ecoshell_bench.speed.terminal import Terminal
from ecoshell_bench.speed.timing import Take, against

TURNS = 2_000
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
        long, short = store_session(home, turns), store_session(home, 1)
        chat = home.chat("--model", home.script())
        return against(
            "open_2000_turns", _resumed(home, chat, long, turns), _resumed(home, chat, short, 1), max(1, repeat // 5)
        )


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


def _resumed(home: Home, chat: Sequence[str], session: str, turns: int) -> Take:
    def run() -> float:
        terminal = Terminal(chat, environ=home.environ)
        try:
            terminal.wait_for(READY)
            terminal.type(f"/resume {session}")
            terminal.wait_for(session)
            since, asked = terminal.length, time.monotonic()
            terminal.type("\r")
            return terminal.wait_for(_END.format(number=turns), since) - asked
        finally:
            terminal.close()

    return run

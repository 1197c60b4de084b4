"""The log comes before the deed: what has effects outside begins only when its start is on disk."""

import asyncio
import sqlite3
from contextlib import contextmanager
from decimal import Decimal

import pytest
from agent_play import Recorder, finish, of, say, turn

from ecoshell.errors import StoreError
from ecoshell.events import BudgetHeld, CallFinished, CallStarted, ErrorHappened, TurnStarted
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore

PRICE = (Decimal(1), Decimal(4))


@contextmanager
def locked():
    """The sessions, held by another connection as by another process."""
    holder = sqlite3.connect(user_paths().sessions_file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.close()


@pytest.fixture
def impatient(monkeypatch):
    """Stores that wait for a lock a moment only."""
    monkeypatch.setattr(
        "ecoshell.assembly.shell.open_store", lambda paths: SessionStore(paths.sessions_file, busy_seconds=0.3)
    )


@pytest.fixture
def patient(monkeypatch):
    """Stores that wait for a lock for longer than any test."""
    monkeypatch.setattr(
        "ecoshell.assembly.shell.open_store", lambda paths: SessionStore(paths.sessions_file, busy_seconds=120)
    )


def write(number):
    return say("", "write_file", path=f"{number}.txt", content="x")


async def test_no_model_is_asked_while_the_session_cannot_be_written(play, impatient):
    async with play([finish("ok")], price=PRICE, budget="1") as shell:
        with locked(), pytest.raises(StoreError) as stopped:
            await turn(shell)
        (cap,) = await shell.deps.budget.caps()
        assert not shell.requests
        assert (cap.spent, cap.held) == (0, 0)
    assert "The turn was stopped" in stopped.value.message
    assert stopped.value.kept
    assert stopped.value.fix


async def test_no_tool_writes_before_its_start_is_on_disk(play, impatient, home):
    lines = [*map(write, range(20)), finish("ok")]
    async with play(lines, yes=True, registration="all", max_steps=40) as shell:
        events = []
        async for event in shell.ask("Write!"):
            events.append(event)
            if isinstance(event, CallStarted):  # what was seen of it is on disk, so that this one may run
                with locked():
                    await asyncio.wait([shell.conversation._running], timeout=600)
    assert [file.name for file in home.glob("[0-9]*.txt")] == ["0.txt"]
    assert events[-1].status == "error"
    assert "was not run, because its start could not be recorded" in of(events, ErrorHappened)[0].message


async def test_a_turn_goes_on_when_the_lock_is_let_go_in_time(play, home):
    async with play([write(0), write(1), finish("ok")], yes=True, registration="all") as shell:
        async for event in shell.ask("Write!"):
            if isinstance(event, CallFinished) and event.name == "write_file":
                with locked():
                    await asyncio.sleep(0.3)
        assert event.status == "answered"
    assert {file.name for file in home.glob("[0-9]*.txt")} == {"0.txt", "1.txt"}


async def test_every_paid_call_and_every_write_finds_its_start_on_disk(play, home, monkeypatch):
    found = []

    async def stream(self, request):
        found.append([event for _, event in SessionStore(user_paths().sessions_file).events(shell.session)])
        async for piece in streamed(self, request):
            yield piece

    streamed = Recorder.stream
    monkeypatch.setattr(Recorder, "stream", stream)
    async with play([write(0), finish("ok")], yes=True, registration="all", price=PRICE, budget="1") as shell:
        assert (await turn(shell))[-1].status == "answered"
    assert [len(of(events, BudgetHeld)) for events in found] == [1, 2]


async def test_a_tool_that_reads_waits_for_nothing(play, monkeypatch, patient):
    streamed, asked = Recorder.stream, asyncio.Event()

    async def stream(self, request):
        if self.requests:
            asked.set()
        async for piece in streamed(self, request):
            yield piece

    monkeypatch.setattr(Recorder, "stream", stream)
    async with play([say("", "count_text", text="text"), finish("ok")], registration="all") as shell:
        async for event in shell.ask("Count!"):
            if isinstance(event, CallStarted):
                with locked():
                    await asyncio.wait_for(asked.wait(), 600)
    assert event.status == "answered"


async def test_what_a_stopped_turn_said_is_written_with_the_next(play, impatient):
    async with play([finish("one"), finish("two")]) as shell:
        with locked(), pytest.raises(StoreError):
            await turn(shell)
        await turn(shell)
        events = [event for _, event in shell.store.events(shell.session)]
    assert [event.turn for event in of(events, TurnStarted)] == [1, 2]
    assert not of(events, CallStarted)

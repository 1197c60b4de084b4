"""Effects are logged first: a paid model call or a call with effects starts only after its event is on disk."""

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
    """Lock the session store from another connection, as another process would."""
    holder = sqlite3.connect(user_paths().sessions_file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.close()


@pytest.fixture
def impatient(monkeypatch):
    """Make stores wait only briefly for a lock."""
    monkeypatch.setattr(
        "ecoshell.assembly.shell.open_store",
        lambda paths: SessionStore(paths.sessions_file, busy_seconds=0.3),
    )


@pytest.fixture
def patient(monkeypatch):
    """Make stores wait for a lock longer than any test runs."""
    monkeypatch.setattr(
        "ecoshell.assembly.shell.open_store",
        lambda paths: SessionStore(paths.sessions_file, busy_seconds=120),
    )


def write(number):
    return say("", "write_file", path=f"{number}.txt", content="x")


async def test_no_model_is_called_while_the_session_is_locked(play, impatient):
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
            if isinstance(event, CallStarted):  # the event is on disk, so this call may run
                with locked():
                    await asyncio.wait([shell.conversation._running], timeout=600)
    assert [file.name for file in home.glob("[0-9]*.txt")] == ["0.txt"]
    assert events[-1].status == "error"
    assert (
        "was not run, because its start could not be recorded"
        in of(events, ErrorHappened)[0].message
    )


async def test_a_turn_continues_once_the_lock_is_released(play, home):
    async with play([write(0), write(1), finish("ok")], yes=True, registration="all") as shell:
        async for event in shell.ask("Write!"):
            if isinstance(event, CallFinished) and event.name == "write_file":
                with locked():
                    await asyncio.sleep(0.3)
        assert event.status == "answered"
    assert {file.name for file in home.glob("[0-9]*.txt")} == {"0.txt", "1.txt"}


async def test_every_paid_model_call_is_announced_on_disk(play, home, monkeypatch):
    logs = []

    async def stream(self, request):
        logs.append(
            [event for _, event in SessionStore(user_paths().sessions_file).events(shell.session)]
        )
        async for piece in original(self, request):
            yield piece

    original = Recorder.stream
    monkeypatch.setattr(Recorder, "stream", stream)
    async with play(
        [write(0), finish("ok")], yes=True, registration="all", price=PRICE, budget="1"
    ) as shell:
        assert (await turn(shell))[-1].status == "answered"
    assert [len(of(events, BudgetHeld)) for events in logs] == [1, 2]


async def test_a_reading_tool_does_not_wait_for_the_lock(play, monkeypatch, patient):
    original, requested = Recorder.stream, asyncio.Event()

    async def stream(self, request):
        if self.requests:
            requested.set()
        async for piece in original(self, request):
            yield piece

    monkeypatch.setattr(Recorder, "stream", stream)
    async with play(
        [say("", "count_text", text="text"), finish("ok")], registration="all"
    ) as shell:
        async for event in shell.ask("Count!"):
            if isinstance(event, CallStarted):
                with locked():
                    await asyncio.wait_for(requested.wait(), 600)
    assert event.status == "answered"


async def test_events_of_a_stopped_turn_are_written_with_the_next(play, impatient):
    async with play([finish("one"), finish("two")]) as shell:
        with locked(), pytest.raises(StoreError):
            await turn(shell)
        await turn(shell)
        events = [event for _, event in shell.store.events(shell.session)]
    assert [event.turn for event in of(events, TurnStarted)] == [1, 2]
    assert not of(events, CallStarted)

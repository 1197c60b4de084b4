import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshell.errors import StoreError
from ecoshell.events import CallArriving, Notice
from ecoshell.sessions import EventLog, SessionStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SessionStore]:
    store = SessionStore(path, busy_seconds=0.05)
    yield store
    store.close()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def texts(store: SessionStore, session: str) -> list[str]:
    return [event.text for _, event in store.events(session) if isinstance(event, Notice)]


async def test_record_returns_when_the_event_is_on_disk(store: SessionStore, path: Path) -> None:
    session = store.create(workspace="/w", model="m")
    log = EventLog(store)
    log.queue(session, Notice("one"))
    await log.record(session, Notice("two"))
    other = SessionStore(path)
    assert texts(other, session) == ["one", "two"]
    assert log.pending == 0
    other.close()


async def test_concurrent_recording_preserves_order(store: SessionStore) -> None:
    first, second = (store.create(workspace="/w", model="m") for _ in range(2))
    log = EventLog(store)
    await asyncio.gather(
        *(log.record((first, second)[number % 2], Notice(str(number))) for number in range(40))
    )
    assert texts(store, first) == [str(number) for number in range(0, 40, 2)]
    assert texts(store, second) == [str(number) for number in range(1, 40, 2)]


async def test_events_of_a_failed_write_precede_later_ones(store: SessionStore, path: Path) -> None:
    session = store.create(workspace="/w", model="m")
    log = EventLog(store)
    with locked(path):
        for text in ("one", "two"):
            with pytest.raises(StoreError, match="locked"):
                await log.record(session, Notice(text))
        assert log.pending == 2
    await log.record(session, Notice("three"))
    assert texts(store, session) == ["one", "two", "three"]


async def test_event_of_a_cancelled_call_is_written_once(path: Path) -> None:
    patient = SessionStore(path, busy_seconds=30)
    session = patient.create(workspace="/w", model="m")
    log = EventLog(patient)
    with locked(path):
        recording = asyncio.create_task(log.record(session, Notice("one")))
        await asyncio.sleep(0)  # Lets it start.
        assert log.pending == 1
        recording.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await recording
        assert recording.cancelled()
    await log.flush()
    await log.record(session, Notice("two"))
    assert texts(patient, session) == ["one", "two"]
    patient.close()


async def test_failure_of_a_cancelled_call_is_raised_by_the_next_flush(
    store: SessionStore, path: Path
) -> None:
    session = store.create(workspace="/w", model="m")
    log = EventLog(store)
    with locked(path):
        recording = asyncio.create_task(log.record(session, Notice("one")))
        await asyncio.sleep(0)  # Lets it start.
        assert log.pending == 1
        recording.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await recording
        with pytest.raises(StoreError):
            await log.flush()
    await log.flush()
    assert texts(store, session) == ["one"]


async def test_writing_does_not_block_the_event_loop(path: Path) -> None:
    patient = SessionStore(path, busy_seconds=30)
    session = patient.create(workspace="/w", model="m")
    log = EventLog(patient)
    cycles = 0
    with locked(path):
        recording = asyncio.create_task(log.record(session, Notice("one")))
        while cycles < 100:
            await asyncio.sleep(0)
            cycles += 1
        assert not recording.done()
    await recording
    assert texts(patient, session) == ["one"]
    patient.close()


async def test_the_growth_of_a_call_is_not_stored(store: SessionStore) -> None:
    session, log = store.create(workspace="/w", model="m"), EventLog(store)
    log.queue(session, CallArriving("write_file", "notes.txt", 40, "single"))
    await log.record(session, Notice("one"))
    assert [event for _, event in store.events(session)] == [Notice("one")]

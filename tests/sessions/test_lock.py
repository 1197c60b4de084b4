"""A session is open in one shell at a time: over a real store, other processes and shells."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshell.errors import UsageError
from ecoshell.events import TurnStarted
from ecoshell.sessions import SessionStore

HOLDER = """
import subprocess, sys
from pathlib import Path
from ecoshell.sessions import SessionStore

lock = SessionStore(Path(sys.argv[1])).lock(sys.argv[2])
child = subprocess.Popen([sys.executable, "-c", "input()"])
print("locked", flush=True)
child.wait()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "sessions.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SessionStore]:
    store = SessionStore(path)
    yield store
    store.close()


def new_session(store: SessionStore) -> str:
    session = store.create(workspace="/w", model="embedded")
    store.append(session, [TurnStarted(1, "hello", "embedded", "single", "react")])
    return session


def test_a_session_is_locked_until_its_release(store: SessionStore, path: Path) -> None:
    session, other = new_session(store), new_session(store)
    lock, other_lock = store.lock(session), store.lock(other)
    with pytest.raises(UsageError, match=f"{session} is open in another ecoshell. Close it there"):
        store.lock(session)
    lock.release()
    store.lock(session).release()
    other_lock.release()
    assert list(path.with_name("sessions.locks").iterdir()) == []


def test_an_open_session_is_not_deleted(store: SessionStore) -> None:
    session = new_session(store)
    lock = store.lock(session)
    with pytest.raises(UsageError, match="open in another ecoshell"):
        store.delete(session)
    assert store.title(session) == "hello"
    lock.release()
    store.delete(session)
    assert store.list() == ()


def test_a_killed_process_leaves_no_lock_although_its_child_lives(
    store: SessionStore, path: Path
) -> None:
    session = new_session(store)
    words = (sys.executable, "-c", HOLDER, str(path), session)
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=os.environ, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(UsageError):
            store.lock(session)
        holder.kill()
        holder.wait()
        store.lock(session).release()  # its child ends with its input, after this


def test_without_a_folder_for_locks_sessions_are_not_locked(
    store: SessionStore, path: Path
) -> None:
    session = new_session(store)
    path.with_name("sessions.locks").touch()
    first, second = store.lock(session), store.lock(session)
    store.delete(session)
    assert store.list() == ()
    first.release()
    second.release()
    assert path.with_name("sessions.locks").is_file()

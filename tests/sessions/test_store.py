import re
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    CallFinished,
    CallStarted,
    Compacted,
    Event,
    Notice,
    Status,
    TextArrived,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.sessions import SessionStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "sessions.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SessionStore]:
    store = SessionStore(path, busy_seconds=0.1)
    yield store
    store.close()


def new_session(store: SessionStore) -> str:
    return store.create(workspace="/w", model="embedded")


def question(text: str) -> TurnStarted:
    return TurnStarted(1, text, "embedded", "single", "react")


def stored_events(store: SessionStore, session: str) -> list[Event]:
    return [event for _, event in store.events(session)]


def test_events_are_read_in_order_and_unchanged(store: SessionStore, path: Path) -> None:
    session = new_session(store)
    events = [
        question("how many?"),
        CallStarted("c1", "word_count", {"path": "a.txt", "deep": {"list": [1, 2]}}),
    ]
    store.append(session, events)
    store.append(session, [CallFinished("c1", "word_count", True, "12\n\x1b[31m", False, 0.1)])
    again = SessionStore(path)
    assert stored_events(again, session) == [
        *events,
        CallFinished("c1", "word_count", True, "12\n\x1b[31m", False, 0.1),
    ]
    again.close()


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_stored(text: str) -> None:
    with (
        TemporaryDirectory() as folder,
        closing(SessionStore(Path(folder, "sessions.sqlite"))) as store,
    ):
        session = new_session(store)
        store.append(session, [question(text), Notice(text)])
        assert stored_events(store, session)[1] == Notice(text)
        store.title(session).encode()


def test_long_session_is_read_completely(store: SessionStore) -> None:
    session = new_session(store)
    store.append(session, [Notice(str(number)) for number in range(1203)])
    assert stored_events(store, session) == [Notice(str(number)) for number in range(1203)]


def test_ids_are_short_and_readable(store: SessionStore) -> None:
    assert re.fullmatch(r"[2-9a-z]{4}-[2-9a-z]{2}", new_session(store))


def test_first_question_is_the_title_until_the_session_is_renamed(store: SessionStore) -> None:
    session = new_session(store)
    assert store.title(session) == ""
    store.append(session, [question("  fix\nthe \x1b[1mreadme " + "please " * 20)])
    assert store.title(session).startswith("fix the ␛[1mreadme please")
    assert len(store.title(session)) == 60
    store.rename(session, "readme")
    store.append(session, [question("another question")])
    assert store.title(session) == "readme"


def test_list_begins_with_the_last_used_session_and_omits_empty_ones(path: Path) -> None:
    times = iter(range(100))
    store = SessionStore(path, clock=lambda: float(next(times)))
    first, second, _empty = new_session(store), new_session(store), new_session(store)
    store.append(second, [question("two")])
    store.append(first, [question("one")])
    assert [session.id for session in store.list()] == [first, second]
    assert [session.id for session in store.list(limit=1)] == [first]
    assert len(store.list(limit=10**20)) == 2
    store.close()


def test_session_is_written_with_its_first_event(store: SessionStore, path: Path) -> None:
    session = new_session(store)
    assert (store.title(session), store.info(session).model) == ("", "embedded")
    with closing(SessionStore(path)) as other, pytest.raises(UsageError, match="Unknown session"):
        other.info(session)
    store.append(session, [question("one")])
    with closing(SessionStore(path)) as other:
        assert (other.title(session), other.info(session).workspace) == ("one", "/w")


def test_find_accepts_a_prefix_of_the_id(store: SessionStore) -> None:
    session = new_session(store)
    store.append(session, [question("one")])
    assert store.find(session) == session
    assert store.find(f" {session[:5].upper()} ") == session


def test_find_lists_the_matches_of_an_ambiguous_prefix(store: SessionStore) -> None:
    sessions = [new_session(store) for _ in range(200)]  # More than there are first characters.
    for session in sessions:
        store.append(session, [question("one")])
    letter = max(
        "23456789abcdefghjkmnpqrstuvwxyz",
        key=lambda prefix: sum(name.startswith(prefix) for name in sessions),
    )
    with pytest.raises(UsageError, match="several sessions") as caught:
        store.find(letter)
    assert sum(session in caught.value.message for session in sessions) >= 2


@pytest.mark.parametrize("prefix", ["", "%", "_", "zzzz-zzz", "\udc80"])
def test_find_rejects_an_unknown_prefix(store: SessionStore, prefix: str) -> None:
    new_session(store)
    with pytest.raises(UsageError, match="Unknown session"):
        store.find(prefix)


def test_delete_removes_the_session_and_its_events(store: SessionStore, path: Path) -> None:
    session, other = new_session(store), new_session(store)
    store.append(session, [question("secret")])
    store.append(other, [question("public")])
    store.delete(session)
    assert stored_events(store, session) == []
    assert [info.id for info in store.list()] == [other]
    for change in (store.delete, store.title, lambda deleted: store.rename(deleted, "x")):
        with pytest.raises(UsageError, match="Unknown session"):
            change(session)


def test_append_restores_a_session_that_another_shell_deleted(store: SessionStore) -> None:
    session = new_session(store)
    store.append(session, [question("gone")])
    store.delete(session)
    store.append(session, [question("still here")])
    assert [(info.id, info.title) for info in store.list()] == [(session, "still here")]


def test_events_of_other_versions_are_skipped(store: SessionStore, path: Path) -> None:
    session = new_session(store)
    store.append(session, [Notice("one"), Notice("two"), Notice("three"), Notice("four")])
    with sqlite3.connect(path) as other:
        other.execute(
            """UPDATE events SET json = '{"type": "from_the_future", "x": 1}' WHERE seq = 1"""
        )
        other.execute(
            """UPDATE events SET json = '{"type": "notice", "text": "two", "more": 1}' WHERE seq = 2"""
        )
        other.execute("""UPDATE events SET json = '{"type": "notice"}' WHERE seq = 3""")
    other.close()
    assert stored_events(store, session) == [Notice("two"), Notice("four")]


def test_two_shells_can_write_concurrently(path: Path) -> None:
    stores = [SessionStore(path), SessionStore(path)]
    shared = new_session(stores[0])

    def write(number: int) -> None:
        stores[number % 2].append(shared, [Notice(f"{number}a"), Notice(f"{number}b")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(60)))
    texts = [event.text for event in stored_events(stores[0], shared) if isinstance(event, Notice)]
    assert sorted(texts) == sorted(f"{number}{half}" for number in range(60) for half in "ab")
    assert all(
        second == first.replace("a", "b")
        for first, second in zip(texts[::2], texts[1::2], strict=True)
    )
    for store in stores:
        store.close()


def test_locked_file_is_reported_and_events_can_be_written_later(
    store: SessionStore, path: Path
) -> None:
    session = new_session(store)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked") as caught:
        store.append(session, [Notice("x")])
    assert "memory" in caught.value.kept
    holder.execute("ROLLBACK")
    holder.close()
    store.append(session, [Notice("x")])
    assert stored_events(store, session) == [Notice("x")]


def test_damaged_file_is_reported_and_not_changed(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, " * 500)
    with pytest.raises(StoreError, match=r"sessions\.sqlite is damaged") as caught:
        SessionStore(path)
    assert "Move the file away" in caught.value.fix
    assert path.read_bytes().startswith(b"this is no database")


def test_uncreatable_folder_is_reported(tmp_path: Path) -> None:
    blocker = tmp_path / "data"
    blocker.write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="cannot be written") as caught:
        SessionStore(blocker / "sessions.sqlite")
    assert "ECOSHELL_HOME" in caught.value.fix


FILL_THE_DISK = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from ecoshell.errors import StoreError
from ecoshell.events import Notice
from ecoshell.sessions import SessionStore

store = SessionStore(Path(sys.argv[1]))
session = store.create(workspace="/w", model="m")
written = 0
try:
    while written < 1000:
        store.append(session, [Notice("x" * 10_000)])
        written += 1
except StoreError as error:
    print(session, written, error)
"""


def _small_disk() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def test_full_disk_is_reported_and_loses_no_written_events(path: Path) -> None:
    filled = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(path)],
        preexec_fn=_small_disk,
        capture_output=True,
        text=True,
        check=True,
    )
    session, written, message = filled.stdout.split(" ", 2)
    assert "the disk is full" in message
    assert "memory" in message
    store = SessionStore(path)
    assert len(stored_events(store, session)) == int(written) > 0
    store.append(session, [Notice("there is space again")])
    store.close()


WRITE_UNTIL_KILLED = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from ecoshell.events import Notice
from ecoshell.sessions import SessionStore

store = SessionStore(Path(sys.argv[1]))
session = store.create(workspace="/w", model="m")
print(session, flush=True)
number = 0
while True:
    store.append(session, [Notice(str(number))])
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("after", [1, 40, 150])
def test_killed_process_loses_at_most_one_event(path: Path, after: int) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_UNTIL_KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    session = writer.stdout.readline().strip()
    for _ in range(after):
        writer.stdout.readline()
    writer.kill()
    later_lines = writer.stdout.read().splitlines()
    writer.wait()
    writer.stdout.close()
    store = SessionStore(path)
    numbers = [
        int(event.text) for event in stored_events(store, session) if isinstance(event, Notice)
    ]
    store.close()
    reported = after + len(later_lines)  # A truncated last line also reports a written event.
    assert numbers == list(range(len(numbers)))
    assert reported <= len(numbers) <= reported + 1


def streamed_turn(turn: int, status: Status, *, is_complete: bool) -> list[Event]:
    """Return a turn whose text arrives in two pieces."""
    text = f"answer {turn}"
    pieces = [
        TextArrived("answer ", "answer", "single"),
        TextArrived(str(turn), "answer", "single"),
    ]
    finished = TurnFinished(turn, status, text if is_complete else "", 0, Usage(), 1, (), 0.1)
    return [
        question(f"question {turn}"),
        *pieces,
        *([Answer(text)] if is_complete else []),
        finished,
    ]


def test_history_has_pieces_of_text_only_for_turns_that_were_cut_short(store: SessionStore) -> None:
    session = new_session(store)
    first, second = (
        streamed_turn(1, "answered", is_complete=True),
        streamed_turn(2, "interrupted", is_complete=False),
    )
    third, killed = (
        streamed_turn(3, "answered", is_complete=True),
        streamed_turn(4, "interrupted", is_complete=False)[:-1],
    )
    store.append(session, [*first, *second, *third, *killed])
    complete = [event for event in (*first, *third) if not isinstance(event, TextArrived)]
    assert store.history(session) == [*complete[:3], *second, *complete[3:], *killed]


def test_sessions_with_an_event_are_listed_by_time(store: SessionStore) -> None:
    late, early, other = new_session(store), new_session(store), new_session(store)
    store.append(early, [Notice("one"), Notice("two")])
    store.append(other, [Answer('{"type":"notice"')])
    store.append(late, [Notice("three")])
    assert store.sessions_with(Notice) == (early, late)
    assert store.sessions_with(Compacted) == ()


def test_history_of_several_pages_is_complete_and_in_order(store: SessionStore) -> None:
    session = new_session(store)
    notices = [Notice(str(number)) for number in range(1_203)]
    store.append(session, notices)
    assert store.history(session) == notices
    assert store.history(new_session(store)) == []


def test_info_has_the_model_of_the_last_question(store: SessionStore) -> None:
    session = store.create(workspace="/w", model="first")
    assert store.info(session).model == "first"
    store.append(session, [TurnStarted(1, "q", "second", "single", "react")])
    store.append(session, [Answer("yes")])
    assert store.info(session).model == "second"

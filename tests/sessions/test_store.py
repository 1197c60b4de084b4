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


def begun(store: SessionStore) -> str:
    return store.create(workspace="/w", model="embedded")


def asked(question: str) -> TurnStarted:
    return TurnStarted(1, question, "embedded", "single", "react")


def kept(store: SessionStore, session: str) -> list[Event]:
    return [event for _, event in store.events(session)]


def test_events_come_back_in_their_order_as_they_were(store: SessionStore, path: Path) -> None:
    session = begun(store)
    events = [asked("how many?"), CallStarted("c1", "word_count", {"path": "a.txt", "deep": {"list": [1, 2]}})]
    store.append(session, events)
    store.append(session, [CallFinished("c1", "word_count", True, "12\n\x1b[31m", False, 0.1)])
    again = SessionStore(path)
    assert kept(again, session) == [*events, CallFinished("c1", "word_count", True, "12\n\x1b[31m", False, 0.1)]
    again.close()


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_at_all_is_kept(text: str) -> None:
    with TemporaryDirectory() as folder, closing(SessionStore(Path(folder, "sessions.sqlite"))) as store:
        session = begun(store)
        store.append(session, [asked(text), Notice(text)])
        assert kept(store, session)[1] == Notice(text)
        store.title(session).encode()


def test_a_long_session_is_read_whole(store: SessionStore) -> None:
    session = begun(store)
    store.append(session, [Notice(str(number)) for number in range(1203)])
    assert kept(store, session) == [Notice(str(number)) for number in range(1203)]


def test_ids_are_short_and_readable(store: SessionStore) -> None:
    assert re.fullmatch(r"[2-9a-z]{4}-[2-9a-z]{2}", begun(store))


def test_the_first_question_is_the_title_and_a_given_title_stays(store: SessionStore) -> None:
    session = begun(store)
    assert store.title(session) == ""
    store.append(session, [asked("  fix\nthe \x1b[1mreadme " + "please " * 20)])
    assert store.title(session).startswith("fix the ␛[1mreadme please")
    assert len(store.title(session)) == 60
    store.rename(session, "readme")
    store.append(session, [asked("another question")])
    assert store.title(session) == "readme"


def test_the_last_used_session_is_listed_first_and_empty_ones_not_at_all(path: Path) -> None:
    times = iter(range(100))
    store = SessionStore(path, clock=lambda: float(next(times)))
    first, second, _empty = begun(store), begun(store), begun(store)
    store.append(second, [asked("two")])
    store.append(first, [asked("one")])
    assert [session.id for session in store.list()] == [first, second]
    assert [session.id for session in store.list(limit=1)] == [first]
    assert len(store.list(limit=10**20)) == 2  # and the file is not said to be damaged
    store.close()


def test_a_session_in_which_nothing_happened_leaves_nothing_behind(store: SessionStore, path: Path) -> None:
    session = begun(store)
    assert (store.title(session), store.info(session).model) == ("", "embedded")
    with closing(SessionStore(path)) as other, pytest.raises(UsageError, match="There is no session"):
        other.info(session)
    store.append(session, [asked("one")])
    with closing(SessionStore(path)) as other:
        assert (other.title(session), other.info(session).workspace) == ("one", "/w")


def test_a_session_is_found_by_the_beginning_of_its_id(store: SessionStore) -> None:
    session = begun(store)
    store.append(session, [asked("one")])
    assert store.find(session) == session
    assert store.find(f" {session[:5].upper()} ") == session


def test_an_ambiguous_beginning_names_the_candidates(store: SessionStore) -> None:
    sessions = [begun(store) for _ in range(200)]  # more than there are first letters
    for session in sessions:
        store.append(session, [asked("one")])
    letter = max("23456789abcdefghjkmnpqrstuvwxyz", key=lambda one: sum(name.startswith(one) for name in sessions))
    with pytest.raises(UsageError, match="several sessions") as caught:
        store.find(letter)
    assert sum(session in caught.value.message for session in sessions) >= 2


@pytest.mark.parametrize("beginning", ["", "%", "_", "zzzz-zzz", "\udc80"])
def test_a_session_that_is_not_there_is_a_usage_error(store: SessionStore, beginning: str) -> None:
    begun(store)
    with pytest.raises(UsageError, match="There is no session"):
        store.find(beginning)


def test_a_deleted_session_is_gone_with_its_events(store: SessionStore, path: Path) -> None:
    session, other = begun(store), begun(store)
    store.append(session, [asked("secret")])
    store.append(other, [asked("kept")])
    store.delete(session)
    assert kept(store, session) == []
    assert [one.id for one in store.list()] == [other]
    for change in (store.delete, store.title, lambda gone: store.rename(gone, "x")):
        with pytest.raises(UsageError, match="There is no session"):
            change(session)


def test_events_of_a_session_deleted_by_another_shell_are_not_lost(store: SessionStore) -> None:
    session = begun(store)
    store.append(session, [asked("gone")])
    store.delete(session)
    store.append(session, [asked("still here")])
    assert [(one.id, one.title) for one in store.list()] == [(session, "still here")]


def test_events_that_only_another_version_knows_are_left_out(store: SessionStore, path: Path) -> None:
    session = begun(store)
    store.append(session, [Notice("one"), Notice("two"), Notice("three"), Notice("four")])
    with sqlite3.connect(path) as other:
        other.execute("""UPDATE events SET json = '{"type": "from_the_future", "x": 1}' WHERE seq = 1""")
        other.execute("""UPDATE events SET json = '{"type": "notice", "text": "two", "more": 1}' WHERE seq = 2""")
        other.execute("""UPDATE events SET json = '{"type": "notice"}' WHERE seq = 3""")
    other.close()
    assert kept(store, session) == [Notice("two"), Notice("four")]


def test_two_shells_write_at_once_and_nothing_is_lost(path: Path) -> None:
    stores = [SessionStore(path), SessionStore(path)]
    shared = begun(stores[0])

    def write(number: int) -> None:
        stores[number % 2].append(shared, [Notice(f"{number}a"), Notice(f"{number}b")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(60)))
    texts = [event.text for event in kept(stores[0], shared) if isinstance(event, Notice)]
    assert sorted(texts) == sorted(f"{number}{half}" for number in range(60) for half in "ab")
    assert all(second == first.replace("a", "b") for first, second in zip(texts[::2], texts[1::2], strict=True))
    for store in stores:
        store.close()


def test_a_locked_store_says_so_and_what_is_kept(store: SessionStore, path: Path) -> None:
    session = begun(store)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked") as caught:
        store.append(session, [Notice("x")])
    assert "memory" in caught.value.kept
    holder.execute("ROLLBACK")
    holder.close()
    store.append(session, [Notice("x")])
    assert kept(store, session) == [Notice("x")]


def test_a_damaged_store_is_named_and_not_touched(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, " * 500)
    with pytest.raises(StoreError, match=r"sessions\.sqlite is damaged") as caught:
        SessionStore(path)
    assert "Move the file away" in caught.value.fix
    assert path.read_bytes().startswith(b"this is no database")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
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


def test_a_full_disk_says_so_and_loses_nothing_that_was_written(path: Path) -> None:
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
    assert len(kept(store, session)) == int(written) > 0
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
def test_a_killed_process_loses_at_most_the_event_it_was_writing(path: Path, after: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITE_UNTIL_KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    session = writer.stdout.readline().strip()
    for _ in range(after):
        writer.stdout.readline()
    writer.kill()
    rest = writer.stdout.read().splitlines()
    writer.wait()
    writer.stdout.close()
    store = SessionStore(path)
    numbers = [int(event.text) for event in kept(store, session) if isinstance(event, Notice)]
    store.close()
    told = after + len(rest)  # a last line cut short still stands for a written event
    assert numbers == list(range(len(numbers)))
    assert told <= len(numbers) <= told + 1


def spoken(turn: int, status: Status, *, whole: bool) -> list[Event]:
    """A turn in which one text arrived in two pieces."""
    text = f"answer {turn}"
    pieces = [TextArrived("answer ", "answer", "single"), TextArrived(str(turn), "answer", "single")]
    finished = TurnFinished(turn, status, text if whole else "", 0, Usage(), 1, (), 0.1)
    return [asked(f"question {turn}"), *pieces, *([Answer(text)] if whole else []), finished]


def test_the_past_of_a_session_has_pieces_only_of_texts_that_never_became_whole(store: SessionStore) -> None:
    session = begun(store)
    first, second = spoken(1, "answered", whole=True), spoken(2, "interrupted", whole=False)
    third, killed = spoken(3, "answered", whole=True), spoken(4, "interrupted", whole=False)[:-1]
    store.append(session, [*first, *second, *third, *killed])
    whole = [event for event in (*first, *third) if not isinstance(event, TextArrived)]
    assert store.past(session) == [*whole[:3], *second, *whole[3:], *killed]


def test_sessions_are_found_by_what_has_happened_in_them(store: SessionStore) -> None:
    late, early, other = begun(store), begun(store), begun(store)
    store.append(early, [Notice("one"), Notice("two")])
    store.append(other, [Answer('{"type":"notice"')])
    store.append(late, [Notice("three")])
    assert store.with_any(Notice) == (early, late)
    assert store.with_any(Compacted) == ()


def test_the_past_of_a_session_longer_than_a_page_is_complete_and_in_order(store: SessionStore) -> None:
    session = begun(store)
    notices = [Notice(str(number)) for number in range(1_203)]
    store.append(session, notices)
    assert store.past(session) == notices
    assert store.past(begun(store)) == []


def test_a_session_shows_the_model_that_was_asked_last(store: SessionStore) -> None:
    session = store.create(workspace="/w", model="first")
    assert store.info(session).model == "first"
    store.append(session, [TurnStarted(1, "q", "second", "single", "react")])
    store.append(session, [Answer("yes")])
    assert store.info(session).model == "second"

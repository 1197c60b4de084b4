import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from random import Random

import pytest
from unprivileged import read_only_folder

from ecoshell.errors import StoreError, UsageError
from ecoshell.planning.btp.experience import Choice, ExperienceStore, Use

USE = Use(
    query="How many lines has notes.txt?",
    tool="count_text",
    document_hash="d1",
    arguments='{"path": "notes.txt"}',
    result="3 lines",
    result_hash="r1",
    ok=True,
    helpful=True,
    judged_by="rules",
    model="embedded",
    price_nano=0,
    step_nano=None,
    step_tokens=120,
    seconds=0.5,
    size_level=0,
    session="abcd-ef",
    turn=1,
    call="c1",
    at="2026-11-20T10:00:00+00:00",
)


@pytest.fixture
def store(tmp_path):
    store = ExperienceStore(tmp_path / "experience.sqlite")
    yield store
    store.close()


def test_uses_are_stored_unchanged(store):
    other = replace(USE, call="c2", helpful=None, judged_by="", ok=False, step_nano=7)
    store.add([USE, other])
    assert [*store.uses()] == [USE, other]
    assert [match.use for match in store.find()] == [other, USE]
    assert store.queries() == [(1, USE.query)]


def test_a_repeated_use_is_replaced_in_a_new_generation(store):
    store.add([USE])
    generation = store.generation
    store.add([replace(USE, helpful=False)])
    assert [use.helpful for use in store.uses()] == [False]
    assert store.generation != generation


def test_uses_without_a_session_are_all_stored(store):
    bare = replace(USE, session="", call="")
    store.add([bare, bare])
    assert len([*store.uses()]) == 2


def test_a_mark_overrides_the_judge_until_it_is_removed(store):
    store.add([USE])
    generation = store.generation
    assert store.mark("abcd-ef", 1, "c1", helpful=False)
    (marked,) = store.uses()
    assert (marked.helpful, marked.judged_by) == (False, "you")
    assert store.columns().helpful == [0]
    assert store.generation != generation
    assert store.mark("abcd-ef", 1, "c1", helpful=None)
    assert [*store.uses()] == [USE]


def test_a_mark_survives_the_replacement_of_its_use(store):
    store.add([USE])
    store.mark("abcd-ef", 1, "c1", helpful=False)
    store.add([replace(USE, result="4 lines", seconds=2.0)])
    (again,) = store.uses()
    assert (again.result, again.helpful, again.judged_by) == ("4 lines", False, "you")


def test_a_question_is_deleted_with_its_last_use(store):
    store.add([USE])
    store.add([replace(USE, query="What else?")])
    assert [text for _, text in store.queries()] == ["What else?"]


def test_unpaired_surrogates_are_stored_as_escapes(store):
    odd = replace(USE, query="a\ud800", session="s\ud800", result="\udcff", tool="nul\x00")
    store.add([odd])
    assert store.mark(odd.session, odd.turn, odd.call, helpful=False)
    (stored,) = store.uses()
    assert (stored.query, stored.result, stored.tool) == ("a\\ud800", "\\udcff", "nul\x00")


def test_a_mark_on_an_unknown_use_is_refused(store):
    store.add([replace(USE, session="", call="c1")])
    assert not store.mark("abcd-ef", 9, "c1", helpful=True)
    assert not store.mark("", 1, "c1", helpful=True)


def test_columns_start_after_a_use(store):
    store.add([USE, replace(USE, tool="read_file", call="c2", step_nano=5)])
    assert store.columns(1).tool == ["read_file"]
    assert (store.columns().step_nano, store.columns().query) == ([None, 5], [1, 1])
    assert store.columns(2).id == []


def test_uses_can_be_selected_by_tool_question_and_time(store):
    late = replace(
        USE, tool="read_file", call="c2", query="What is in a.txt?", at="2026-11-21T10:00:00+00:00"
    )
    store.add([USE, late])
    for choice, tool in (
        (Choice(tool="read_file"), "read_file"),
        (Choice(text="LINES"), "count_text"),
        (Choice(before="2026-11-21T00:00:00+00:00"), "count_text"),
    ):
        assert [match.use.tool for match in store.find(choice)] == [tool]
    store.add([replace(USE, call="c3", at="")])
    assert store.forget(Choice(before="9999")).uses == 2
    with pytest.raises(UsageError, match="no use 7"):
        store.get(7)
    with pytest.raises(UsageError, match="no use 9"):
        store.get(10**20 - 1)


def test_a_forgotten_use_is_erased_from_the_file(store, tmp_path):
    secret = replace(USE, query="my unusual zebracorn", result="zebracorn", call="c2")
    store.add([USE, secret])
    assert store.forget(Choice(ids=(2,))).uses == 1
    assert [*store.uses()] == [USE]
    assert store.queries() == [(1, USE.query)]
    contents = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"zebracorn" not in contents
    assert b"notes.txt" in contents


def test_forgotten_uses_are_erased_after_many_additions(store, tmp_path):
    chance = Random(2)
    for turn in range(300):
        sizes = chance.randint(1, 60), chance.randint(0, 150), chance.randint(0, 40)
        query, arguments, result = (f"zebra{turn:03}!" * size for size in sizes)
        store.add([replace(USE, query=query, arguments=arguments, result=result, turn=turn)])
    numbers = [*range(1, 301)]
    chance.shuffle(numbers)
    for start in range(0, 290, 29):
        store.forget(Choice(ids=numbers[start : start + 29]))
    contents = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    remaining = {
        number for number in range(1, 301) if f"zebra{number - 1:03}!".encode() in contents
    }
    assert remaining == {*numbers[290:]}


def test_the_number_of_a_forgotten_use_is_not_reused(store):
    store.add([USE, replace(USE, call="c2", query="Other?")])
    store.forget(Choice(ids=(2,)))
    store.add([replace(USE, call="c3", query="Third?")])
    assert store.columns().id == [1, 3]
    assert [number for number, _ in store.queries()] == [1, 3]


def test_a_read_only_file_can_be_read_and_refuses_writes(store, tmp_path):
    store.add([USE])
    store.close()
    file = tmp_path / "experience.sqlite"
    with read_only_folder(file) as folder, closing(ExperienceStore(folder / file.name)) as read:
        assert [*read.uses()] == [USE]
        with pytest.raises(StoreError, match="cannot be written"):
            read.add([USE])


def test_changes_by_another_store_are_visible(store, tmp_path):
    store.add([USE])
    generation = store.generation
    with closing(ExperienceStore(tmp_path / "experience.sqlite")) as other:
        other.add([replace(USE, call="c2")])
        assert store.generation == generation
        other.mark("abcd-ef", 1, "c1", helpful=False)
        assert store.generation != generation
        assert store.columns().helpful == [0, 1]
        other.forget(Choice(ids=(1,)))
    assert store.columns().id == [2]


def _writes(path, number):
    store = ExperienceStore(path)
    store.add(replace(USE, turn=number, call=f"c{call}") for call in range(25))
    store.close()


def test_processes_can_write_in_parallel_without_loss(store, tmp_path):
    context = get_context("spawn")
    processes = [
        context.Process(target=_writes, args=(tmp_path / "experience.sqlite", turn))
        for turn in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len([*store.uses()]) == 75


def test_threads_can_write_in_parallel_without_loss(store):
    threads = [
        threading.Thread(target=lambda turn=turn: store.add([replace(USE, turn=turn)]))
        for turn in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(use.turn for use in store.uses()) == [*range(8)]


def test_a_file_that_is_not_a_database_is_an_error(tmp_path):
    file = tmp_path / "experience.sqlite"
    file.write_text("not a database, but long enough for its header " * 40)
    with pytest.raises(StoreError, match="damaged"):
        ExperienceStore(file)


def test_a_store_of_a_newer_version_is_refused(tmp_path):
    file = tmp_path / "experience.sqlite"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer ecoshell"):
        ExperienceStore(file)


def test_an_erasure_blocked_by_a_reader_is_reported(tmp_path):
    store = ExperienceStore(tmp_path / "experience.sqlite", busy_seconds=0.05)
    store.add([USE, replace(USE, call="c2")])
    with closing(sqlite3.connect(tmp_path / "experience.sqlite")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM uses").fetchall()
        assert not store.forget(Choice(ids=(1,))).erased
        reader.rollback()
    assert store.forget(Choice(ids=(2,))).erased
    store.close()


def test_the_database_of_another_program_is_refused(tmp_path):
    file = tmp_path / "experience.sqlite"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        ExperienceStore(file)
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_a_blocked_erasure_is_completed_by_the_next_one(store, tmp_path):
    store.add([replace(USE, query="my unusual zebracorn")])
    with closing(sqlite3.connect(tmp_path / "experience.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM uses").fetchall()
        assert not store.forget(Choice(ids=(1,))).erased
        reader.execute("ROLLBACK")
    again = store.forget(Choice(ids=(1,)))
    assert (again.uses, again.erased) == (0, True)
    assert b"zebracorn" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize(
    "damage", ["helpful = 'abc'", "tool = x'00'", "seconds = 'soon'", "ok = 7"]
)
def test_a_use_with_an_invalid_value_is_named(store, tmp_path, damage):
    store.add([USE])
    with closing(sqlite3.connect(tmp_path / "experience.sqlite")) as db, db:
        db.execute(f"UPDATE uses SET {damage}")
    with pytest.raises(StoreError, match=rf"damaged: use 1 has no valid `{damage.split()[0]}`"):
        [*store.uses()]


def test_a_store_of_an_earlier_version_keeps_its_uses(tmp_path):
    file = tmp_path / "experience.sqlite"
    with closing(ExperienceStore(file)) as store:
        store.add([USE])
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE attempts (id INTEGER PRIMARY KEY, query INTEGER)")
        db.execute("CREATE TABLE predictions (id INTEGER PRIMARY KEY)")
        db.execute("ALTER TABLE uses DROP COLUMN subagent_model")
        db.execute("INSERT INTO queries (text) VALUES ('tried in a mode')")
        db.execute("PRAGMA user_version = 4")
    with closing(ExperienceStore(file)) as store:
        assert [*store.uses()] == [USE]
        assert store.forget(Choice(ids=(1,))).uses == 1
        assert store.queries() == []

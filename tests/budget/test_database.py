import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from unprivileged import read_only_folder

from ecoshell.budget.database import Database
from ecoshell.errors import StoreError

SCHEMA = "CREATE TABLE notes (text TEXT)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.sqlite"


def opened(path: Path) -> closing[Database]:
    return closing(Database(path, schema=SCHEMA, version=1, busy_seconds=0.1))


def note(database: Database, text: str) -> None:
    with database.writing("It was not noted.") as db:
        db.execute("INSERT INTO notes VALUES (?)", (text,))


def notes(database: Database) -> list[str]:
    with database.reading() as db:
        return [row["text"] for row in db.execute("SELECT text FROM notes")]


def test_a_read_only_file_can_be_read(path: Path) -> None:
    with opened(path) as database:
        note(database, "kept")
    with read_only_folder(path) as folder, opened(folder / path.name) as database:
        assert notes(database) == ["kept"]
        assert not database.writable
        with pytest.raises(StoreError, match=r"cannot be written\. It was not noted\."):
            note(database, "lost")
        assert notes(database) == ["kept"]


def test_writing_to_a_removed_file_is_an_error(path: Path) -> None:
    with opened(path) as database:
        note(database, "kept")
        path.unlink()
        with pytest.raises(
            StoreError, match=r"removed or replaced while it was in use\. It was not noted\."
        ):
            note(database, "lost")
        assert notes(database) == ["kept"]


def test_a_replaced_file_is_noticed_and_a_restored_one_is_writable(path: Path) -> None:
    moved = path.with_suffix(".moved")
    with opened(path) as database:
        path.rename(moved)
        path.write_bytes(b"")
        with pytest.raises(StoreError, match="removed or replaced"):
            note(database, "lost")
        moved.replace(path)
        note(database, "kept")
        assert notes(database) == ["kept"]


def test_another_programs_file_is_refused_unchanged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE theirs (x)")
    content = path.read_bytes()
    with pytest.raises(StoreError, match="belongs to another program"):
        Database(path, schema=SCHEMA, version=1)
    assert path.read_bytes() == content


def test_a_locked_file_can_be_opened_and_written_after_the_lock_ends(path: Path) -> None:
    opened(path).thing.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with opened(path) as database:
            assert notes(database) == []
            with pytest.raises(StoreError, match="locked by another process"):
                note(database, "too early")
            other.execute("ROLLBACK")
            note(database, "kept")
            assert notes(database) == ["kept"]


def test_rewriting_a_locked_file_fails(path: Path) -> None:
    with opened(path) as database, closing(sqlite3.connect(path, isolation_level=None)) as other:
        note(database, "kept")
        other.execute("BEGIN IMMEDIATE")
        assert not database.rewrite()
        other.execute("ROLLBACK")
        assert database.rewrite()


def test_a_new_file_and_its_log_are_private_with_any_umask(path: Path) -> None:
    previous = os.umask(0o022)
    try:
        with opened(path) as database:
            note(database, "mine")
            names = sorted(file.name for file in path.parent.iterdir())
            modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(previous)
    assert names == ["notes.sqlite", "notes.sqlite-shm", "notes.sqlite-wal"]
    assert modes == {0o600}


def test_an_existing_file_keeps_its_permissions(path: Path) -> None:
    path.touch(mode=0o640)
    path.chmod(0o640)
    with opened(path) as database:
        note(database, "shared")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("at", [2**62, -(2**62), float("inf")])
def test_an_impossible_time_is_damage(path: Path, at: float) -> None:
    with closing(Database(path, schema="CREATE TABLE notes (at REAL)", version=1)) as database:
        with database.writing("It was not noted.") as db:
            db.execute("INSERT INTO notes VALUES (?)", (at,))
        with pytest.raises(StoreError, match="is damaged"), database.reading() as db:
            db.execute("SELECT at FROM notes").fetchall()

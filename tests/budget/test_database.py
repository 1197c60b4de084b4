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


def test_a_file_that_cannot_be_written_can_still_be_read(path: Path) -> None:
    with opened(path) as database:
        note(database, "kept")
    with read_only_folder(path) as folder, opened(folder / path.name) as database:
        assert notes(database) == ["kept"]
        assert not database.writable
        with pytest.raises(StoreError, match=r"cannot be written\. It was not noted\."):
            note(database, "lost")
        assert notes(database) == ["kept"]


def test_a_file_that_is_removed_while_in_use_is_not_written_into_the_void(path: Path) -> None:
    with opened(path) as database:
        note(database, "kept")
        path.unlink()
        with pytest.raises(StoreError, match=r"removed or replaced while it was in use\. It was not noted\."):
            note(database, "lost")
        assert notes(database) == ["kept"]


def test_a_file_that_was_replaced_is_noticed_and_one_that_comes_back_is_written_again(path: Path) -> None:
    aside = path.with_suffix(".aside")
    with opened(path) as database:
        path.rename(aside)
        path.write_bytes(b"")
        with pytest.raises(StoreError, match="removed or replaced"):
            note(database, "lost")
        aside.replace(path)
        note(database, "kept")
        assert notes(database) == ["kept"]

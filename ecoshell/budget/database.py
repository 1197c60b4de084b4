"""One SQLite file that several processes write to: opening, transactions, and errors a person can act on."""

import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ecoshell.errors import StoreError
from ecoshell.paths import NO_ROOM, make_private

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_TOLD: Mapping[int, tuple[str, str]] = {
    **dict.fromkeys(_BUSY, ("is locked by another process.", "Close the other ecoshell or try again.")),
    **dict.fromkeys(
        _UNWRITABLE,
        ("cannot be written.", "Make the file and its folder writable, or set ECOSHELL_HOME to a folder that is."),
    ),
    **dict.fromkeys(
        (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
        ("cannot grow: the disk is full or failing.", "Free some space and try again."),
    ),
    **dict.fromkeys(
        (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
        (
            "is damaged and cannot be read.",
            "Move the file away to start a new one; `sqlite3 FILE .recover` may save its rows.",
        ),
    ),
}
"""What is wrong with a file by SQLite's result codes, and what to do."""
_KINDS: dict[str, set[type]] = {"TEXT": {str}, "INTEGER": {int}, "REAL": {float, int}, "BLOB": {bytes}}
_FAR = 6e10
"""Seconds within which calendars hold, either way; numbers of ours that are no integers are of seconds or megabytes."""
_REWRITE_SECONDS = 0.3
"""How long others are waited for when the file is written anew, which may as well be done later."""


class Database:
    """A connection in WAL mode that the threads of this process share, one transaction at a time.

    WAL with `synchronous=NORMAL` keeps every committed transaction when a process is killed. A file that is there and
    cannot be written is opened for reading only; one that is removed meanwhile can be read on, and not written. A new
    file is for its owner alone, and with it the log beside it.
    """

    def __init__(
        self,
        path: Path,
        *,
        schema: str,
        version: int,
        upgrades: Sequence[str] = (),
        busy_seconds: float = 10.0,
        checked: bool = True,
    ) -> None:
        """`schema` makes the tables of version 1, each of `upgrades` those of the next version from the one before.

        Rows that do not hold what their tables declare are damage, unless whoever reads them sees to that: `checked`.
        """
        self.path = path
        self._lock = threading.Lock()
        self._busy_seconds = busy_seconds
        self.writable = True
        """Whether the file was opened for writing."""
        self._connection = self._open((schema, *upgrades)[:version], busy_seconds)
        try:
            with self._errors("Nothing was changed."):
                self._connection.row_factory = _sound_rows(self._connection, path) if checked else sqlite3.Row
        except BaseException:
            self._connection.close()
            raise
        self._identity = _identity(path)

    @contextmanager
    def writing(self, kept: str) -> Generator[sqlite3.Connection]:
        """A transaction that holds the write lock from its start; `kept` says how things stand when it fails."""
        self.require_writable(kept)
        with self._lock, self._errors(kept):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """A transaction that sees one state of the file throughout."""
        with self._lock, self._errors("Nothing was changed."):
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def require_writable(self, kept: str = "") -> None:
        """Raise StoreError when nothing that is written now would be found again."""
        if not self.writable:
            raise _failure(self.path, sqlite3.SQLITE_READONLY, kept)
        if _identity(self.path) != self._identity:
            raise StoreError(
                f"{self.path} was removed or replaced while it was in use.",
                kept=kept,
                fix="Put it back, or start ecoshell again; /export FILE still saves what this chat holds.",
            )

    def rewrite(self) -> bool:
        """Write the file anew and empty its log: what was deleted is then in neither.

        False when another process uses the file; it is done with the next rewriting.
        """
        wait = "PRAGMA busy_timeout = {:.0f}".format
        with self._lock, self._errors("What was changed is kept."):
            self._connection.execute(wait(min(_REWRITE_SECONDS, self._busy_seconds) * 1_000))
            try:
                self._connection.execute("VACUUM")
                busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                return not busy
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY:
                    raise
                return False
            finally:
                self._connection.execute(wait(self._busy_seconds * 1_000))

    def close(self) -> None:
        """Close the connection; the file stays complete without it."""
        with self._lock:
            self._connection.close()

    def _open(self, scripts: Sequence[str], busy_seconds: float) -> sqlite3.Connection:
        with self._errors("Nothing was changed."):
            try:
                make_private(self.path.parent)
                with suppress(FileExistsError):
                    self.path.touch(mode=0o600, exist_ok=False)
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise _failure(self.path, sqlite3.SQLITE_FULL) from error
                if isinstance(error, PermissionError) or not self.path.parent.is_dir():  # otherwise SQLite says why
                    raise _failure(self.path, sqlite3.SQLITE_READONLY) from error
            try:
                return _connected(
                    str(self.path), busy_seconds, lambda connection: _prepare(connection, self.path, scripts)
                )
            except sqlite3.OperationalError as error:
                if _code(error) not in _UNWRITABLE or not self.path.is_file():
                    raise
            self.writable = False
            look = "SELECT 1 FROM sqlite_master"
            address = f"file:{quote(str(self.path))}?mode=ro"
            try:
                return _connected(address, busy_seconds, lambda connection: connection.execute(look).fetchone())
            except sqlite3.OperationalError:  # not even the files beside it can be written: as it stands at this moment
                address += "&immutable=1"
                return _connected(address, busy_seconds, lambda connection: connection.execute(look).fetchone())

    @contextmanager
    def _errors(self, kept: str) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if (code := _code(error)) in _TOLD:
                raise _failure(self.path, code, kept) from error
            raise StoreError(f"{self.path} failed: {error}.", kept=kept) from error
        except (OverflowError, UnicodeDecodeError) as error:  # of a number too large to be one, or a broken name
            raise _failure(self.path, sqlite3.SQLITE_CORRUPT, kept) from error


def _connected(place: str, busy_seconds: float, prepare: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place, timeout=busy_seconds, isolation_level=None, check_same_thread=False, uri=place.startswith("file:")
    )
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _sound_rows(connection: sqlite3.Connection, path: Path) -> Callable[[sqlite3.Cursor, tuple[Any, ...]], sqlite3.Row]:
    """Rows in which each column holds what it was declared to, which SQLite by itself leaves to whoever writes."""
    kinds: dict[str, set[type]] = {}
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (table,) in connection.execute(tables).fetchall():
        for _, name, declared, *_ in connection.execute(f"PRAGMA table_info('{table}')"):
            kinds.setdefault(name, {type(None)}).update(_KINDS.get(declared, ()))

    def sound(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> sqlite3.Row:
        for column, value in zip(cursor.description, values, strict=True):
            allowed = kinds.get(column[0])
            if (allowed is not None and type(value) not in allowed) or (type(value) is float and abs(value) > _FAR):
                raise _failure(path, sqlite3.SQLITE_CORRUPT)
        return sqlite3.Row(cursor, values)

    return sound


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is there; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _prepare(connection: sqlite3.Connection, path: Path, scripts: Sequence[str]) -> None:
    """Bring the file to the last version: each of the scripts makes one of the one before it."""
    version = len(scripts)
    connection.execute("BEGIN")
    found = _version(connection, path, version)  # before WAL mode, which would be written into another program's file
    connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if _code(error) not in _BUSY or found < version:
            raise
        return  # another process is writing, and there is nothing to prepare
    found = _version(connection, path, version)
    if found < version:
        for statement in ";".join(scripts[found:]).split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, path: Path, known: int) -> int:
    """The version of the tables, 0 for a new file; raises StoreError when they are newer, or another program's."""
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > known:
        raise StoreError(f"{path} was written by a newer ecoshell.", fix="Upgrade ecoshell to use it.")
    if not found and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise StoreError(f"{path} is another program's database.", fix="Move it away, so that a new one can be made.")
    return found


def _failure(path: Path, code: int, kept: str = "Nothing was changed.") -> StoreError:
    what, fix = _TOLD[code]
    return StoreError(f"{path} {what}", kept=kept, fix=fix)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF

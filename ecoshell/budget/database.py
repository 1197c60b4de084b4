"""One SQLite file that several processes write to: opening, transactions, and errors a person can act on."""

import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ecoshell.errors import StoreError
from ecoshell.files import NO_ROOM
from ecoshell.paths import make_private

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_KINDS: dict[str, set[type]] = {"TEXT": {str}, "INTEGER": {int}, "REAL": {float, int}, "BLOB": {bytes}}
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
        self._writable = True
        self._connection = self._open((schema, *upgrades)[:version], busy_seconds)
        with self._errors("Nothing was changed."):
            self._connection.row_factory = _sound_rows(self._connection, path) if checked else sqlite3.Row
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

    @property
    def writable(self) -> bool:
        """Whether the file was opened for writing."""
        return self._writable

    def require_writable(self, kept: str = "") -> None:
        """Raise StoreError when nothing that is written now would be found again."""
        if not self._writable:
            raise _unwritable(self.path, kept)
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
        with self._lock, self._errors("What was changed is kept."):
            self._wait_at_most(min(_REWRITE_SECONDS, self._busy_seconds))
            try:
                self._connection.execute("VACUUM")
                busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                return not busy
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY:
                    raise
                return False
            finally:
                self._wait_at_most(self._busy_seconds)

    def close(self) -> None:
        """Close the connection; the file stays complete without it."""
        with self._lock:
            self._connection.close()

    def _open(self, scripts: Sequence[str], busy_seconds: float) -> sqlite3.Connection:
        with self._errors("Nothing was changed."):
            self._make_place()
            try:
                return _connected(
                    str(self.path), busy_seconds, lambda connection: _prepare(connection, self.path, scripts)
                )
            except sqlite3.OperationalError as error:
                if _code(error) not in _UNWRITABLE or not self.path.is_file():
                    raise
            self._writable = False
            return _for_reading(self.path, busy_seconds)

    def _make_place(self) -> None:
        """Make the folder and the file, readable for their person alone, where they are not there."""
        try:
            make_private(self.path.parent)
            with suppress(FileExistsError):
                self.path.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise _full(self.path, "Nothing was changed.") from error
            if not self.path.parent.is_dir():  # otherwise SQLite says why the file cannot be made
                raise _unwritable(self.path, "Nothing was changed.") from error

    def _wait_at_most(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1_000)}")

    @contextmanager
    def _errors(self, kept: str) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explained(error, self.path, kept) from error
        except (OverflowError, UnicodeDecodeError) as error:  # of a number too large to be one, or a broken name
            raise _damaged(self.path, kept) from error


def _connected(place: str, busy_seconds: float, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
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
            if allowed is not None and type(value) not in allowed:
                raise _damaged(path, "Nothing was changed.")
        return sqlite3.Row(cursor, values)

    return sound


def _for_reading(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Read-only; where not even the files beside it can be written, as it stands at this moment."""

    def look(connection: sqlite3.Connection) -> None:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()

    address = f"file:{quote(str(path))}?mode=ro"
    try:
        return _connected(address, busy_seconds, look)
    except sqlite3.OperationalError:
        return _connected(f"{address}&immutable=1", busy_seconds, look)


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


def _explained(error: sqlite3.Error, path: Path, kept: str) -> StoreError:
    code = _code(error)
    if code in _BUSY:
        return StoreError(
            f"{path} is locked by another process.", kept=kept, fix="Close the other ecoshell or try again."
        )
    if code in _FULL:
        return _full(path, kept)
    if code in _UNWRITABLE:
        return _unwritable(path, kept)
    if code in _DAMAGED:
        return _damaged(path, kept)
    return StoreError(f"{path} failed: {error}.", kept=kept)


def _full(path: Path, kept: str) -> StoreError:
    return StoreError(
        f"{path} cannot grow: the disk is full or failing.", kept=kept, fix="Free some space and try again."
    )


def _damaged(path: Path, kept: str) -> StoreError:
    fix = "Move the file away to start a new one; `sqlite3 FILE .recover` may save its rows."
    return StoreError(f"{path} is damaged and cannot be read.", kept=kept, fix=fix)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _unwritable(path: Path, kept: str) -> StoreError:
    return StoreError(
        f"{path} cannot be written.",
        kept=kept,
        fix="Make the file and its folder writable, or set ECOSHELL_HOME to a folder that is.",
    )

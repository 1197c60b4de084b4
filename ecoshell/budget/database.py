"""An SQLite file that several processes share: opening, transactions and actionable errors."""

import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ecoshell.errors import StoreError
from ecoshell.paths import NO_ROOM, make_private

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNWRITABLE = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
_LOCKED = ("is locked by another process.", "Close the other ecoshell or try again.")
_READ_ONLY = (
    "cannot be written.",
    "Make the file and its folder writable, or set ECOSHELL_HOME to a folder that is.",
)
_FULL = ("cannot grow: the disk is full or failing.", "Free some space and try again.")
_DAMAGED = (
    "is damaged and cannot be read.",
    "Move the file away to start a new one; `sqlite3 FILE .recover` may save its rows.",
)
_MESSAGES: Mapping[int, tuple[str, str]] = {
    **dict.fromkeys(_BUSY, _LOCKED),
    **dict.fromkeys(_UNWRITABLE, _READ_ONLY),
    **dict.fromkeys((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR), _FULL),
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), _DAMAGED),
}
"""Problem and fix, by SQLite result code."""
_FAILURES = (sqlite3.Error, OverflowError, UnicodeDecodeError)
_KINDS: dict[str, set[type]] = {
    "TEXT": {str},
    "INTEGER": {int},
    "REAL": {float, int},
    "BLOB": {bytes},
}
_MAX_REAL = 6e10
"""Largest plausible REAL value; all are seconds or megabytes."""
_REWRITE_SECONDS = 0.3
"""How long `rewrite` waits for other processes."""


class Database:
    """A connection in WAL mode, shared by the threads of this process, one transaction at a time.

    WAL with `synchronous=NORMAL` keeps every committed transaction when a process is killed. An existing file that
    cannot be written is opened read-only; a file that is removed while open can be read but no longer written. New
    files and their logs are readable by their owner only.
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
        """`schema` creates version 1, each of `upgrades` the next version.

        With `checked`, values that do not match the declared column types raise StoreError.
        """
        self.path = path
        self._lock = threading.Lock()
        self._busy_seconds = busy_seconds
        self.writable = True
        """Whether the file was opened for writing."""
        self._connection = self._open((schema, *upgrades)[:version])
        try:
            with self._errors("Nothing was changed."):
                sound = _sound_rows(self._connection, path) if checked else sqlite3.Row
                self._connection.row_factory = sound
        except BaseException:
            self._connection.close()
            raise
        self._identity = _identity(path)

    def writing(self, outcome: str) -> AbstractContextManager[sqlite3.Connection]:
        """Open a transaction that holds the write lock from its start; `outcome` is the state after a failure."""
        self.require_writable(outcome)
        return self._transaction("BEGIN IMMEDIATE", "COMMIT", outcome)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open a transaction with a consistent view of the file."""
        return self._transaction("BEGIN", "ROLLBACK", "Nothing was changed.")

    @contextmanager
    def _transaction(self, begin: str, end: str, outcome: str) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute(begin)
                try:
                    yield self._connection
                    self._connection.execute(end)
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
            except _FAILURES as error:
                raise self._failed(error, outcome) from error

    def require_writable(self, outcome: str = "") -> None:
        """Raise StoreError if writes would be lost."""
        if not self.writable:
            raise _failure(self.path, sqlite3.SQLITE_READONLY, outcome)
        if _identity(self.path) != self._identity:
            message = f"{self.path} was removed or replaced while it was in use."
            fix = "Restore the file or restart ecoshell; /export FILE still saves this chat."
            raise StoreError(message, kept=outcome, fix=fix)

    def rewrite(self) -> bool:
        """Rewrite the file and empty its log, so that deleted data is in neither.

        Returns False if another process uses the file.
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
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _open(self, scripts: Sequence[str]) -> sqlite3.Connection:
        busy_seconds = self._busy_seconds
        with self._errors("Nothing was changed."):
            try:
                make_private(self.path.parent)
                with suppress(FileExistsError):
                    self.path.touch(mode=0o600, exist_ok=False)
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise _failure(self.path, sqlite3.SQLITE_FULL) from error
                # otherwise SQLite says why
                if isinstance(error, PermissionError) or not self.path.parent.is_dir():
                    raise _failure(self.path, sqlite3.SQLITE_READONLY) from error
            try:
                prepare = partial(_prepare, path=self.path, scripts=scripts)
                return _connect(str(self.path), busy_seconds, prepare)
            except sqlite3.OperationalError as error:
                if _code(error) not in _UNWRITABLE or not self.path.is_file():
                    raise
            self.writable = False
            address = f"file:{quote(str(self.path))}?mode=ro"
            require_latest = partial(_require_latest, path=self.path, latest=len(scripts))
            try:
                return _connect(address, busy_seconds, require_latest)
            except sqlite3.OperationalError:
                # The WAL files cannot be written either: open the current state.
                return _connect(f"{address}&immutable=1", busy_seconds, require_latest)

    @contextmanager
    def _errors(self, outcome: str) -> Generator[None]:
        try:
            yield
        except _FAILURES as error:
            raise self._failed(error, outcome) from error

    def _failed(self, error: Exception, outcome: str) -> StoreError:
        if not isinstance(error, sqlite3.Error):  # from oversized numbers and malformed text
            return _failure(self.path, sqlite3.SQLITE_CORRUPT, outcome)
        if (code := _code(error)) in _MESSAGES:
            return _failure(self.path, code, outcome)
        return StoreError(f"{self.path} failed: {error}.", kept=outcome)


def _connect(
    place: str, busy_seconds: float, prepare: Callable[[sqlite3.Connection], object]
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        uri=place.startswith("file:"),
    )
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _sound_rows(
    connection: sqlite3.Connection, path: Path
) -> Callable[[sqlite3.Cursor, tuple[Any, ...]], sqlite3.Row]:
    """Return a row factory that checks declared column types, which SQLite does not enforce."""
    kinds: dict[str, set[type]] = {}
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (table,) in connection.execute(tables).fetchall():
        for _, name, declared, *_ in connection.execute(f"PRAGMA table_info('{table}')"):
            kinds.setdefault(name, {type(None)}).update(_KINDS.get(declared, ()))

    def sound(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> sqlite3.Row:
        for column, value in zip(cursor.description, values, strict=True):
            allowed = kinds.get(column[0])
            if (allowed is not None and type(value) not in allowed) or (
                type(value) is float and abs(value) > _MAX_REAL
            ):
                raise _failure(path, sqlite3.SQLITE_CORRUPT)
        return sqlite3.Row(cursor, values)

    return sound


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _prepare(connection: sqlite3.Connection, path: Path, scripts: Sequence[str]) -> None:
    """Upgrade the file to the latest version; each script upgrades one version."""
    version = len(scripts)
    connection.execute("BEGIN")
    # Checked first: WAL mode would modify another program's file.
    current = _version(connection, path, version)
    connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if _code(error) not in _BUSY or current < version:
            raise
        return  # Another process is writing, and the version is current.
    current = _version(connection, path, version)
    if current < version:
        for statement in ";".join(scripts[current:]).split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, path: Path, latest: int) -> int:
    """Return the schema version, 0 for a new file; raises StoreError for newer and foreign files."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > latest:
        raise StoreError(
            f"{path} was written by a newer ecoshell.", fix="Upgrade ecoshell to use it."
        )
    if not version and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        fix = "Move it away so that a new file can be created."
        raise StoreError(f"{path} belongs to another program.", fix=fix)
    return version


def _require_latest(connection: sqlite3.Connection, path: Path, latest: int) -> None:
    """Raise StoreError for a read-only file of an older version."""
    if _version(connection, path, latest) < latest:
        raise StoreError(
            f"{path} was written by an older ecoshell and cannot be upgraded, because it is read-only.",
            fix="Make the file and its folder writable.",
        )


def _failure(path: Path, code: int, outcome: str = "Nothing was changed.") -> StoreError:
    problem, fix = _MESSAGES[code]
    return StoreError(f"{path} {problem}", kept=outcome, fix=fix)


def _code(error: sqlite3.Error) -> int:
    """Return the primary SQLite result code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def storable(text: str) -> str:
    """Escape lone surrogates, which file names may contain and SQLite cannot store."""
    return text.encode("utf-8", "backslashreplace").decode()

"""One SQLite file that several processes write to: opening, transactions, and errors a person can act on."""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ecoshell.errors import StoreError

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


class Database:
    """A connection in WAL mode that the threads of this process share, one transaction at a time.

    WAL with `synchronous=NORMAL` keeps every committed transaction when a process is killed.
    """

    def __init__(self, path: Path, *, schema: str, version: int, busy_seconds: float = 10.0) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection = self._open(schema, version, busy_seconds)

    @contextmanager
    def writing(self, kept: str) -> Generator[sqlite3.Connection]:
        """A transaction that holds the write lock from its start; `kept` says how things stand when it fails."""
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

    def close(self) -> None:
        """Close the connection; the file stays complete without it."""
        with self._lock:
            self._connection.close()

    def _open(self, schema: str, version: int, busy_seconds: float) -> sqlite3.Connection:
        with self._errors("Nothing was changed."):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unwritable(self.path, "Nothing was changed.") from error
            connection = sqlite3.connect(self.path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
            connection.row_factory = sqlite3.Row
            try:
                _prepare(connection, self.path, schema, version)
            except BaseException:
                connection.close()
                raise
            return connection

    @contextmanager
    def _errors(self, kept: str) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explained(error, self.path, kept) from error


def _prepare(connection: sqlite3.Connection, path: Path, schema: str, version: int) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > version:
        raise StoreError(f"{path} was written by a newer ecoshell.", fix="Upgrade ecoshell to use it.")
    if found < version:
        for statement in schema.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")


def _explained(error: sqlite3.Error, path: Path, kept: str) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _BUSY:
        return StoreError(
            f"{path} is locked by another process.", kept=kept, fix="Close the other ecoshell or try again."
        )
    if code in _FULL:
        return StoreError(
            f"{path} cannot grow: the disk is full or failing.", kept=kept, fix="Free some space and try again."
        )
    if code in _UNWRITABLE:
        return _unwritable(path, kept)
    if code in _DAMAGED:
        fix = "Move the file away to start a new one; `sqlite3 FILE .recover` may save its rows."
        return StoreError(f"{path} is damaged and cannot be read.", kept=kept, fix=fix)
    return StoreError(f"{path} failed: {error}.", kept=kept)


def _unwritable(path: Path, kept: str) -> StoreError:
    return StoreError(
        f"{path} cannot be written.",
        kept=kept,
        fix="Make the file and its folder writable, or set ECOSHELL_HOME to a folder that is.",
    )

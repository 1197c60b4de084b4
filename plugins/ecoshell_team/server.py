"""The client of a team ledger in PostgreSQL: the connection, actionable errors, and the functions of `schema.sql`.

Every operation is one round trip and one transaction. psycopg is imported with the first request.
"""

import os
import socket
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from ecoshell import secrecy
from ecoshell.budget.address import require_ledger_address
from ecoshell.budget.costs import CostRow
from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import Usage

if TYPE_CHECKING:
    import psycopg

VERSION = 1
OLDEST_SERVER = 14
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 10.0
"""Time limits of a connection attempt and of a request."""
_FIX_MEMBER = "Ask an administrator to add you: ecoshell budget add NAME."
_FIX_OWNER = (
    "This requires the owner of the database with the right CREATEROLE. If the server has another ledger, its owner "
    "must first run: GRANT ecoshell_admin, ecoshell_member TO you WITH ADMIN OPTION."
)
_SERVICE = "ecoshell"
"""Service name of passwords in the system keyring, shared with provider keys."""
_COUNTS = ("input", "output", "cached", "cache_write", "reasoning")
_NO_LEDGER = {"3F000", "42883", "42P01"}
"""SQL states of a missing schema, function or table."""


@dataclass(frozen=True, slots=True)
class Share:
    """A shared cap and its use in nano-dollars; `held` counts single reservations.

    `own` is this user's part of `spent` for caps of a team or of everybody, if the query returns it.
    """

    scope: str
    period: str
    limit: int
    spent: int
    held: int
    leased: int
    own: int | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """The server's state of a lease: total grant, reported spending, and whether the lease has ended (`over`).

    `single` means that there was room for one call only, so that the remainder is returned at once.
    """

    granted: int
    spent: int
    single: bool
    over: bool
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class OpenLease:
    """An open lease and the amount that it still counts for."""

    id: str
    person: str
    at: str
    nano: int


class TeamServer:
    """A user's connection to the team ledger, opened on first use; thread-safe."""

    def __init__(self, address: str) -> None:
        """`address` is `postgresql://PERSON@HOST/DATABASE`; the password is in PGPASSWORD, ~/.pgpass or the keyring."""
        self.address = require_ledger_address(address)
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    def lease(
        self,
        lease: str,
        number: int,
        of: tuple[str, str],
        amounts: tuple[int, int, int],
        calls: Sequence[Any],
    ) -> Granted:
        """Request or extend a lease; `amounts` are minimum, needed and preferred totals, `of` project and model."""
        return self._granted(
            "lease(%s, %s, %s, %s, %s, %s, %s, %s)", (lease, number, *of, *amounts, _json(calls))
        )

    def settle(
        self,
        lease: str,
        number: int | None,
        calls: Sequence[Any],
        keep: int | None = None,
        *,
        close: bool = False,
    ) -> Granted:
        """Report calls of a lease, and return the grant beyond `keep`."""
        return self._granted(
            "settle(%s, %s, %s, %s, %s)", (lease, number, _json(calls), keep, close)
        )

    def shares(self, project: str, model: str = "") -> tuple[Share, ...]:
        """Return the caps that currently apply to a call of this user."""
        return _shares(self._value("shares(%s, %s)", (project, model)))

    def import_calls(self, project: str, calls: Sequence[Any]) -> int:
        """Import calls that were made without this ledger; returns the number of new ones."""
        return self._value("import(%s, %s)", (project, _json(calls)))

    def costs(self, by: str) -> tuple[CostRow, ...]:
        """Return spent and reserved amounts by person, team or project, as far as this user may see them."""
        rows = self._rows(
            f"""SELECT {by} AS key, sum(spent) AS spent, sum(held) AS held, sum(calls) AS calls,
                sum(unpriced) AS unpriced,
                {", ".join(f"sum({name}) AS {name}" for name in _COUNTS)}
            FROM (SELECT {by}, spent_nano AS spent, 0 AS held, calls, (spent_nano IS NULL)::int AS unpriced,
                    {", ".join(_COUNTS)} FROM ecoshell.costs
                UNION ALL SELECT {by}, 0, nano, 0, 0{", 0" * len(_COUNTS)} FROM ecoshell.open_leases) AS counted
            GROUP BY {by} ORDER BY {by}""",
            (),
        )
        return tuple(
            CostRow(
                key=row["key"],
                spent_nano=None if row["spent"] is None else int(row["spent"]),
                held_nano=int(row["held"]),
                usage=Usage(*(int(row[name]) for name in _COUNTS)),
                calls=int(row["calls"]),
                unpriced=int(row["unpriced"]),
            )
            for row in rows
        )

    def caps(self) -> tuple[Share, ...]:
        """Return all caps that this user may see."""
        query = """SELECT scope, period, limit_nano AS nano, spent_nano AS spent, held_nano AS held,
            leased_nano AS leased FROM ecoshell.shared_caps ORDER BY scope, period"""
        return _shares(self._rows(query, ()))

    def open_leases(self) -> tuple[OpenLease, ...]:
        """Return the visible leases with an amount above zero, oldest first."""
        query = "SELECT id, person, at, nano FROM ecoshell.open_leases WHERE nano > 0 ORDER BY at"
        return tuple(
            OpenLease(row["id"], row["person"], f"{row['at']:%Y-%m-%d %H:%M}", row["nano"])
            for row in self._rows(query, ())
        )

    def set_cap(self, scope: str, period: str, nano: int | None) -> int:
        """Set or remove (None) a cap and return its use; a limit below the use changes nothing."""
        return self._value("set_cap(%s, %s, %s)", (scope, period, nano))

    def add_member(self, person: str, team: str) -> None:
        """Give an existing database role access to the ledger, optionally in a team."""
        try:
            self._value("add_member(%s, %s)", (person, team))
        except _NoRole as error:
            fix = f"Create it first: CREATE ROLE \"{person}\" LOGIN PASSWORD '…'"
            raise UsageError(f"The database has no role {person!r}.", fix=fix) from error

    def close_lease(self, lease: str, took: int) -> int | None:
        """End the lease of a lost shell that spent `took`; returns what it held, None if it is not open."""
        return self._value("close_lease(%s, %s)", (lease, took))

    def create(self) -> bool:
        """Create the tables if they do not exist, and return whether they were created; requires the database owner."""
        with self._lock, self._errors(_FIX_OWNER):
            connection = self._connect(create=True)
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(hashtext('ecoshell'))")
                if _version(cursor) is not None:
                    return False
                cursor.execute(files("ecoshell_team").joinpath("schema.sql").read_bytes())
                return True

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _granted(self, call: str, values: tuple[Any, ...]) -> Granted:
        reply: Mapping[str, Any] = self._value(call, values)
        return Granted(
            reply["granted"], reply["spent"], reply["single"], reply["over"], _shares(reply["caps"])
        )

    def _value(self, call: str, values: tuple[Any, ...]) -> Any:
        return self._rows(f"SELECT ecoshell.{call} AS value", values)[0]["value"]

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        """Run a query; reconnects once after a lost connection, because every request is idempotent."""
        with self._lock, self._errors():
            import psycopg

            old = self._connection
            try:
                return self._query(query, values)
            except psycopg.OperationalError:
                if old is None:
                    raise
                return self._query(query, values)

    def _query(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        connection = self._connect()
        cut = threading.Timer(_ANSWER_SECONDS, _cut, (connection.fileno(),))
        cut.daemon = True
        cut.start()
        try:
            return connection.execute(cast("Any", query), values).fetchall()
        finally:
            cut.cancel()
            if connection.broken:
                connection.close()
                self._connection = None

    def _connect(self, *, create: bool = False) -> "psycopg.Connection[dict[str, Any]]":
        import psycopg
        from psycopg.rows import dict_row

        if self._connection is not None and not self._connection.closed:
            return self._connection
        opened = partial(
            psycopg.Connection[dict[str, Any]].connect,
            self.address,
            connect_timeout=_CONNECT_SECONDS,
            application_name="ecoshell",
            autocommit=True,
            row_factory=dict_row,
        )
        try:  # PGPASSWORD was removed from the process environment; without one libpq reads ~/.pgpass.
            connection = opened(password=secrecy.environ.get("PGPASSWORD"))
        except psycopg.OperationalError as failure:
            needed = failure.pgconn is not None and failure.pgconn.needs_password
            if not needed or (password := _in_keyring(self.address)) is None:
                raise
            connection = opened(password=password)
        try:
            if connection.info.server_version < OLDEST_SERVER * 10_000:
                raise StoreError(
                    f"The team ledger runs on PostgreSQL {connection.info.server_version // 10_000}.",
                    fix=f"Upgrade the server to version {OLDEST_SERVER} or newer.",
                )
            with connection.cursor() as cursor:
                if not create and _version(cursor) is None:
                    raise self._no_ledger()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _no_ledger(self) -> StoreError:
        database = urlsplit(self.address).path.strip("/") or "of this name"
        return StoreError(
            f"The database {database} has no team ledger.",
            fix="Its owner can create one with `ecoshell budget init`. Otherwise correct [budget] ledger.",
        )

    @contextmanager
    def _errors(self, fix: str = _FIX_MEMBER) -> Generator[None]:
        """Translate psycopg errors, without passwords; `fix` applies to missing privileges."""
        try:
            import psycopg
        except ImportError as error:
            raise StoreError(
                "A team ledger needs psycopg, which is not installed.",
                fix="Install it: pip install 'ecoshell[team]'.",
            ) from error
        try:
            yield
        except (psycopg.Error, OSError) as error:
            state = getattr(error, "sqlstate", None) or ""
            detail = secrecy.mask_secrets(
                str(error).strip().rpartition("FATAL:")[2].strip().partition("\n")[0]
            )
            where = f"The team ledger at {urlsplit(self.address).hostname or 'the local socket'}"
            if state in _NO_LEDGER:
                raise self._no_ledger() from error
            if state == "42501":
                raise StoreError(f"{where} refused the request: {detail}.", fix=fix) from error
            if state == "42704":
                raise _NoRole(f"{where} refused the request: {detail}.") from error
            kind, problem, fix = StoreError, "failed", ""
            if "password" in detail or state.startswith("28"):
                problem = "rejected the login"
                fix = "Set the password in PGPASSWORD, in ~/.pgpass (HOST:PORT:DATABASE:PERSON:PASSWORD), or with "
                fix += f"`keyring set {_SERVICE} {self.address}`."
            elif "does not exist" in detail and not state:
                problem, fix = "cannot be opened", "Correct [budget] ledger."
            elif isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
                kind, problem = ServerAway, "cannot be reached"
                fix = "Try again when the server is reachable, correct [budget] ledger, or use a free local model."
            raise kind(f"{where} {problem}: {detail}.", fix=fix) from error


class ServerAway(StoreError):
    """The server of the team ledger cannot be reached."""


class _NoRole(StoreError):
    """The database has no role of this name."""


def _in_keyring(address: str) -> str | None:
    """Return the keyring password of this address; may block while the keyring is unlocked."""
    try:
        import keyring  # The import searches for backends, which is slow.

        password = keyring.get_password(_SERVICE, address)
    except Exception:  # noqa: BLE001 - a broken third-party backend counts as no keyring
        return None
    if password:
        secrecy.add_secret(password)
    return password or None


def _version(cursor: Any) -> int | None:
    """Return the schema version, None without a schema; raises StoreError for a newer one."""
    row = cursor.execute("SELECT to_regnamespace('ecoshell') IS NOT NULL AS present").fetchone()
    if not row["present"]:
        return None
    version = int(
        cursor.execute("SELECT ecoshell.schema_version() AS version").fetchone()["version"]
    )
    if version > VERSION:
        raise StoreError(
            "The team ledger was created by a newer ecoshell.", fix="Upgrade ecoshell to use it."
        )
    return version


def _shares(rows: Iterable[Mapping[str, Any]]) -> tuple[Share, ...]:
    names = ("scope", "period", "nano", "spent", "held", "leased")
    return tuple(Share(*(row[name] for name in names), own=row.get("own")) for row in rows)


def _json(calls: Sequence[Any]) -> Any:
    from psycopg.types.json import Jsonb

    return Jsonb(list(calls))


def _cut(descriptor: int) -> None:
    """Shut down a connection without a reply, so that the waiting thread fails at once."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as other:
        other.shutdown(socket.SHUT_RDWR)

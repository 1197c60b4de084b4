"""A team's ledger in PostgreSQL: a connection, its errors as a person can act on them, and what `postgres.sql` offers.

Every operation is one round trip and one transaction on the server. psycopg is loaded when the server is first asked.
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
from ecoshell.budget.ledger import CostRow
from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import Usage

if TYPE_CHECKING:
    import psycopg

VERSION = 1
OLDEST_SERVER = 14
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 10.0
"""What a connection and an answer may take before the server counts as out of reach."""
_FIX_MEMBER = "Ask an administrator, who also lets people in: ecoshell budget add NAME."
_FIX_OWNER = (
    "It takes the database's owner, who may make roles (CREATEROLE). Where the server has another ledger elsewhere, "
    "its owner lets you first: GRANT ecoshell_admin, ecoshell_member TO you WITH ADMIN OPTION."
)
_SERVICE = "ecoshell"
"""The name under which passwords stand in the system's keyring, as the keys of providers do."""
_COUNTS = ("input", "output", "cached", "cache_write", "reasoning")
_NO_LEDGER = {"3F000", "42883", "42P01"}
"""There is no such schema, function or table."""


@dataclass(frozen=True, slots=True)
class Share:
    """A cap of the team's, and what is used of it, in nano-dollars; `held` are single reservations.

    `own` is what of `spent` is this person's, where the cap is everybody's or a team's and the server was asked for it.
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
    """What the server says of a lease: what it was `granted` in all, what it knows to be `spent`, whether it is `over`.

    `single`: there was no room for more than the call itself, so that what is left over is given back at once.
    """

    granted: int
    spent: int
    single: bool
    over: bool
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class OpenLease:
    """A lease that has not ended, and what it still counts for."""

    id: str
    person: str
    at: str
    nano: int


class TeamServer:
    """One person's connection to the team's ledger, made when it is first needed; may be used from any thread."""

    def __init__(self, address: str) -> None:
        """`address` is a URL, `postgresql://PERSON@HOST/DATABASE`; the password is in PGPASSWORD, ~/.pgpass or the
        keyring."""
        self.address = require_address(address)
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    def lease(
        self, lease: str, number: int, of: tuple[str, str], amounts: tuple[int, int, int], calls: Sequence[Any]
    ) -> Granted:
        """Take a lease or more of one: at least, wholly, and at best so much in all; `of` is project and model."""
        return self._granted("lease(%s, %s, %s, %s, %s, %s, %s, %s)", (lease, number, *of, *amounts, _json(calls)))

    def settle(
        self, lease: str, number: int | None, calls: Sequence[Any], keep: int | None = None, *, close: bool = False
    ) -> Granted:
        """Tell what calls of a lease took, and give back what it was granted beyond `keep`."""
        return self._granted("settle(%s, %s, %s, %s, %s)", (lease, number, _json(calls), keep, close))

    def shares(self, project: str, model: str = "") -> tuple[Share, ...]:
        """The caps that a call of this person's would be under now."""
        return _shares(self._value("shares(%s, %s)", (project, model)))

    def take_over(self, project: str, calls: Sequence[Any]) -> int:
        """Take calls over that were made without this ledger; gives how many it did not have yet."""
        return self._value("import(%s, %s)", (project, _json(calls)))

    def costs(self, by: str) -> tuple[CostRow, ...]:
        """What was spent and is reserved, by person, team or project, as far as this person may see it."""
        found = self._rows(
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
            for row in found
        )

    def caps(self) -> tuple[Share, ...]:
        """All caps that this person may see."""
        query = """SELECT scope, period, limit_nano AS nano, spent_nano AS spent, held_nano AS held,
            leased_nano AS leased FROM ecoshell.shared_caps ORDER BY scope, period"""
        return _shares(self._rows(query, ()))

    def open_leases(self) -> tuple[OpenLease, ...]:
        """The leases that count for something, the oldest first, as far as this person may see them."""
        query = "SELECT id, person, at, nano FROM ecoshell.open_leases WHERE nano > 0 ORDER BY at"
        return tuple(
            OpenLease(row["id"], row["person"], f"{row['at']:%Y-%m-%d %H:%M}", row["nano"])
            for row in self._rows(query, ())
        )

    def set_cap(self, scope: str, period: str, nano: int | None) -> int:
        """Set a cap, or remove it with None; gives what is used, and changes nothing where that is more."""
        return self._value("set_cap(%s, %s, %s)", (scope, period, nano))

    def add_member(self, person: str, team: str) -> None:
        """Let somebody use the ledger, in a team or in none; the role of this name has to be there."""
        try:
            self._value("add_member(%s, %s)", (person, team))
        except _NoRole as error:
            fix = f"Make it first: CREATE ROLE \"{person}\" LOGIN PASSWORD '…'"
            raise UsageError(f"The database has no role {person!r}.", fix=fix) from error

    def close_lease(self, lease: str, took: int) -> int | None:
        """End a lease whose shell will not come back, `took` being spent; gives what it held, None without one."""
        return self._value("close_lease(%s, %s)", (lease, took))

    def create(self) -> bool:
        """Make the tables where there are none; gives whether there were none. The role has to own the database."""
        with self._lock, self._errors(_FIX_OWNER):
            connection = self._connect(create=True)
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(hashtext('ecoshell'))")
                if _version(cursor) is not None:
                    return False
                cursor.execute(files("ecoshell.budget").joinpath("postgres.sql").read_bytes())
                return True

    def close(self) -> None:
        """Let the connection go."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _granted(self, call: str, values: tuple[Any, ...]) -> Granted:
        told: Mapping[str, Any] = self._value(call, values)
        return Granted(told["granted"], told["spent"], told["single"], told["over"], _shares(told["caps"]))

    def _value(self, call: str, values: tuple[Any, ...]) -> Any:
        return self._rows(f"SELECT ecoshell.{call} AS value", values)[0]["value"]

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        """Ask the server; a connection that had broken unnoticed is made anew, as every request can be repeated."""
        with self._lock, self._errors():
            import psycopg

            old = self._connection
            try:
                return self._ask(query, values)
            except psycopg.OperationalError:
                if old is None:
                    raise
                return self._ask(query, values)

    def _ask(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
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
        try:  # the environment that libpq looks into has it no more; where there is none, libpq reads ~/.pgpass
            connection = opened(password=secrecy.environ.get("PGPASSWORD"))
        except psycopg.OperationalError as failure:
            needed = failure.pgconn is not None and failure.pgconn.needs_password
            if not needed or (password := _in_keyring(self.address)) is None:
                raise
            connection = opened(password=password)
        try:
            if connection.info.server_version < OLDEST_SERVER * 10_000:
                raise StoreError(
                    f"The server of the team's ledger is PostgreSQL {connection.info.server_version // 10_000}.",
                    fix=f"It has to be {OLDEST_SERVER} or newer.",
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
            f"The database {database} has no ledger of a team.",
            fix="Its owner makes one: ecoshell budget init. Or correct [budget] ledger.",
        )

    @contextmanager
    def _errors(self, fix: str = _FIX_MEMBER) -> Generator[None]:
        """Say what psycopg says as an error with a way out, `fix` where a right is lacking; no password is in it."""
        try:
            import psycopg
        except ImportError as error:
            raise StoreError(
                "A team's ledger needs psycopg, which is not installed.",
                fix="Install it: pip install 'ecoshell[team]'.",
            ) from error
        try:
            yield
        except (psycopg.Error, OSError) as error:
            state = getattr(error, "sqlstate", None) or ""
            said = secrecy.mask_secrets(str(error).strip().rpartition("FATAL:")[2].strip().partition("\n")[0])
            where = f"The team's ledger at {urlsplit(self.address).hostname or 'the local socket'}"
            if state in _NO_LEDGER:
                raise self._no_ledger() from error
            if state == "42501":
                raise StoreError(f"{where} refuses: {said}.", fix=fix) from error
            if state == "42704":
                raise _NoRole(f"{where} refuses: {said}.") from error
            kind, what, fix = StoreError, "failed", ""
            if "password" in said or state.startswith("28"):
                what = "does not let you in"
                fix = "Give the right one in PGPASSWORD, in ~/.pgpass (HOST:PORT:DATABASE:PERSON:PASSWORD), or with "
                fix += f"`keyring set {_SERVICE} {self.address}`."
            elif "does not exist" in said and not state:
                what, fix = "cannot be opened", "Correct [budget] ledger."
            elif isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
                kind, what = ServerAway, "cannot be reached"
                fix = "Try again when the server is there, or correct [budget] ledger; a local model costs nothing."
            raise kind(f"{where} {what}: {said}.", fix=fix) from error


class ServerAway(StoreError):
    """The server of the team's ledger cannot be reached."""


class _NoRole(StoreError):
    """The database knows nobody of a name."""


def require_address(text: str) -> str:
    """The address of a team's ledger, if it can be one; raises UsageError."""
    example = "Give one such as postgresql://ann@db.example.org/ledger."
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise UsageError("The address of the team's ledger cannot be read.", fix=example) from None
    if parts.password or "password=" in parts.query:
        fix = "Put the password into PGPASSWORD, ~/.pgpass or the system's keyring."
        raise UsageError("The address of the team's ledger must not carry a password.", fix=fix)
    names_it = "://" in text and (parts.netloc or parts.query or parts.path.strip("/"))
    if parts.scheme not in ("postgresql", "postgres") or not names_it:
        raise UsageError("The address of the team's ledger must be one of PostgreSQL.", fix=example)
    return text


def _in_keyring(address: str) -> str | None:
    """The password that the system's keyring has for this very address; may block while the keyring is unlocked."""
    try:
        import keyring  # looks for backends, which is slow

        password = keyring.get_password(_SERVICE, address)
    except Exception:  # noqa: BLE001 - backends are third-party code found by entry points; a broken one is no keyring
        return None
    if password:
        secrecy.add_secret(password)
    return password or None


def _version(cursor: Any) -> int | None:
    """The version of the tables, None without any; raises StoreError for one that this program does not know."""
    found = cursor.execute("SELECT to_regnamespace('ecoshell') IS NOT NULL AS there").fetchone()
    if not found["there"]:
        return None
    version = int(cursor.execute("SELECT ecoshell.schema_version() AS version").fetchone()["version"])
    if version > VERSION:
        raise StoreError("The team's ledger was made by a newer ecoshell.", fix="Upgrade ecoshell to use it.")
    return version


def _shares(found: Iterable[Mapping[str, Any]]) -> tuple[Share, ...]:
    names = ("scope", "period", "nano", "spent", "held", "leased")
    return tuple(Share(*(row[name] for name in names), own=row.get("own")) for row in found)


def _json(calls: Sequence[Any]) -> Any:
    from psycopg.types.json import Jsonb

    return Jsonb(list(calls))


def _cut(descriptor: int) -> None:
    """End a connection over which no answer comes; whoever waits for one is told at once."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as other:
        other.shutdown(socket.SHUT_RDWR)

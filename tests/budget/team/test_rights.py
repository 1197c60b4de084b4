"""Attacks of a malicious team member on the team ledger with SQL."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from postgres import Postgres, running

from ecoshell.budget import NANO, Ask
from ecoshell.errors import StoreError
from ecoshell.messages import Usage
from ecoshell_team.ledger import TeamLedger
from ecoshell_team.server import TeamServer

Team = Callable[..., str]
Sql = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def admin(team_ledger: Team) -> Iterator[TeamServer]:
    server = TeamServer(team_ledger("postgres"))
    server.set_cap("team:search", "month", 10 * NANO)
    yield server
    server.close()


@pytest.fixture
def lease(
    team_ledger: Team, admin: TeamServer, tmp_path: Path, ask: Callable[..., Ask]
) -> Iterator[str]:
    """A lease of Bob with one running and one finished call."""
    ledger = TeamLedger(tmp_path / "bob" / "ledger.sqlite", TeamServer(team_ledger("bob")))
    ledger.settle(ledger.hold(ask(100, 50)), Usage(80, 10))
    ledger.hold(ask(100, 50))
    yield admin.open_leases()[0].id
    ledger.close()


@pytest.fixture
def ann(postgres: Postgres, admin: TeamServer) -> Sql:
    """Runs SQL as a team member."""
    database = admin.address.rpartition("/")[2]
    return lambda text, *values: postgres.sql(database, text, *values, person="ann")


TABLES = ("members", "caps", "totals", "leases", "entries")


@pytest.mark.parametrize(
    "statement",
    [
        *(f"DELETE FROM ecoshell.{table}" for table in TABLES),
        *(f"TRUNCATE ecoshell.{table} CASCADE" for table in TABLES),
        *(f"SELECT * FROM ecoshell.{table}" for table in TABLES[:3]),
        "UPDATE ecoshell.caps SET nano = 1000000000000",
        "UPDATE ecoshell.totals SET spent = 0",
        "UPDATE ecoshell.leases SET granted = 1000000000000",
        "INSERT INTO ecoshell.caps VALUES ('person:ann', 'day', 1)",
        "INSERT INTO ecoshell.members VALUES ('ann', 'rich')",
        "UPDATE ecoshell.costs SET spent_nano = 0",
        "SELECT ecoshell.set_cap('team:search', 'month', 1000000000000)",
        "SELECT ecoshell.add_member('ann', 'rich')",
        "SELECT ecoshell.add_member('postgres', 'search')",
        "SELECT ecoshell.close_lease(id, 0) FROM ecoshell.leases",
        "SELECT ecoshell.changed(l, l) FROM ecoshell.leases l",
        "SELECT ecoshell.lock_totals('bob', 'search', '', '', now()::date)",
        "GRANT ecoshell_admin TO ann",
        "SET ROLE ecoshell_admin",
        "SET SESSION AUTHORIZATION bob",
        "ALTER TABLE ecoshell.entries DISABLE ROW LEVEL SECURITY",
        "CREATE FUNCTION ecoshell.today() RETURNS date LANGUAGE sql AS 'SELECT now()::date'",
        "CREATE FUNCTION ecoshell.open_of(text) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
        "DROP SCHEMA ecoshell CASCADE",
    ],
)
def test_a_member_cannot(statement: str, ann: Sql, lease: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ann(statement)


def test_a_member_sees_no_rows_of_other_members(ann: Sql, lease: str, admin: TeamServer) -> None:
    for view in ("entries", "leases", "costs", "open_leases"):
        assert ann(f"SELECT * FROM ecoshell.{view}") == []
        leak = f"""CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
            $$BEGIN RAISE EXCEPTION 'seen: %', $1; END$$;
            SELECT * FROM ecoshell.{view} v WHERE pg_temp.leak(v.person)"""
        ann(leak)  # called with no row
    assert len(admin.open_leases()) == 1


@pytest.mark.parametrize(
    "call",
    [
        "settle(%s, 99, '[]', 0, true)",
        "settle(%s, NULL, '[]', 0, true)",
        "lease(%s, 99, '', '', 5, 5, 5, '[]')",
    ],
)
def test_a_member_cannot_change_the_lease_of_another(
    call: str, ann: Sql, lease: str, admin: TeamServer
) -> None:
    state = admin.caps(), admin.open_leases()
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="somebody else's"):
        ann(f"SELECT ecoshell.{call}", lease)
    assert (admin.caps(), admin.open_leases()) == state


CALL = (
    '{"entry": %s, "role": "", "reconciled": false, "spent": %s, "calls": 1, "input": 0, "cached": 0, '
    '"cache_write": 0, "output": 0, "reasoning": 0, "model": "m", "day": "2025-01-01"}'
)


@pytest.mark.parametrize("spent", ["-1000000000", "1e30", "9223372036854775807"])
def test_negative_and_excessive_amounts_are_rejected(
    spent: str, ann: Sql, lease: str, admin: TeamServer
) -> None:
    caps = admin.caps()
    mine = "a lease of the member"
    ann("SELECT ecoshell.lease(%s, 1, 'p', 'm', 1, 1, 1, '[]')", mine)
    call = "[" + CALL % (1, spent) + "]"
    with pytest.raises(psycopg.Error):
        ann(
            "SELECT ecoshell.settle(%s, 2, %s, 0, true)",
            mine,
            call.replace("}]", "}," + CALL % (2, "9") + "]"),
        )
    with pytest.raises(psycopg.Error):
        ann(
            "SELECT ecoshell.import('p', %s)",
            "[" + CALL % ('"x"', spent) + "," + CALL % ('"y"', "9") + "]",
        )
    ann("SELECT ecoshell.settle(%s, 3, '[]', 0, true)", mine)
    assert admin.caps() == caps


def test_no_lease_exceeds_the_cap_with_any_arguments(ann: Sql, admin: TeamServer) -> None:
    for number, (minimum, call, ahead) in enumerate(
        [(1, 1, 10**18), (1, 10**18, 1), (-(10**18), 10**18, 10**18)]
    ):
        with suppress(psycopg.errors.CheckViolation):
            lease = f"a lease of the member {number}"
            ann(
                "SELECT ecoshell.lease(%s, 1, 'p', 'm', %s, %s, %s, '[]')",
                lease,
                minimum,
                call,
                ahead,
            )
        (cap,) = admin.caps()
        assert 0 <= cap.spent + cap.held + cap.leased <= cap.limit
    with pytest.raises(psycopg.Error):
        ann("SELECT ecoshell.lease('too short', 1, 'p', 'm', 1, 1, 1, '[]')")


def test_the_day_is_that_of_the_server_in_any_time_zone(
    ann: Sql, admin: TeamServer, postgres: Postgres
) -> None:
    (today,) = postgres.sql("postgres", "SELECT (now() AT TIME ZONE 'UTC')::date")[0]
    for zone in ("-12", "14"):
        ann(
            f"SET timezone = '{zone}'; SELECT ecoshell.lease('a lease at {zone} hours', 1, 'p', 'm', 1, 1, 1, '[]')"
        )
    days = {day for (day,) in ann("SELECT day FROM ecoshell.leases")}
    assert today in days
    assert len(days) == 1


def test_temporary_tables_and_functions_do_not_shadow_the_ledgers(
    ann: Sql, admin: TeamServer
) -> None:
    ann(
        """CREATE TEMPORARY TABLE caps (scope text, period text, nano bigint);
        CREATE TEMPORARY TABLE totals (scope text, at text, spent bigint, held bigint, leased bigint);
        CREATE FUNCTION pg_temp.today() RETURNS date LANGUAGE sql AS $$SELECT date '2000-01-01'$$;
        CREATE FUNCTION pg_temp.least(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
        SET search_path = pg_temp, ecoshell;
        SELECT ecoshell.lease('another lease of the member', 1, 'p', 'm', 1000, 1000, 1000, '[]')"""
    )
    (cap,) = admin.caps()
    assert cap.held + cap.leased == 1000


def test_a_database_owner_who_can_create_roles_needs_no_superuser_for_a_first_ledger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ask: Callable[..., Ask]
) -> None:
    monkeypatch.setenv("PGPASSWORD", Postgres.PASSWORD)
    with running() as postgres:
        postgres.add_person("ann")
        for owner in ("carol", "dave"):
            postgres.add_person(owner)
            postgres.sql("postgres", f"ALTER ROLE {owner} CREATEROLE")
            postgres.sql("postgres", f"CREATE DATABASE {owner} OWNER {owner}")
            server = TeamServer(postgres.address(owner, owner))
            try:
                assert server.create()
            except StoreError as refused:  # PostgreSQL 16 or newer
                assert owner == "dave"
                grant = "GRANT" + refused.fix.rpartition("GRANT")[2].replace(
                    "TO you", f"TO {owner}"
                ).rstrip(".")
                postgres.sql(owner, grant, person="carol")
                assert server.create()
            server.add_member("ann", "search")
            server.set_cap("team:search", "day", NANO)
            ann = TeamLedger(
                tmp_path / owner / "ledger.sqlite", TeamServer(postgres.address(owner, "ann"))
            )
            ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
            ann.close()
            assert [(share.spent, share.leased) for share in server.caps()] == [(90_000_000, 0)]
            server.close()

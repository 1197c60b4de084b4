"""`ecoshell budget`, and the costs of a team in `ecoshell cost`."""

import io
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from postgres import Postgres

from ecoshell import secrecy
from ecoshell.assembly import load_settings, open_ledger
from ecoshell.budget import Account, Ask, Price, Rates
from ecoshell.budget.ledger import Ledger
from ecoshell.cli import main
from ecoshell.messages import Usage
from ecoshell.paths import user_paths
from ecoshell_team.ledger import TeamLedger

Team = Callable[..., str]
PRICE = Price(Rates(*[Decimal(1000)] * 5))
ASK = Ask(PRICE, 100, 50, Account("s", 1, "single", "m", "step"))


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs a command in this process and returns what it printed."""
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))

    def run(*argv: str, ledger: str, status: int = 0) -> str:
        monkeypatch.setenv("ECOSHELL_LEDGER", ledger)
        exit_status = main(list(argv))
        output = capsys.readouterr()
        assert exit_status == status, output.err
        return output.err if status else output.out

    return run


def spend() -> None:
    """Make a call in this home."""
    with closing(open_ledger(user_paths(), load_settings(user_paths()))) as ledger:
        ledger.settle(ledger.hold(ASK), Usage(80, 10))


def test_caps_of_an_unreachable_team_ledger_are_unknown(
    team_ledger: Team,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ECOSHELL_LEDGER", team_ledger("ann", port=1))
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b"/budget\n/budget day 2\n/quit\n"))
    )
    (tmp_path / "m.jsonl").write_text("")
    assert main(["cost"]) == main(["line", "--model", f"script:{tmp_path / 'm.jsonl'}"]) == 0
    output = capsys.readouterr()
    assert "No cap is set" not in output.out
    assert (output.out + output.err).count(
        "The team's caps are unknown. The team ledger at 127.0.0.1 cannot be"
    ) == 3
    assert "day  $2" in output.out


def test_caps_can_be_set_and_costs_are_listed_by_person_team_and_project(
    shell: Callable[..., str], team_ledger: Team
) -> None:
    owner, ann = team_ledger("postgres"), team_ledger("ann")
    assert json.loads(shell("budget", "init", "--json", ledger=owner)) == {"caps": [], "leases": []}
    assert "already exists" in shell("budget", "init", ledger=owner)
    shell("budget", "set", "team:search", "month", "200", ledger=owner)
    shell("budget", "set", "person:ann", "day", "$0.50", ledger=owner)
    shell("budget", "set", "model:m", "day", "7", ledger=owner)
    shell("budget", "set", "model:m", "day", "off", ledger=owner)
    spend_as(shell, ann)
    assert json.loads(shell("budget", "show", "--json", ledger=ann)) == {
        "caps": [
            {
                "scope": scope,
                "period": period,
                "limit_usd": limit,
                "spent_usd": "0.09",
                "held_usd": "0",
                "leased_usd": "0",
            }
            for scope, period, limit in (
                ("person:ann", "day", "0.5"),
                ("team:search", "month", "200"),
            )
        ],
        "leases": [],
    }
    for by, key in (("person", "ann"), ("team", "search"), ("project", Path.cwd().name)):
        (row,) = json.loads(shell("cost", "--by", by, "--json", ledger=ann))["rows"]
        assert (row["key"], row["spent_usd"], row["calls"]) == (key, "0.09", 1)
    costs = json.loads(shell("cost", "--json", ledger=ann))
    assert [(cap["scope"], cap["spent_usd"]) for cap in costs["caps"]] == [
        ("person:ann day", "0.09"),
        ("team:search month", "0.09"),
    ]
    assert costs["rows"][0]["spent_usd"] == "0.09"


def test_open_leases_are_listed_as_json_and_can_be_closed(
    shell: Callable[..., str], team_ledger: Team
) -> None:
    owner, ann = team_ledger("postgres"), team_ledger("ann")
    shell("budget", "set", "everybody", "day", "200", ledger=owner)
    shell("cost", "--json", ledger=ann)
    with closing(open_ledger(user_paths(), load_settings(user_paths()))) as ledger:
        ledger.hold(ASK)
        budget = json.loads(shell("budget", "show", "--json", ledger=owner))
    (lease,), (cap,) = budget["leases"], budget["caps"]
    assert (lease["person"], lease["amount_usd"]) == ("ann", cap["leased_usd"])
    assert "are no longer leased" in shell("budget", "close", f"{lease['id']}=0", ledger=owner)


def spend_as(shell: Callable[..., str], address: str) -> None:
    shell("cost", "--json", ledger=address)  # sets the variable for `spend`
    spend()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("set", "group:x", "month", "2"), "Unknown scope 'group:x'"),
        (("set", "team:x", "month", "2000tok"), "in dollars"),
        (("set", "team:x", "month", "2min"), "A cap in time limits one user only"),
        (("set", "team:x", "year", "2"), "year"),
        (("set", "person:ann", "day", "0.05"), "Use at least 0.09, which allows no further calls."),
        (("add", "no such role"), "CREATE ROLE"),
        (("close", "no such lease=1"), "No open lease"),
        (("close", "no such lease=0.00"), "No open lease"),
        (("close", "no such lease=20000tok"), "in dollars"),
    ],
)
def test_an_invalid_command_is_refused_with_a_fix(
    argv: tuple[str, ...], message: str, shell: Callable[..., str], team_ledger: Team
) -> None:
    spend_as(shell, team_ledger("ann"))
    assert message in shell("budget", *argv, ledger=team_ledger("postgres"), status=2)


def test_a_wrong_address_password_or_database_is_reported_without_the_password(
    shell: Callable[..., str], team_ledger: Team, monkeypatch: pytest.MonkeyPatch, postgres: object
) -> None:
    owner = team_ledger("postgres")
    place = owner.rpartition("/")[0]
    assert "Correct [budget] ledger" in shell("budget", "show", ledger=f"{place}/nowhere", status=1)
    assert "ecoshell budget init" in shell("budget", "show", ledger=f"{place}/template1", status=1)
    assert "cannot be reached" in shell(
        "budget", "show", ledger=team_ledger("postgres", 1), status=1
    )
    monkeypatch.setenv("PGHOST", "/nowhere")  # by default, a local server may listen there
    assert "the local socket cannot be reached" in shell(
        "budget", "show", ledger="postgresql:///ledger", status=1
    )
    for wrong in (
        "http://db/ledger",
        "postgresql://",
        "postgresql:ledger",
        "postgresql://ann:secret@db/ledger",
    ):
        message = shell("budget", "show", ledger=wrong, status=2)
        assert "ECOSHELL_LEDGER" in message
        assert "secret" not in message
    assert "refused the request: permission denied" in shell(
        "budget", "set", "team:x", "day", "1", ledger=team_ledger("ann"), status=1
    )
    monkeypatch.setenv("PGPASSWORD", "another word")
    message = shell("budget", "show", ledger=owner, status=1)
    assert "PGPASSWORD" in message
    assert "another word" not in message
    assert "No team ledger in PostgreSQL is configured" in shell(
        "budget", "show", ledger="", status=2
    )
    assert "needs a team ledger" in shell("cost", "--by", "team", ledger="", status=2)
    assert "Nothing was spent yet." in shell(
        "cost", ledger=team_ledger("postgres", 1)
    )  # from the local ledger


class FakeRing(KeyringBackend):
    """A keyring with one password."""

    priority = 1  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]

    def __init__(self, service: str, name: str, password: str) -> None:
        super().__init__()
        self._passwords = {(service, name): password}

    def get_password(self, service: str, username: str) -> str | None:
        return self._passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


def test_a_password_is_read_from_the_keyring_by_address(
    shell: Callable[..., str],
    team_ledger: Team,
    monkeypatch: pytest.MonkeyPatch,
    postgres: Postgres,
) -> None:
    owner, ann = team_ledger("postgres"), team_ledger("ann")
    monkeypatch.delenv("PGPASSWORD")
    for name, empty in (("environ", {}), ("_added_secrets", set()), ("_secrets", ())):
        monkeypatch.setattr(secrecy, name, empty)
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    previous = keyring.get_keyring()
    keyring.set_keyring(FakeRing("ecoshell", owner, postgres.PASSWORD))
    try:
        assert json.loads(shell("budget", "show", "--json", ledger=owner)) == {
            "caps": [],
            "leases": [],
        }
        assert secrecy.mask_secrets(f"it is {postgres.PASSWORD}") == "it is [key hidden]"
        message = shell("budget", "show", ledger=ann, status=1)
        assert "rejected the login" in message
        assert f"keyring set ecoshell {ann}" in message
        keyring.set_keyring(FakeRing("ecoshell", ann, "another word"))
        message = shell("budget", "show", ledger=ann, status=1)
        assert "rejected the login" in message
        assert "another word" not in message
    finally:
        keyring.set_keyring(previous)


def test_a_ledger_of_a_newer_ecoshell_is_refused(
    shell: Callable[..., str], team_ledger: Team, postgres: "object"
) -> None:
    owner = team_ledger("postgres")
    database = owner.rpartition("/")[2]
    postgres.sql(  # pyright: ignore[reportAttributeAccessIssue]
        database,
        "CREATE OR REPLACE FUNCTION ecoshell.schema_version() RETURNS integer LANGUAGE sql AS 'SELECT 99'",
    )
    for action in ("init", "show"):
        assert "newer ecoshell" in shell("budget", action, ledger=owner, status=1)


def test_spending_at_unknown_prices_only_is_unknown(
    shell: Callable[..., str], team_ledger: Team
) -> None:
    shell("cost", ledger="")
    with closing(Ledger(user_paths().ledger_file)) as local:
        local.settle(local.hold(replace(ASK, price=None)), Usage(80, 10))
    ann = team_ledger()
    shell("cost", "--import", ledger=ann)
    (row,) = json.loads(shell("cost", "--by", "person", "--json", ledger=ann))["rows"]
    assert (row["key"], row["spent_usd"], row["unpriced"]) == ("ann", None, 1)
    assert "unknown" in shell("cost", "--by", "project", ledger=ann)


def test_a_local_ledger_is_imported_once_and_leases_of_dead_shells_are_ended(
    shell: Callable[..., str],
    team_ledger: Team,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell("cost", ledger="")
    with closing(Ledger(user_paths().ledger_file)) as local:
        local.settle(local.hold(ASK), Usage(80, 10))
    ann = team_ledger("ann")
    for calls in ("1 call", "0 calls"):
        assert main(["cost", "--import", "--by", "person", "--json"]) == 2  # needs a team ledger
        monkeypatch.setenv("ECOSHELL_LEDGER", ann)
        capsys.readouterr()
        assert main(["cost", "--import", "--by", "person", "--json"]) == 0
        output = capsys.readouterr()
        assert f"{calls} imported" in output.err
        assert json.loads(output.out)["rows"][0]["spent_usd"] == "0.09"
        monkeypatch.setenv("ECOSHELL_LEDGER", "")
    monkeypatch.setenv("ECOSHELL_LEDGER", ann)
    with closing(open_ledger(user_paths(), load_settings(user_paths()))) as ledger:
        assert isinstance(ledger, TeamLedger)
        ledger.hold(ASK)
        monkeypatch.setattr("ecoshell_team.ledger.alive", lambda pid: False)
        shell("cost", "--reconcile", ledger=ann)
    assert [
        row["spent_usd"]
        for row in json.loads(shell("cost", "--by", "person", "--json", ledger=ann))["rows"]
    ] == ["0.24"]

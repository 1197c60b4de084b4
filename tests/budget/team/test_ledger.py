"""A ledger that shares caps through PostgreSQL: arithmetic, leases and an unreachable server."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from ledger_totals import wrong_totals
from postgres import Postgres

import ecoshell
from ecoshell.budget import NANO, Account, Amount, Ask, CapState, Hold, fitting_output
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import BudgetError, LimitReached, PriceUnknown, StoreError
from ecoshell.messages import Usage
from ecoshell_team.ledger import TeamLedger
from ecoshell_team.server import Granted, ServerAway, Share, TeamServer

MakeAsk = Callable[..., Ask]
Team = Callable[..., str]
Shell = Callable[..., TeamLedger]
MILLION = 1_000_000


@pytest.fixture
def admin(team_ledger: Team) -> Iterator[TeamServer]:
    server = TeamServer(team_ledger("postgres"))
    yield server
    server.close()


@pytest.fixture
def shell(team_ledger: Team, tmp_path: Path) -> Iterator[Shell]:
    """Opens team ledgers, each in a separate home."""
    opened: list[TeamLedger] = []

    def make(person: str = "ann", home: str = "", project: str = "p") -> TeamLedger:
        path = tmp_path / (home or f"home{len(opened)}") / "ledger.sqlite"
        opened.append(TeamLedger(path, TeamServer(team_ledger(person)), project=project))
        return opened[-1]

    yield make
    for ledger in opened:
        ledger.close()


def used(server: TeamServer) -> list[tuple[int, int]]:
    """The spent amount and the reserved and leased amount of each cap."""
    return [(share.spent, share.held + share.leased) for share in server.caps()]


def perform(local: Ledger, team: Ledger, operation: Callable[[Ledger], object]) -> object:
    """Perform an operation on both ledgers, compare the outcomes and return the reservations."""

    def outcome(ledger: Ledger) -> object:
        try:
            return operation(ledger)
        except LimitReached as hit:
            return ("limit", hit.need, hit.left, hit.unit)
        except BudgetError as refused:
            return type(refused).__name__

    local_outcome, team_outcome = outcome(local), outcome(team)
    if isinstance(local_outcome, Hold) and isinstance(team_outcome, Hold):
        assert replace(local_outcome, account=team_outcome.account, entry=0) == replace(
            team_outcome, entry=0
        )
        return (local_outcome, team_outcome)
    assert local_outcome == team_outcome
    return None


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Failing examples are not shrunk, because this takes a server many minutes."""
KINDS = [
    "hold",
    "aside",
    "final",
    "settle",
    "unreported",
    "release",
    "tool",
    "overrun",
    "reconcile",
]
steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 300), st.integers(0, 120), st.integers(0, 10)),
    max_size=25,
)


@settings(
    max_examples=25,
    deadline=None,
    phases=PHASES,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps, st.integers(100, 1500))
@example([("aside", 109, 102, 4), ("aside", 255, 98, 9)], 126)  # a reserve that is refused
@example(
    [("final", 226, 4, 6), ("reconcile", 0, 0, 0), ("tool", 86, 5, 7)], 660
)  # the server's totals shrink
@example(  # budget left in the lease of tools serves a call that would be shortened without it
    [
        ("hold", 259, 91, 6),
        ("reconcile", 281, 41, 6),
        ("final", 88, 63, 10),
        ("settle", 3, 85, 1),
        ("hold", 259, 91, 6),
        ("tool", 1, 80, 9),
        ("aside", 100, 49, 10),
        ("hold", 46, 92, 1),
    ],
    388,
)
@example(  # two overruns consume the reserve
    [
        ("final", 14, 13, 9),
        ("aside", 81, 90, 6),
        ("overrun", 14, 13, 4),
        ("overrun", 14, 13, 9),
        ("final", 218, 28, 9),
        ("hold", 35, 117, 9),
    ],
    167,
)
def test_team_caps_and_local_caps_agree_to_the_nano_dollar_after_any_operations(  # noqa: PLR0917 - fixtures
    tmp_path_factory: pytest.TempPathFactory,
    team_ledger: Team,
    admin: TeamServer,
    postgres: Postgres,
    ask: MakeAsk,
    account: Account,
    steps: list[tuple[str, int, int, int]],
    limit: int,
) -> None:
    postgres.sql(
        admin.address.rpartition("/")[2],
        "TRUNCATE ecoshell.totals, ecoshell.entries, ecoshell.leases",
    )
    admin.set_cap("everybody", "day", limit * MILLION)
    folder = tmp_path_factory.mktemp("both")
    local, team = (
        Ledger(folder / "local.sqlite"),
        TeamLedger(folder / "team.sqlite", TeamServer(team_ledger())),
    )
    local.set_cap("s1", "day", Amount(limit * MILLION, "usd"))
    pending: list[tuple[Hold, Hold]] = []
    overran = False

    def start(operation: Callable[[Ledger], object]) -> None:
        if isinstance(holds := perform(local, team, operation), tuple):
            pending.append(holds)

    def end(operation: Callable[[Ledger, Hold], object]) -> None:
        local_hold, team_hold = pending.pop(index % len(pending))
        perform(
            local,
            team,
            lambda ledger: operation(ledger, local_hold if ledger is local else team_hold),
        )

    for kind, prompt, output, index in steps:
        request = ask(prompt, output)
        match kind:
            case "hold":
                start(lambda ledger, request=request: ledger.hold(request))
            case "aside":
                perform(local, team, lambda ledger, request=request: ledger.set_aside(request))
            case "final":
                start(
                    lambda ledger, request=request: ledger.exchange(
                        ledger.set_aside(request), request
                    )
                )
            case "tool":
                perform(
                    local,
                    team,
                    lambda ledger, nano=prompt * MILLION: ledger.start_tool(account, "t", nano).ms,
                )
            case _ if not pending:
                continue
            case "release":
                end(lambda ledger, hold: ledger.release(hold))
            case "overrun":
                overran = True
                end(
                    lambda ledger, hold: (
                        ledger.settle(
                            hold, Usage(hold.prompt_tokens + 1, hold.max_tokens)
                        ).overrun_nano
                    )
                )
            case "reconcile":

                def reconcile(ledger: Ledger, hold: Hold) -> object:
                    ledger.settle(hold, None)
                    return ledger.reconcile(hold.entry, Usage(hold.prompt_tokens, 0)).spent_nano

                end(reconcile)
            case _:
                usage = None if kind == "unreported" else Usage(index, index)
                end(lambda ledger, hold, usage=usage: ledger.settle(hold, usage).spent_nano)
        (local_cap,), (team_cap,) = local.caps("s1", 1), team.caps("s1", 1)
        assert (local_cap.spent, local_cap.left) == (team_cap.spent, team_cap.left)
        ((spent, reserved),) = used(admin)
        assert overran or spent + reserved <= limit * MILLION
    for local_hold, team_hold in pending:
        local.settle(local_hold, None)
        team.settle(team_hold, None)
    team.close()
    ((spent, reserved),) = used(admin)
    reserves = local.caps("s1", 1)[0].held
    assert spent == local.caps("s1", 1)[0].spent
    room = max(
        0, limit * MILLION - spent
    )  # an overrun may have consumed reserves, and no lease exceeds a cap
    assert reserved == reserves or (overran and min(reserves, room) <= reserved < reserves)
    assert wrong_totals(local) == ()
    local.close()


def test_caps_of_all_scopes_apply_together(shell: Shell, admin: TeamServer, ask: MakeAsk) -> None:
    scopes = ("everybody", "team:search", "person:ann", "project:p", "model:m")
    for scope in scopes:
        admin.set_cap(scope, "day", NANO)
        admin.set_cap(scope, "month", NANO)
    ann = shell()
    ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    ann.close()
    assert [(cap.scope, cap.period, cap.spent) for cap in admin.caps()] == [
        (scope, period, 90 * MILLION) for scope in sorted(scopes) for period in ("day", "month")
    ]
    for scope in scopes:  # the tightest cap refuses
        admin.set_cap(scope, "month", 100 * MILLION)
        with pytest.raises(LimitReached, match=f"the {scope} month's cap of") as hit:
            shell().hold(ask(100, 50))
        assert (hit.value.left, hit.value.need) == (10 * MILLION, 116 * MILLION)
        assert f"ecoshell budget set {scope} month AMOUNT" in hit.value.fix
        admin.set_cap(scope, "month", NANO)


def test_a_model_cap_counts_only_calls_of_that_model(
    shell: Shell, admin: TeamServer, ask: MakeAsk, account: Account
) -> None:
    admin.set_cap("model:m", "day", NANO)
    admin.set_cap("model:other", "day", 100 * MILLION)
    ann = shell()
    other = ask(100, 50, account=replace(account, model="other"))
    with pytest.raises(LimitReached, match="model:other day"):
        ann.hold(other)
    ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    with pytest.raises(LimitReached, match="model:other day"):
        ann.hold(other)
    ann.close()
    assert used(admin) == [(90 * MILLION, 0), (0, 0)]


def test_a_model_cap_limits_no_tool_and_no_other_model(
    shell: Shell, admin: TeamServer, ask: MakeAsk, account: Account
) -> None:
    admin.set_cap("everybody", "day", NANO)
    admin.set_cap("model:m", "day", 100 * MILLION)
    ann, other = shell(), replace(account, model="other")
    ann.settle(ann.hold(ask(50, 50)), Usage(50, 50))
    assert {cap.scope: cap.left for cap in ann.caps("s1", 1)}["model:m day"] == 0
    asyncio.run(Gate(ann).require(other, 300 * MILLION))
    with pytest.raises(LimitReached, match="everybody day"):
        asyncio.run(Gate(ann).require(other, NANO))
    with pytest.raises(LimitReached, match="the everybody day's cap"):
        ann.hold(ask(950, 50, account=other))
    assert fitting_output(ask(100, 50, account=other), ann.caps("s1", 1)) == 50


def test_a_raised_or_removed_team_cap_applies_to_tools_immediately(
    shell: Shell, admin: TeamServer, ask: MakeAsk, account: Account
) -> None:
    admin.set_cap("everybody", "day", 100 * MILLION)
    ann = shell()
    ann.settle(ann.hold(ask(50, 50)), Usage(50, 50))
    with pytest.raises(LimitReached, match="everybody day"):
        asyncio.run(Gate(ann).require(account, NANO))
    admin.set_cap("everybody", "day", 2 * NANO)
    asyncio.run(Gate(ann).require(account, NANO))
    admin.set_cap("everybody", "day", None)
    asyncio.run(Gate(ann).require(account, 3 * NANO))
    assert ann.caps("s1", 1) == ()


def test_a_call_within_a_lease_does_not_contact_the_server(
    shell: Shell, admin: TeamServer, ask: MakeAsk, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.set_cap("team:search", "month", 100 * NANO)
    queries: list[str] = []
    rows = TeamServer._rows  # pyright: ignore[reportPrivateUsage] - all requests to the server
    monkeypatch.setattr(
        TeamServer,
        "_rows",
        lambda self, query, values: queries.append(query) or rows(self, query, values),
    )
    ann = shell()
    ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    assert len(queries) == 1
    for _ in range(3):
        ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    assert len(queries) == 1
    while len(queries) == 1:
        ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    assert len(queries) == 2


def test_a_lease_has_at_most_one_percent_of_the_remaining_cap_and_all_leases_five(
    shell: Shell, admin: TeamServer, ask: MakeAsk
) -> None:
    admin.set_cap("everybody", "month", 100 * NANO)
    shells = [shell() for _ in range(8)]
    for ledger in shells:
        leased = sum(lease.nano for lease in admin.open_leases())
        hold = ledger.hold(ask(500, 0))
        assert sum(lease.nano for lease in admin.open_leases()) - leased <= NANO + NANO // 2
        ledger.settle(hold, Usage(500, 0))
    (cap,) = admin.caps()
    assert cap.leased - 8 * NANO // 2 <= 5 * NANO  # none has reported its call yet
    assert cap.leased > 4 * NANO


def test_two_members_can_use_the_cap_to_the_last_cent(
    shell: Shell, admin: TeamServer, ask: MakeAsk
) -> None:
    admin.set_cap("team:search", "day", NANO)
    ann, bob = shell("ann"), shell("bob")
    refused = 0
    while refused < 2:
        for ledger in (ann, bob):
            refused = 0 if refused < 0 else refused
            try:
                ledger.settle(ledger.hold(replace(ask(1, 1), min_tokens=1)), Usage(1, 1))
            except LimitReached:
                refused += 1
    ann.close()
    bob.close()
    assert used(admin) == [(NANO, 0)]


def test_a_member_sees_the_amount_that_can_still_be_reserved(
    shell: Shell, admin: TeamServer, ask: MakeAsk
) -> None:
    admin.set_cap("team:search", "month", 2 * NANO)
    ann, bob = shell("ann"), shell("bob")
    assert ann.caps("s1", 1) == (CapState("team:search month", "usd", 2 * NANO, 0, 0, own=0),)
    hold = ann.hold(ask(100, 50))
    (cap,) = ann.caps("s1", 1)
    assert (cap.spent, cap.held, cap.left) == (0, hold.nano, 1_850 * MILLION)
    ann.settle(hold, Usage(80, 10))
    (cap,) = ann.caps("s1", 1)
    assert (cap.spent, cap.held, cap.own) == (90 * MILLION, 0, 90 * MILLION)
    (cap,) = bob.caps("s1", 1)
    assert cap.own == 0
    ann.set_cap("s1", "session", Amount(NANO, "usd"))
    assert [cap.scope for cap in ann.caps("s1", 1)] == ["session", "team:search month"]
    with pytest.raises(BudgetError):
        bob.hold(ask(5_000, 50))


def test_a_team_cap_cannot_be_set_from_a_shell(shell: Shell) -> None:
    with pytest.raises(
        Exception, match="An administrator can set it: ecoshell budget set team:search month"
    ):
        shell().set_cap("s1", "team:search month", Amount(1, "usd"))  # pyright: ignore[reportArgumentType]


def test_a_call_of_unknown_price_is_refused_under_a_team_cap_only(
    shell: Shell, admin: TeamServer, ask: MakeAsk
) -> None:
    ann = shell()
    ann.settle(ann.hold(ask(price=None)), Usage(1, 1))
    admin.set_cap("person:ann", "day", NANO)
    with pytest.raises(PriceUnknown, match="person:ann day") as refused:
        ann.hold(ask(price=None))
    assert "tok" not in refused.value.fix, "team caps are in dollars"


def test_without_the_server_calls_continue_within_the_lease_and_then_stop(
    shell: Shell, admin: TeamServer, ask: MakeAsk, postgres: Postgres
) -> None:
    admin.set_cap("team:search", "month", 100 * NANO)
    ann = shell()
    ann.settle(ann.hold(ask(100, 50)), Usage(100, 50))
    leased = admin.open_leases()[0].nano
    admin.close()
    postgres.stop("immediate")
    try:
        calls = leased // (150 * MILLION)
        for _ in range(calls - 1):
            ann.settle(ann.hold(ask(100, 50)), Usage(100, 50))
        with pytest.raises(StoreError, match="cannot be reached") as away:
            ann.hold(replace(ask(100, 50), min_tokens=50))
        assert "Nothing was reserved and nothing was sent." in away.value.kept
        with pytest.raises(StoreError, match="cannot be reached"):
            shell("bob").hold(ask(100, 50))
    finally:
        postgres.start()
    assert used(admin) == [(0, leased)]
    ann.settle(ann.hold(ask(100, 50)), Usage(100, 50))
    ann.close()
    assert used(admin) == [((calls + 1) * 150 * MILLION, 0)]


def test_a_partial_grant_counts_if_the_server_becomes_unreachable(
    tmp_path: Path, ask: MakeAsk, account: Account
) -> None:
    class Server:
        """Grants the first lease completely and later ones in part, and is unreachable for settlements."""

        def __init__(self) -> None:
            self.leases = 0

        def lease(self, *arguments: object) -> Granted:
            minimum, call, ahead = cast("tuple[int, int, int]", arguments[3])
            self.leases += 1
            return Granted(
                ahead if self.leases == 1 else (minimum + call) // 2, 0, False, False, ()
            )

        def settle(self, *arguments: object, **options: object) -> Granted:
            raise ServerAway("The team's ledger cannot be reached.")

        def shares(self, *arguments: object) -> tuple[Share, ...]:
            return ()

    ledger = TeamLedger(tmp_path / "ledger.sqlite", cast("TeamServer", Server()))
    ledger.release(ledger.hold(ask(100, 50)))
    other = replace(ask(100, 50, account=replace(account, model="other")), min_tokens=1)
    assert 1 <= ledger.hold(other).max_tokens < 50


def test_a_call_counts_for_the_day_of_its_reservation(
    shell: Shell, admin: TeamServer, ask: MakeAsk, postgres: Postgres
) -> None:
    admin.set_cap("person:ann", "day", NANO)
    ann = shell()
    hold = ann.hold(ask(100, 50))
    database = admin.address.rpartition("/")[2]
    for statement in (
        "UPDATE ecoshell.leases SET day = day - 1",
        "UPDATE ecoshell.totals SET at = to_char(at::date - 1, 'YYYY-MM-DD') WHERE length(at) = 10",
    ):
        postgres.sql(database, statement)
    while len(admin.open_leases()) == 1:
        second = ann.hold(ask(100, 50))
    assert admin.caps()[0].spent == 0
    ann.settle(hold, Usage(80, 10))
    ann.settle(second, Usage(1, 1))
    ann.close()
    days = postgres.sql(
        database,
        "SELECT day, sum(spent) FROM ecoshell.entries WHERE spent > 0 GROUP BY day ORDER BY day",
    )
    assert [spent for _, spent in days] == [90 * MILLION, 2 * MILLION]
    assert used(admin) == [(2 * MILLION, 0)]


DIES = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import spender
from ecoshell.budget import Account, Ask
from ecoshell_team.ledger import TeamLedger
from ecoshell_team.server import TeamServer
from ecoshell.messages import Usage

ledger = TeamLedger(Path(sys.argv[1]), TeamServer(sys.argv[2]))
ask = Ask(spender.PRICE, 1000, 100, Account("s", 1, "single", "m", "step"))
ledger.settle(ledger.hold(ask), Usage(1000, 10))
ledger.hold(ask)
os._exit(9)
"""


def test_the_lease_of_a_dead_shell_counts_until_it_is_reconciled(
    shell: Shell, admin: TeamServer, team_ledger: Team, tmp_path: Path
) -> None:
    admin.set_cap("team:search", "month", 100 * NANO)
    path = tmp_path / "home" / "ledger.sqlite"
    here = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(Path(ecoshell.__file__).parents[1])}
    subprocess.run(
        [sys.executable, "-c", DIES, str(path), team_ledger(), str(here)], check=False, env=env
    )
    (lease,) = admin.open_leases()
    assert used(admin) == [(0, lease.nano)]
    ann = shell("ann", "home")
    (entry,) = ann.unreconciled()
    assert used(admin) == [(0, lease.nano)]
    assert ann.end_dead_leases() == 1
    (row,) = ann.rows("session")
    assert used(admin) == [(row.spent_nano, 0)]
    assert (row.spent_nano or 0) > (entry.held_nano or 0) > 0
    assert ann.end_dead_leases() == 0
    ann.reconcile(entry.id, Usage(1000, 20))
    assert used(admin) == [(ann.rows("session")[0].spent_nano, 0)]
    assert wrong_totals(ann) == ()


def test_an_administrator_can_close_a_lease(shell: Shell, admin: TeamServer, ask: MakeAsk) -> None:
    admin.set_cap("team:search", "month", 100 * NANO)
    ann = shell()
    ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    (lease,) = admin.open_leases()
    assert admin.close_lease(lease.id, 70 * MILLION) == lease.nano
    assert admin.close_lease(lease.id, 0) is None
    assert used(admin) == [(70 * MILLION, 0)]
    for _ in range(20):  # the shell was alive: it reports its spending and takes another lease
        ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    ann.close()
    assert used(admin) == [((70 + 21 * 90) * MILLION, 0)]


def test_a_local_ledger_is_imported_once(
    shell: Shell, admin: TeamServer, ask: MakeAsk, tmp_path: Path
) -> None:
    admin.set_cap("person:ann", "month", 100 * NANO)
    local = Ledger(tmp_path / "home" / "ledger.sqlite")
    local.settle(local.hold(ask(100, 50)), Usage(80, 10))
    local.settle(local.hold(ask(100, 50)), None)
    local.hold(ask(100, 50))
    local.close()
    ann = shell("ann", "home")
    ann.settle(ann.hold(ask(100, 50)), Usage(1, 1))
    assert ann.import_calls() == 2
    assert ann.import_calls() == 0
    ann.close()
    assert used(admin) == [((90 + 150 + 2) * MILLION, 0)]
    assert [(row.key, row.spent_nano, row.calls) for row in admin.costs("person")] == [
        ("ann", 242 * MILLION, 3)
    ]


def test_costs_add_up_by_person_team_and_project(
    shell: Shell, admin: TeamServer, ask: MakeAsk
) -> None:
    for person, project in (("ann", "p"), ("ann", "q"), ("bob", "q")):
        ledger = shell(person, project=project)
        ledger.settle(ledger.hold(ask(100, 50)), Usage(80, 10))
        ledger.close()
    bob = shell("bob", project="p")
    hold = bob.hold(ask(100, 50))
    spent = {
        by: {row.key: row.spent_nano for row in admin.costs(by)}
        for by in ("person", "team", "project")
    }
    assert spent == {
        "person": {"ann": 180 * MILLION, "bob": 90 * MILLION},
        "team": {"search": 270 * MILLION},
        "project": {"p": 90 * MILLION, "q": 180 * MILLION},
    }
    assert [row.held_nano >= (hold.nano or 0) for row in admin.costs("person")] == [False, True]
    assert [row.key for row in bob.server.costs("person")] == [
        "bob"
    ]  # not the costs of other members


def test_a_cap_below_the_used_amount_is_refused(
    shell: Shell, admin: TeamServer, ask: MakeAsk
) -> None:
    admin.set_cap("person:ann", "day", NANO)
    ann = shell()
    ann.settle(ann.hold(ask(100, 50)), Usage(80, 10))
    ann.close()
    assert admin.set_cap("person:ann", "day", 89 * MILLION) == 90 * MILLION
    assert admin.caps() == (Share("person:ann", "day", NANO, 90 * MILLION, 0, 0),)
    admin.set_cap("person:ann", "day", 90 * MILLION)
    assert admin.caps()[0].limit == 90 * MILLION
    admin.set_cap("person:ann", "day", None)
    assert admin.caps() == ()


@pytest.mark.parametrize("loss", ["request", "reply"])
def test_lost_connections_neither_lose_nor_double_any_spending(
    loss: str, shell: Shell, admin: TeamServer, ask: MakeAsk, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.set_cap("team:search", "day", 3 * NANO)
    ask_server = TeamServer._query  # pyright: ignore[reportPrivateUsage] - where a connection can break
    times = 0

    def cut(self: TeamServer, query: str, values: tuple[object, ...]) -> object:
        nonlocal times
        times += 1
        if self.address == admin.address or times % 3:
            return ask_server(self, query, values)
        if loss == "reply":
            ask_server(self, query, values)
        import psycopg

        raise psycopg.OperationalError("the connection was cut")

    monkeypatch.setattr(TeamServer, "_query", cut)
    ann = shell()
    spent = 0
    with suppress(LimitReached):
        while True:
            with suppress(StoreError):
                ann.settle(ann.hold(ask(20, 20)), Usage(20, 1))
                spent += 21 * MILLION
            ((reported, reserved),) = used(admin)
            assert reported <= spent <= reported + reserved <= 3 * NANO
    monkeypatch.undo()
    os.environ["PGPASSWORD"] = Postgres.PASSWORD
    ann.close()
    assert used(admin) == [(spent, 0)]

"""Delegations with random kills and costs: no subagent above its share, no session above its cap, nothing lost."""

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from ledger_totals import wrong_totals

import ecoshell
from ecoshell.budget import NANO, Amount
from ecoshell.budget.ledger import Ledger
from ecoshell.events import Event, SubagentFinished, SubagentStarted, from_json
from ecoshell.paths import Paths
from ecoshell.sessions import SessionStore

DELEGATOR = Path(__file__).with_name("delegator.py")
ROOT = Path(ecoshell.__file__).parents[1]
KILLS_PER_SESSION = 5


def used_by_task(ledger_file: Path) -> tuple[dict[str, int], set[str]]:
    """What each subagent and those it delegated to have spent or reserved, from the single entries.

    Also returns the subagents with a call that was answered.
    """
    used: defaultdict[str, int] = defaultdict(int)
    called: set[str] = set()
    with closing(sqlite3.connect(ledger_file)) as db:
        for task, state, spent, reserved in db.execute(
            "SELECT task, state, spent_nano, held_nano FROM entries"
        ):
            amount = {"held": reserved, "aside": reserved, "released": 0}.get(state, spent)
            for session in filter(None, task.split("/")):
                used[session] += amount or 0
                called |= {session} if state == "settled" else set()
    return used, called


def run_until_killed(
    home: Path, bills: Path, seed: int, session: str, lines: int
) -> list[dict[str, object]]:
    """Start a delegator, kill it after some lines, and return what it printed completely."""
    command = [sys.executable, str(DELEGATOR), str(home), str(bills), str(seed), session]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ECOSHELL_AGENT_CONTEXT": "off"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as worker:
        assert worker.stdout is not None
        printed = [worker.stdout.readline() for _ in range(lines)]
        worker.kill()
        printed += worker.stdout.readlines()
    return [json.loads(line) for line in printed if line.endswith("\n")]


def nested_starts(store: SessionStore, events: list[Event]) -> list[Event]:
    """The starts of the subagents that those of these events started."""
    sessions = [event.session for event in events if isinstance(event, SubagentStarted)]
    stored = [event for session in sessions for _, event in store.events(session)]
    return [event for event in stored if isinstance(event, SubagentStarted)]


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
@pytest.mark.parametrize("delegations", [30, pytest.param(1_000, marks=pytest.mark.slow)])
def test_no_kill_and_no_cost_exceeds_a_share_or_the_cap(tmp_path: Path, delegations: int) -> None:
    paths, bills, chance = Paths.under(tmp_path), tmp_path / "bills", random.Random(41)
    bills.touch()
    session, kills, used = "", 0, dict[str, int]()
    shares: dict[str, Decimal] = {}
    ended: dict[str, SubagentFinished] = {}
    ledger, store = (
        Ledger(paths.ledger_file, busy_seconds=60),
        SessionStore(paths.sessions_file, busy_seconds=60),
    )
    while len(shares) < delegations:
        session = "" if kills % KILLS_PER_SESSION == 0 else session
        printed = run_until_killed(tmp_path, bills, kills, session, chance.randint(6, 60))
        kills += 1
        session = str(printed[0]["session"])
        events = [from_json(record) for record in printed if "type" in record]
        for event in (*events, *nested_starts(store, events)):
            if isinstance(event, SubagentStarted):
                assert event.share_usd is not None
                shares[event.session] = Decimal(event.share_usd)
            elif isinstance(event, SubagentFinished):
                ended[event.session] = event
        stored = {
            event.session
            for _, event in store.events(session)
            if isinstance(event, SubagentFinished)
        }
        assert {child for child in ended if store.info(child).parent == session} <= stored
        (cap,) = ledger.caps(session, 0)
        assert cap.spent + cap.held <= cap.limit
        if cap.left < NANO // 2:  # what a killed process had reserved stays so
            ledger.set_cap(session, "session", Amount(cap.limit + 2 * NANO, "usd"))
        used, called = used_by_task(paths.ledger_file)
        assert [child for child in shares if used.get(child, 0) > shares[child] * NANO] == []
        assert all(store.info(child).parent for child in called)
    billed = sum(map(int, bills.read_text().split()))
    counted = sum((row.spent_nano or 0) + row.held_nano for row in ledger.rows("session"))
    assert billed <= counted
    spent = {
        child: event.spent_nano for child, event in ended.items() if event.spent_nano is not None
    }
    assert all(spent[child] <= used[child] for child in spent)
    endings = {"answered", "limit"} if delegations > 100 else {"answered"}  # few reach their share
    assert {event.status for event in ended.values()} >= endings
    assert wrong_totals(ledger) == ()
    print(
        f"{len(shares)} delegations, {len(ended)} reported, {kills} kills, ${billed / NANO:.2f} billed"
    )
    ledger.close()
    store.close()

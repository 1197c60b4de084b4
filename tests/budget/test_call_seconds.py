"""Durations of calls by role, which are unknown for calls of older versions."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from unprivileged import read_only_folder

from ecoshell.budget import Account, Ask
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.schema import SCHEMA
from ecoshell.errors import StoreError
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]
OLD = """INSERT INTO entries
    (at, day, session, turn, role, model, purpose, state, pid, held_nano, held_input, held_output, spent_nano, input,
    output) VALUES (1, '2026-11-01', 's1', 1, 'planner', 'm', 'step', 'settled', 1, 9, 9, 9, 5, 3, 2)"""


def old_file(path: Path) -> sqlite3.Connection:
    """Write a ledger of version 1 with one call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    db.executescript(f"{SCHEMA}; {OLD}; PRAGMA user_version = 1")
    db.commit()
    return db


async def test_seconds_add_up_by_role_and_by_session(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    gate = Gate(ledger)
    for role, session, seconds in (
        ("planner", "s1", 1.5),
        ("caller", "s1", 0.25),
        ("planner", "s2", 2.0),
    ):
        hold = await gate.hold(partial(ask, account=replace(account, role=role, session=session)))
        await gate.settle(hold, Usage(10, 5), ms=round(1000 * seconds))
    rows = {row.key: (row.calls, row.seconds, row.untimed) for row in ledger.rows("role")}
    assert rows == {"planner": (2, 3.5, 0), "caller": (1, 0.25, 0)}
    assert [(row.key, row.seconds) for row in ledger.rows("role", "s1")] == [
        ("planner", 1.5),
        ("caller", 0.25),
    ]


def test_paid_tools_and_running_calls_are_not_untimed(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    ledger.start_tool(account, "count_text", 1)
    ledger.hold(ask())
    (row,) = ledger.rows("role")
    assert (row.seconds, row.untimed) == (0.0, 0)


def test_a_ledger_of_version_1_is_migrated_with_unknown_times(path: Path, ask: MakeAsk) -> None:
    old_file(path).close()
    ledger = Ledger(path)
    (row,) = ledger.rows("role")
    assert (row.key, row.spent_nano, row.calls, row.seconds, row.untimed) == (
        "planner",
        5,
        1,
        None,
        1,
    )
    ledger.settle(ledger.hold(ask()), Usage(1, 1), ms=2_500)
    assert [(row.seconds, row.untimed) for row in ledger.rows("session")] == [(2.5, 1)]
    ledger.close()
    again = Ledger(path)
    assert [(row.seconds, row.untimed) for row in again.rows("session")] == [(2.5, 1)]
    again.close()


def test_a_read_only_ledger_of_an_older_version_is_refused(path: Path) -> None:
    old_file(path).close()
    with (
        read_only_folder(path) as folder,
        pytest.raises(StoreError, match="older ecoshell") as failed,
    ):
        Ledger(folder / path.name)
    assert "writable" in failed.value.fix

"""Caps in working time: amounts, reservations in slices, old files, several processes and kills."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ledger_totals import wrong_totals

import ecoshell
from ecoshell.budget import (
    MIN_CALL_MS,
    SLICE_MS,
    Account,
    Amount,
    Ask,
    amount_text,
    parse_amount,
    typed_amount,
)
from ecoshell.budget.gate import Gate, sharing
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.working_time import TimeUp, WorkingTime
from ecoshell.errors import LimitReached, UsageError
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]
SPENDER = Path(__file__).with_name("time_spender.py")
ROOT = Path(ecoshell.__file__).parents[1]


@pytest.mark.parametrize(
    ("typed", "ms", "shown"),
    [
        ("90s", 90_000, "1 min 30 s"),
        ("2min", 120_000, "2 min"),
        ("2 minutes", 120_000, "2 min"),
        ("1h30m", 5_400_000, "1 h 30 min"),
        ("1h 30min 10 s", 5_410_000, "1 h 30 min"),
        ("1.5h", 5_400_000, "1 h 30 min"),
        ("0,5 s", 500, "0.5 s"),
    ],
)
def test_a_typed_duration_is_an_exact_number_of_milliseconds(
    typed: str, ms: int, shown: str
) -> None:
    amount = parse_amount(typed)
    assert (amount.value, amount.unit, str(amount)) == (ms, "ms", shown)
    assert parse_amount(typed_amount(ms, "ms")) == amount


@pytest.mark.parametrize(
    "typed", ["0s", "5m", "-5s", "1h30", "20000h", "..s", "$5min", "0.0001s", "s", "min"]
)
def test_an_impossible_or_ambiguous_duration_is_refused(typed: str) -> None:
    with pytest.raises(UsageError):
        parse_amount(typed)


def test_a_call_reserves_a_slice_and_extends_it_until_the_cap_is_used_up(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", Amount(2 * SLICE_MS + 500, "ms"))
    hold = ledger.hold(ask(price=None))
    assert hold.ms == SLICE_MS
    assert [ledger.extend(hold.entry) for _ in range(3)] == [SLICE_MS, 500, 0]
    with pytest.raises(LimitReached, match=r"session's cap of 31 s has 0 s left") as refused:
        ledger.hold(ask(price=None))
    assert (refused.value.unit, refused.value.need) == ("ms", MIN_CALL_MS)
    ledger.settle(hold, Usage(1, 1), ms=2_000)
    (cap,) = ledger.caps("s1", 1)
    assert (cap.spent, cap.held) == (2_000, 0)
    assert ledger.extend(hold.entry) == 0  # it has ended
    assert wrong_totals(ledger) == ()


def test_the_final_answer_has_time_left_when_the_steps_used_up_theirs(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "turn", Amount(12_000, "ms"))
    aside = ledger.set_aside(ask())
    assert aside.ms == 3_000
    step = ledger.hold(ask())
    assert step.ms == 9_000
    assert ledger.extend(step.entry) == 0
    ledger.settle(step, Usage(1, 1), ms=9_000)
    with pytest.raises(LimitReached):
        ledger.hold(ask())
    final = ledger.exchange(aside, ask())
    assert final.ms == 3_000
    ledger.settle(final, Usage(1, 1), ms=3_000)
    assert [cap.left for cap in ledger.caps("s1", 1)] == [0]
    assert wrong_totals(ledger) == ()


def test_a_failed_call_that_costs_nothing_still_takes_its_time(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", Amount(60_000, "ms"))
    first, second = ledger.hold(ask()), ledger.hold(ask())
    ledger.release(first, 4_000)
    ledger.end_attempt(second, 1_000)  # retried in the same reservation
    third = ledger.exchange(second, ask())
    ledger.settle(third, Usage(1, 1), ms=2_000)
    (cap,) = ledger.caps("s1", 1)
    assert (cap.spent, cap.held) == (7_000, 0)
    (row,) = ledger.rows("session")
    assert (row.calls, row.seconds) == (1, 7.0)
    assert wrong_totals(ledger) == ()


def test_a_tool_takes_its_time_from_the_cap(ledger: Ledger, account: Account) -> None:
    ledger.end_tool(ledger.start_tool(account, "run", 0), 1_500)  # before there was a cap
    ledger.set_cap("s1", "session", Amount(4_000, "ms"))
    tool = ledger.start_tool(account, "run", 0)
    assert tool.ms == 2_500
    with pytest.raises(LimitReached):
        ledger.start_tool(account, "run", 0)
    ledger.end_tool(tool, 2_000)
    assert [(row.key, row.calls, row.seconds) for row in ledger.rows("tool")] == [("run", 0, 3.5)]
    assert ledger.rows("role") == ledger.rows("model") == ()
    (cap,) = ledger.caps("s1", 1)
    assert (cap.spent, cap.held) == (3_500, 0)
    assert wrong_totals(ledger) == ()


def test_a_ledger_of_version_4_keeps_its_calls_and_counts_their_time(
    path: Path, ask: MakeAsk
) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.set_cap("s1", "session", Amount(500, "tokens"))
        ledger.settle(ledger.hold(ask()), Usage(30, 20))
        before = ledger.caps("s1", 1)
    with closing(sqlite3.connect(path)) as db:
        for table, columns in (
            ("entries", ("held_ms", "spent_ms")),
            ("totals", ("held_ms", "spent_ms")),
        ):
            db.execute("DROP INDEX IF EXISTS entries_running")
            for column in columns:
                db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        db.execute("ALTER TABLE entries DROP COLUMN task")
        db.execute("UPDATE entries SET seconds = 1.25")
        db.execute("PRAGMA user_version = 4")
        db.commit()
    with closing(Ledger(path)) as ledger:
        assert ledger.caps("s1", 1) == before
        for scope in ("turn", "session", "day", "month"):
            ledger.set_cap("s1", scope, Amount(10_000, "ms"))
        assert [cap.spent for cap in ledger.caps("s1", 1) if cap.unit == "ms"] == [1_250] * 4
        assert [row.seconds for row in ledger.rows("session")] == [1.25]
        assert wrong_totals(ledger) == ()


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_call_is_stopped_when_its_reservation_is_used_up() -> None:
    granted = [50, 30]

    async def extend() -> int:
        return granted.pop(0) if granted else 0

    clock = WorkingTime(100, extend)
    with pytest.raises(TimeUp):
        await clock.spend(hang)
    assert clock.ms in (100, 150, 180)  # exactly what was reserved: whole slices


async def test_waiting_for_the_user_takes_no_working_time() -> None:
    async def none() -> int:
        return 0

    clock = WorkingTime(1_000, none)

    async def ask_user() -> str:
        with clock.paused():
            await asyncio.sleep(1.2)
        return "answered"

    assert await clock.spend(ask_user) == "answered"
    assert clock.ms < 1_000


async def test_parallel_calls_share_a_cap_in_time(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", Amount(SLICE_MS + 2_000, "ms"))
    gate, order = Gate(ledger), list[str]()

    async def call(name: str) -> None:
        hold = await gate.hold(ask)
        order.append(name)
        await asyncio.sleep(0)
        await gate.settle(hold, Usage(1, 1), ms=hold.ms)

    with sharing():  # the third call waits until one of the others ends, and is then refused
        outcomes = await asyncio.gather(call("a"), call("b"), call("c"), return_exceptions=True)
    assert sorted(order) == ["a", "b"]
    assert [type(outcome) for outcome in outcomes].count(LimitReached) == 1
    (cap,) = ledger.caps("s1", 1)
    assert (cap.spent, cap.held) == (SLICE_MS + 2_000, 0)


def start(path: Path, session: str) -> subprocess.Popen[str]:
    """Start a process and wait until its first call runs."""
    command = [sys.executable, str(SPENDER), str(path), session]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
def test_two_processes_never_exceed_a_day_cap_and_a_killed_one_counts_in_full(
    path: Path,
) -> None:
    with closing(Ledger(path, busy_seconds=60)) as ledger:
        ledger.set_cap("observer", "day", Amount(1_000_000, "ms"))
        killed = start(path, "killed")
        killed.kill()
        killed.communicate()
        workers = [start(path, f"s{number}") for number in range(2)]
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
        granted = [int(worker.communicate()[0].splitlines()[-1]) for worker in workers]
        (cap,) = ledger.caps("observer", 1)
        assert min(granted) > 0
        (entry,) = ledger.unreconciled()
        assert entry.spent_ms in (SLICE_MS, 2 * SLICE_MS)  # before or after it extended
        assert sum(granted) + entry.spent_ms == cap.spent
        assert cap.held == 0
        assert cap.limit - MIN_CALL_MS < cap.spent <= cap.limit
        ledger.reconcile(entry.id, Amount(2_000, "ms"))
        (cap,) = ledger.caps("observer", 1)
        assert (cap.spent, cap.held) == (sum(granted) + 2_000, 0)
        assert wrong_totals(ledger) == ()


def test_a_killed_tool_leaves_its_time_until_it_is_reconciled(path: Path, account: Account) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.set_cap("s1", "session", Amount(20_000, "ms"))
        tool = ledger.start_tool(account, "run", 0)
        assert tool.entry is not None
        with closing(sqlite3.connect(path)) as db:  # as if another process had started it and died
            db.execute("UPDATE entries SET pid = 999999999")
            db.commit()
        (entry,) = ledger.unreconciled()
        assert (entry.tool, entry.held_ms) == ("run", SLICE_MS)
        with pytest.raises(UsageError, match="tool call"):
            ledger.reconcile(tool.entry, Amount(1, "usd"))
        ledger.reconcile(tool.entry, Amount(3_000, "ms"))
        assert [(cap.spent, cap.held) for cap in ledger.caps("s1", 1)] == [(3_000, 0)]
        assert ledger.unreconciled() == ()
        assert wrong_totals(ledger) == ()


def test_the_text_of_a_cap_reads_well() -> None:
    assert [amount_text(ms, "ms") for ms in (0, 400, 9_940, 12_000, 61_000, 7_500_000)] == [
        "0 s",
        "0.4 s",
        "9.9 s",
        "12 s",
        "1 min 1 s",
        "2 h 5 min",
    ]

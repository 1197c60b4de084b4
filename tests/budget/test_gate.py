import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshell.budget import NANO, Account, Amount, Ask
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]


@pytest.fixture
def gate(ledger: Ledger) -> Gate:
    return Gate(ledger)


async def test_calls_and_tools_through_the_gate_count_for_the_caps(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    gate.ledger.set_cap(account.session, "session", Amount(NANO, "usd"))
    settlement = await gate.settle(
        await gate.hold(lambda: ask(100, 50)), Usage(10, 10), tool="read_file"
    )
    (cap,) = gate.ledger.caps(account.session, account.turn)
    assert (cap.spent, cap.held) == (settlement.spent_nano, 0)
    await gate.start_tool(account, "search", 1)
    assert [row.key for row in gate.ledger.rows("tool")] == ["read_file", "search"]
    gate.ledger.set_cap(account.session, "session", None)
    assert gate.ledger.caps(account.session, account.turn) == ()


async def test_the_reserve_pays_for_the_final_call(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    gate.ledger.set_cap(account.session, "session", Amount(150_000_000, "usd"))
    aside = await gate.set_aside(lambda: ask(100, 50))
    with pytest.raises(LimitReached):
        await gate.hold(lambda: ask(100, 50))
    final = await gate.hold_final(aside, lambda: ask(100, 50))
    assert final.max_tokens == 50
    await gate.release(final)
    assert gate.ledger.caps(account.session, account.turn)[0].left == 150_000_000


async def test_concurrent_reservations_never_exceed_the_cap(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    gate.ledger.set_cap(account.session, "session", Amount(1_000_000_000, "usd"))
    outcomes = await asyncio.gather(
        *(gate.hold(lambda: ask(100, 50)) for _ in range(20)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, LimitReached)]
    assert refused
    assert len(refused) < 20
    (cap,) = gate.ledger.caps(account.session, account.turn)
    assert cap.held <= cap.limit


class Lock:
    """Holds the ledger's write lock on another connection until `release`."""

    def __init__(self, path: Path) -> None:
        self._other = sqlite3.connect(path, isolation_level=None)
        self._other.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._other.execute("ROLLBACK")
        self._other.close()


async def _run_loop(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_reservation_cancelled_while_waiting_is_released(
    gate: Gate, account: Account, ask: MakeAsk, path: Path
) -> None:
    gate.ledger.set_cap(account.session, "session", Amount(NANO, "usd"))
    lock = Lock(path)
    waiting = asyncio.create_task(gate.hold(ask))
    await _run_loop()
    waiting.cancel()
    await _run_loop()
    waiting.cancel()  # a second cancellation changes nothing
    await _run_loop()
    assert not waiting.done()
    lock.release()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gate.ledger.caps(account.session, account.turn)[0].left == NANO
    assert [entry for entry in gate.ledger.unreconciled() if entry.state == "held"] == []


async def test_a_settlement_finishes_even_if_its_task_is_cancelled(
    gate: Gate, account: Account, ask: MakeAsk, path: Path
) -> None:
    hold = await gate.hold(ask)
    lock = Lock(path)
    settling = asyncio.create_task(gate.settle(hold, Usage(10, 10)))
    await _run_loop()
    settling.cancel()
    await _run_loop()
    lock.release()
    with pytest.raises(asyncio.CancelledError):
        await settling
    assert gate.ledger.entry(hold.entry).state == "settled"


async def test_a_refused_and_cancelled_reservation_reserves_nothing(
    gate: Gate, account: Account, ask: MakeAsk, path: Path
) -> None:
    gate.ledger.set_cap(account.session, "session", Amount(1, "usd"))
    lock = Lock(path)
    waiting = asyncio.create_task(gate.hold(ask))
    await _run_loop()
    waiting.cancel()
    lock.release()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gate.ledger.caps(account.session, account.turn)[0].held == 0


async def test_the_event_loop_is_not_blocked_by_a_locked_ledger(
    gate: Gate, ask: MakeAsk, path: Path
) -> None:
    lock = Lock(path)
    waiting = asyncio.create_task(gate.hold(ask))
    await _run_loop(50)
    assert not waiting.done()
    lock.release()
    assert (await waiting).max_tokens == 50

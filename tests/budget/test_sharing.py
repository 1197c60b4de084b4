"""Parallel calls: one waits for budget reserved by another and is refused only if none is reserved."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from ecoshell.budget import Account, Amount, Ask, Hold
from ecoshell.budget.gate import Gate, sharing
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]
CALL_NANO = 150_000_000  # worst case of 100 prompt and 50 output tokens
SMALL_USAGE = Usage(10, 5)


@pytest.fixture
def gate(ledger: Ledger) -> Gate:
    return Gate(ledger)


def limited(gate: Gate, account: Account, nano: int) -> None:
    gate.ledger.set_cap(account.session, "session", Amount(nano, "usd"))


async def reserved_by_now(*tasks: "asyncio.Task[Hold]") -> list[bool]:
    """Which of these calls are reserved after all had time to try."""
    for _ in range(20):
        await asyncio.to_thread(lambda: None)
    return [task.done() for task in tasks]


async def reserved_and_waiting(gate: Gate, ask: MakeAsk) -> tuple[Hold, "asyncio.Task[Hold]"]:
    """Reserve one call and start another, which must wait."""
    first = await gate.hold(lambda: ask(100, 50))
    second = asyncio.create_task(gate.hold(lambda: ask(100, 50)))
    assert await reserved_by_now(second) == [False]
    return first, second


async def test_a_call_waits_for_another_and_uses_what_that_did_not_spend(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL_NANO + CALL_NANO // 2)
    with sharing():
        first, second = await reserved_and_waiting(gate, ask)
        await gate.settle(first, SMALL_USAGE)
        assert (await second).max_tokens == 50


async def test_long_calls_run_at_once_because_each_leaves_room_for_others(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, 60_000_000_000)
    call = replace(ask(100, 64_000), repeatable=True)
    with sharing():
        holds = await asyncio.gather(*(gate.hold(lambda: call) for _ in range(4)))
    assert [hold.max_tokens for hold in holds] == [14_900, 11_150, 8_337, 8_192]


async def test_a_released_call_makes_room(gate: Gate, account: Account, ask: MakeAsk) -> None:
    limited(gate, account, CALL_NANO)
    with sharing():
        first, second = await reserved_and_waiting(gate, ask)
        await gate.release(first)
        assert (await second).max_tokens == 50


async def test_a_call_is_refused_if_no_reservation_could_be_released(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL_NANO)
    with sharing():
        first, second = await reserved_and_waiting(gate, ask)
        await gate.settle(first, None)  # spends the full reservation
        with pytest.raises(LimitReached, match="may need"):
            await second


async def test_reservations_outside_the_group_are_not_waited_for(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL_NANO)
    await gate.hold(lambda: ask(100, 50))
    with sharing(), pytest.raises(LimitReached):
        await gate.hold(lambda: ask(100, 50))


async def test_a_call_is_shortened_only_if_it_would_be_alone(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL_NANO + 130_000_000)
    with sharing():
        first, second = await reserved_and_waiting(gate, ask)
        await gate.settle(first, None)
        assert ((await second).clamped, (await second).max_tokens) == (True, 30)


async def test_a_tools_price_waits_for_room_when_required_and_when_charged(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL_NANO)
    with sharing():
        for pay in (
            gate.require(account, CALL_NANO // 2),
            gate.start_tool(account, "search", CALL_NANO // 2),
        ):
            first = await gate.hold(lambda: ask(100, 50))
            paying = asyncio.create_task(pay)
            for _ in range(20):
                await asyncio.to_thread(lambda: None)
            assert not paying.done()
            await gate.settle(first, SMALL_USAGE)
            await paying
    assert [row.key for row in gate.ledger.rows("tool") if row.key] == ["search"]


async def test_calls_are_reserved_in_order_and_never_exceed_the_cap(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, 4 * CALL_NANO)
    order: list[int] = []
    totals: list[int] = []

    async def call(number: int) -> None:
        hold = await gate.hold(lambda: ask(100, 50))
        order.append(number)
        (cap,) = gate.ledger.caps(account.session, account.turn)
        totals.append(cap.held + cap.spent)
        await gate.settle(hold, SMALL_USAGE)

    with sharing():
        await asyncio.gather(*(call(number) for number in range(12)))
    assert order == list(range(12))
    assert max(totals) <= 4 * CALL_NANO
    assert gate.ledger.caps(account.session, account.turn)[0].held == 0


async def test_a_cancelled_call_leaves_the_queue(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL_NANO)
    with sharing():
        first = await gate.hold(lambda: ask(100, 50))
        second, third = (asyncio.create_task(gate.hold(lambda: ask(100, 50))) for _ in range(2))
        await reserved_by_now(second, third)
        second.cancel()
        await asyncio.wait([second])
        await gate.release(first)
        await gate.release(await third)
    assert second.cancelled()
    assert gate.ledger.caps(account.session, account.turn)[0].held == 0


async def test_a_call_that_replaces_another_keeps_its_reservation(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    """A retried call, for example."""
    limited(gate, account, CALL_NANO)
    with sharing():
        again = await gate.hold_final(await gate.hold(lambda: ask(100, 50)), lambda: ask(100, 50))
        second = asyncio.create_task(gate.hold(lambda: ask(100, 50)))
        assert await reserved_by_now(second) == [False]
        await gate.release(again)
        assert (await second).max_tokens == 50


async def test_caps_at_rest_exclude_running_calls_of_this_process(
    gate: Gate, account: Account, ask: MakeAsk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(gate, account, 10 * CALL_NANO)
    gate.ledger.set_cap(account.session, "turn", Amount(1_000, "tokens"))
    await gate.settle(await gate.hold(lambda: ask(100, 50)), SMALL_USAGE)
    await gate.set_aside(lambda: ask(100, 50))
    await gate.hold(lambda: ask(100, 50))
    turn, session = gate.ledger.caps(account.session, account.turn, at_rest=True)
    assert (turn.held, session.held) == (150, CALL_NANO)  # the reserve for the answer
    assert (turn.spent, session.spent) == (15, 15_000_000)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    turn, session = gate.ledger.caps(account.session, account.turn, at_rest=True)
    assert (turn.held, session.held) == (300, 2 * CALL_NANO)

"""Calls side by side: one waits for the room that another holds, and is refused only when nobody holds any."""

import asyncio
import os
from collections.abc import Callable

import pytest

from ecoshell.budget import Account, Amount, Ask, Hold
from ecoshell.budget.gate import Gate, sharing
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]
CALL = 150_000_000
"""What a call of 100 tokens in and 50 out may cost."""
LITTLE = Usage(10, 5)


@pytest.fixture
def gate(ledger: Ledger) -> Gate:
    return Gate(ledger)


def limited(gate: Gate, account: Account, nano: int) -> None:
    gate.ledger.set_cap(account.session, "session", Amount(nano, "usd"))


async def held_by_now(*tasks: "asyncio.Task[Hold]") -> list[bool]:
    """Which of these have found room, once all had the time to ask."""
    for _ in range(20):
        await asyncio.to_thread(lambda: None)
    return [task.done() for task in tasks]


async def test_a_call_waits_for_the_end_of_another_and_goes_on_with_what_that_did_not_spend(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL + CALL // 2)
    with sharing():
        first = await gate.hold(ask(100, 50))
        second = asyncio.create_task(gate.hold(ask(100, 50)))
        assert await held_by_now(second) == [False]
        await gate.settle(first, LITTLE)
        assert (await second).max_tokens == 50


async def test_a_call_that_is_given_back_makes_room_too(gate: Gate, account: Account, ask: MakeAsk) -> None:
    limited(gate, account, CALL)
    with sharing():
        first = await gate.hold(ask(100, 50))
        second = asyncio.create_task(gate.hold(ask(100, 50)))
        await held_by_now(second)
        await gate.release(first)
        assert (await second).max_tokens == 50


async def test_a_call_is_refused_when_nothing_is_held_that_could_come_back(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL)
    with sharing():
        first = await gate.hold(ask(100, 50))
        second = asyncio.create_task(gate.hold(ask(100, 50)))
        await held_by_now(second)
        await gate.settle(first, None)  # all of it was spent
        with pytest.raises(LimitReached, match="may need"):
            await second


async def test_what_others_hold_is_not_waited_for(gate: Gate, account: Account, ask: MakeAsk) -> None:
    limited(gate, account, CALL)
    await gate.hold(ask(100, 50))
    with sharing(), pytest.raises(LimitReached):
        await gate.hold(ask(100, 50))


async def test_a_call_is_cut_only_where_it_would_be_alone_too(gate: Gate, account: Account, ask: MakeAsk) -> None:
    limited(gate, account, CALL + 130_000_000)
    with sharing():
        first = await gate.hold(ask(100, 50))
        second = asyncio.create_task(gate.hold(ask(100, 50)))
        assert await held_by_now(second) == [False]
        await gate.settle(first, None)
        assert ((await second).clamped, (await second).max_tokens) == (True, 30)


async def test_a_tools_price_waits_for_room_before_and_when_it_is_paid(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, CALL)
    with sharing():
        for pay in (gate.require(account, CALL // 2), gate.charge_tool(account, "search", CALL // 2)):
            first = await gate.hold(ask(100, 50))
            paying = asyncio.create_task(pay)
            for _ in range(20):
                await asyncio.to_thread(lambda: None)
            assert not paying.done()
            await gate.settle(first, LITTLE)
            await paying
    assert [row.key for row in gate.ledger.rows("tool") if row.key] == ["search"]


async def test_calls_find_room_in_the_order_in_which_they_asked_and_never_pass_the_cap(
    gate: Gate, account: Account, ask: MakeAsk
) -> None:
    limited(gate, account, 4 * CALL)
    found: list[int] = []
    most: list[int] = []

    async def call(number: int) -> None:
        hold = await gate.hold(ask(100, 50))
        found.append(number)
        (cap,) = gate.ledger.caps(account.session, account.turn)
        most.append(cap.held + cap.spent)
        await gate.settle(hold, LITTLE)

    with sharing():
        await asyncio.gather(*(call(number) for number in range(12)))
    assert found == list(range(12))
    assert max(most) <= 4 * CALL
    assert gate.ledger.caps(account.session, account.turn)[0].held == 0


async def test_a_cancelled_call_leaves_the_line_and_holds_nothing(gate: Gate, account: Account, ask: MakeAsk) -> None:
    limited(gate, account, CALL)
    with sharing():
        first = await gate.hold(ask(100, 50))
        second, third = (asyncio.create_task(gate.hold(ask(100, 50))) for _ in range(2))
        await held_by_now(second, third)
        second.cancel()
        await asyncio.wait([second])
        await gate.release(first)
        await gate.release(await third)
    assert second.cancelled()
    assert gate.ledger.caps(account.session, account.turn)[0].held == 0


async def test_a_call_in_the_place_of_another_holds_that_place(gate: Gate, account: Account, ask: MakeAsk) -> None:
    """As with one that was turned away and is sent again."""
    limited(gate, account, CALL)
    with sharing():
        again = await gate.hold_final(await gate.hold(ask(100, 50)), ask(100, 50))
        second = asyncio.create_task(gate.hold(ask(100, 50)))
        assert await held_by_now(second) == [False]
        await gate.release(again)
        assert (await second).max_tokens == 50


async def test_caps_at_rest_leave_out_what_the_turns_calls_hold_here(
    gate: Gate, account: Account, ask: MakeAsk, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(gate, account, 10 * CALL)
    gate.ledger.set_cap(account.session, "turn", Amount(1_000, "tokens"))
    await gate.settle(await gate.hold(ask(100, 50)), LITTLE)
    await gate.set_aside(ask(100, 50))
    await gate.hold(ask(100, 50))
    turn, session = gate.ledger.caps(account.session, account.turn, at_rest=True)
    assert (turn.held, session.held) == (150, CALL)  # what was set aside
    assert (turn.spent, session.spent) == (15, 15_000_000)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    turn, session = gate.ledger.caps(account.session, account.turn, at_rest=True)
    assert (turn.held, session.held) == (300, 2 * CALL)

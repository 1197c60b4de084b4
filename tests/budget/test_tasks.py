"""Shares of subagents: caps below those of the session that pays for them."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_totals import wrong_totals

from ecoshell.budget import NANO, Account, Amount, Ask, CapState
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]
MILLION = 1_000_000


def usd(dollars: str) -> Amount:
    return Amount(int(Decimal(dollars) * NANO), "usd")


def test_a_call_of_a_subagent_counts_under_its_share_its_parents_and_the_session(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    ledger.set_cap("s1", "session", usd("1"))
    ledger.set_share("a", [usd("0.5")])
    ledger.set_share("a/b", [usd("0.2")])
    hold = ledger.hold(ask(100, 50, account=replace(account, task="a/b")))
    ledger.settle(hold, Usage(input=80, output=10))
    ledger.hold(ask(10, 10, account=replace(account, task="a")))
    assert ledger.caps("s1", 1, task="a/b") == (
        CapState("task", "usd", NANO // 5, 90 * MILLION, 0),
        CapState("task", "usd", NANO // 2, 90 * MILLION, 20 * MILLION),
        CapState("session", "usd", NANO, 90 * MILLION, 20 * MILLION),
    )
    assert [cap.scope for cap in ledger.caps("s1", 1)] == ["session"]
    row = ledger.task_row("a")
    assert row is not None
    assert (row.spent_nano, row.held_nano, row.calls) == (90 * MILLION, 20 * MILLION, 2)
    assert wrong_totals(ledger) == ()


def test_the_caps_of_several_tasks_are_of_the_same_moment(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    ledger.set_cap("s1", "session", usd("1000"))
    ledger.set_share("a", [usd("1000")])

    def spend() -> None:
        for _ in range(100):
            hold = ledger.hold(ask(100, 50, account=replace(account, task="a")))
            ledger.settle(hold, Usage(input=80, output=10))

    spender = Thread(target=spend)
    spender.start()
    while spender.is_alive():
        (session,), (share, *_) = ledger.caps_of_tasks("s1", 1, ["", "a"])
        assert session.left == share.left
    spender.join()


@pytest.mark.parametrize(
    ("share", "session", "scope"),
    [("0.12", "1", "task"), ("1", "0.12", "session"), ("0.3", "0.3", "")],
)
def test_the_tightest_of_share_and_session_limits_a_call(
    ledger: Ledger, ask: MakeAsk, account: Account, share: str, session: str, scope: str
) -> None:
    ledger.set_cap("s1", "session", usd(session))
    ledger.set_share("a", [usd(share)])
    own = replace(account, task="a")
    hold = ledger.hold(ask(100, 50, account=own))
    assert (hold.max_tokens < 50) is bool(scope)
    if scope:
        with pytest.raises(LimitReached) as hit:
            ledger.hold(ask(100, 50, account=own))
        assert hit.value.scope == scope


def test_shares_in_tokens_and_in_time_limit_calls_and_tools(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    ledger.set_share("a", [Amount(120, "tokens"), Amount(5_000, "ms")])
    own = replace(account, task="a")
    hold = ledger.hold(ask(100, 50, account=own))
    assert (hold.max_tokens, hold.ms) == (20, 5_000)
    with pytest.raises(LimitReached) as hit:
        ledger.start_tool(own, "look", 0)
    assert hit.value.unit == "ms"
    assert ledger.start_tool(account, "look", 0).ms is None


def test_a_subagent_keeps_its_own_reservation_for_the_answer(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    ledger.set_cap("s1", "session", usd("1"))
    ledger.set_share("a", [usd("0.5")])
    own = replace(account, task="a")
    parents = ledger.set_aside(ask(100, 50))
    ledger.set_aside(ask(100, 50, account=own))
    owns = ledger.set_aside(ask(50, 50, account=own))
    assert ledger.aside_nano(parents.account) == 150 * MILLION
    assert ledger.aside_nano(owns.account) == 100 * MILLION
    ledger.hold(ask(10, 10, account=own))
    running = [cap.held for cap in ledger.caps("s1", 1, task="a")]
    at_rest = [cap.held for cap in ledger.caps("s1", 1, task="a", at_rest=True)]
    assert [first - second for first, second in zip(running, at_rest, strict=True)] == [
        20 * MILLION,
        20 * MILLION,
    ]


def test_an_ended_share_gives_back_what_was_not_spent(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    own = replace(account, task="a")
    ledger.set_share("a", [usd("0.5")])
    ledger.settle(ledger.hold(ask(100, 50, account=own)), Usage(input=100))
    pending = ledger.hold(ask(100, 50, account=own))
    ledger.end_share("a")
    assert ledger.caps("s1", 1, task="a") == (
        CapState("task", "usd", 250 * MILLION, 100 * MILLION, 150 * MILLION),
    )
    with pytest.raises(LimitReached):
        ledger.hold(ask(1, 1, account=own))
    ledger.settle(pending, Usage(input=100, output=50))
    ledger.set_share("unused", [usd("0.5")])
    ledger.end_share("unused")
    assert ledger.caps("s1", 1, task="unused")[0].limit == 0


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["", "a", "a/b", "c"]), st.integers(1, 300), st.integers(0, 400))
    )
)
def test_no_share_and_no_session_is_exceeded(
    tmp_path_factory: pytest.TempPathFactory,
    ask: MakeAsk,
    account: Account,
    steps: list[tuple[str, int, int]],
) -> None:
    path: Path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.set_cap("s1", "session", usd("1"))
    for task, share in (("a", "0.6"), ("a/b", "0.3"), ("c", "0.5")):
        ledger.set_share(task, [usd(share)])
    for task, prompt, output in steps:
        try:
            hold = ledger.hold(ask(prompt, output + 1, account=replace(account, task=task)))
        except LimitReached:
            continue
        if output % 3:
            ledger.settle(hold, Usage(input=prompt, output=min(output, hold.max_tokens)))
        for owner in ("", "a/b", "c"):
            assert all(
                cap.spent + cap.held <= cap.limit for cap in ledger.caps("s1", 1, task=owner)
            )
    assert wrong_totals(ledger) == ()
    ledger.close()

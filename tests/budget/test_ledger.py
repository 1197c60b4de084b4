import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_totals import wrong_totals

from ecoshell.budget import (
    NANO,
    ZERO_PRICE,
    Account,
    Amount,
    Ask,
    CapState,
    Hold,
    Price,
    Rates,
    binding_cap,
)
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached, ModelDisabled, PriceUnknown, StoreError, UsageError
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]
MILLION = 1_000_000


def usd(dollars: str) -> Amount:
    return Amount(int(Decimal(dollars) * NANO), "usd")


def test_a_reservation_counts_the_worst_case_and_a_settlement_the_usage(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", usd("1"))
    hold = ledger.hold(ask(100, 50))
    assert (hold.nano, hold.tokens, hold.max_tokens, hold.clamped) == (
        150 * MILLION,
        150,
        50,
        False,
    )
    assert ledger.caps("s1", 1) == (CapState("session", "usd", NANO, 0, 150 * MILLION),)
    settlement = ledger.settle(hold, Usage(input=80, output=10))
    assert settlement.spent_nano == 90 * MILLION
    assert settlement.reported
    assert not settlement.overran
    assert ledger.caps("s1", 1) == (CapState("session", "usd", NANO, 90 * MILLION, 0),)


def test_max_tokens_is_lowered_to_fit_the_tightest_cap(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", usd("0.150"))
    ledger.set_cap("s1", "day", usd("0.130"))
    ledger.set_cap("s1", "month", Amount(1000, "tokens"))
    hold = ledger.hold(ask(100, 50))
    assert (hold.max_tokens, hold.clamped, hold.nano) == (30, True, 130 * MILLION)


@pytest.mark.parametrize(
    ("left", "output"),
    [(100_000, 24_000), (40_000, 9_000), (20_000, 8_192), (5_000, 4_000), (1_000_000, 64_000)],
)
def test_a_call_that_may_be_repeated_leaves_room_under_the_cap(
    ledger: Ledger, ask: MakeAsk, left: int, output: int
) -> None:
    """It takes a quarter of what is left, or what a usual reply needs."""
    ledger.set_cap("s1", "session", Amount(left * MILLION, "usd"))
    call = ask(1_000, 64_000)
    hold = ledger.hold(replace(call, repeatable=True))
    assert (hold.max_tokens, hold.clamped) == (output, output < 8_192)
    ledger.release(hold)
    assert ledger.hold(call).max_tokens == min(64_000, left - 1_000)


def test_a_retry_reserves_no_more_than_the_first_attempt(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", Amount(100_000 * MILLION, "usd"))
    call = replace(ask(1_000, 64_000), repeatable=True)
    hold = ledger.hold(call)
    assert ledger.exchange(hold, call).max_tokens == hold.max_tokens == 24_000


def test_a_repeated_call_gets_the_output_it_needs(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", Amount(40_000 * MILLION, "usd"))
    longer = replace(ask(1_000, 18_000), min_tokens=13_500, repeatable=True)
    assert ledger.hold(longer).max_tokens == 13_500


def test_a_cap_in_tokens_counts_prompt_and_output(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", Amount(120, "tokens"))
    assert ledger.hold(ask(100, 50)).max_tokens == 20
    with pytest.raises(LimitReached) as hit:
        ledger.hold(ask(100, 50))
    assert (hit.value.unit, hit.value.need, hit.value.left) == ("tokens", 116, 0)


def test_a_call_that_would_be_shortened_below_its_minimum_is_refused_with_a_fix(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "day", usd("0.115"))
    with pytest.raises(LimitReached) as hit:
        ledger.hold(ask(100, 50))
    assert (hit.value.scope, hit.value.unit) == ("day", "usd")
    assert (hit.value.need, hit.value.left) == (116 * MILLION, 115 * MILLION)
    assert "/budget day" in hit.value.fix
    assert "$0.115" in str(hit.value)
    assert wrong_totals(ledger) == ()
    assert ledger.rows("session") == ()


def test_a_call_shorter_than_the_minimum_needs_only_its_own_tokens(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", usd("0.105"))
    assert ledger.hold(ask(100, 5)).max_tokens == 5
    ledger.set_cap("s1", "session", usd("0.205"))
    assert ledger.hold(ask(100, 0)).max_tokens == 0


def test_turn_and_session_caps_count_their_own_calls_and_day_and_month_caps_all(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    for scope in ("turn", "session", "day", "month"):
        ledger.set_cap("s1", scope, usd("10"))
    ledger.settle(ledger.hold(ask(account=replace(account, turn=1))), Usage(input=1))
    ledger.settle(ledger.hold(ask(account=replace(account, turn=2))), Usage(input=2))
    ledger.settle(ledger.hold(ask(account=replace(account, session="s2"))), Usage(input=4))
    spent = {cap.scope: cap.spent // MILLION for cap in ledger.caps("s1", 2)}
    assert spent == {"turn": 2, "session": 3, "day": 7, "month": 7}
    assert [cap.scope for cap in ledger.caps("s2", 1)] == ["day", "month"]


@pytest.mark.parametrize(
    ("session_cap", "limits", "output"),
    [
        (None, [usd("0.130")], 30),
        (usd("0.120"), [usd("0.130")], 20),
        (usd("0.140"), [usd("0.130")], 30),
        (Amount(120, "tokens"), [usd("0.130")], 20),
        (usd("0.140"), [usd("0.130"), usd("0.120")], 20),
        (usd("0.140"), [Amount(130, "tokens"), usd("0.120")], 20),
    ],
)
def test_the_limit_of_a_turn_never_weakens_a_cap_and_ends_with_it(
    ledger: Ledger, ask: MakeAsk, session_cap: Amount | None, limits: list[Amount], output: int
) -> None:
    if session_cap is not None:
        ledger.set_cap("s1", "turn", session_cap)
    caps = ledger.caps("s1", 1)
    ledger.limit_turn("s1", 1, limits)
    hold = ledger.hold(ask(100, 50))
    assert hold.max_tokens == output
    assert all(
        cap.left == 0 for cap in ledger.caps("s1", 1) if cap.limit in (hold.nano, hold.tokens)
    )
    assert ledger.caps("s1", 2) == caps
    ledger.limit_turn("s1", 1, ())
    ledger.release(hold)
    assert ledger.caps("s1", 1) == caps


def test_day_and_month_caps_restart_with_the_local_calendar(path: Path, ask: MakeAsk) -> None:
    now = [datetime(2025, 1, 30, 23, 59)]
    ledger = Ledger(path, clock=lambda: now[0])
    ledger.set_cap("s1", "day", usd("1"))
    ledger.set_cap("s1", "month", usd("1"))
    first = ledger.hold(ask())
    now[0] = datetime(2025, 1, 31)
    ledger.settle(first, Usage(input=100))  # counts for the day of its reservation
    assert [(cap.scope, cap.spent) for cap in ledger.caps("s1", 1)] == [
        ("day", 0),
        ("month", 100 * MILLION),
    ]
    now[0] = datetime(2025, 2, 1)
    assert [cap.spent for cap in ledger.caps("s1", 1)] == [0, 0]
    assert [row.key for row in ledger.rows("day")] == ["2025-01-30"]
    ledger.close()


def test_caps_in_dollars_and_tokens_coexist_until_the_scope_is_cleared(ledger: Ledger) -> None:
    ledger.set_cap("s1", "session", usd("1"))
    ledger.set_cap("s1", "session", Amount(500, "tokens"))
    ledger.set_cap("s1", "session", usd("2"))
    assert [(cap.unit, cap.limit) for cap in ledger.caps("s1", 1)] == [
        ("usd", 2 * NANO),
        ("tokens", 500),
    ]
    ledger.set_cap("s1", "session", None)
    assert ledger.caps("s1", 1) == ()


def test_the_full_reservation_is_spent_without_reported_usage(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", usd("1"))
    settlement = ledger.settle(ledger.hold(ask(100, 50)), None)
    assert (settlement.spent_nano, settlement.usage, settlement.reported) == (
        150 * MILLION,
        Usage(100, 50),
        False,
    )
    assert ledger.caps("s1", 1)[0].spent == 150 * MILLION
    assert [entry.state for entry in ledger.unreconciled()] == ["unreported"]


def test_a_released_reservation_leaves_no_trace_in_the_sums(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", usd("1"))
    hold = ledger.hold(ask())
    ledger.release(hold)
    ledger.release(hold)
    assert ledger.caps("s1", 1)[0].left == NANO
    assert ledger.rows("model") == ()
    assert ledger.last("s1") is None


def test_a_reservation_is_settled_once(ledger: Ledger, ask: MakeAsk) -> None:
    hold = ledger.hold(ask())
    ledger.settle(hold, Usage(input=1))
    with pytest.raises(StoreError, match="already settled"):
        ledger.settle(hold, Usage(input=1))
    ledger.release(hold)
    assert ledger.rows("session")[0].spent_nano == MILLION


def test_a_model_without_a_price_is_refused_under_a_dollar_cap_with_the_setting_for_it(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", Amount(10_000, "tokens"))
    ledger.release(ledger.hold(ask(price=None)))
    ledger.set_cap("s1", "month", usd("1"))
    with pytest.raises(PriceUnknown) as refused:
        ledger.hold(ask(price=None))
    assert '[models."m".price]' in refused.value.fix
    assert "/budget month off, then /budget month 100000tok" in refused.value.fix
    ledger.set_cap("s1", "month", None)
    ledger.set_cap("s1", "month", Amount(20_000, "tokens"))
    assert ledger.hold(ask(price=None)).nano is None


def test_spending_at_an_unknown_price_is_unknown_and_not_zero(
    ledger: Ledger, ask: MakeAsk, account: Account
) -> None:
    hold = ledger.hold(ask(price=None))
    assert hold.nano is None
    assert ledger.settle(hold, Usage(10, 5)).spent_nano is None
    row = ledger.rows("model")[0]
    assert (row.spent_nano, row.unpriced, row.usage) == (None, 1, Usage(10, 5))
    ledger.settle(ledger.hold(ask(account=replace(account, model="other"))), Usage(input=3))
    priced, total = ledger.rows("model")[1], ledger.rows("session")[0]
    assert (priced.spent_nano, priced.unpriced) == (3 * MILLION, 0)
    assert (total.spent_nano, total.unpriced, total.calls) == (3 * MILLION, 1, 2)
    assert ledger.settle(ledger.hold(ask(price=None)), None).spent_nano is None


def test_a_bill_above_the_reservation_disables_the_model_under_caps(
    ledger: Ledger, ask: MakeAsk
) -> None:
    settlement = ledger.settle(ledger.hold(ask(100, 50)), Usage(200, 100))
    assert (settlement.overrun_nano, settlement.overrun_tokens) == (150 * MILLION, 150)
    ledger.release(ledger.hold(ask()))  # a model without a cap is not disabled
    ledger.set_cap("s1", "day", usd("100"))
    with pytest.raises(
        ModelDisabled, match=r"m is no longer allowed .* billed \$0\.15 more"
    ) as refused:
        ledger.hold(ask())
    assert refused.value.fix.endswith(
        "ecoshell models --unbar m"
    )  # /budget off does not remove a day cap
    with pytest.raises(ModelDisabled):
        ledger.set_aside(ask())
    assert list(ledger.barred()) == ["m"]
    ledger.unbar("m")
    assert ledger.hold(ask()).max_tokens == 50


def test_more_tokens_than_reserved_are_an_overrun_even_if_free(
    ledger: Ledger, ask: MakeAsk
) -> None:
    settlement = ledger.settle(ledger.hold(ask(100, 50, price=ZERO_PRICE)), Usage(100, 51))
    assert (settlement.overrun_nano, settlement.overrun_tokens) == (0, 1)
    assert "m" in ledger.barred()


def test_the_reserve_for_the_answer_is_replaced_and_never_doubled(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", usd("0.250"))
    ledger.set_aside(ask(100, 50))
    ledger.set_aside(ask(110, 50))
    assert ledger.caps("s1", 1)[0].held == 160 * MILLION
    with pytest.raises(LimitReached) as hit:
        ledger.hold(ask(100, 50))
    assert hit.value.left == 90 * MILLION


def test_a_reserve_over_the_cap_leaves_the_previous_one(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", usd("0.160"))
    aside = ledger.set_aside(ask(100, 50))
    with pytest.raises(LimitReached):
        ledger.set_aside(ask(200, 50))
    assert ledger.caps("s1", 1)[0].held == 150 * MILLION
    assert ledger.exchange(aside, ask(100, 50)).max_tokens == 50


def test_the_final_call_replaces_its_reserve_even_if_nothing_else_is_left(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", usd("0.150"))
    aside = ledger.set_aside(ask(100, 50))
    ledger.set_cap("s1", "session", usd("0.010"))
    hold = ledger.exchange(aside, ask(90, 60))
    assert (hold.max_tokens, hold.clamped) == (60, False)
    assert ledger.caps("s1", 1)[0].held == 150 * MILLION
    ledger.settle(hold, Usage(90, 10))
    assert wrong_totals(ledger) == ()


def test_a_final_call_larger_than_its_reserve_uses_the_remaining_caps(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", usd("0.200"))
    aside = ledger.set_aside(ask(100, 50))
    hold = ledger.exchange(aside, ask(120, 100))
    assert (hold.max_tokens, hold.clamped) == (80, True)
    with pytest.raises(LimitReached):
        ledger.exchange(hold, ask(300, 50))
    assert ledger.entry(hold.entry).state == "held"


def test_a_call_whose_process_cannot_be_seen_is_settled_when_it_ends(
    path: Path, ask: MakeAsk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(path)
    hold = ledger.hold(ask(100, 50))
    monkeypatch.setattr("ecoshell.budget.ledger.alive", lambda pid: False)
    other = Ledger(path)
    assert other.rows("session")[0].spent_nano == 150 * MILLION
    ledger.settle(hold, Usage(90, 10))
    assert (ledger.entry(hold.entry).state, wrong_totals(ledger)) == ("settled", ())
    assert ledger.rows("session")[0].spent_nano == 100 * MILLION
    other.close()
    ledger.close()


def test_a_final_call_counts_for_the_day_of_its_reserve(path: Path, ask: MakeAsk) -> None:
    now = [datetime(2025, 1, 30, 23, 59)]
    ledger = Ledger(path, clock=lambda: now[0])
    ledger.set_cap("s1", "day", usd("0.150"))
    aside = ledger.set_aside(ask(100, 50))
    now[0] = datetime(2025, 1, 31)
    ledger.settle(ledger.hold(ask(100, 50)), None)
    assert ledger.settle(ledger.exchange(aside, ask(100, 50)), None).spent_nano == 150 * MILLION
    assert {row.key: row.spent_nano for row in ledger.rows("day")} == {
        "2025-01-30": 150 * MILLION,
        "2025-01-31": 150 * MILLION,
    }
    ledger.close()


def test_a_final_call_without_its_reserve_is_an_ordinary_call(ledger: Ledger, ask: MakeAsk) -> None:
    ledger.set_cap("s1", "session", usd("0.150"))
    aside = ledger.set_aside(ask(100, 50))
    ledger.release(aside)
    ledger.hold(ask(100, 20))
    with pytest.raises(LimitReached):
        ledger.exchange(aside, ask(100, 50))


def test_a_reserve_does_not_let_a_model_without_a_price_pass_a_dollar_cap(
    ledger: Ledger, ask: MakeAsk
) -> None:
    aside = ledger.set_aside(ask(price=None))
    ledger.set_cap("s1", "session", usd("1"))
    with pytest.raises(PriceUnknown):
        ledger.exchange(aside, ask(price=None))


def test_a_tool_with_a_price_is_charged_within_the_caps(ledger: Ledger, account: Account) -> None:
    ledger.set_cap("s1", "session", usd("0.010"))
    ledger.start_tool(account, "search", 8 * MILLION)
    with pytest.raises(LimitReached):
        ledger.start_tool(account, "search", 3 * MILLION)
    assert ledger.caps("s1", 1)[0].spent == 8 * MILLION
    row = ledger.rows("tool")[0]
    assert (row.key, row.spent_nano, row.calls) == ("search", 8 * MILLION, 0)


def test_rows_add_up_by_each_key(ledger: Ledger, ask: MakeAsk, account: Account) -> None:
    for role, model, tool in [("planner", "a", "x"), ("caller", "a", "y"), ("planner", "b", "x")]:
        request = ask(account=replace(account, role=role, model=model))
        ledger.settle(ledger.hold(request), Usage(10, 5, cached=4), tool)
    ledger.hold(ask())
    assert {row.key: row.calls for row in ledger.rows("role")} == {
        "planner": 2,
        "caller": 1,
        "single": 1,
    }
    assert {row.key: row.usage.cached for row in ledger.rows("model")} == {"a": 8, "b": 4, "m": 0}
    assert {row.key: row.spent_nano for row in ledger.rows("tool")} == {
        "x": 30 * MILLION,
        "y": 15 * MILLION,
        "": 0,
    }
    assert [row.held_nano for row in ledger.rows("session")] == [150 * MILLION]
    assert ledger.session_row("s1") == ledger.rows("session")[0]
    assert ledger.session_row("none") is None


def test_reasoning_costs_of_a_session_add_up(ledger: Ledger, ask: MakeAsk) -> None:
    for reasoning in (3, 2):
        ledger.settle(ledger.hold(ask(10, 10)), Usage(10, 5, reasoning=reasoning))
    ledger.settle(ledger.hold(ask(price=None)), Usage(10, 5, reasoning=5))
    assert (ledger.reasoning_nano("s1"), ledger.reasoning_nano("none")) == (5 * MILLION, 0)


@pytest.mark.parametrize(
    ("output", "floor"), [(8, 8), (50, 16), (512, 128), (1024, 256), (64_000, 256)]
)
def test_a_call_is_refused_below_a_quarter_of_its_output_from_16_to_256_tokens(
    output: int, floor: int, ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", Amount((100 + floor) * MILLION, "usd"))
    hold = ledger.hold(ask(100, output))
    assert (hold.max_tokens, hold.clamped) == (floor, floor < output)
    ledger.release(hold)
    ledger.set_cap("s1", "session", Amount((100 + floor) * MILLION - 1, "usd"))
    with pytest.raises(LimitReached):
        ledger.hold(ask(100, output))


def test_every_entry_prints_its_arithmetic(ledger: Ledger, ask: MakeAsk) -> None:
    price = Price(Rates(*map(Decimal, ("3", "0.3", "3.75", "15", "15"))))
    hold = ledger.hold(ask(2000, 100, price=price))
    last = ledger.last("s1")
    assert last is not None
    assert last.arithmetic() == (
        "held: the worst case is reserved",
        "2,000 prompt at most × $3.75/M = $0.0075",
        "100 output at most × $15/M = $0.0015",
        "total $0.009",
    )
    ledger.settle(hold, Usage(1500, 20, cached=1000))
    assert ledger.entry(hold.entry).arithmetic() == (
        "500 fresh input × $3/M = $0.0015",
        "1,000 cached input × $0.30/M = $0.0003",
        "20 output text × $15/M = $0.0003",
        "total $0.0021",
    )
    lost = ledger.hold(ask(2000, 100, price=price))
    ledger.settle(lost, None)
    assert "no usage was reported" in ledger.entry(lost.entry).arithmetic()[0]
    unknown = ledger.hold(ask(price=None))
    ledger.settle(unknown, Usage(7, 3))
    assert ledger.entry(unknown.entry).arithmetic() == ("7 input, 3 output", "at an unknown price")
    over = ledger.hold(ask(10, 10))
    ledger.settle(over, Usage(30, 10))
    assert ledger.entry(over.entry).arithmetic()[-1] == "$0.02 more than the $0.02 held"


def test_an_unreported_call_can_be_reconciled_with_its_real_usage(
    ledger: Ledger, ask: MakeAsk
) -> None:
    hold = ledger.hold(ask(100, 50))
    ledger.settle(hold, None)
    assert ledger.reconcile(hold.entry, Usage(60, 20)).spent_nano == 80 * MILLION
    assert ledger.unreconciled() == ()
    ledger.reconcile(hold.entry, usd("0.07"))
    row = ledger.rows("session")[0]
    assert (row.spent_nano, row.usage) == (70 * MILLION, Usage(60, 20))
    assert ledger.entry(hold.entry).arithmetic()[-1] == "reconciled to $0.07"
    ledger.reconcile(hold.entry, Amount(30, "tokens"))
    assert ledger.rows("session")[0].usage == Usage(input=30)
    assert wrong_totals(ledger) == ()


def test_the_estimate_of_an_unreported_call_is_shown_and_counts_for_no_cap(
    ledger: Ledger, ask: MakeAsk
) -> None:
    ledger.set_cap("s1", "session", usd("1"))
    hold = ledger.hold(ask(100, 50))
    settlement = ledger.settle(hold, None, estimate=Usage(40, 80))
    assert (settlement.estimate, settlement.estimate_nano) == (
        Usage(40, 50),
        90 * MILLION,
    )  # at most the reservation
    row = ledger.rows("session")[0]
    assert (row.spent_nano, row.usage) == (150 * MILLION, Usage(100, 50))
    assert (row.shown_nano, row.shown_usage) == (90 * MILLION, Usage(40, 50))
    assert ledger.caps("s1", 1)[0].spent == 150 * MILLION
    assert (
        "≈ 40 input sent, 50 output received, by a tokenizer: ≈ $0.09"
        in ledger.entry(hold.entry).arithmetic()
    )
    ledger.reconcile(hold.entry, usd("0.07"))
    row = ledger.rows("session")[0]
    assert (row.shown_nano, row.estimate_nano, row.estimate) == (70 * MILLION, None, Usage(40, 50))
    ledger.reconcile(hold.entry, Usage(60, 20))
    row = ledger.rows("session")[0]
    assert (row.shown_nano, row.shown_usage, row.estimate) == (80 * MILLION, Usage(60, 20), None)
    assert wrong_totals(ledger) == ()


def test_only_ended_calls_can_be_reconciled(ledger: Ledger, ask: MakeAsk, account: Account) -> None:
    running, aside = ledger.hold(ask()), ledger.set_aside(ask())
    for entry in (running.entry, aside.entry, 999):
        with pytest.raises(UsageError):
            ledger.reconcile(entry, usd("0.01"))


def test_the_ledger_is_unchanged_after_reopening(path: Path, ask: MakeAsk) -> None:
    first = Ledger(path)
    first.set_cap("s1", "session", usd("1"))
    first.settle(first.hold(ask()), Usage(10, 10))
    first.bar("m", "because")
    first.close()
    second = Ledger(path)
    assert second.caps("s1", 1)[0].spent == 20 * MILLION
    assert second.barred() == {"m": "because"}
    second.close()


operations = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "hold",
                "aside",
                "settle",
                "unreported",
                "release",
                "final",
                "tool",
                "reconcile",
                "overrun",
            ]
        ),
        st.integers(0, 300),
        st.integers(0, 120),
        st.integers(0, 10),
    ),
    max_size=30,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(operations, st.integers(100, 1500))
def test_totals_match_entries_and_caps_hold_after_any_operations(
    tmp_path_factory: pytest.TempPathFactory,
    ask: MakeAsk,
    steps: list[tuple[str, int, int, int]],
    limit: int,
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("any") / "ledger.sqlite")
    ledger.set_cap("s1", "session", Amount(limit * MILLION, "usd"))
    ledger.set_cap("s1", "day", Amount(limit, "tokens"))
    ledger.set_cap("s1", "month", Amount(10 * limit, "ms"))
    pending: list[Hold] = []
    overran = False
    for kind, prompt, output, index in steps:
        with suppress(LimitReached, ModelDisabled):
            _perform(ledger, kind, ask(prompt, output), pending, index)
        overran = overran or bool(ledger.barred())
        if not overran:
            assert all(cap.spent + cap.held <= cap.limit for cap in ledger.caps("s1", 1))
    assert wrong_totals(ledger) == ()
    ledger.close()


def _perform(ledger: Ledger, kind: str, ask: Ask, pending: list[Hold], index: int) -> None:
    """Perform one operation; operations that end a reservation end one of the pending ones."""
    if kind == "hold":
        pending.append(ledger.hold(ask))
    elif kind == "tool":
        tool = ledger.start_tool(ask.account, "t", ask.prompt_tokens * MILLION)
        ledger.end_tool(tool, (tool.ms or 0) + ledger.extend(tool.entry or 0))
    elif kind == "aside":
        ledger.set_aside(ask)
    elif kind == "final":
        pending.append(ledger.exchange(ledger.set_aside(ask), ask))
    elif pending and kind == "reconcile":
        hold = pending.pop(index % len(pending))
        ledger.settle(hold, None)
        ledger.reconcile(hold.entry, Usage(hold.prompt_tokens, 0))
    elif pending:
        hold = pending.pop(index % len(pending))
        ms = (hold.ms or 0) + ledger.extend(hold.entry)
        if kind == "release":
            ledger.release(hold, ms)
        elif kind == "overrun":
            ledger.settle(hold, Usage(hold.prompt_tokens + 1, hold.max_tokens))
        else:
            reported = None if kind == "unreported" else Usage(hold.prompt_tokens, hold.max_tokens)
            ledger.settle(hold, reported, ms=ms, estimate=Usage(index, index))


def test_verify_names_a_changed_total(path: Path, ledger: Ledger, ask: MakeAsk) -> None:
    ledger.settle(ledger.hold(ask()), Usage(10, 10))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE totals SET spent_nano = 0 WHERE scope = 'day'")
    assert [line.split(" ")[0] for line in wrong_totals(ledger)] == ["day"]


def test_a_cap_from_the_settings_replaces_a_live_one_only_when_it_changes(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")

    def day() -> list[int]:
        return [cap.limit for cap in ledger.caps("s", 1) if cap.scope == "day"]

    ledger.adopt_cap("day", Amount(5, "usd"))
    assert day() == [5]
    ledger.set_cap("s", "day", Amount(2, "usd"))
    ledger.adopt_cap("day", Amount(5, "usd"))
    assert day() == [2]
    ledger.adopt_cap("day", Amount(3, "usd"))
    assert day() == [3]
    ledger.adopt_cap("day", None)
    assert day() == []
    ledger.set_cap("s", "day", Amount(7, "usd"))
    ledger.adopt_cap("day", None)
    assert day() == [7]
    ledger.close()


def test_sums_ignore_unused_columns_of_a_call(ledger: Ledger, path: Path, ask: MakeAsk) -> None:
    ledger.settle(ledger.hold(ask(100, 50)), Usage(80, 10))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entries SET turn = 'x'")
    assert [row.calls for row in ledger.rows("model")] == [1]
    assert [row.calls for row in ledger.rows("session")] == [1]


def test_the_binding_cap_has_the_smallest_rest_of_its_unit_and_the_smallest_share_of_all() -> None:
    session = CapState("session", "usd", NANO, 700 * MILLION, 0)
    day = CapState(
        "day", "usd", 10 * NANO, 8 * NANO, 0
    )  # a smaller share of it is left, but more dollars
    tokens = CapState("session", "tokens", 1_000, 900, 0)
    assert binding_cap((day, session), lambda cap: cap.left) == session
    assert binding_cap((day, session, tokens), lambda cap: cap.left) == tokens
    assert binding_cap((), lambda cap: cap.left) is None

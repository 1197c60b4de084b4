"""Shares of roles in a turn."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.events import Consumption, StepStarted
from ecoshell.messages import Usage
from ecoshell.tui.side.panel_state import PanelState, RoleUse, shares

NANO = st.integers(0, 10**12)
USES = st.lists(
    st.builds(
        RoleUse,
        role=st.just("planner"),
        model=st.just("m"),
        consumption=st.builds(
            Consumption,
            nano=st.none() | NANO,
            usage=st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**5)),
        ),
        seconds=st.floats(0, 10_000),
    ),
    max_size=6,
)


def use(
    role: str = "planner", spent: int | None = 0, tokens: int = 0, seconds: float = 0.0
) -> RoleUse:
    return RoleUse(role, "m", 1, Consumption(spent, Usage(tokens, 0)), seconds)


@given(USES)
def test_shares_add_up_to_100_percent_in_order_of_use(uses: list[RoleUse]):
    shared = shares(uses)
    if shared is None:
        assert not any(
            item.consumption.usage.total or round(item.seconds * 1_000_000) for item in uses
        )
        return
    assert sum(shared.percent) == 100
    assert len(shared.percent) == len(uses)
    parts = {
        "price": lambda item: item.consumption.nano,
        "tokens": lambda item: item.consumption.usage.total,
        "time": lambda item: item.seconds,
    }
    ordered = sorted(zip((parts[shared.basis](item) for item in uses), shared.percent, strict=True))
    assert all(later[1] >= earlier[1] - 1 for earlier, later in pairwise(ordered))


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ((use(spent=3_000, tokens=1), use(spent=1_000, tokens=9)), ("price", "", (75, 25))),
        ((use(tokens=90), use(tokens=10)), ("tokens", "free of charge", (90, 10))),
        ((use(spent=None, tokens=90), use(tokens=10)), ("tokens", "price unknown", (90, 10))),
        ((use(seconds=0.2), use(seconds=0.6)), ("time", "free of charge", (25, 75))),
        ((use(spent=1), use(spent=1), use(spent=1)), ("price", "", (34, 33, 33))),
        ((use(spent=998), use(spent=1), use(spent=1)), ("price", "", (100, 0, 0))),
    ],
    ids=["price", "free", "unknown price", "time", "largest remainders", "small parts"],
)
def test_shares_follow_the_price_or_else_the_tokens_or_the_time(uses, expected):
    shared = shares(uses)
    assert shared is not None
    assert (shared.basis, shared.why, shared.percent) == expected


def test_no_calls_have_no_shares():
    assert shares([]) is None
    assert shares([RoleUse("planner", "m"), RoleUse("caller", "m")]) is None


def test_three_roles_come_first_then_the_others():
    board = PanelState()
    for role, model in (
        *((role, "m") for role in ("judge", "summarizer", "single", "caller", "planner")),
        ("ranker", "m"),
        ("planner", "other"),
    ):
        board.handle(StepStarted(1, role, model))
    assert [item.role for item in board.uses(session=True)] == [
        *("planner", "planner", "caller", "summarizer", "judge", "single", "ranker"),
    ]

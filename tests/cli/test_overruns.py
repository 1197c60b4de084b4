"""What a person is told of a provider that charged more than was reserved: in both chats, once, in the same words."""

import pytest

from ecoshell.events import BudgetSettled, Event, Notice
from ecoshell.events.describe import describe
from ecoshell.messages import Usage
from tests.support.telling import printed, told

OVERRUN = BudgetSettled(7, "single", "openai/m", 7_100_000, Usage(), True, 1.0, overrun_nano=2_000_000)
NOTED = Notice(describe(OVERRUN))
"""What the meter says of it, which is kept in the session too."""


@pytest.mark.parametrize("events", [(OVERRUN,), (OVERRUN, NOTED)])
def test_the_line_shell_tells_an_overrun_once(events: tuple[Event, ...]) -> None:
    (line,) = printed(*events)
    assert "note: openai/m billed $0.002 more than the prompt and max_tokens allow" in line
    assert "not called under a cap" in line


@pytest.mark.parametrize("events", [(OVERRUN,), (OVERRUN, NOTED)])
def test_the_transcript_tells_an_overrun_once(events: tuple[Event, ...]) -> None:
    assert " ".join(told(*events)).count("openai/m billed $0.002 more") == 1


def test_a_call_that_cost_what_was_reserved_or_less_is_not_worth_a_line() -> None:
    usual = BudgetSettled(7, "single", "openai/m", 7_100_000, Usage(), True, 1.0)
    assert printed(usual) == told(usual) == []


def test_the_name_of_a_model_that_overran_steers_no_terminal() -> None:
    (line,) = printed(BudgetSettled(7, "single", "m\x1b[2J", 1, Usage(), True, 1.0, overrun_nano=1))
    assert "\x1b" not in line

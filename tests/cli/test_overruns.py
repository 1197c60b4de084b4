"""A provider that charged more than reserved is reported once in both chats, in the same words."""

import pytest

from ecoshell.events import BudgetSettled, Event, Notice
from ecoshell.messages import Usage
from tests.support.telling import printed, told

OVERRUN = BudgetSettled(
    7, "single", "openai/m", 7_100_000, Usage(), True, 1.0, overrun_nano=2_000_000
)
NOTED = Notice(OVERRUN.render().words)
"""The notice of the metered model, which the session stores as well."""


@pytest.mark.parametrize("events", [(OVERRUN,), (OVERRUN, NOTED)])
def test_line_shell_reports_an_overrun_once(events: tuple[Event, ...]) -> None:
    (line,) = printed(*events)
    assert "note: openai/m billed $0.002 more than the prompt and max_tokens allow" in line
    assert "not called under a cap" in line


@pytest.mark.parametrize("events", [(OVERRUN,), (OVERRUN, NOTED)])
def test_transcript_reports_an_overrun_once(events: tuple[Event, ...]) -> None:
    assert " ".join(told(*events)).count("openai/m billed $0.002 more") == 1


def test_call_within_its_reservation_prints_nothing() -> None:
    usual = BudgetSettled(7, "single", "openai/m", 7_100_000, Usage(), True, 1.0)
    assert printed(usual) == told(usual) == []


def test_name_of_an_overrunning_model_is_shown_as_text() -> None:
    (line,) = printed(BudgetSettled(7, "single", "m\x1b[2J", 1, Usage(), True, 1.0, overrun_nano=1))
    assert "\x1b" not in line

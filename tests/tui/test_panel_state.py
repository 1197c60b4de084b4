"""The state behind the side panels, without a screen."""

from dataclasses import replace

import pytest
from plan_play import ADVICE, PLANNED, USED
from side_play import READY, TURN, TWO_MODELS
from tui_play import CAP

from ecoshell.events import (
    BranchLeft,
    BudgetChanged,
    BudgetHeld,
    BudgetReconciled,
    BudgetSettled,
    CallStarted,
    Event,
    TextArrived,
    ToolRegistered,
    ToolUnregistered,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.tui.side.panel_state import PanelState, ToolState

STARTED, STEP, HELD, SETTLED, REGISTERED, FINISHED = TURN
CALL = CallStarted("c1", "count_text", {})
UNPRICED = BudgetHeld(2, "single", "x", None, 400, 256, clamped=False)


def heard(*events: Event) -> PanelState:
    board = PanelState()
    for event in events:
        board.handle(event)
    return board


def looked(*events: Event, status=READY) -> PanelState:
    board = heard(*events)
    board.update(status, status.caps)
    return board


def tool(board: PanelState, name: str) -> ToolState:
    return next(tool for tool in board.tools if tool.name == name)


def test_role_adds_up_its_calls_tokens_price_and_seconds():
    board = heard(*TURN, STEP, SETTLED)
    use = board.roles["single", "embedded"]
    assert (use.calls, use.consumption.nano, use.seconds) == (2, 6_200_000, 4.2)
    assert use.consumption.usage == Usage(3_800, 120, cached=2_400)


def test_a_reconciled_call_replaces_its_estimate_in_session_and_turn():
    unreported = BudgetSettled(
        *(2, "single", "embedded", 52_000_000, Usage(7_200, 1_000), False, 3.0),
        estimate=Usage(812, 40),
        estimate_nano=1_200_000,
    )
    priced = BudgetReconciled(2, 3_100_000, Usage(7_200, 1_000), estimate=Usage(812, 40))
    timed = BudgetReconciled(2, 52_000_000, Usage(7_200, 1_000), seconds=1.0)
    board = heard(*TURN, replace(STARTED, turn=2), STEP, unreported)
    for event in (priced, timed):
        assert board.handle(event)
    assert not board.handle(replace(priced, entry=99))
    session, turn = board.roles["single", "embedded"], board.turn_roles["single", "embedded"]
    assert (session.calls, session.consumption.nano, session.seconds) == (2, 6_200_000, 3.1)
    assert (turn.calls, turn.consumption.nano, turn.seconds) == (1, 3_100_000, 1.0)
    assert (turn.consumption.usage, turn.consumption.estimated) == (Usage(812, 40), True)
    assert not session.consumption.estimated_nano


def test_tools_registered_only_in_an_abandoned_branch_are_unregistered():
    board = looked(STARTED, ToolRegistered("read_file", 200, True, 1, "agent", "c1"))
    assert tool(board, "read_file").registered
    assert board.handle(BranchLeft((), 1, "given up", ("read_file",)))
    assert not tool(board, "read_file").registered


def test_one_unknown_price_makes_the_sum_unknown_for_good():
    board = heard(replace(SETTLED, spent_nano=None), SETTLED)
    assert board.roles["single", "embedded"].consumption.nano is None


def test_thinking_role_is_known_from_step_to_settlement():
    board = heard(STARTED)
    thinkers = []
    for event in (STEP, HELD, SETTLED):
        board.handle(event)
        thinkers.append(board.thinking)
    assert thinkers == [("single", "embedded"), ("single", "embedded"), None]


def test_held_amount_is_the_sum_of_unsettled_holds():
    other = BudgetHeld(2, "caller", "embedded", 900_000, 400, 256, clamped=False)
    board = heard(STARTED, HELD, other)
    assert board.held == (8_000_000, 2_700, 0)
    board.handle(SETTLED)
    assert board.held == (900_000, 400, 0)


@pytest.mark.parametrize(
    ("events", "held", "thinking"),
    [
        ((STARTED, STEP, CALL), (0, 0, 0), None),
        ((HELD, UNPRICED), (None, 2_700, 0), ("single", "x")),
        ((STARTED, STEP, HELD, replace(STEP, step=2)), (0, 0, 0), ("single", "embedded")),
        ((STARTED, STEP, HELD, FINISHED), (0, 0, 0), None),
    ],
    ids=["during a call", "unknown price", "released by the next step", "after the turn"],
)
def test_held_amount_and_thinking_role(events, held, thinking):
    board = heard(*events)
    assert (board.held, board.thinking) == (held, thinking)


def test_past_of_a_killed_process_has_no_activity():
    board = heard(*TURN, TurnStarted(2, "more", "embedded", "single", "react"), STEP, HELD)
    board.end_activity()
    assert (board.held, board.thinking, board.running) == ((0, 0, 0), None, False)
    assert board.roles["single", "embedded"].calls == 1


def test_plan_of_an_ended_process_stays_visible():
    board = heard(STARTED, PLANNED, USED)
    board.end_activity()
    assert board.plan == USED


def test_between_turns_the_shells_plan_applies():
    board = looked(STARTED, PLANNED, FINISHED)
    raised = replace(
        PLANNED, cap=90_000_000, whole=92_000_000, reason="the session's cap is $0.09 now"
    )
    assert board.update(replace(READY, planned=raised), READY.caps)
    assert (board.plan, board.plan_total) == (raised, 92_000_000)
    assert not board.update(replace(READY, planned=raised), READY.caps)


def test_older_plan_of_the_shell_does_not_replace_the_turns_plan():
    board = looked(STARTED, USED)
    board.update(replace(READY, planned=PLANNED), READY.caps)
    assert board.plan is USED


def test_saved_tokens_add_up_over_turns():
    assert heard(*TURN, FINISHED).saved_tokens == 8_400


def test_registered_tool_shows_when_and_by_whom():
    assert tool(looked(*TURN), "count_text") == ToolState(
        "count_text", 142, "Counts words.", "agent", 1, 1
    )


def test_tool_registered_by_the_user_has_no_turn():
    assert tool(looked(), "write_file") == ToolState("write_file", 131, "Writes a file.", "user")


def test_registration_of_the_running_turn_counts_at_once():
    board = looked(STARTED, ToolRegistered("read_file", 120, True, 2, "agent"))
    assert tool(board, "read_file").registered
    assert board.context_tokens == READY.context_tokens + 120


def test_a_tool_of_the_first_question_is_loaded_once():
    rows = tuple(replace(row, registered=False, by="", ahead=True) for row in READY.tools)
    status = replace(READY, tools=rows)
    board = looked(status=status)
    assert all(tool.ahead and tool.loaded and not tool.registered for tool in board.tools)
    board = looked(STARTED, ToolRegistered("read_file", 120, True, 0, "upfront"), status=status)
    state = tool(board, "read_file")
    assert (state.registered, state.ahead, state.by) == (True, False, "upfront")
    assert board.context_tokens == READY.context_tokens


def test_context_tokens_never_exceed_the_total():
    near = replace(READY, context_tokens=390, everything_tokens=400)
    board = looked(STARTED, ToolRegistered("read_file", 120, True, 2, "agent"), status=near)
    assert board.context_tokens == 400


def test_between_turns_the_shells_registrations_apply():
    board = heard(*TURN)
    rows = tuple(replace(row, registered=False, by="") for row in READY.tools)
    board.update(replace(READY, tools=rows), ())
    assert not any(tool.registered for tool in board.tools)


def test_unregistered_tool_is_known_by_name_only():
    rows = tuple(replace(row, registered=False, by="") for row in READY.tools)
    board = looked(*TURN, ToolUnregistered("count_text"), status=replace(READY, tools=rows))
    assert tool(board, "count_text") == ToolState("count_text", 142, "Counts words.")


def test_caps_are_the_latest_reported():
    reached = replace(CAP, spent=CAP.limit, held=0)
    board = looked(*TURN)
    assert board.handle(BudgetChanged((reached,)))
    assert board.caps == (reached,)
    assert not board.handle(BudgetChanged((reached,)))


def test_arriving_text_changes_nothing():
    assert not heard(*TURN).handle(TextArrived("a", "answer", "single"))


def test_turn_is_planning_until_its_first_plan():
    board = heard(STARTED, PLANNED, FINISHED, replace(STARTED, turn=2))
    assert board.planning
    assert board.plan is PLANNED
    board.handle(replace(PLANNED, cap=40_000_000))
    assert not board.planning


def test_plan_without_a_cap_has_no_total():
    assert heard(STARTED, ADVICE).plan_total == 0


def test_same_status_changes_nothing():
    board = looked(*TURN)
    assert not board.update(replace(READY), READY.caps)
    assert board.update(replace(READY, next_nano=1), READY.caps)
    assert board.update(replace(READY, next_nano=1, context_tokens=1), READY.caps)
    assert board.update(replace(READY, plan="off"), READY.caps)


def test_clear_empties_the_state():
    board = looked(*TWO_MODELS)
    board.handle(PLANNED)
    board.clear()
    assert not any((board.roles, board.tools, board.caps, board.saved_tokens, board.plan))

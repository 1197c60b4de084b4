"""What the panels know of a session, without a screen."""

from dataclasses import replace

from plan_play import ADVICE, PLANNED, TOKEN_PLAN, USED
from side_play import READY, TURN, TWO_MODELS
from tui_play import CAP

from ecoshell.budget import CapState
from ecoshell.events import (
    BranchLeft,
    BudgetChanged,
    BudgetHeld,
    BudgetSettled,
    CallStarted,
    Event,
    StepStarted,
    TextArrived,
    ToolRegistered,
    ToolUnregistered,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.tui.side.panel_state import PanelState, ToolState

STARTED, STEP, HELD, SETTLED, REGISTERED, FINISHED = TURN


def heard(*events: Event) -> PanelState:
    board = PanelState()
    for event in events:
        board.hear(event)
    return board


def looked(*events: Event, standing=READY) -> PanelState:
    board = heard(*events)
    board.look(standing, standing.caps)
    return board


def tool(board: PanelState, name: str) -> ToolState:
    return next(tool for tool in board.tools if tool.name == name)


def test_a_role_adds_up_its_calls_tokens_price_and_seconds():
    board = heard(*TURN, STEP, SETTLED)
    use = board.roles["single", "embedded"]
    assert (use.calls, use.consumption.nano, use.seconds) == (2, 6_200_000, 4.2)
    assert use.consumption.usage == Usage(3_800, 120, cached=2_400)


def test_one_role_with_two_models_is_two_entries_in_the_order_of_their_first_thought():
    other = BudgetSettled(9, "single", "openai/x", 1, Usage(1, 1), True, 0.1)
    assert list(heard(*TURN, other).roles) == [("single", "embedded"), ("single", "openai/x")]


def test_what_only_the_branch_that_was_left_had_registered_is_registered_no_more():
    board = looked(STARTED, ToolRegistered("read_file", 200, True, 1, "agent", "c1"))
    assert tool(board, "read_file").registered
    assert board.hear(BranchLeft((), 1, "given up", ("read_file",)))
    assert not tool(board, "read_file").registered


def test_one_unknown_price_makes_the_sum_unknown_for_good():
    board = heard(replace(SETTLED, spent_nano=None), SETTLED)
    assert board.roles["single", "embedded"].consumption.nano is None


def test_who_thinks_is_known_from_the_step_to_the_settlement():
    board = heard(STARTED)
    thinkers = []
    for event in (STEP, HELD, SETTLED):
        board.hear(event)
        thinkers.append(board.thinking)
    assert thinkers == [("single", "embedded"), ("single", "embedded"), None]


def test_nobody_thinks_while_a_tool_works():
    board = heard(STARTED, STEP, CallStarted("c1", "count_text", {}))
    assert board.thinking is None


def test_what_is_held_is_what_was_held_and_not_settled_yet():
    other = BudgetHeld(2, "caller", "embedded", 900_000, 400, 256, clamped=False)
    board = heard(STARTED, HELD, other)
    assert board.held == (8_000_000, 2_700)
    board.hear(SETTLED)
    assert board.held == (900_000, 400)


def test_a_hold_of_unknown_price_makes_what_is_held_unknown():
    board = heard(HELD, BudgetHeld(2, "single", "x", None, 400, 256, clamped=False))
    assert board.held == (None, 2_700)


def test_a_hold_that_was_given_back_without_a_word_is_gone_with_the_next_step():
    board = heard(STARTED, STEP, HELD, StepStarted(2, "single", "embedded"))
    assert board.held == (0, 0)


def test_nothing_is_held_and_nobody_thinks_after_a_turn_however_it_ended():
    board = heard(STARTED, STEP, HELD, FINISHED)
    assert (board.held, board.thinking, board.running) == ((0, 0), None, False)


def test_the_past_of_a_process_that_was_killed_is_at_rest():
    board = heard(*TURN, TurnStarted(2, "more", "embedded", "single", "react"), STEP, HELD)
    board.rest()
    assert (board.held, board.thinking, board.running) == ((0, 0), None, False)
    assert board.roles["single", "embedded"].calls == 1


def test_the_plan_of_a_process_that_is_gone_is_gone_with_it():
    board = heard(STARTED, PLANNED, USED)
    board.rest()
    assert board.plan is None


def test_between_turns_the_shell_knows_the_plan_by_the_caps_as_they_are_now():
    board = looked(STARTED, PLANNED, FINISHED)
    raised = replace(PLANNED, cap=90_000_000, whole=92_000_000, reason="the session's cap is $0.09 now")
    assert board.look(replace(READY, planned=raised), READY.caps)
    assert (board.plan, board.plan_whole) == (raised, 92_000_000)
    assert not board.look(replace(READY, planned=raised), READY.caps)


def test_what_the_shell_knew_before_a_turn_takes_nothing_from_the_plan_of_that():
    board = looked(STARTED, USED)
    board.look(replace(READY, planned=PLANNED), READY.caps)
    assert board.plan is USED


def test_saved_tokens_add_up_over_turns():
    assert heard(*TURN, FINISHED).saved_tokens == 8_400


def test_a_registered_tool_says_when_it_was_and_by_whom():
    assert tool(looked(*TURN), "count_text") == ToolState("count_text", 142, "Counts words.", "agent", 1, 1)


def test_a_tool_registered_by_hand_says_so_though_nobody_heard_when():
    assert tool(looked(), "write_file") == ToolState("write_file", 131, "Writes a file.", "user")


def test_a_registration_in_the_running_turn_counts_before_the_shell_says_so():
    board = looked(STARTED, ToolRegistered("read_file", 120, True, 2, "agent"))
    assert tool(board, "read_file").registered
    assert board.context_tokens == READY.context_tokens + 120


def test_the_context_is_never_said_to_hold_more_than_everything():
    near = replace(READY, context_tokens=390, everything_tokens=400)
    board = looked(STARTED, ToolRegistered("read_file", 120, True, 2, "agent"), standing=near)
    assert board.context_tokens == 400


def test_between_turns_the_shell_knows_what_is_registered():
    board = heard(*TURN)
    rows = tuple(replace(row, registered=False, by="") for row in READY.tools)
    board.look(replace(READY, tools=rows), ())
    assert not any(tool.registered for tool in board.tools)


def test_an_unregistered_tool_is_known_by_name_only():
    rows = tuple(replace(row, registered=False, by="") for row in READY.tools)
    board = looked(*TURN, ToolUnregistered("count_text"), standing=replace(READY, tools=rows))
    assert tool(board, "count_text") == ToolState("count_text", 142, "Counts words.")


def test_the_caps_are_those_heard_of_last():
    reached = replace(CAP, spent=CAP.limit, held=0)
    board = looked(*TURN)
    assert board.hear(BudgetChanged((reached,)))
    assert board.caps == (reached,)
    assert not board.hear(BudgetChanged((reached,)))


def test_text_that_arrives_changes_nothing():
    assert not heard(*TURN).hear(TextArrived("a", "answer", "single"))


def test_the_plan_is_the_one_heard_of_last_and_belongs_to_its_turn():
    board = heard(STARTED, PLANNED, USED)
    assert (board.plan, board.planned_turn, board.planning) == (USED, 1, False)


def test_between_the_start_of_a_turn_and_its_plan_it_is_being_planned():
    board = heard(STARTED, PLANNED, FINISHED, replace(STARTED, turn=2))
    assert board.planning
    assert board.plan is PLANNED
    board.hear(replace(PLANNED, cap=40_000_000))
    assert not board.planning


def test_what_the_caps_left_follows_a_cap_that_is_lowered():
    board = heard(STARTED, replace(PLANNED, whole=50_000_000), replace(USED, cap=3_000_000, whole=4_300_000))
    assert board.plan_whole == 4_300_000


def test_where_an_old_session_does_not_say_what_the_caps_left_it_is_the_most_since_the_turns_first_plan():
    board = heard(STARTED, PLANNED, USED)
    assert board.plan_whole == 50_000_000
    board.hear(replace(USED, cap=90_000_000, number=3))
    assert board.plan_whole == 90_000_000
    board.hear(replace(PLANNED, cap=30_000_000))
    assert board.plan_whole == 30_000_000


def test_another_unit_begins_to_count_anew():
    board = heard(STARTED, PLANNED, replace(TOKEN_PLAN, number=2))
    assert board.plan_whole == 200_000


def test_a_plan_without_a_cap_has_nothing_to_count_from():
    assert heard(STARTED, ADVICE).plan_whole == 0


def test_switching_how_turns_are_planned_changes_the_plan():
    board = looked(*TURN)
    assert board.look(replace(READY, plan="off"), READY.caps)


def test_the_same_standing_again_changes_nothing():
    board = looked(*TURN)
    assert not board.look(replace(READY), READY.caps)
    assert board.look(replace(READY, next_nano=1), READY.caps)
    assert board.look(replace(READY, next_nano=1, context_tokens=1), READY.caps)


def test_another_session_begins_with_an_empty_board():
    board = looked(*TWO_MODELS)
    board.hear(PLANNED)
    board.clear()
    assert (board.roles, board.tools, board.caps, board.saved_tokens, board.plan) == ({}, [], (), 0, None)


def test_a_cap_in_tokens_is_kept_as_it_is():
    cap = CapState("day", "tokens", 200_000, 1, 2)
    board = looked()
    board.look(READY, [cap])
    assert board.caps == (cap,)

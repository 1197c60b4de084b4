"""A parallel plan in the transcript and on the board: drawn in one place, from its first event to its last."""

from dataclasses import replace

from branch_play import AGAIN, ANSWERED, DONE, FAILED, PLANNED, REPAIRED, RUNNING, STARTED, STOPPED, node
from hypothesis import given
from hypothesis import strategies as st
from plan_play import USED
from rich.cells import cell_len
from rich.style import Style
from side_play import READY, SideApp, plain, said
from tui_play import eventually

from ecoshell.events import CallFinished, CallStarted, GraphPlanned, NodeChanged, TextArrived, ToolRegistered
from ecoshell.sessions.plans import Branching
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.side.plan import PlanPanel, graph_lines, progress
from ecoshell.tui.transcript.blocks import TONES
from ecoshell.tui.transcript.column import BlockColumn
from ecoshell.tui.transcript.painting import Painter
from ecoshell.tui.transcript.presenter import EventPresenter

MANY = GraphPlanned(tuple(node(f"n{at}", *([f"n{at - 1}"] if at else ())) for at in range(100)), "…")


def told(*events, width=80, until_rest=False) -> BlockColumn:
    column = BlockColumn()
    column.repaint(Painter(dict.fromkeys(TONES, Style()), width))
    presenter = EventPresenter(column)
    for event in events:
        presenter.show(event)
        assert column.plain is not None  # what is painted already must follow, too
    if until_rest:
        presenter.rest()
    return column


def signs(column: BlockColumn, sign: str) -> int:
    return sum(f"{sign} " in line for line in column.plain.splitlines())


def test_the_plan_stands_in_the_place_of_what_was_streamed_and_says_what_is_expected():
    column = told(STARTED, TextArrived('["count', "thought", "single"), PLANNED)
    assert '["count' not in column.plain
    assert "◦  plan of 5 tools · tools about price unknown, time unknown · * longest path" in column.plain
    assert signs(column, "○") == 5


def test_calls_stand_below_the_plan_which_is_drawn_anew_above_them():
    call = CallStarted("g1n1", "count_text", {"path": "a.txt"})
    registered = ToolRegistered("count_text", 142, True, 1, "agent")
    column = told(STARTED, PLANNED, registered, RUNNING[0], call, *RUNNING[1:])
    lines = column.plain.splitlines()
    assert sum("► running" in line for line in lines) == 3
    assert [word for line in lines for word in ("plan of", "registered", "count_text(path") if word in line] == [
        "plan of",
        "registered",
        "count_text(path",
    ]
    column = told(
        STARTED, PLANNED, *RUNNING, call, CallFinished("g1n1", "count_text", True, "3", False, 0.9), *DONE, ANSWERED
    )
    assert signs(column, "► running") == 0
    assert "└ 5 done · price unknown, 1.0 s" in column.plain


def test_what_came_of_a_plan_that_failed_in_part_says_why_once():
    column = told(STARTED, PLANNED, *RUNNING, *FAILED)
    assert column.plain.count("no such file: b.txt") == 1
    assert "└ 2 done, 1 failed, 2 skipped · $0.0014, 0.9 s" in column.plain


def test_a_repaired_plan_is_a_block_of_its_own_below_the_one_that_failed():
    column = told(STARTED, PLANNED, *RUNNING, *FAILED, *AGAIN)
    assert [item.block.name for item in column.items if item.block.drawing] == ["graph 1", "graph 2"]
    first, second = (item.block.text() for item in column.items if item.block.drawing)
    assert "× failed" in first
    assert "repaired plan of 4 tools, 2 of them done" in second
    assert second.count("√ done") == 3
    assert "► running" in second


def test_a_plan_whose_turn_was_stopped_does_not_run_for_ever():
    for column in (told(STARTED, PLANNED, *RUNNING, STOPPED), told(STARTED, PLANNED, *RUNNING, until_rest=True)):
        assert "► running" not in column.plain
        assert column.plain.count("■ stopped") == 3
        assert column.plain.count("» skipped") == 2


def test_a_turn_after_one_that_was_never_ended_leaves_its_plan_stopped():
    column = told(STARTED, PLANNED, *RUNNING, replace(STARTED, turn=2))
    assert "► running" not in column.plain


def test_a_session_that_is_read_again_has_the_same_picture():
    events = (STARTED, PLANNED, *RUNNING, *FAILED, *AGAIN, STOPPED)
    assert told(*events).plain == told(*events, until_rest=True).plain


def test_a_long_plan_is_folded_and_opens_to_every_node():
    column = told(STARTED, MANY)
    item = next(item for item in column.items if item.block.drawing)
    assert "… 76 more lines" in column.plain
    assert signs(column, "○") == 24
    column.fold(item, opened=True)
    assert signs(column, "○") == 100
    assert "n99" in item.block.text(opened=True)


@given(st.integers(8, 140), st.integers(0, 5))
def test_no_line_of_the_block_is_wider_than_the_transcript(width, heard):
    column = told(STARTED, PLANNED, *RUNNING, *FAILED[:heard], width=width)
    assert all(cell_len(line) <= max(width, 11) for line in column.plain.splitlines())


def test_the_board_has_the_plan_of_the_turn_and_lets_it_go_with_the_next():
    board = PanelState()
    board.hear(STARTED)
    assert board.hear(PLANNED)
    board.hear(RUNNING[0])
    assert board.branching.stands("count_text") == "running"
    board.hear(STOPPED)
    assert board.branching.stands("count_text") == "stopped"
    board.hear(replace(STARTED, turn=2))
    assert board.branching is None
    assert board.hear(RUNNING[0])


def test_a_few_lines_show_where_a_long_plan_goes_on():
    branching = Branching(MANY)
    for at in range(50):
        branching = branching.heard(NodeChanged(f"n{at}", "done"))
    lines = plain(graph_lines(branching, 40)).splitlines()
    assert progress(branching) == "50 of 100 done"
    assert (lines[1], lines[-1]) == ("  … 48 above", "  … 42 below")
    assert "n50" in lines[4]
    assert len(lines) == 13
    assert plain(graph_lines(branching, 40, 0)).split() == ["branches", "50", "of", "100", "done"]
    assert plain(graph_lines(branching, 15, 1)).splitlines()[0] == "50 of 100 done"


async def test_the_plan_panel_follows_the_branches_above_the_tools(paths):
    app = SideApp(paths)
    async with app.run_test(size=(120, 50)) as pilot:
        panel = app.chat.query_one(PlanPanel)
        for event in (STARTED, USED, PLANNED, *RUNNING):
            app.body.side.hear(event)
        await eventually(pilot, lambda: "0 of 5 done, 3 running" in said(panel))
        assert said(panel).index("* calculate") < said(panel).index("for tools")
        for event in FAILED:
            app.body.side.hear(event)
        await eventually(pilot, lambda: "2 of 5 done, 1 failed, 2 skipped" in said(panel))
        await pilot.press("f3", "minus")
        await eventually(pilot, lambda: "2 of 5 done" in panel.title)


async def test_the_plan_panel_has_the_branches_where_turns_are_not_planned_by_budget(paths):
    app = SideApp(paths, replace(READY, plan="off"), (STARTED, REPAIRED))
    async with app.run_test(size=(120, 50)) as pilot:
        panel = app.chat.query_one(PlanPanel)
        await eventually(pilot, lambda: "2 of 4 done" in said(panel))
        assert "plan off" in said(panel)

"""A tool graph in the transcript and in the panel, drawn in one place from its first to its last event."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from plan_play import USED
from rich.cells import cell_len
from rich.style import Style
from side_play import READY, SideApp, plain, said
from tool_graph_play import (
    AGAIN,
    ANSWERED,
    DONE,
    FAILED,
    PLANNED,
    REPAIRED,
    RUNNING,
    STARTED,
    STOPPED,
    node,
)
from tui_play import eventually

from ecoshell.events import (
    CallFinished,
    CallStarted,
    GraphPlanned,
    NodeChanged,
    TextArrived,
    ToolRegistered,
)
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.side.plan import PlanPanel, graph_lines, progress
from ecoshell.tui.transcript.blocks import TONES
from ecoshell.tui.transcript.column import BlockColumn
from ecoshell.tui.transcript.painting import Painter
from ecoshell.tui.transcript.presenter import EventPresenter

MANY = GraphPlanned(
    tuple(node(f"n{at}", *([f"n{at - 1}"] if at else ())) for at in range(100)), "…"
)


def told(*events, width=80, until_rest=False) -> BlockColumn:
    column = BlockColumn()
    column.repaint(Painter(dict.fromkeys(TONES, Style()), width))
    presenter = EventPresenter(column)
    for event in events:
        presenter.show(event)
        assert column.plain is not None  # painted lines must be updated, too
    if until_rest:
        presenter.end_activity()
    return column


def signs(column: BlockColumn, sign: str) -> int:
    return sum(f"{sign} " in line for line in column.plain.splitlines())


def test_graph_replaces_streamed_text_and_shows_estimates():
    column = told(STARTED, TextArrived('["count', "thought", "single"), PLANNED)
    assert '["count' not in column.plain
    assert (
        "◦  plan of 5 tools · tools about price unknown, time unknown · * longest path"
        in column.plain
    )
    assert signs(column, "○") == 5


def test_calls_follow_the_graph_which_is_redrawn_above():
    call = CallStarted("g1n1", "count_text", {"path": "a.txt"})
    registered = ToolRegistered("count_text", 142, True, 1, "agent")
    column = told(STARTED, PLANNED, registered, RUNNING[0], call, *RUNNING[1:])
    lines = column.plain.splitlines()
    assert sum("► running" in line for line in lines) == 3
    assert [
        word
        for line in lines
        for word in ("plan of", "registered", "count_text(path")
        if word in line
    ] == [
        "plan of",
        "registered",
        "count_text(path",
    ]
    column = told(
        STARTED,
        PLANNED,
        *RUNNING,
        call,
        CallFinished("g1n1", "count_text", True, "3", False, 0.9),
        *DONE,
        ANSWERED,
    )
    assert signs(column, "► running") == 0
    assert "└ 5 done · price unknown, 1.0 s" in column.plain


def test_partial_failure_is_explained_once():
    column = told(STARTED, PLANNED, *RUNNING, *FAILED)
    assert column.plain.count("no such file: b.txt") == 1
    assert "└ 2 done, 1 failed, 2 skipped · $0.0014, 0.9 s" in column.plain


def test_repaired_graph_is_a_new_block():
    column = told(STARTED, PLANNED, *RUNNING, *FAILED, *AGAIN)
    assert [item.block.name for item in column.items if item.block.drawing] == [
        "graph 1",
        "graph 2",
    ]
    first, second = (item.block.text() for item in column.items if item.block.drawing)
    assert "× failed" in first
    assert "repaired plan of 4 tools, 2 of them done" in second
    assert second.count("√ done") == 3
    assert "► running" in second


def test_graph_of_a_stopped_turn_stops():
    for column in (
        told(STARTED, PLANNED, *RUNNING, STOPPED),
        told(STARTED, PLANNED, *RUNNING, until_rest=True),
    ):
        assert "► running" not in column.plain
        assert column.plain.count("■ stopped") == 3
        assert column.plain.count("» skipped") == 2


def test_graph_of_an_unfinished_turn_stops_at_the_next_turn():
    column = told(STARTED, PLANNED, *RUNNING, replace(STARTED, turn=2))
    assert "► running" not in column.plain


def test_replayed_session_draws_the_same_graph():
    events = (STARTED, PLANNED, *RUNNING, *FAILED, *AGAIN, STOPPED)
    assert told(*events).plain == told(*events, until_rest=True).plain


def test_long_plan_is_folded_and_opens_to_every_node():
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


def test_panel_state_drops_the_graph_at_the_next_turn():
    board = PanelState()
    board.handle(STARTED)
    assert board.handle(PLANNED)
    board.handle(RUNNING[0])
    assert board.graph.state("count_text") == "running"
    board.handle(STOPPED)
    assert board.graph.state("count_text") == "stopped"
    board.handle(replace(STARTED, turn=2))
    assert board.graph is None
    assert board.handle(RUNNING[0])


def test_short_panel_shows_the_unfinished_part_of_a_long_graph():
    tool_graph = ToolGraph(MANY)
    for at in range(50):
        tool_graph = tool_graph.with_change(NodeChanged(f"n{at}", "done"))
    lines = plain(graph_lines(tool_graph, 40)).splitlines()
    assert progress(tool_graph) == "50 of 100 done"
    assert (lines[1], lines[-1]) == ("  … 48 above", "  … 42 below")
    assert "n50" in lines[4]
    assert len(lines) == 13
    assert plain(graph_lines(tool_graph, 40, 0)).split() == [
        "tool",
        "graph",
        "50",
        "of",
        "100",
        "done",
    ]
    assert plain(graph_lines(tool_graph, 15, 1)).splitlines()[0] == "50 of 100 done"


async def test_plan_panel_shows_graph_progress_above_the_tools(paths):
    app = SideApp(paths)
    async with app.run_test(size=(120, 50)) as pilot:
        panel = app.chat.query_one(PlanPanel)
        for event in (STARTED, USED, PLANNED, *RUNNING):
            app.body.side.handle(event)
        await eventually(pilot, lambda: "0 of 5 done, 3 running" in said(panel))
        assert said(panel).index("* calculate") < said(panel).index("alt+w why")
        for event in FAILED:
            app.body.side.handle(event)
        await eventually(pilot, lambda: "2 of 5 done, 1 failed, 2 skipped" in said(panel))
        await pilot.press("f3", "minus")
        await eventually(pilot, lambda: "2 of 5 done" in panel.title)


async def test_plan_panel_shows_the_graph_without_a_budget_plan(paths):
    app = SideApp(paths, replace(READY, plan="off"), (STARTED, REPAIRED))
    async with app.run_test(size=(120, 50)) as pilot:
        panel = app.chat.query_one(PlanPanel)
        await eventually(pilot, lambda: "2 of 4 done" in said(panel))
        assert "plan off" in said(panel)

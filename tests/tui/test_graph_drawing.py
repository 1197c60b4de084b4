"""A tool graph drawn in lines."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tool_graph_play import AGAIN, DONE, FAILED, NODES, PLANNED, REPAIRED, RUNNING, node

from ecoshell.agent.scoring import outcome
from ecoshell.events import GraphPlanned, NodeChanged
from ecoshell.messages import visible
from ecoshell.sessions.tool_graphs import ToolGraph, tool_graphs
from ecoshell.tui.graph_drawing import Drawing, headline

WIDTHS = [24, 60, 80, 130]


def after(*events, plan=PLANNED) -> ToolGraph:
    tool_graph = ToolGraph(plan)
    for event in events:
        tool_graph = tool_graph.with_change(event)
    return tool_graph


def drawn(tool_graph, width=130, **kwargs) -> list[str]:
    return [
        "".join(text for text, _ in line) for line in Drawing(tool_graph, **kwargs).lines(width)
    ]


@st.composite
def branching_plans(draw):
    """Any plan, valid or not, with any state of its nodes."""
    texts = st.text(max_size=12) | st.sampled_from(
        ["数える_言葉", "a\x1b[31mb", "x" * 300, "e\u0301👩‍👩‍👧", "\u202e"]
    )
    labels = draw(st.lists(texts, unique=True, max_size=12))
    figures = st.none() | st.integers(0, 10**12)
    nodes = tuple(
        node(
            label,
            *draw(st.lists(st.sampled_from([*labels[:at], "<task>"]) | texts, max_size=4)),
            price=draw(figures),
            seconds=draw(st.none() | st.floats(0, 1e6)),
        )
        for at, label in enumerate(labels)
    )
    some = st.lists(st.sampled_from(labels), max_size=4).map(tuple) if labels else st.just(())
    tool_graph = ToolGraph(GraphPlanned(nodes, "", kept=draw(some), critical=draw(some)))
    states = st.sampled_from(["waiting", "running", "done", "failed", "skipped"])
    for label in draw(some):
        tool_graph = tool_graph.with_change(
            NodeChanged(label, draw(states), "c", 1.0, draw(figures), draw(texts))
        )
    return tool_graph.closed() if draw(st.booleans()) else tool_graph


@given(branching_plans(), st.integers(1, 140))
def test_every_graph_fits_every_width(tool_graph, width):
    lines = drawn(tool_graph, width)
    assert all(cell_len(line) <= width for line in lines)
    assert all(line == visible(line) and "\n" not in line for line in lines)
    assert len(lines) == Drawing(tool_graph).height
    assert len(drawn(tool_graph, width, reasons=False)) == len(tool_graph.plan.nodes)


@given(st.lists(st.integers(0, 30), max_size=40), st.sampled_from(WIDTHS))
def test_each_node_is_drawn_once_with_its_state(waits, width):
    nodes = [
        node(f"node_{at:02d}", *([f"node_{wait:02d}"] if wait < at else ()))
        for at, wait in enumerate(waits)
    ]
    lines = drawn(after(plan=GraphPlanned(tuple(nodes), "")), width)
    assert [
        sum(f" {item.label}" in line.partition("after")[0] for line in lines) for item in nodes
    ] == [1] * len(nodes)
    assert all("○ waiting" in line for line in lines)


def test_wide_lines_show_dependencies_and_actual_figures():
    lines = drawn(after(*RUNNING, *DONE[:3]))
    assert lines[0].startswith("╭─────── √ done    * count_text ")
    assert lines[0].endswith("≈1.2 s → 900 ms  ≈$0.001 → $0.0012")
    assert (
        " ".join(lines[3].split())
        == "╰─┴─│─┬─ ○ waiting * calculate after count_text, count_text#2 ≈20 ms ≈$0"
    )
    assert lines[4].split()[-2:] == ["?", "?"]


def test_narrow_lines_show_one_figure_the_actual_one_if_known():
    lines = drawn(after(*RUNNING, *DONE[:3]), 57)
    assert lines[0].split()[-3:] == ["900", "ms", "$0.0012"]
    assert lines[3].split()[-3:] == ["≈20", "ms", "≈$0"]


def test_dependencies_are_listed_if_lanes_do_not_fit():
    nodes = (*(node(f"n{at}") for at in range(20)), node("all", *(f"n{at}" for at in range(20))))
    lines = drawn(after(plan=GraphPlanned(nodes, "")), 80)
    assert "│" not in "".join(lines)
    assert "after n0, n1" in lines[-1]


def test_failure_reason_is_one_line_and_descendants_are_skipped():
    lines = drawn(after(*RUNNING, *FAILED), 60)
    assert lines[1].startswith("│ ╭───── × failed    count_text#2")
    assert lines[2] == "│ │        └ no such file: b.txt"
    assert [line.split("» ")[1].split()[0] for line in lines if "»" in line] == [
        "skipped",
        "skipped",
    ]
    assert len(drawn(after(*FAILED), 60, reasons=False)) == 5


def test_kept_nodes_of_a_repaired_plan_are_done_and_free():
    tool_graph = after(*AGAIN[1:], plan=REPAIRED)
    assert headline(tool_graph).text == "repaired plan of 4 tools, 2 of them done"
    assert [line.split("√ ")[1].split()[0] for line in drawn(tool_graph) if "kept" in line] == [
        "done",
        "done",
    ]
    assert tool_graph.counts == {"done": 3, "running": 1}


@pytest.mark.parametrize("width", WIDTHS)
def test_at_the_end_running_nodes_are_stopped_and_waiting_ones_skipped(width):
    lines = drawn(after(*RUNNING, DONE[0]).closed(), width)
    words = [
        next(word for word in ("done", "stopped", "skipped", "running") if word in line)
        for line in lines
    ]
    assert words == ["stopped", "stopped", "done", "skipped", "skipped"]


def test_stopped_node_shows_its_figures_without_a_reason():
    stopped = after(*RUNNING, NodeChanged("count_text", "stopped", "c", 0.3, 200_000))
    first, second = drawn(stopped)[:2]
    assert "■ stopped" in first
    assert "300 ms" in first
    assert "running" in second
    assert stopped.counts == {"running": 2, "waiting": 2, "stopped": 1}
    assert not after(*RUNNING).is_settled


def test_headline_shows_estimates_and_unknown_figures():
    estimated = replace(PLANNED, price_nano=2_000_000, seconds=1.26)
    assert (
        headline(ToolGraph(estimated)).words
        == "plan of 5 tools · tools about $0.002, 1.3 s · * longest path"
    )
    assert headline(ToolGraph(PLANNED)).detail.startswith("tools about price unknown, time unknown")
    assert headline(ToolGraph(GraphPlanned(NODES[:1], ""))).text == "plan of 1 tool"


def test_outcome_counts_states_sums_prices_and_takes_the_longest_path():
    assert outcome(after(*FAILED).closed()) == "2 done, 1 failed, 2 skipped · $0.0014, 0.9 s"
    assert outcome(after(*DONE)) == "5 done · price unknown, 1.0 s"


def test_plans_of_a_session_keep_their_final_states():
    first, second = tool_graphs((PLANNED, *RUNNING, *FAILED, *AGAIN))
    assert first.is_settled
    assert second.state("calculate") == "stopped"
    assert tool_graphs((*AGAIN,), running=True)[0].state("calculate") == "running"
    assert tool_graphs((NodeChanged("a", "done"),)) == []


def test_front_is_the_first_unfinished_node():
    assert Drawing(after(*RUNNING, *DONE[:3])).front == 3
    assert Drawing(after(*DONE)).front == 0

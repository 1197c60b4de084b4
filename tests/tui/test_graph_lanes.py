"""Lanes of a drawn tool graph."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.tui.graph_drawing import rails

BEGINS, JOINS, ENDS = "╭┬", "├┼╰┴", "╰┴"


def drawn(waits, limit=16):
    matches = rails(waits, limit)
    return None if matches is None else [rail.row for rail in matches]


@st.composite
def graphs(draw):
    """The dependencies of each node of a plan, including invalid ones."""
    count = draw(st.integers(0, 14))
    labels = [f"n{at}" for at in range(count)]
    return {
        label: draw(st.lists(st.sampled_from([*labels[:at], "<task>", label, "later"]), max_size=4))
        for at, label in enumerate(labels)
    }


def read_back(waits, lines):
    """The edges that the lanes show."""
    owners, edges = {}, set()
    for label, line in zip(waits, lines, strict=True):
        joined = [place for place in range(0, len(line), 2) if line[place] in JOINS]
        edges.update((owners[place], label) for place in joined)
        for place in joined:
            if line[place] in ENDS:
                del owners[place]
        owners.update((place, label) for place in range(0, len(line), 2) if line[place] in BEGINS)
    assert owners == {}
    return edges


@pytest.mark.parametrize(
    ("waits", "lanes"),
    [
        ({"a": ["<task>"], "b": ["<task>"], "c": ["a", "b"]}, ["╭───", "│ ╭─", "╰─┴─"]),
        ({"a": [], "b": ["a"], "c": ["b"]}, ["╭───", "╰─┬─", "  ╰─"]),
        ({"a": [], "b": ["a"], "c": ["a"]}, ["╭─", "├─", "╰─"]),
        ({"a": [], "b": [], "c": ["a"], "d": ["b"]}, ["╭───", "│ ╭─", "╰─│─", "  ╰─"]),
        ({"a": ["<task>"], "b": ["<task>"]}, ["", ""]),
    ],
    ids=["branches meet", "chain", "fork", "crossing", "independent"],
)
def test_lanes_show_what_waits_for_what(waits, lanes):
    assert drawn(waits) == lanes


def test_lanes_continue_below_a_node():
    matches = rails({"a": [], "b": [], "c": ["a", "b"]})
    assert [rail.row_below for rail in matches] == ["│   ", "│ │ ", "    "]


def test_too_many_lanes_are_not_drawn():
    waits = {**{f"n{at}": [] for at in range(5)}, "all": [f"n{at}" for at in range(5)]}
    assert drawn(waits, 4) is None
    assert len(drawn(waits, 5)) == 6


@given(graphs())
def test_lanes_show_exactly_the_edges(waits):
    matches = rails(waits)
    assert len({len(text) for rail in matches for text in (rail.row, rail.row_below)}) <= 1
    previous = {label: set(list(waits)[:at]) for at, label in enumerate(waits)}
    edges = {
        (label, node)
        for node, labels in waits.items()
        for label in labels
        if label in previous[node]
    }
    assert read_back(waits, [rail.row for rail in matches]) == edges

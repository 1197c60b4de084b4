"""Lanes beside the nodes of a plan."""

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.tui.branches import rails

BEGINS, JOINS, ENDS = "╭┬", "├┼╰┴", "╰┴"


def drawn(waits, most=16):
    found = rails(waits, most)
    return None if found is None else [rail.beside for rail in found]


@st.composite
def graphs(draw):
    """What each node of a plan waits for; some wait for what is no earlier node."""
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


def test_two_branches_meet():
    assert drawn({"a": ["<task>"], "b": ["<task>"], "c": ["a", "b"]}) == ["╭───", "│ ╭─", "╰─┴─"]


def test_a_chain_is_told_from_one_that_feeds_two():
    assert drawn({"a": [], "b": ["a"], "c": ["b"]}) == ["╭───", "╰─┬─", "  ╰─"]
    assert drawn({"a": [], "b": ["a"], "c": ["a"]}) == ["╭─", "├─", "╰─"]


def test_a_line_is_broken_where_it_passes_under_a_lane():
    assert drawn({"a": [], "b": [], "c": ["a"], "d": ["b"]}) == ["╭───", "│ ╭─", "╰─│─", "  ╰─"]


def test_what_waits_for_the_question_alone_has_no_lane():
    assert drawn({"a": ["<task>"], "b": ["<task>"]}) == ["", ""]


def test_below_a_node_the_lanes_go_on():
    found = rails({"a": [], "b": [], "c": ["a", "b"]})
    assert [rail.below for rail in found] == ["│   ", "│ │ ", "    "]


def test_too_many_lanes_are_none():
    waits = {**{f"n{at}": [] for at in range(5)}, "all": [f"n{at}" for at in range(5)]}
    assert drawn(waits, 4) is None
    assert len(drawn(waits, 5)) == 6


@given(graphs())
def test_the_lanes_show_every_edge_and_no_other(waits):
    found = rails(waits)
    assert len({len(text) for rail in found for text in (rail.beside, rail.below)}) <= 1
    before = {label: set(list(waits)[:at]) for at, label in enumerate(waits)}
    edges = {(label, node) for node, labels in waits.items() for label in labels if label in before[node]}
    assert read_back(waits, [rail.beside for rail in found]) == edges

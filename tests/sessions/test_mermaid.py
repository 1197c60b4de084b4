"""Tool graphs as Mermaid flowcharts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_graph_play import AGAIN, DONE, FAILED, PLANNED, REPAIRED, RUNNING, node

from ecoshell.events import GraphPlanned, NodeChanged, TurnStarted
from ecoshell.messages import visible_line
from ecoshell.sessions.export import as_markdown
from ecoshell.sessions.mermaid import escaped, flowchart
from ecoshell.sessions.tool_graphs import ToolGraph, tool_graphs

NODE = re.compile(
    r'    n(\d+)\["(?P<label>(?:\* )?[\w#;]*)<br/>(?P<figures>[\w ·≈→$.?<]*)"\]:::(?P<state>[a-z]+)'
)
EDGE = re.compile(r"    n(\d+) (-->|==>) n(\d+)")
CLASS = re.compile(r"    classDef [a-z]+ [a-z0-9:#, -]+")


def decoded(label: str) -> str:
    """Return a label as Mermaid displays it."""
    return re.sub(r"#(\d+);", lambda match: chr(int(match[1])), label)


def drawn(*events) -> str:
    return flowchart(tool_graphs(events, running=True)[-1])


def test_flowchart_has_states_figures_and_the_critical_path():
    assert drawn(PLANNED, *RUNNING, *DONE[:2]).splitlines() == [
        "flowchart TD",
        '    n1["* count_text<br/>running · ≈1.20 s · ≈$0.001"]:::running',
        '    n2["count_text#35;2<br/>done · ≈1.20 s → 0.80 s · ≈$0.001 → $0.0012"]:::done',
        '    n3["current_time<br/>done · ≈0.00 s → 0.00 s · ≈$0 → $0"]:::done',
        '    n4["* calculate<br/>waiting · ≈0.02 s · ≈$0"]:::waiting',
        '    n5["* write_file<br/>waiting · ? · ?"]:::waiting',
        "    n1 ==> n4",
        "    n2 --> n4",
        "    n4 ==> n5",
        "    n3 --> n5",
        "    classDef done fill:#dcfce7,stroke:#15803d,color:#111",
        "    classDef running fill:#dbeafe,stroke:#1d4ed8,color:#111",
        "    classDef waiting fill:#f4f4f4,stroke:#999,color:#333",
    ]


def test_failed_skipped_and_kept_nodes_are_marked():
    chart = drawn(PLANNED, *FAILED)
    assert '"]:::failed\n' in chart
    assert chart.count('"]:::skipped\n') == 2
    assert drawn(REPAIRED, *AGAIN).count("<br/>done before") == 2


@pytest.mark.parametrize(
    "label",
    [
        "end",
        'a"]; b',
        "x --> y",
        "```",
        "<b>",
        "style a:b#c;",
        "%%{init: {}}%%",
        "a\nb",
        "#quot;",
        "`md`",
        "数",
        "direction TB",
    ],
)
def test_name_cannot_end_its_label(label):
    lines = flowchart(ToolGraph(GraphPlanned((node(label), node("z", label)), ""))).splitlines()
    assert [bool(NODE.fullmatch(line)) for line in lines] == [False, True, True, False, False]
    assert decoded(NODE.fullmatch(lines[1])["label"]) == visible_line(label)
    assert EDGE.fullmatch(lines[3]).groups() == ("1", "-->", "2")


@given(st.text())
def test_escaped_text_has_no_special_characters_and_can_be_decoded(text):
    label = escaped(text)
    assert re.fullmatch(r"(\w|#\d+;)*", label)
    assert decoded(label) == visible_line(text)


@given(st.lists(st.text(max_size=9), unique=True, max_size=8))
def test_flowchart_has_only_nodes_edges_and_classes(labels):
    nodes = [node(label, *labels[:index][-2:]) for index, label in enumerate(labels)]
    head, *lines = flowchart(ToolGraph(GraphPlanned(tuple(nodes), ""))).splitlines()
    assert head == "flowchart TD"
    assert sum(bool(NODE.fullmatch(line)) for line in lines) == len(nodes)
    assert all(
        NODE.fullmatch(line) or EDGE.fullmatch(line) or CLASS.fullmatch(line) for line in lines
    )


def test_export_draws_the_final_state_of_each_plan():
    events = (
        TurnStarted(1, "how many?", "embedded", "single", "graph"),
        PLANNED,
        *RUNNING,
        *FAILED,
        *AGAIN,
    )
    text = as_markdown([(0.0, event) for event in events])
    first, second = re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL)
    assert ":::failed" in first
    assert ":::stopped" in second
    assert ":::running" in as_markdown([(0.0, event) for event in events], running=True)


def test_stopped_node_is_in_the_chart_and_below_it():
    text = as_markdown([(0.0, PLANNED), (0.0, NodeChanged("count_text", "stopped", "c", 0.3))])
    assert re.search(r"\]:::stopped$", text, re.MULTILINE)
    assert re.search(r"\*\*count_text stopped\*\*$", text, re.MULTILINE)


def test_fence_in_a_name_does_not_end_the_code_block():
    plan = GraphPlanned((node("```\n# out"),), "")
    text = as_markdown([(0.0, plan), (0.0, NodeChanged("```\n# out", "done"))])
    assert text.count("```") == 2

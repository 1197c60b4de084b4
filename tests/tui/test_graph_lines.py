"""Tool graphs in the line shell and in exported sessions."""

import io
import re

from tool_graph_play import FAILED as FAILURE
from tool_graph_play import PLANNED as BRANCHES
from tool_graph_play import RUNNING, STOPPED

from ecoshell.cli.event_lines import EventLines
from ecoshell.cli.printer import Printer
from ecoshell.events import GraphNode, GraphPlanned, NodeChanged, TextArrived, TurnStarted
from ecoshell.sessions.export import as_markdown

NODES = (
    GraphNode("a", "a", ("<task>",), price_nano=1_000_000, seconds=1.0),
    GraphNode("a#2", "a", ("<task>",), price_nano=1_000_000, seconds=1.0),
    GraphNode("b\x1b[2J", "b", ("a", "a#2"), price_nano=0, seconds=0.5),
)
PLAN = GraphPlanned(NODES, '["a", ["<task>"]]', price_nano=2_000_000, seconds=1.5)
FAILED = NodeChanged("a", "failed", reason="gone\nfor good")


def test_plan_line_shows_estimates():
    assert PLAN.render().words == "plan of 3 tools · tools about $0.002, 1.5 s"
    assert PLAN.edges == "a, a#2, a + a#2 → b\x1b[2J"


def test_unknown_and_finished_parts_are_named():
    plan = GraphPlanned(NODES[:2], "", repaired=True, kept=("a",))
    assert plan.edges == "a (done), a#2"
    assert plan.render().text == "repaired plan of 2 tools, 1 of them done"
    assert plan.render().detail == "tools about price unknown, time unknown"


def test_only_failed_nodes_have_a_line():
    assert FAILED.render().words == "a failed · gone for good"
    assert NodeChanged("c", "skipped", reason="a failed").render().words == "c skipped · a failed"
    assert NodeChanged("a", "stopped").render().words == "a stopped"
    states = ("waiting", "running", "done")
    assert [NodeChanged("a", state).render() for state in states] == [None] * 3


def test_text_output_prints_a_streamed_plan_once():
    out = io.StringIO()
    output = EventLines(Printer(out))
    for event in (
        TextArrived('["a",', "thought", "single"),
        TextArrived(' ["<task>"]]', "thought", "single"),
        PLAN,
    ):
        output.show(event)
    output.show(FAILED)
    text_shown = out.getvalue()
    assert "<task>" not in text_shown
    assert text_shown.count("a#2 → b") == 1
    assert "a failed | gone for good" in text_shown
    assert "\x1b" not in text_shown


def test_text_output_ends_with_the_outcome():
    out = io.StringIO()
    output = EventLines(Printer(out))
    for event in (BRANCHES, *RUNNING, *FAILURE):
        output.show(event)
    assert out.getvalue().splitlines()[-1] == "| plan: 2 done, 1 failed, 2 skipped | $0.0014, 0.9 s"
    output.show(STOPPED)
    assert out.getvalue().count("plan: 2 done") == 1


def test_text_output_shows_the_outcome_of_a_stopped_plan():
    out = io.StringIO()
    output = EventLines(Printer(out))
    for event in (BRANCHES, *RUNNING, STOPPED):
        output.show(event)
    assert out.getvalue().splitlines()[-2] == "| plan: 3 stopped, 2 skipped | $0, 0.0 s"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_terminal_draws_the_plan_once(monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    out = Terminal()
    output = EventLines(Printer(out))
    for event in (BRANCHES, *RUNNING, *FAILURE):
        output.show(event)
    text_shown = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert text_shown.count("╰─┴─│─┬─ ○ waiting * calculate") == 1
    assert "count_text#2 failed · no such file: b.txt" in text_shown
    assert max(map(len, text_shown.splitlines())) <= 80


def test_export_contains_the_plan_and_failures():
    started = TurnStarted(1, "How many?", "script", "single", "graph")
    text_shown = as_markdown([(0.0, started), (0.0, PLAN), (0.0, FAILED)])
    assert '1.5 s\n\n`["a", ["<task>"]]`\n\n```mermaid\nflowchart TD\n' in text_shown
    assert "]:::failed\n" in text_shown
    assert "**a failed** · gone" in text_shown

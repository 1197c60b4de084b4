"""A parallel plan as a line shell and an exported session tell it."""

import io
import re

from branch_play import FAILED as FAILURE
from branch_play import PLANNED as BRANCHES
from branch_play import RUNNING, STOPPED

from ecoshell.cli.render import EventLines, Printer
from ecoshell.events import GraphNode, GraphPlanned, NodeChanged, TextArrived, TurnStarted
from ecoshell.events.describe import describe
from ecoshell.sessions.export import as_markdown

NODES = (
    GraphNode("a", "a", ("<task>",), price_nano=1_000_000, seconds=1.0),
    GraphNode("a#2", "a", ("<task>",), price_nano=1_000_000, seconds=1.0),
    GraphNode("b\x1b[2J", "b", ("a", "a#2"), price_nano=0, seconds=0.5),
)
PLAN = GraphPlanned(NODES, '["a", ["<task>"]]', price_nano=2_000_000, seconds=1.5)
FAILED = NodeChanged("a", "failed", reason="gone\nfor good")


def test_a_plan_is_told_in_a_line_with_what_it_is_expected_to_take():
    line = describe(PLAN)
    assert line.startswith("plan: a, a#2, a + a#2 → b")
    assert line.endswith("tools about $0.002, 1.5 s")
    assert "\x1b" not in line


def test_what_is_unknown_or_done_already_is_said_to_be():
    told = describe(GraphPlanned(NODES[:2], "", repaired=True, kept=("a",)))
    assert told == "plan, repaired: a (done), a#2 · tools about price unknown, time unknown"


def test_only_a_node_that_came_to_nothing_has_a_line_of_its_own():
    assert describe(FAILED) == "a failed: gone for good"
    assert describe(NodeChanged("c", "skipped", reason="a failed")) == "c skipped: a failed"
    assert describe(NodeChanged("a", "stopped")) == "a stopped"
    assert [describe(NodeChanged("a", state)) for state in ("waiting", "running", "done")] == ["", "", ""]


def test_lines_of_text_have_the_plan_once_though_it_was_streamed():
    out = io.StringIO()
    shown = EventLines(Printer(out))
    for event in (TextArrived('["a",', "thought", "single"), TextArrived(' ["<task>"]]', "thought", "single"), PLAN):
        shown.show(event)
    shown.show(FAILED)
    told = out.getvalue()
    assert "<task>" not in told
    assert told.count("a#2 → b") == 1
    assert "a failed: gone for good" in told


def test_lines_of_text_say_in_the_end_what_the_plan_came_to():
    out = io.StringIO()
    shown = EventLines(Printer(out))
    for event in (BRANCHES, *RUNNING, *FAILURE):
        shown.show(event)
    assert out.getvalue().splitlines()[-1] == "| plan: 2 done, 1 failed, 2 skipped · $0.0014, 0.9 s"
    shown.show(STOPPED)
    assert out.getvalue().count("plan: 2 done") == 1


def test_lines_of_text_say_what_a_stopped_plan_came_to_before_its_turn_ends():
    out = io.StringIO()
    shown = EventLines(Printer(out))
    for event in (BRANCHES, *RUNNING, STOPPED):
        shown.show(event)
    assert out.getvalue().splitlines()[-2] == "| plan: 3 stopped, 2 skipped · $0, 0.0 s"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_a_terminal_has_the_plan_drawn_once(monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    out = Terminal()
    shown = EventLines(Printer(out))
    for event in (BRANCHES, *RUNNING, *FAILURE):
        shown.show(event)
    told = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert told.count("╰─┴─│─┬─ ○ waiting * calculate") == 1
    assert "count_text#2 failed: no such file: b.txt" in told
    assert max(map(len, told.splitlines())) <= 80


def test_an_exported_session_has_the_plan_and_what_failed():
    started = TurnStarted(1, "How many?", "script", "single", "graph")
    told = as_markdown([(0.0, started), (0.0, PLAN), (0.0, FAILED)])
    assert 'Plan of branches: `["a", ["<task>"]]`\n\n```mermaid\nflowchart TD\n' in told
    assert "]:::failed\n" in told
    assert "failed: gone" in told

"""A tool graph as pictures: in the transcript and in the plan panel."""

from dataclasses import replace

import pytest
from plan_play import USED
from side_play import READY, SideApp
from tool_graph_play import AGAIN, ANSWERED, FAILED, NODES, PLANNED, RUNNING, STARTED, node
from tui_play import FakeShell, eventually

from ecoshell.events import GraphPlanned
from ecoshell.tui.transcript.view import Transcript

WIDE, MEDIUM, NARROW = (130, 30), (80, 24), (60, 24)
KNOWN = replace(
    PLANNED,
    nodes=(*NODES[:-1], node("write_file", "calculate", "current_time", price=0, seconds=0.05)),
    price_nano=2_000_000,
    seconds=1.27,
)
ODD = (
    "数える_言葉_とても長い名前の道具",
    "tool\x1b[31mred\u202e",
    "a_name_that_is_longer_than_any_column_" * 3,
)
HOSTILE = GraphPlanned(
    (*(node(label) for label in ODD), node("all", *ODD)),
    "…",
    critical=(ODD[0], "all"),
    price_nano=4_000_000,
)
THIRTY = GraphPlanned(
    (*(node(f"n{at}") for at in range(30)), node("all", *(f"n{at}" for at in range(30)))), "…"
)


async def at_rest(pilot) -> None:
    chat = pilot.app.chat
    await eventually(pilot, lambda: chat.controller)
    await eventually(pilot, lambda: "plan of" in chat.query_one(Transcript).column.plain)


def shell(*events) -> FakeShell:
    """A session whose last turn is running."""
    return FakeShell((STARTED, *events, ANSWERED), stops_at=1 + len(events))


async def asked(pilot) -> None:
    await eventually(pilot, lambda: pilot.app.chat.controller)
    await pilot.press(*"go on", "enter")
    await eventually(pilot, lambda: "plan of" in pilot.app.chat.query_one(Transcript).column.plain)


@pytest.mark.parametrize(
    ("events", "size"),
    [
        pytest.param((KNOWN, *RUNNING), MEDIUM, id="running"),
        pytest.param((PLANNED, *RUNNING, *FAILED, *AGAIN), WIDE, id="repaired-wide"),
        pytest.param((PLANNED, *RUNNING, *FAILED, *AGAIN), NARROW, id="repaired-narrow"),
    ],
)
def test_plan(snap_compare, make_app, events, size):
    assert snap_compare(make_app(shell(*events)), terminal_size=size, run_before=asked)


@pytest.mark.parametrize("plan", [HOSTILE, THIRTY], ids=["hostile", "without_lanes"])
def test_plan_of_an_earlier_turn(snap_compare, make_app, plan):
    app = make_app(FakeShell(earlier=(STARTED, plan)))
    assert snap_compare(app, terminal_size=(80, 36), run_before=at_rest)


def test_plan_without_colours(snap_compare, make_app, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(shell(PLANNED, *RUNNING, *FAILED[:2]))
    assert snap_compare(app, terminal_size=(80, 24), run_before=asked)


@pytest.mark.usefixtures("quiet")
def test_panel(snap_compare, paths):
    plan = replace(USED, whole=USED.cap)
    app = SideApp(paths, READY, (STARTED, plan, KNOWN, *RUNNING, *FAILED[:2]))

    async def before(pilot) -> None:
        await pilot.press("f3")
        await pilot.pause()
        await pilot.pause()

    assert snap_compare(app, terminal_size=(120, 44), run_before=before)

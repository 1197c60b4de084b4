"""Snapshots of the side panels: next to the transcript and in tabs."""

from dataclasses import replace

import pytest
from plan_play import BLACKLISTED, PLANNED, plan_of_many
from side_play import NEAR, REACHED, READY, TOKENS, TURN, TWO_MODELS, SideApp, many_tools
from textual.pilot import Pilot
from tui_play import STARTED

from ecoshell.tui.side.stack import SidePanels

pytestmark = pytest.mark.usefixtures("quiet")
WIDE, NARROW = (120, 36), (80, 24)


def pressed(*keys: str):
    """Press keys, then wait until the screen is idle."""

    async def before(pilot: Pilot[int]) -> None:
        await pilot.press(*keys)
        await pilot.pause()
        await pilot.pause()

    return before


def test_budget(snap_compare, paths):
    status = replace(READY, caps=(NEAR, TOKENS, REACHED))
    assert snap_compare(SideApp(paths, status), terminal_size=NARROW, run_before=pressed("f4"))


@pytest.mark.parametrize(
    ("plans", "size"),
    [
        pytest.param((PLANNED,), NARROW, id="planned-narrow"),
        pytest.param((PLANNED, BLACKLISTED), WIDE, id="blacklist"),
        pytest.param((plan_of_many(),), NARROW, id="thousands-narrow"),
    ],
)
def test_plan(snap_compare, paths, plans, size):
    async def before(pilot: Pilot[int]) -> None:
        await pressed("f3")(pilot)
        while pilot.app.query_one(
            SidePanels
        ).state.changed_rows:  # changed rows are bold for a second
            await pilot.pause(0.1)
        await pilot.pause()

    assert snap_compare(
        SideApp(paths, READY, (STARTED, *plans)), terminal_size=size, run_before=before
    )


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        pytest.param(("down", "down"), WIDE, id="many-wide"),
        pytest.param(("slash", *"oper 12"), NARROW, id="filtered"),
    ],
)
def test_tools(snap_compare, paths, keys, size):
    assert snap_compare(
        SideApp(paths, many_tools(), TURN), terminal_size=size, run_before=pressed("f2", *keys)
    )


def test_folded_panels(snap_compare, paths):
    keys = ("f4", "enter", "f3", "enter", "f2", "minus", "escape")
    assert snap_compare(
        SideApp(paths, READY, TWO_MODELS), terminal_size=WIDE, run_before=pressed(*keys)
    )


@pytest.mark.parametrize("size", [(100, 20), (200, 50)], ids=["short", "large"])
def test_everything_at_once(snap_compare, paths, size):
    status = replace(many_tools(), caps=(NEAR, TOKENS))
    assert snap_compare(
        SideApp(paths, status, TWO_MODELS), terminal_size=size, run_before=pressed("f2")
    )


def test_panels_are_one_line_on_a_narrow_screen(snap_compare, paths):
    assert snap_compare(SideApp(paths), terminal_size=(60, 24), run_before=pressed())

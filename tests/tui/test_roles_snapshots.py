"""Snapshots of the roles panel: next to the transcript, in a tab and on a small screen."""

from dataclasses import replace

import pytest
from roles_play import CALLER_THINKS, IDLE, LARGE, MIXED, QUESTION, WITH_ADAPTERS, trio
from side_play import SideApp
from textual.pilot import Pilot
from tui_play import FakeShell, eventually

from ecoshell.tui.side.cost import RolesPanel
from ecoshell.tui.transcript.view import Transcript

pytestmark = pytest.mark.usefixtures("quiet")
WIDE, NARROW, SLIM = (130, 40), (80, 24), (60, 28)


async def chosen(pilot: Pilot[int]) -> None:
    """Focus the panel, then wait until the screen is idle."""
    await pilot.press("f4")
    while not pilot.app.chat.query_one(RolesPanel).has_focus:
        await pilot.press("tab")
    await pilot.pause()
    await pilot.pause()


@pytest.mark.parametrize(
    ("players", "events", "size"),
    [
        pytest.param(MIXED, trio()[:CALLER_THINKS], NARROW, id="caller_thinks"),
        pytest.param(MIXED, trio(), WIDE, id="mixed-wide"),
        pytest.param(WITH_ADAPTERS, trio(WITH_ADAPTERS), SLIM, id="adapters"),
    ],
)
def test_roles(snap_compare, paths, players, events, size):
    app = SideApp(paths, replace(IDLE, players=players), events)
    assert snap_compare(app, terminal_size=size, run_before=chosen)


@pytest.mark.parametrize(
    ("until", "text", "size"),
    [(CALLER_THINKS + 1, "caller {", NARROW), (None, "by the summarizer", SLIM)],
    ids=["caller_thinks", "finished"],
)
def test_turn_of_the_trio_in_the_chat(snap_compare, make_app, size, until, text):
    app = make_app(
        FakeShell(trio(), state=replace(IDLE, model=LARGE, players=MIXED), stops_at=until)
    )

    async def before(pilot: Pilot[int]) -> None:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*QUESTION, "enter")
        await eventually(
            pilot, lambda: text in " ".join(app.chat.query_one(Transcript).column.plain.split())
        )
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)

"""The roles panel as pictures: beside the transcript, in a tab, and on a small screen."""

from dataclasses import replace

import pytest
from roles_play import ALONE, CALLER_THINKS, IDLE, LARGE, MIXED, PLANNER_THINKS, QUESTION, WITH_ADAPTERS, trio
from side_play import TURN, SideApp
from textual.pilot import Pilot
from tui_play import FakeShell, eventually

from ecoshell.tui.side.cost import RolesPanel
from ecoshell.tui.transcript.view import Transcript

pytestmark = pytest.mark.usefixtures("quiet")
WIDE, NARROW, SLIM = (130, 40), (80, 24), (60, 28)
FREE = trio(ALONE, priced=0)


def pressed(*keys: str):
    """Press keys, then let everything come to rest."""

    async def before(pilot: Pilot[int]) -> None:
        await pilot.press("f4")
        while not pilot.app.chat.query_one(RolesPanel).has_focus:
            await pilot.press("tab")
        await pilot.press(*keys)
        await pilot.pause()
        await pilot.pause()

    return before


@pytest.mark.parametrize(
    ("players", "events", "size"),
    [
        pytest.param(ALONE, (), NARROW, id="idle"),
        pytest.param(ALONE, FREE[:PLANNER_THINKS], WIDE, id="planner_thinks"),
        pytest.param(MIXED, trio()[:CALLER_THINKS], NARROW, id="caller_thinks"),
        pytest.param(ALONE, FREE, WIDE, id="free_of_charge"),
        pytest.param(MIXED, trio(), WIDE, id="mixed-wide"),
        pytest.param(MIXED, trio(), NARROW, id="mixed-narrow"),
        pytest.param(MIXED, trio(), SLIM, id="mixed-slim"),
        pytest.param(WITH_ADAPTERS, trio(WITH_ADAPTERS), SLIM, id="adapters"),
        pytest.param(MIXED, (*TURN, *trio(turn=2)[:PLANNER_THINKS]), WIDE, id="another_mode_before"),
    ],
)
def test_the_roles(snap_compare, paths, players, events, size):
    app = SideApp(paths, replace(IDLE, players=players), events)
    assert snap_compare(app, terminal_size=size, run_before=pressed())


def test_the_roles_of_the_whole_session(snap_compare, paths):
    app = SideApp(paths, replace(IDLE, players=MIXED), (*TURN, *trio(turn=2)))
    assert snap_compare(app, terminal_size=NARROW, run_before=pressed("t"))


@pytest.mark.parametrize("width", [24, 60])
def test_the_roles_in_a_side_of_another_width(snap_compare, paths, width):
    paths.state_file.parent.mkdir(parents=True, exist_ok=True)
    paths.state_file.write_text(f'{{"width": {width}}}')
    app = SideApp(paths, replace(IDLE, players=WITH_ADAPTERS), trio(WITH_ADAPTERS)[:CALLER_THINKS])
    assert snap_compare(app, terminal_size=(120, 44), run_before=pressed())


@pytest.mark.parametrize(
    ("until", "text", "size"),
    [(PLANNER_THINKS, QUESTION, WIDE), (CALLER_THINKS + 1, "caller {", NARROW), (None, "by the summarizer", SLIM)],
    ids=["planner_thinks", "caller_thinks", "finished"],
)
def test_a_turn_of_the_trio_in_the_chat(snap_compare, make_app, size, until, text):
    app = make_app(FakeShell(trio(), state=replace(IDLE, model=LARGE, players=MIXED), stops_at=until))

    async def before(pilot: Pilot[int]) -> None:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*QUESTION, "enter")
        await eventually(pilot, lambda: text in " ".join(app.chat.query_one(Transcript).text.split()))
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)

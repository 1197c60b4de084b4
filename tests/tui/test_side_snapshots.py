"""The side as pictures: beside the transcript and in its place."""

from dataclasses import replace

import pytest
from plan_play import ADVICE, BLACKLISTED, PLANNED, PROMPT, QUOTA, SPENT, TOKEN_PLAN, USED, plan_of_many
from side_play import NEAR, REACHED, READY, TOKENS, TURN, TWO_MODELS, SideApp, many_tools
from textual.pilot import Pilot
from tui_play import FINISHED, STARTED

from ecoshell.events import ContextPart, ContextTold

pytestmark = pytest.mark.usefixtures("quiet")
SIZES = pytest.mark.parametrize("size", [(120, 36), (80, 24)], ids=["wide", "narrow"])
NO_CAP = replace(READY, caps=())


def pressed(*keys: str):
    """Press keys, then let everything come to rest."""

    async def before(pilot: Pilot[int]) -> None:
        await pilot.press(*keys)
        await pilot.pause()
        await pilot.pause()

    return before


@SIZES
@pytest.mark.parametrize(
    "standing",
    [
        pytest.param(NO_CAP, id="no_cap"),
        pytest.param(replace(READY, caps=(NEAR, TOKENS)), id="near"),
        pytest.param(replace(READY, caps=(REACHED,)), id="reached"),
        pytest.param(replace(NO_CAP, spent_nano=None, next_nano=None), id="unknown_prices"),
        pytest.param(None, id="not_open"),
    ],
)
def test_the_budget(snap_compare, paths, standing, size):
    assert snap_compare(SideApp(paths, standing), terminal_size=size, run_before=pressed("f4"))


@SIZES
def test_the_plan_while_there_is_none(snap_compare, paths, size):
    assert snap_compare(SideApp(paths), terminal_size=size, run_before=pressed("f3"))


@SIZES
@pytest.mark.parametrize(
    "plans",
    [
        pytest.param((PLANNED,), id="planned"),
        pytest.param((PLANNED, USED), id="used"),
        pytest.param((PLANNED, USED, QUOTA), id="quota"),
        pytest.param((PLANNED, BLACKLISTED), id="blacklist"),
        pytest.param((PLANNED, SPENT), id="budget"),
        pytest.param((ADVICE,), id="advice"),
        pytest.param((PROMPT,), id="prompt"),
        pytest.param((TOKEN_PLAN,), id="tokens"),
        pytest.param((replace(PLANNED, low=None, high=None),), id="unknown_price"),
        pytest.param((plan_of_many(),), id="thousands"),
    ],
)
def test_the_plan(snap_compare, paths, plans, size):
    app = SideApp(paths, READY, (STARTED, *plans))
    assert snap_compare(app, terminal_size=size, run_before=pressed("f3"))


@SIZES
def test_the_plan_while_plans_are_off(snap_compare, paths, size):
    app = SideApp(paths, replace(READY, plan="off"), (STARTED, PLANNED, FINISHED))
    assert snap_compare(app, terminal_size=size, run_before=pressed("f3"))


@pytest.mark.parametrize("size", [(120, 36), (60, 24)], ids=["wide", "slim"])
def test_the_plan_beside_the_others_after_a_turn(snap_compare, paths, size):
    app = SideApp(paths, READY, (*TURN[:-1], PLANNED, BLACKLISTED, TURN[-1]))
    keys = ("f3",) if size[0] == 60 else ()
    assert snap_compare(app, terminal_size=size, run_before=pressed(*keys))


@pytest.mark.parametrize("width", [24, 60])
def test_the_plan_in_a_side_of_another_width(snap_compare, paths, width):
    paths.state_file.parent.mkdir(parents=True, exist_ok=True)
    paths.state_file.write_text(f'{{"width": {width}}}')
    app = SideApp(paths, READY, (STARTED, PLANNED, BLACKLISTED))
    assert snap_compare(app, terminal_size=(120, 36), run_before=pressed("f3", "down"))


@SIZES
@pytest.mark.parametrize(
    ("count", "keys"),
    [(4, ()), (527, ("down", "down")), (527, ("slash", *"oper 12")), (527, ("slash", *"nothing like it"))],
    ids=["few", "many", "filtered", "nothing_fits"],
)
def test_the_tools(snap_compare, paths, count, keys, size):
    standing = READY if count == 4 else many_tools(count)
    assert snap_compare(SideApp(paths, standing, TURN), terminal_size=size, run_before=pressed("f2", *keys))


@SIZES
def test_what_the_model_is_told_besides_tools(snap_compare, paths, size):
    parts = ContextPart("user", 124), ContextPart("project", 1_340, cut=True), ContextPart("facts", 92)
    standing = replace(READY, context=ContextTold("…", parts, exact=True, workspace="/home/me/project"))
    assert snap_compare(SideApp(paths, standing, TURN), terminal_size=size, run_before=pressed("f2"))


@SIZES
def test_two_models_in_three_roles_one_of_which_thinks(snap_compare, paths, size):
    assert snap_compare(SideApp(paths, NO_CAP, TWO_MODELS), terminal_size=size, run_before=pressed("f4"))


@SIZES
def test_folded_panels(snap_compare, paths, size):
    keys = ("f4", "enter", "f3", "enter", "f2", "minus", "escape")
    assert snap_compare(SideApp(paths, READY, TWO_MODELS), terminal_size=size, run_before=pressed(*keys))


@pytest.mark.parametrize("size", [(100, 20), (200, 50)], ids=["short", "large"])
def test_everything_at_once(snap_compare, paths, size):
    standing = replace(many_tools(), caps=(NEAR, TOKENS))
    assert snap_compare(SideApp(paths, standing, TWO_MODELS), terminal_size=size, run_before=pressed("f2"))


@pytest.mark.parametrize("size", [(120, 36), (60, 24)], ids=["wide", "slim"])
def test_the_side_while_it_is_hidden(snap_compare, paths, size):
    keys = ("f5",) if size[0] == 120 else ()
    assert snap_compare(SideApp(paths), terminal_size=size, run_before=pressed(*keys))

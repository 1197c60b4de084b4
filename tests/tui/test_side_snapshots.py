"""The side as pictures: beside the transcript and in its place."""

from dataclasses import replace

import pytest
from plan_play import ADVICE, BLACKLISTED, PLANNED, PROMPT, SPENT, TOKEN_PLAN, USED, plan_of_many
from side_play import NEAR, REACHED, READY, TOKENS, TURN, TWO_MODELS, SideApp, many_tools
from textual.pilot import Pilot
from tui_play import FINISHED, STARTED

from ecoshell.events import ContextPart, ContextTold

pytestmark = pytest.mark.usefixtures("quiet")
WIDE, NARROW = (120, 36), (80, 24)
SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
NO_CAP = replace(READY, caps=())


def pressed(*keys: str):
    """Press keys, then let everything come to rest."""

    async def before(pilot: Pilot[int]) -> None:
        await pilot.press(*keys)
        await pilot.pause()
        await pilot.pause()

    return before


@pytest.mark.parametrize(
    ("standing", "size"),
    [
        pytest.param(NO_CAP, WIDE, id="no_cap"),
        pytest.param(replace(READY, caps=(NEAR, TOKENS)), WIDE, id="near-wide"),
        pytest.param(replace(READY, caps=(NEAR, TOKENS)), NARROW, id="near-narrow"),
        pytest.param(replace(READY, caps=(REACHED,)), NARROW, id="reached"),
        pytest.param(replace(NO_CAP, spent_nano=None, next_nano=None), NARROW, id="unknown_prices"),
        pytest.param(None, WIDE, id="not_open"),
    ],
)
def test_the_budget(snap_compare, paths, standing, size):
    assert snap_compare(SideApp(paths, standing), terminal_size=size, run_before=pressed("f4"))


def test_the_plan_while_there_is_none(snap_compare, paths):
    assert snap_compare(SideApp(paths), terminal_size=NARROW, run_before=pressed("f3"))


@pytest.mark.parametrize(
    ("plans", "size"),
    [
        pytest.param((PLANNED,), WIDE, id="planned-wide"),
        pytest.param((PLANNED,), NARROW, id="planned-narrow"),
        pytest.param((PLANNED, USED), WIDE, id="used"),
        pytest.param((PLANNED, BLACKLISTED), WIDE, id="blacklist"),
        pytest.param((PLANNED, SPENT), NARROW, id="budget"),
        pytest.param((ADVICE,), WIDE, id="advice"),
        pytest.param((PROMPT,), NARROW, id="prompt"),
        pytest.param((TOKEN_PLAN,), NARROW, id="tokens"),
        pytest.param((replace(PLANNED, low=None, high=None),), WIDE, id="unknown_price"),
        pytest.param((plan_of_many(),), WIDE, id="thousands-wide"),
        pytest.param((plan_of_many(),), NARROW, id="thousands-narrow"),
    ],
)
def test_the_plan(snap_compare, paths, plans, size):
    app = SideApp(paths, READY, (STARTED, *plans))
    assert snap_compare(app, terminal_size=size, run_before=pressed("f3"))


def test_the_plan_while_plans_are_off(snap_compare, paths):
    app = SideApp(paths, replace(READY, plan="off"), (STARTED, PLANNED, FINISHED))
    assert snap_compare(app, terminal_size=WIDE, run_before=pressed("f3"))


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


@pytest.mark.parametrize(
    ("count", "keys", "size"),
    [
        pytest.param(4, (), WIDE, id="few"),
        pytest.param(527, ("down", "down"), WIDE, id="many-wide"),
        pytest.param(527, ("down", "down"), NARROW, id="many-narrow"),
        pytest.param(527, ("slash", *"oper 12"), NARROW, id="filtered"),
        pytest.param(527, ("slash", *"nothing like it"), WIDE, id="nothing_fits"),
    ],
)
def test_the_tools(snap_compare, paths, count, keys, size):
    standing = READY if count == 4 else many_tools(count)
    assert snap_compare(SideApp(paths, standing, TURN), terminal_size=size, run_before=pressed("f2", *keys))


def test_what_the_model_is_told_besides_tools(snap_compare, paths):
    parts = ContextPart("user", 124), ContextPart("project", 1_340, cut=True), ContextPart("facts", 92)
    standing = replace(READY, context=ContextTold("…", parts, exact=True, workspace="/home/me/project"))
    assert snap_compare(SideApp(paths, standing, TURN), terminal_size=WIDE, run_before=pressed("f2"))


def test_two_models_in_three_roles_one_of_which_thinks(snap_compare, paths):
    assert snap_compare(SideApp(paths, NO_CAP, TWO_MODELS), terminal_size=WIDE, run_before=pressed("f4"))


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

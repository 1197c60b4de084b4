"""The roles panel and the title: who plays, who thinks, with which model, and what it takes."""

from dataclasses import replace

import pytest
from roles_play import (
    ADAPTED,
    ALONE,
    CALLED,
    CALLER_THINKS,
    FILE,
    IDLE,
    LARGE,
    MIXED,
    PLANNER_THINKS,
    SUMMARIZER_WRITES,
    WITH_ADAPTERS,
    trio,
)
from side_play import TURN, SideApp, plain, said
from tui_play import FakeShell, eventually

from ecoshell.agent.commands import Printed
from ecoshell.events import BudgetHeld, BudgetSettled, CallStarted, Event, StepStarted, TurnStarted
from ecoshell.messages import Usage
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.side.cost import RolesPanel
from ecoshell.tui.side.panel_state import PanelState

pytestmark = pytest.mark.usefixtures("quiet")
SUMMARY = BudgetSettled(99, "compact", LARGE, 7_000_000, Usage(900, 90), True, 1.0)


def board_of(*events: Event, players=MIXED) -> PanelState:
    board = PanelState()
    for event in events:
        board.hear(event)
    board.look(replace(IDLE, players=players), IDLE.caps)
    return board


def text(board: PanelState, width: int = 36, *, session: bool = False) -> str:
    panel = RolesPanel(board)
    panel.session = session
    return plain(panel.lines(width))


def thinkers(board: PanelState, *, session: bool = False) -> list[tuple[str, str, int]]:
    return [(use.role, use.model, use.calls) for use in board.uses(session=session)]


# -- what the board knows


def test_roles_that_play_now_are_known_with_their_models_before_they_are_asked():
    assert thinkers(board_of()) == [(role, model, 0) for role, model in MIXED]


def test_a_turn_has_sums_of_its_own_and_the_session_adds_them_up():
    board = board_of(*trio(), *trio(turn=2))
    assert [calls for *_, calls in thinkers(board)] == [2, 1, 1]
    assert [calls for *_, calls in thinkers(board, session=True)] == [4, 2, 2]
    assert board.turn_roles["planner", LARGE].consumption.nano == 12_500_000
    assert board.turn_roles["caller", FILE].consumption.usage == Usage(2_200, 24, cached=2_048)


def test_what_is_paid_between_two_turns_is_no_turns():
    board = board_of(*trio(), SUMMARY)
    assert ("compact", LARGE, 1) in thinkers(board, session=True)
    assert all(role != "compact" for role, *_ in thinkers(board))


def test_a_role_that_another_model_has_played_stands_twice_its_present_model_first():
    board = board_of(*trio(ALONE))
    assert thinkers(board)[:2] == [("planner", LARGE, 0), ("planner", "embedded", 2)]


def test_other_players_change_the_roles_and_nothing_else():
    board = board_of(*trio())
    assert board.look(replace(IDLE, players=ALONE), IDLE.caps)
    assert not board.look(replace(IDLE, players=ALONE), IDLE.caps)


def test_of_branches_that_think_at_once_one_is_named_until_the_last_has_its_reply():
    held = [BudgetHeld(at, "caller", f"m{at}", 0, 100, 10, clamped=False) for at in (1, 2)]
    paid = [BudgetSettled(at, "caller", f"m{at}", 0, Usage(10, 1), True, 0.1) for at in (1, 2)]
    board = board_of(TurnStarted(1, "q", "m1", "umi", "graph"), StepStarted(1, "planner", "m1"))
    seen = []
    for event in (held[0], held[1], paid[1], CallStarted("c", "count_text", {}), paid[0]):
        board.hear(event)
        seen.append(board.thinking)
    assert seen == [("caller", "m1"), ("caller", "m2"), ("caller", "m1"), ("caller", "m1"), None]


# -- what the panel says


def test_before_a_turn_every_role_stands_with_its_model():
    assert text(board_of(players=ALONE)).split() == [
        *("◊", "planner", "embedded", "not", "asked", "yet"),
        *("►", "caller", "embedded", "not", "asked", "yet"),
        *("√", "summarizer", "embedded", "not", "asked", "yet"),
    ]


def test_nobody_is_named_where_nobody_is_known():
    assert text(PanelState()) == "nobody has thought yet"


@pytest.mark.parametrize("width", [36, 78])
def test_who_thinks_is_marked_by_a_sign_and_a_word(width: int):
    for events, role in ((PLANNER_THINKS, "planner"), (CALLER_THINKS, "caller"), (SUMMARIZER_WRITES, "summarizer")):
        lines = text(board_of(*trio()[:events]), width).splitlines()
        marked = next(at for at, line in enumerate(lines) if line.startswith("◦ "))
        assert lines[marked].startswith(f"◦ {role}")
        assert "thinking" in f"{lines[marked]}{lines[marked + 1]}"
        assert sum("thinking" in line for line in lines) == 1
    assert "◦" not in text(board_of(*trio()[:CALLED]), width)


@pytest.mark.parametrize("width", [36, 78])
def test_a_finished_turn_shows_the_shares_of_its_price(width: int):
    shown = text(board_of(*trio()), width)
    assert "turn 1" in shown
    assert "% of price" in shown
    shares = [line.rpartition(" %")[0].split()[-1] for line in shown.splitlines() if line.endswith(" %")]
    assert shares == ["81", "6", "13"]


def test_why_shares_are_not_of_the_price_is_said_where_there_is_room():
    assert "% of tokens, free of charge" in text(board_of(*trio(ALONE, priced=0), players=ALONE))
    assert "free of charge" not in text(board_of(*trio(ALONE, priced=0), players=ALONE), 30)
    unknown = replace(SUMMARY, role="planner", spent_nano=None)
    assert "% of tokens, price unknown" in text(board_of(*trio()[:-1], unknown))


def test_a_role_that_was_not_asked_has_no_share():
    shown = text(board_of(*trio()[:CALLED])).splitlines()
    assert shown[-2].rstrip() == "√ summarizer  embedded"
    assert shown[-1].strip() == "not asked yet"


@pytest.mark.parametrize("width", [36, 78])
def test_an_adapter_stands_apart_from_its_model_by_its_files_name(width: int):
    shown = text(board_of(*trio(WITH_ADAPTERS), players=WITH_ADAPTERS), width)
    assert "+planner.gguf" in shown
    assert "+caller.gguf" in shown
    assert "/home/me/adapters" not in shown
    assert ADAPTED not in shown


@pytest.mark.parametrize("width", [22, 28, 36, 58, 71, 72, 78, 150])
def test_no_line_is_wider_than_the_panel(width: int):
    for events in (trio(WITH_ADAPTERS), trio()[:CALLER_THINKS], ()):
        lines = text(board_of(*events, players=WITH_ADAPTERS), width).splitlines()
        assert all(len(line) <= width for line in lines), (width, lines)


def test_what_a_model_is_called_is_shown_and_never_obeyed():
    shown = text(board_of(players=(("planner", "embedded+a\x1b[31m\n.gguf"), ("caller", "x\x1b]0;"))), 78)
    assert "\x1b" not in shown
    assert "␛[31m" in shown


async def test_t_shows_the_session_in_the_place_of_the_turn_and_the_turn_again(paths):
    app = SideApp(paths, replace(IDLE, players=MIXED), (*TURN, *trio(turn=2)))
    async with app.run_test(size=(120, 44)) as pilot:
        panel = app.chat.query_one(RolesPanel)
        panel.focus()
        await eventually(pilot, lambda: "turn 2" in said(panel))
        assert "single" not in said(panel)
        await pilot.press("t")
        await eventually(pilot, lambda: said(panel).startswith("session"))
        assert "single" in said(panel)
        await pilot.press("t")
        await eventually(pilot, lambda: said(panel).startswith("turn 2"))


# -- what the line above the prompt says


def title(app) -> str:
    return str(app.chat.query_one(TitleBar).render())


def bar(app) -> str:
    return str(app.chat.query_one(PromptBar).border_title)


async def test_it_is_said_who_thinks_and_another_model_than_the_one_that_leads(make_app):
    app = make_app(FakeShell(trio(), state=replace(IDLE, model=LARGE, players=MIXED), stops_at=CALLER_THINKS))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"go", "enter")
        await eventually(pilot, lambda: "caller is thinking" in bar(app))
        assert bar(app).strip() == "| caller is thinking · local:…/qwen2.5-1.5b-instru… · 0 s · esc stops"
        await pilot.press("escape")
        await eventually(pilot, lambda: bar(app) == "")


async def test_it_is_said_that_a_tool_works_and_nobody_thinks(make_app):
    app = make_app(FakeShell(trio(ALONE), state=IDLE, stops_at=CALLED - 1))
    async with app.run_test(size=(120, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"go", "enter")
        await eventually(pilot, lambda: "count_text" in app.chat.query_one("Transcript").column.plain)
        assert bar(app).strip() == "| working · 0 s · esc stops"
        await pilot.press("escape")
        await eventually(pilot, lambda: not app.chat.controller.busy)


async def test_another_mode_stands_in_the_title_and_its_roles_in_the_panel_at_once(make_app):
    class Changing(FakeShell):
        async def command(self, line: str) -> Printed:
            self.state = replace(IDLE, mode=line.split()[1])
            return await super().command(line)

    app = make_app(Changing())
    async with app.run_test(size=(120, 44)) as pilot:
        await eventually(pilot, lambda: app.chat.controller and app.chat.controller.standing)
        assert "one model, step by step" in title(app)
        await pilot.press("f6")
        await eventually(pilot, lambda: "three roles, step by step" in title(app))
        await eventually(pilot, lambda: "summarizer  embedded" in said(app.chat.query_one(RolesPanel)))

"""The roles panel and the title: roles, their models, activity and costs."""

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
from tui_play import FINISHED, STARTED, FakeShell, eventually

from ecoshell.agent.command_table import Printed
from ecoshell.events import (
    BudgetHeld,
    BudgetSettled,
    CallArriving,
    CallStarted,
    Event,
    StepStarted,
    TurnStarted,
)
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
        board.handle(event)
    board.update(replace(IDLE, players=players), IDLE.caps)
    return board


def text(board: PanelState, width: int = 36, *, session: bool = False) -> str:
    panel = RolesPanel(board)
    panel.session = session
    return plain(panel.lines(width))


def thinkers(board: PanelState, *, session: bool = False) -> list[tuple[str, str, int]]:
    return [(use.role, use.model, use.calls) for use in board.uses(session=session)]


# -- the state of the roles


def test_assigned_roles_are_listed_before_their_first_call():
    assert thinkers(board_of()) == [(role, model, 0) for role, model in MIXED]


def test_turn_and_session_have_separate_sums():
    board = board_of(*trio(), *trio(turn=2))
    assert [calls for *_, calls in thinkers(board)] == [2, 1, 1]
    assert [calls for *_, calls in thinkers(board, session=True)] == [4, 2, 2]
    assert board.turn_roles["planner", LARGE].consumption.nano == 12_500_000
    assert board.turn_roles["caller", FILE].consumption.usage == Usage(2_200, 24, cached=2_048)


def test_calls_between_turns_belong_to_no_turn():
    board = board_of(*trio(), SUMMARY)
    assert ("compact", LARGE, 1) in thinkers(board, session=True)
    assert all(role != "compact" for role, *_ in thinkers(board))


def test_role_with_two_models_has_two_entries_current_first():
    board = board_of(*trio(ALONE))
    assert thinkers(board)[:2] == [("planner", LARGE, 0), ("planner", "embedded", 2)]


def test_new_role_models_change_only_the_roles():
    board = board_of(*trio())
    assert board.update(replace(IDLE, players=ALONE), IDLE.caps)
    assert not board.update(replace(IDLE, players=ALONE), IDLE.caps)


def test_one_of_several_concurrent_roles_is_named_until_the_last_reply():
    held_part = [BudgetHeld(at, "caller", f"m{at}", 0, 100, 10, clamped=False) for at in (1, 2)]
    paid = [BudgetSettled(at, "caller", f"m{at}", 0, Usage(10, 1), True, 0.1) for at in (1, 2)]
    board = board_of(TurnStarted(1, "q", "m1", "umi", "graph"), StepStarted(1, "planner", "m1"))
    observed = []
    for event in (held_part[0], held_part[1], paid[1], CallStarted("c", "count_text", {}), paid[0]):
        board.handle(event)
        observed.append(board.thinking)
    assert observed == [
        ("caller", "m1"),
        ("caller", "m2"),
        ("caller", "m1"),
        ("caller", "m1"),
        None,
    ]


# -- the panel


def test_roles_show_their_models_before_a_turn():
    assert text(board_of(players=ALONE)).split() == [
        *("◊", "planner", "embedded", "no", "calls", "yet"),
        *("►", "caller", "embedded", "no", "calls", "yet"),
        *("√", "summarizer", "embedded", "no", "calls", "yet"),
    ]


def test_panel_without_roles_has_a_note():
    assert text(PanelState()) == "no role used yet"


@pytest.mark.parametrize("width", [36, 78])
def test_thinking_role_is_marked(width: int):
    for events, role in (
        (PLANNER_THINKS, "planner"),
        (CALLER_THINKS, "caller"),
        (SUMMARIZER_WRITES, "summarizer"),
    ):
        lines = text(board_of(*trio()[:events]), width).splitlines()
        marked = next(at for at, line in enumerate(lines) if line.startswith("◦ "))
        assert lines[marked].startswith(f"◦ {role}")
        assert "thinking" in f"{lines[marked]}{lines[marked + 1]}"
        assert sum("thinking" in line for line in lines) == 1
    assert "◦" not in text(board_of(*trio()[:CALLED]), width)


@pytest.mark.parametrize("width", [36, 78])
def test_finished_turn_shows_the_shares_of_its_price(width: int):
    output = text(board_of(*trio()), width)
    assert "turn 1" in output
    assert "% of price" in output
    shares = [
        line.rpartition(" %")[0].split()[-1] for line in output.splitlines() if line.endswith(" %")
    ]
    assert shares == ["81", "6", "13"]


def test_shares_say_why_they_are_not_of_the_price():
    assert "% of tokens, free of charge" in text(board_of(*trio(ALONE, priced=0), players=ALONE))
    unknown = replace(SUMMARY, role="planner", spent_nano=None)
    assert "% of tokens, price unknown" in text(board_of(*trio()[:-1], unknown))


def test_role_without_calls_has_no_share():
    output = text(board_of(*trio()[:CALLED])).splitlines()
    assert output[-2].rstrip() == "√ summarizer  embedded"
    assert output[-1].strip() == "no calls yet"


@pytest.mark.parametrize("width", [36, 78])
def test_adapter_is_shown_by_its_file_name(width: int):
    output = text(board_of(*trio(WITH_ADAPTERS), players=WITH_ADAPTERS), width)
    assert "+planner.gguf" in output
    assert "+caller.gguf" in output
    assert "/home/me/adapters" not in output
    assert ADAPTED not in output


@pytest.mark.parametrize("width", [22, 28, 36, 58, 71, 72, 78, 150])
def test_no_line_is_wider_than_the_panel(width: int):
    for events in (trio(WITH_ADAPTERS), trio()[:CALLER_THINKS], ()):
        lines = text(board_of(*events, players=WITH_ADAPTERS), width).splitlines()
        assert all(len(line) <= width for line in lines), (width, lines)


def test_hostile_model_name_is_escaped():
    output = text(
        board_of(players=(("planner", "embedded+a\x1b[31m\n.gguf"), ("caller", "x\x1b]0;"))), 78
    )
    assert "\x1b" not in output
    assert "␛[31m" in output


async def test_t_toggles_between_turn_and_session(paths):
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


# -- the line above the prompt


def title(app) -> str:
    return str(app.chat.query_one(TitleBar).render())


def bar(app) -> str:
    return str(app.chat.query_one(PromptBar).border_title)


async def test_activity_names_the_role_and_a_different_model(make_app):
    app = make_app(
        FakeShell(trio(), state=replace(IDLE, model=LARGE, players=MIXED), stops_at=CALLER_THINKS)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"go", "enter")
        await eventually(pilot, lambda: "caller is thinking" in bar(app))
        assert (
            bar(app).strip()
            == "| caller is thinking · local:…/qwen2.5-1.5b-instru… · 0 s · esc stops"
        )
        await pilot.press("escape")
        await eventually(pilot, lambda: bar(app) == "")


async def test_activity_shows_a_long_call_while_it_is_written(make_app):
    arriving = CallArriving("write_file", "notes.txt", 120, "single")
    app = make_app(FakeShell((STARTED, arriving, FINISHED), state=IDLE, stops_at=2))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"go", "enter")
        await eventually(pilot, lambda: "write_file" in bar(app))
        assert "write_file notes.txt, 120 lines" in bar(app)
        await pilot.press("escape")
        await eventually(pilot, lambda: bar(app) == "")


async def test_activity_shows_a_running_tool(make_app):
    app = make_app(FakeShell(trio(ALONE), state=IDLE, stops_at=CALLED - 1))
    async with app.run_test(size=(120, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"go", "enter")
        await eventually(
            pilot, lambda: "count_text" in app.chat.query_one("Transcript").column.plain
        )
        assert bar(app).strip() == "| working · 0 s · esc stops"
        await pilot.press("escape")
        await eventually(pilot, lambda: not app.chat.controller.busy)


async def test_mode_change_updates_title_and_roles(make_app):
    class Changing(FakeShell):
        async def command(self, line: str) -> Printed:
            self.state = replace(IDLE, mode=line.split()[1])
            return await super().command(line)

    app = make_app(Changing())
    async with app.run_test(size=(120, 44)) as pilot:
        await eventually(pilot, lambda: app.chat.controller and app.chat.controller.status)
        assert "one model · embedded" in title(app)
        await pilot.press("f6")
        await eventually(pilot, lambda: "three roles · embedded" in title(app))
        await eventually(
            pilot, lambda: "summarizer  embedded" in said(app.chat.query_one(RolesPanel))
        )

"""How lines of panels are set and how panels share a height, without a screen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_play import ADVICE, BLACKLISTED, COUNT, PLANNED, PROMPT, TOKEN_PLAN, USED, plan_of_many
from rich.cells import cell_len
from side_play import NEAR, REACHED, READY, TOKENS, TURN, TWO_MODELS, many_tools, plain
from tui_play import CAP, FINISHED, STARTED

from ecoshell.events import Event, PlanChanged, ToolUnregistered
from ecoshell.tui.side.cost import BudgetPanel, RolesPanel
from ecoshell.tui.side.panel import Line, bar, percent
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.side.plan import Columns, PlanPanel, heading_lines, state_of
from ecoshell.tui.side.stack import share
from ecoshell.tui.side.tools import ToolsPanel
from ecoshell.tui.text import fit, fit_middle, left, model_name, right

WIDTHS = st.integers(0, 60)


def board(*events: Event, standing=READY) -> PanelState:
    made = PanelState()
    for event in events:
        made.hear(event)
    made.look(standing, standing.caps)
    return made


@given(st.text(), WIDTHS)
def test_a_text_never_takes_more_cells_than_it_is_given(text: str, width: int):
    assert cell_len(fit(text, width)) <= width
    assert cell_len(fit_middle(text, width)) <= width
    assert cell_len(left(text, width)) == width
    assert cell_len(right(text, width)) == width


def test_a_long_name_keeps_its_two_ends():
    assert fit_middle("service_12_operation_197", 18) == "service_12_…on_197"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("embedded", "embedded"),
        ("local:/home/me/models/small.gguf", "local:…/small.gguf"),
        ("openrouter/someone/a-model-name", "…/a-model-name"),
    ],
)
def test_a_model_is_named_by_the_end_of_its_path(name: str, shown: str):
    assert model_name(name, 20) == shown


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**9), WIDTHS)
def test_a_bar_is_as_wide_as_it_should_be_and_shows_whatever_is_there(spent: int, held: int, limit: int, width: int):
    drawn = bar(((spent, "█"), (held, "▒")), limit, width)
    assert len(drawn) == width
    assert not spent or not width or drawn.startswith("█")


def test_only_a_full_whole_is_a_hundred_percent():
    assert (percent(999, 1000), percent(1000, 1000), percent(0, 0)) == (" 99 %", "100 %", "  0 %")


@given(st.integers(0, 60), st.lists(st.integers(1, 40), max_size=5), st.data())
def test_panels_never_take_more_than_there_is_and_none_starves_while_there_is_room(height: int, wants, data):
    first = data.draw(st.none() | st.integers(0, len(wants) - 1)) if wants else None
    given_ = share(height, wants, first=first)
    assert sum(given_) == min(height, sum(wants))
    assert all(lines <= want for lines, want in zip(given_, wants, strict=True))
    assert height < len(wants) or all(given_)


def test_too_small_a_height_is_shared_evenly_and_the_panel_with_the_focus_comes_first():
    assert share(12, [10, 5, 10]) == [4, 4, 4]
    assert share(12, [10, 5, 10], first=2) == [1, 1, 10]
    assert share(30, [10, 5, 10], rest=1) == [10, 10, 10]


def test_a_cap_says_what_is_left_spent_and_held():
    shown = plain(BudgetPanel(board()).lines(36)).splitlines()
    assert shown[0] == f"session{'$0.4017 left of $0.50':>29}"
    assert shown[1].endswith(" 19 % ")
    assert shown[2:] == [
        "spent $0.0912 · held $0.0071",
        "next step  ≤ $0.0071 · 2.3k tok",
        "held now   nothing",
        "so far     $0.0912 · 18k tok",
    ]


@pytest.mark.parametrize(("cap", "word"), [(CAP, ""), (NEAR, "near"), (REACHED, "reached")])
def test_a_cap_says_in_a_word_how_it_stands(cap, word: str):
    line = plain(BudgetPanel(board(standing=replace(READY, caps=(cap,)))).lines(36)).splitlines()[1]
    assert line.rpartition("%")[2].strip() == word


def test_a_cap_in_tokens_is_told_in_tokens():
    shown = plain(BudgetPanel(board(standing=replace(READY, caps=(TOKENS,)))).lines(40))
    assert "135k left of 200k tok" in shown
    assert "spent 63k tok · held 1.2k tok" in shown


def test_without_a_cap_the_budget_says_how_to_set_one():
    uncapped = replace(READY, caps=())
    assert "no cap set — /budget 0.50 sets one" in plain(BudgetPanel(board(standing=uncapped)).lines(36))
    told = plain(BudgetPanel(board(standing=replace(uncapped, away=True))).lines(36))
    assert "the team's caps are not known" in told
    assert "no cap" not in told


def test_what_runs_is_held_now():
    assert "held now   $0.0071 · 2.3k tok" in plain(BudgetPanel(board(*TURN[:3])).lines(36))


def test_prices_that_are_unknown_are_never_shown_as_nothing():
    unknown = replace(READY, caps=(), spent_nano=None, next_nano=None)
    assert plain(BudgetPanel(board(standing=unknown)).lines(40)).splitlines()[1:] == [
        "next step  ≤ 2.3k tok, price unknown",
        "held now   nothing",
        "so far     price unknown · 18k tok",
    ]
    assert "next step  not known yet" in plain(BudgetPanel(board(standing=replace(READY, next_tokens=None))).lines(40))


def test_roles_stand_in_a_table_where_there_is_room_and_below_each_other_where_not():
    wide, slim = plain(RolesPanel(board(*TWO_MODELS)).lines(100)), plain(RolesPanel(board(*TWO_MODELS)).lines(36))
    assert [line.split()[:3] for line in wide.splitlines()] == [
        ["turn", "2", "%"],
        ["role", "calls", "in"],
        ["◊", "planner", "1"],
        ["openai/gpt-4.1-mini"],
        ["◦", "caller", "thinking"],
        ["local:/home/me/models/qwen2.5-1.5b-instruct-q4.gguf"],
    ]
    assert slim.splitlines()[1:4] == [
        "◊ planner  openai/gpt-4.1-mini 100 %",
        "  1 call  6.4 s              $0.0124",
        "  8.7k in (4.1k cached) · 420 out",
    ]
    assert "◦ caller" in slim
    assert "thinking" in wide
    assert "thinking" in slim


def heading(*events: Event, width: int = 36, mode: str = "btp") -> str:
    return plain(heading_lines(board(*events, standing=replace(READY, plan=mode)), width))


def row_text(plan, at: int, width: int = 36) -> str:
    return plain([Columns(plan, width).line(plan.rows[at])])


def test_before_the_first_plan_the_panel_says_how_to_get_one():
    said = heading()
    assert said.startswith("no plan yet\nAsk a question: it is planned before")
    assert "btp+prompt" in said


def test_with_plans_off_the_panel_says_so_whatever_was_planned_before():
    assert heading(STARTED, PLANNED, mode="off").startswith("plan off\nTurns are not planned")


def test_a_turn_without_a_plan_yet_is_being_planned():
    assert heading(STARTED) == "planning …"
    assert heading(STARTED, PLANNED, FINISHED, replace(STARTED, turn=2)).splitlines()[-1] == "planning …"


def test_the_heading_says_what_is_left_for_tools_what_is_reserved_and_what_the_turn_may_still_cost():
    assert heading(STARTED, PLANNED).splitlines() == [
        "for tools      $0.0429 left of $0.05",
        "▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░  14 %",
        "planned $0.0052 · reserved $0.0071",
        "remaining  about $0.002 to $0.011",
    ]


def test_a_plan_made_anew_says_why_and_shows_what_was_spent_since_the_first():
    lines = heading(STARTED, PLANNED, USED).splitlines()
    assert lines[0].endswith("$0.0416 left of $0.05")
    assert lines[1].startswith("█▒▒▒▒▒░")
    assert lines[-1] == "↔ count_text was used"


def test_after_the_turn_nothing_remains_to_be_paid():
    assert "remaining" not in heading(STARTED, PLANNED, FINISHED)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(None, None, "price unknown"), (0, 0, "$0"), (700_000, 700_000, "about $0.0007"), (0, 9_000_000, "$0 to $0.009")],
)
def test_what_remains_is_unknown_nothing_or_a_range(low, high, said):
    assert said in heading(STARTED, replace(PLANNED, low=low, high=high)).splitlines()[-1]


def test_without_a_cap_the_plan_is_advice():
    assert heading(STARTED, ADVICE).splitlines()[0] == "no cap: advice only /budget sets one"
    assert state_of(ADVICE.rows[0], enforced=False) == ("!", "quota", "warning")


def test_a_plan_that_is_only_told_to_the_model_says_so():
    assert "told to the model, not enforced" in heading(STARTED, PROMPT)


def test_a_row_says_its_state_by_a_sign_and_a_word_its_value_its_cost_and_its_uses():
    assert [row_text(BLACKLISTED, at) for at in range(5)] == [
        "× count_text  .91 .0012    2/2 quota",
        "× read_file   .55      1/1 blacklist",
        "√ list_folder .10 .002       0/1 new",
        "× fetch_url   .10 .031    0/0 budget",
        "· run_command .08    0/0 low success",
    ]


def test_a_row_tells_more_the_wider_the_panel_is():
    assert row_text(USED, 0, 22) == "√ count…xt .91  1/2 ok"
    assert row_text(USED, 0, 28) == "√ count…xt .91 .0012  1/2 ok"
    assert row_text(USED, 0, 36) == "√ count_text  .91 .0012±.0003 1/2 ok"
    assert row_text(USED, 0, 57).split() == ["√", "count_text", "0.91", "$0.0012", "±", "$0.0003", "1/2", "ok"]
    assert row_text(USED, 0, 78).split() == ["√", "count_text", "0.91", "$0.0012", "±", "$0.0003", "2", "1", "1", "ok"]


def test_a_plan_in_tokens_is_told_in_tokens():
    assert row_text(TOKEN_PLAN, 0) == "√ count_text  .91 1.2k±300    0/2 ok"
    assert plain([Columns(TOKEN_PLAN, 36).head]) == "  tool        val cost tok      used"


def test_below_the_list_everything_is_said_of_one_row():
    assert plain(PlanPanel(board(STARTED, PLANNED)).about(replace(COUNT, used=1), 40)).splitlines() == [
        "count_text",
        "value 0.91 · chance 1.00 · 1/2 used",
        "$0.0012 ± $0.0003: worth its price",
    ]


def test_rows_of_the_plan_are_drawn_for_the_width_that_is_asked_for():
    panel = PlanPanel(board(STARTED, PLANNED))
    for width in (80, 60, 30, 80):
        assert panel.item_line(COUNT, width) == Columns(PLANNED, width).line(COUNT)


def plan_lines(plan: PlanChanged | None, width: int) -> list[Line]:
    """Everything the plan panel may show at a width."""
    known = board(*((STARTED, PLANNED, plan) if plan else ()))
    if plan is None:
        return heading_lines(known, width)
    panel = PlanPanel(known)
    rows = [line for row in plan.rows for line in (panel.item_line(row, width), *panel.about(row, width))]
    return [*heading_lines(known, width), Columns(plan, width).head, *rows]


@given(st.integers(22, 120))
def test_no_line_of_any_panel_is_wider_than_the_panel(width: int):
    known = board(*TWO_MODELS, standing=replace(many_tools(60), caps=(NEAR, TOKENS)))
    panel = ToolsPanel(known)
    tools = [panel.item_line(tool, width) for tool in known.tools]
    plans = [
        line for plan in (None, BLACKLISTED, ADVICE, TOKEN_PLAN, plan_of_many()) for line in plan_lines(plan, width)
    ]
    for line in [*BudgetPanel(known).lines(width), *RolesPanel(known).lines(width), *tools, *plans]:
        text = plain([line])
        assert cell_len(text) <= width
        assert text.isprintable()


def test_registered_tools_come_first_and_none_moves_while_the_order_is_held():
    known = board(*TURN)
    tools = ToolsPanel(known)
    tools.put(hold=False)
    assert tools.shown == ["count_text", "write_file", "read_file", "run_command"]
    tools.highlighted = 2
    fewer = tuple(replace(tool, registered=tool.name == "write_file") for tool in READY.tools)
    known.hear(ToolUnregistered("count_text"))
    known.look(replace(READY, tools=fewer), READY.caps)
    tools.put(hold=True)
    assert tools.shown == ["count_text", "write_file", "read_file", "run_command"]
    tools.put(hold=False)
    assert tools.shown == ["write_file", "count_text", "read_file", "run_command"]
    assert tools.current == "read_file"


def test_a_filter_shows_what_fits_the_best_first():
    tools = ToolsPanel(board(standing=many_tools()))
    tools.put(hold=False)
    tools.narrow("op 123")
    assert tools.current == "service_12_operation_123"
    tools.narrow("nothing like it")
    assert tools.current == ""
    tools.narrow("")
    assert len(tools.shown) == 527

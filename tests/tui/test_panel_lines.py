"""Lines of the side panels and the division of their height, without a screen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_play import ADVICE, BLACKLISTED, COUNT, PLANNED, PROMPT, TOKEN_PLAN, USED, plan_of_many
from rich.cells import cell_len
from side_play import NEAR, REACHED, READY, TOKENS, TURN, TWO_MODELS, many_tools, plain
from tui_play import CAP, FINISHED, STARTED

from ecoshell.budget import CapState
from ecoshell.events import CallStarted, Event, PlanChanged, ToolUnregistered
from ecoshell.tui.side.cost import BudgetPanel, RolesPanel
from ecoshell.tui.side.panel import HELD, SPENT, Line, bar, percent
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.side.plan import Columns, PlanPanel, heading_lines, state_of
from ecoshell.tui.side.stack import share
from ecoshell.tui.side.tools import ToolsPanel
from ecoshell.tui.text import align_left, align_right, fit, fit_middle, model_name

WIDTHS = st.integers(0, 60)


def board(*events: Event, status=READY) -> PanelState:
    made = PanelState()
    for event in events:
        made.handle(event)
    made.update(status, status.caps)
    return made


@given(st.text(), WIDTHS)
def test_fitted_texts_stay_within_their_cells(text: str, width: int):
    assert cell_len(fit(text, width)) <= width
    assert cell_len(fit_middle(text, width)) <= width
    assert cell_len(align_left(text, width)) == width
    assert cell_len(align_right(text, width)) == width


def test_long_name_keeps_both_ends():
    assert fit_middle("service_12_operation_197", 18) == "service_12_…on_197"


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("embedded", "embedded"),
        ("local:/home/me/models/small.gguf", "local:…/small.gguf"),
        ("openrouter/someone/a-model-name", "…/a-model-name"),
    ],
)
def test_model_path_is_shortened_to_its_end(name: str, output: str):
    assert model_name(name, 20) == output


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**9), WIDTHS)
def test_bar_has_its_width_and_shows_small_parts(
    spent: int, held_part: int, limit: int, width: int
):
    drawn = bar(((spent, "━"), (held_part, "╍")), limit, width)
    assert len(drawn) == width
    assert not spent or not width or drawn.startswith("━")


def test_only_a_complete_total_is_100_percent():
    assert (percent(999, 1000), percent(1000, 1000), percent(0, 0)) == (" 99 %", "100 %", "  0 %")


@given(st.integers(0, 60), st.lists(st.integers(1, 40), max_size=5), st.data())
def test_heights_never_exceed_the_total_and_no_panel_is_omitted_needlessly(
    height: int, wants, data
):
    first = data.draw(st.none() | st.integers(0, len(wants) - 1)) if wants else None
    results = share(height, wants, first=first)
    assert sum(results) == min(height, sum(wants))
    assert all(lines <= want for lines, want in zip(results, wants, strict=True))
    assert height < len(wants) or all(results)


def test_small_height_is_divided_evenly_after_the_focused_panel():
    assert share(12, [10, 5, 10]) == [4, 4, 4]
    assert share(12, [10, 5, 10], first=2) == [1, 1, 10]
    assert share(30, [10, 5, 10], spare_to=1) == [10, 10, 10]


def test_cap_shows_remaining_spent_and_held_amounts():
    output = plain(BudgetPanel(board()).lines(36)).splitlines()
    assert output[0] == f"session{'$0.4088 left of $0.50':>29}"
    assert output[1].endswith(" 18 %")
    assert output[2:] == [
        "spent $0.0912 · held $0.0071",
        "next step  ≤ $0.0071 · 2.3k tok",
        "running    no call",
        "so far     $0.0912 · 18k tok",
    ]


@pytest.mark.parametrize(
    ("cap", "word"),
    [
        (CAP, ""),
        (replace(CAP, held=CAP.limit - CAP.spent), ""),
        (NEAR, "near"),
        (REACHED, "reached"),
    ],
)
def test_cap_state_has_a_word(cap, word: str):
    line = plain(BudgetPanel(board(status=replace(READY, caps=(cap,)))).lines(36)).splitlines()[1]
    assert line.rpartition("%")[2].strip() == word


def test_held_amount_has_its_own_shade_and_counts_as_left():
    full = replace(CAP, held=CAP.limit - CAP.spent)
    head, bar, _ = BudgetPanel(board(status=replace(READY, caps=(full,)))).lines(40)[:3]
    assert head[-1] == ("$0.4088 left of $0.50", "text")
    assert [(set(text), tone) for text, tone in bar[:2]] == [({SPENT}, "good"), ({HELD}, "muted")]


def test_token_cap_is_shown_in_tokens():
    output = plain(BudgetPanel(board(status=replace(READY, caps=(TOKENS,)))).lines(40))
    assert "136k left of 200k tok" in output
    assert "spent 63k tok · held 1.2k tok" in output


def test_budget_without_a_cap_shows_how_to_set_one():
    uncapped = replace(READY, caps=())
    assert "no cap set — /budget 0.50 sets one" in plain(
        BudgetPanel(board(status=uncapped)).lines(36)
    )
    text_shown = plain(BudgetPanel(board(status=replace(uncapped, away=True))).lines(36))
    assert "team caps unknown" in text_shown
    assert "no cap" not in text_shown


def test_a_free_model_is_counted_in_tokens_and_seconds():
    free = replace(
        READY, caps=(), is_free=True, spent_nano=0, next_nano=0, used_ms=61_200, next_ms=4_400
    )
    assert plain(BudgetPanel(board(status=free)).lines(36)).splitlines() == [
        "no cap — /budget 20000tok or 2min",
        "next step  ≤ 2.3k tok · ≈ 4 s",
        "running    no call",
        "so far     18k tok · 1 min 1 s",
    ]
    untimed = replace(free, next_ms=None, token_cap="50000tok")
    shown = plain(BudgetPanel(board(status=untimed)).lines(36))
    assert "next step  ≤ 2.3k tok\n" in shown
    assert "no cap — /budget 50000tok or 2min" in shown


def test_a_cap_in_time_is_shown_in_seconds_beside_the_price():
    cap = CapState("session", "ms", 120_000, 30_000, 15_000)
    lines = plain(
        BudgetPanel(board(status=replace(READY, caps=(cap,), used_ms=30_000))).lines(40)
    ).splitlines()
    assert lines[0].endswith("1 min 30 s left of 2 min")
    assert lines[2] == "spent 30 s · held 15 s"
    assert lines[-1] == "so far     $0.0912 · 18k tok · 30 s"


def test_running_call_is_held():
    assert "running    $0.0071 · 2.3k tok" in plain(BudgetPanel(board(*TURN[:3])).lines(36))


def test_unknown_prices_are_never_zero():
    unknown = replace(READY, caps=(), spent_nano=None, next_nano=None)
    assert plain(BudgetPanel(board(status=unknown)).lines(40)).splitlines()[1:] == [
        "next step  ≤ 2.3k tok, price unknown",
        "running    no call",
        "so far     price unknown · 18k tok",
    ]
    assert "next step  unknown" in plain(
        BudgetPanel(board(status=replace(READY, next_tokens=None))).lines(40)
    )


def test_roles_are_a_table_if_wide_and_a_list_if_narrow():
    wide, slim = (
        plain(RolesPanel(board(*TWO_MODELS)).lines(100)),
        plain(RolesPanel(board(*TWO_MODELS)).lines(36)),
    )
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
    return plain(heading_lines(board(*events, status=replace(READY, plan=mode)), width))


def row_text(plan, at: int, width: int = 36) -> str:
    return plain([Columns(plan, width).line(plan.rows[at])])


def test_panel_without_a_plan_shows_how_to_get_one():
    message = heading()
    assert message.startswith("no plan yet\nA plan is made before")
    assert message.endswith("/plan sets how.")


def test_panel_shows_that_plans_are_off():
    assert heading(STARTED, PLANNED, mode="off").startswith("plan off\nTurns are not planned")


def test_turn_without_a_plan_is_planning():
    assert heading(STARTED) == "planning …"
    assert (
        heading(STARTED, PLANNED, FINISHED, replace(STARTED, turn=2)).splitlines()[-1]
        == "planning …"
    )


def test_heading_shows_tool_budget_reserve_and_remaining_cost():
    assert heading(STARTED, PLANNED).splitlines() == [
        "made for this question     alt+w why",
        "╍╍╍╍╍─────────────────────────  14 %",
        "planned $0.0052 · reserved $0.0071",
        "remaining  ≈ $0.002 to $0.011",
    ]


def test_replanning_shows_its_reason_and_spending():
    lines = heading(STARTED, PLANNED, USED).splitlines()
    assert lines[0] == "↔ count_text was used      alt+w why"
    assert lines[1].startswith("━╍╍╍╍╍─")


def test_no_remaining_cost_after_the_turn():
    assert "remaining" not in heading(STARTED, PLANNED, FINISHED)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (None, None, "price unknown"),
        (0, 0, "$0"),
        (700_000, 700_000, "≈ $0.0007"),
        (0, 9_000_000, "$0 to $0.009"),
    ],
)
def test_remaining_cost_is_unknown_zero_or_a_range(low, high, message):
    assert message in heading(STARTED, replace(PLANNED, low=low, high=high)).splitlines()[-1]


def test_without_a_cap_the_plan_is_advice():
    assert heading(STARTED, ADVICE).splitlines()[1] == "advice only: /budget sets a cap"
    assert state_of(ADVICE.rows[0], enforced=False) == ("!", "quota", "warning")


def test_unenforced_plan_is_marked():
    assert "shown to the model, not enforced" in heading(STARTED, PROMPT)


def test_row_shows_state_value_cost_and_uses():
    assert [row_text(BLACKLISTED, at) for at in range(5)] == [
        "× count_text  ━━━━ .0012   2/2 quota",
        "× read_file   ━━━─     1/1 blacklist",
        "√ list_folder ━─── .002      0/1 new",
        "× fetch_url   ━─── .031   0/0 budget",
        "· run_command ━───   0/0 low success",
    ]


def test_wider_panel_shows_more_per_row():
    assert row_text(USED, 0, 22) == "√ count…xt ━━━━ 1/2 ok"
    assert row_text(USED, 0, 28) == "√ count…xt ━━━━ .0012 1/2 ok"
    assert row_text(USED, 0, 37) == "√ count_text  ━━━━ .0012±.0003 1/2 ok"
    numbers = ["√", "count_text", "━━━━", "0.91", "$0.0012", "±", "$0.0003"]
    assert row_text(USED, 0, 62).split() == [*numbers, "1/2", "ok"]
    assert row_text(USED, 0, 84).split() == [*numbers, "2", "1", "1", "ok"]


def test_token_plan_is_shown_in_tokens():
    assert row_text(TOKEN_PLAN, 0) == "√ count_text  ━━━━ 1.2k±300   0/2 ok"
    assert plain([Columns(TOKEN_PLAN, 36).head]) == "  tool        val  cost tok     used"


@pytest.mark.parametrize(
    ("ms", "cost"), [(400, ".4s"), (12_000, "12s"), (95_000, "1m35s"), (7_500_000, "2h5m")]
)
def test_narrow_plan_in_time_shows_the_cost_of_a_forbidden_tool(ms: int, cost: str):
    row = replace(COUNT, tool="git_status", cost=ms, spread=0, planned=0, state="forbidden")
    text = row_text(replace(PLANNED, unit="ms", rows=(replace(row, why="budget"),)), 0)
    assert text.split() == ["×", "git_status", "━━━━", cost, "0/0", "budget"]


def test_details_show_everything_about_a_row():
    assert plain(
        PlanPanel(board(STARTED, PLANNED)).detail_lines(replace(COUNT, used=1), 40)
    ).splitlines() == [
        "count_text",
        "value 0.91 · chance 1.00 · 1/2 used",
        "$0.0012 ± $0.0003: worth its price",
    ]


def test_rows_are_drawn_for_the_requested_width():
    panel = PlanPanel(board(STARTED, PLANNED))
    for width in (80, 60, 30, 80):
        assert panel.item_line(COUNT, width) == Columns(PLANNED, width).line(COUNT)


def plan_lines(plan: PlanChanged | None, width: int) -> list[Line]:
    """Everything the plan panel may show at a width."""
    state = board(*((STARTED, PLANNED, plan) if plan else ()))
    if plan is None:
        return heading_lines(state, width)
    panel = PlanPanel(state)
    rows = [
        line
        for row in plan.rows
        for line in (panel.item_line(row, width), *panel.detail_lines(row, width))
    ]
    return [*heading_lines(state, width), Columns(plan, width).head, *rows]


@given(st.integers(22, 120))
def test_no_line_of_any_panel_is_wider_than_the_panel(width: int):
    state = board(*TWO_MODELS, status=replace(many_tools(60), caps=(NEAR, TOKENS)))
    panel = ToolsPanel(state)
    tools = [panel.item_line(tool, width) for tool in state.tools]
    plans = [
        line
        for plan in (None, BLACKLISTED, ADVICE, TOKEN_PLAN, plan_of_many())
        for line in plan_lines(plan, width)
    ]
    for line in [*BudgetPanel(state).lines(width), *RolesPanel(state).lines(width), *tools, *plans]:
        text = plain([line])
        assert cell_len(text) <= width
        assert text.isprintable()


def test_registered_tools_come_first_and_groups_keep_their_order():
    state = board(*TURN)
    tools = ToolsPanel(state)
    tools.update_items()
    assert tools.visible_names == ["count_text", "write_file", "read_file", "run_command"]
    tools.highlighted = 2
    fewer = tuple(replace(tool, registered=tool.name == "write_file") for tool in READY.tools)
    state.handle(ToolUnregistered("count_text"))
    state.update(replace(READY, tools=fewer), READY.caps)
    state.handle(CallStarted("c1", "run_command", {}))
    tools.update_items()
    assert tools.visible_names == ["write_file", "run_command", "count_text", "read_file"]
    assert tools.current == "read_file"


def test_filter_lists_the_best_match_first():
    tools = ToolsPanel(board(status=many_tools()))
    tools.update_items()
    tools.apply_filter("op 123")
    assert tools.current == "service_12_operation_123"
    tools.apply_filter("nothing like it")
    assert tools.current == ""
    tools.apply_filter("")
    assert len(tools.visible_names) == 527

from dataclasses import replace

import pytest
from agent_play import finish, of, say, turn
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.agent.session_settings import (
    UNLIMITED_STEPS,
    output_limit,
    result_characters,
    step_limit,
)
from ecoshell.agent.turn_usage import BudgetLine, TurnUsage
from ecoshell.budget import CapState
from ecoshell.events import CallFinished, CallJudged, ToolsOffered
from ecoshell.models import Traits

CAPABLE = Traits("openai/x", None, context=None, max_output=None, native_tools=True, local=False)
SMALL_LOCAL = replace(CAPABLE, local=True, parameters=1_500_000_000, context=8_192)
EMBEDDED = replace(SMALL_LOCAL, small=True, parameters=135_000_000)


@pytest.mark.parametrize(
    ("traits", "setting", "tokens"),
    [
        (replace(CAPABLE, max_output=32_000), "auto", 32_000),
        (replace(CAPABLE, max_output=32_000), 500, 500),
        (CAPABLE, "auto", 16_384),
        (replace(CAPABLE, context=65_536), "auto", 16_384),
        (replace(CAPABLE, context=32_768), "auto", 8_192),
        (SMALL_LOCAL, "auto", 2_048),
        (EMBEDDED, "auto", 1_024),
    ],
)
def test_the_output_limit_follows_the_model(traits, setting, tokens):
    assert output_limit(traits, setting) == tokens


@pytest.mark.parametrize(
    ("traits", "setting", "capped", "steps"),
    [
        (CAPABLE, "auto", False, 200),
        (CAPABLE, "auto", True, UNLIMITED_STEPS),
        (CAPABLE, 7, True, 7),
        (SMALL_LOCAL, "auto", True, 24),
        (EMBEDDED, "auto", False, 24),
        (replace(SMALL_LOCAL, parameters=30_000_000_000), "auto", False, 200),
    ],
)
def test_the_step_limit_follows_the_model_and_the_cap(traits, setting, capped, steps):
    assert step_limit(traits, setting, capped=capped) == steps


@pytest.mark.parametrize(
    ("context", "characters"), [(4_096, 8_000), (8_192, 8_000), (131_072, 50_000), (None, 50_000)]
)
def test_the_result_length_follows_the_context(context, characters):
    assert result_characters(context) == characters


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_larger_context_never_shortens_results(context, other):
    assert result_characters(min(context, other)) <= result_characters(max(context, other))


async def test_a_file_of_a_thousand_lines_is_read_in_one_call(play, home):
    text = "".join(f"line {number:04d} of the file\n" for number in range(1_000))
    (home / "long.txt").write_text(text)
    async with play([say("", "read_file", path="long.txt"), finish("1000")]) as shell:
        events = await turn(shell)
    (read,) = of(events, CallFinished)
    assert (read.observation, read.truncated) == (text, False)


async def test_the_core_set_is_registered_natively(play):
    async with play([finish("3")]) as shell:
        events = await turn(shell)
    (offered,) = of(events, ToolsOffered)
    assert offered.presentation in ("grow", "plain")
    names = [tool.name for tool in shell.requests[0].tools]
    core = {"list_files", "read_file", "search_text", "edit_file", "write_file", "run_command"}
    assert core <= set(names)
    assert "tool_call" not in names


async def test_a_model_under_a_cap_sees_the_remaining_budget_after_each_step(play):
    lines = [
        say("", "count_text", path="notes.txt"),
        say("", "calculate", expression="6*7"),
        finish("3"),
    ]
    async with play(lines, budget="50000tok", registration="all") as shell:
        events = await turn(shell)
        first, second, third = shell.requests
        again = shell.conversation.memory.messages
        await shell.open(shell.session)
        assert shell.conversation.memory.messages == again
    assert (
        first.messages[-1]
        .text.rpartition("\n")[2]
        .startswith("[Budget: 50,000 tokens of 50,000 tokens left")
    )
    assert second.messages[-1].text.rpartition("\n")[2].startswith("[Budget: ")
    assert "a step costs about" in second.messages[-1].text
    assert third.messages[: len(second.messages)] == second.messages
    assert [bool(event.note) for event in of(events, CallJudged)] == [True, True]


def cap(scope, limit, spent, unit="usd"):
    return CapState(scope, unit, limit, spent, 0)


@pytest.mark.parametrize(
    ("caps", "rest"),
    [
        ([cap("task", 980_000_000, 0), cap("session", 2_000_000_000, 35_000_000)], "$0.98 of"),
        ([cap("session", 2_000_000_000, 1_500_000_000), cap("day", 10**12, 0)], "$0.50 of"),
        ([cap("session", 10**9, 0), cap("turn", 900, 500, "tokens")], "400 tokens of"),
    ],
)
async def test_the_budget_line_names_the_cap_that_binds_first(play, caps, rest):
    async with play([]) as shell:
        line = BudgetLine(shell.deps.settings, shell.deps.models, TurnUsage())
        assert f"Budget: {rest}" in line.text(caps)


async def test_the_budget_line_can_be_turned_off(play):
    async with play([finish("3")], budget="50000tok") as shell:
        shell.deps.settings.budget_line = False
        await turn(shell)
    assert "Budget:" not in shell.requests[0].messages[-1].text

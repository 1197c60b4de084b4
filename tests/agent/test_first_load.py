"""What a session shows as loaded before its first question, and what the first question then loads."""

from decimal import Decimal

import pytest
from agent_play import finish, of, turn

from ecoshell.catalog import CORE
from ecoshell.events import ToolsOffered

PRICE = (Decimal(1), Decimal(4))


def ahead(status):
    return {tool.name for tool in status.tools if tool.ahead}


def loaded(status):
    return {tool.name for tool in status.tools if tool.loaded}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"price": PRICE},
        {"price": PRICE, "budget": "6000tok"},
        {"price": PRICE, "budget": "0.02"},
        {"registration": "names"},
        {"registration": "all"},
        {"registration": "all_text"},
    ],
)
async def test_a_new_session_shows_what_its_first_question_loads(play, options):
    async with play([finish("ok")], **options) as shell:
        before = await shell.status()
        (offered,) = of(await turn(shell), ToolsOffered)
        after = await shell.status()
    assert ahead(before) == {*offered.loaded} == loaded(after)
    assert not any(tool.registered for tool in before.tools)
    assert (before.context_tokens, before.everything_tokens) == (
        offered.context_tokens,
        offered.everything_tokens,
    )
    assert ahead(after) == set()


def parts(report):
    return {use.name: use.tokens for use in report.uses if use.kind == "tools"}


async def test_context_before_the_first_question_lists_the_tools_that_it_loads(play):
    async with play([finish("ok")], price=PRICE) as shell:
        before = parts(await shell.context_report())
        await turn(shell)
        after = parts(await shell.context_report())
        assert {*CORE} < before.keys()
        assert before == after
        assert "read_file" in (await shell.command("/context")).text


async def test_a_tool_registered_before_the_first_question_is_not_counted_twice(play):
    async with play([finish("ok")], price=PRICE) as shell:
        await shell.command("/register calculate")
        await shell.command("/register read_file")
        before = await shell.status()
        (offered,) = of(await turn(shell), ToolsOffered)
        after = await shell.status()
    assert ahead(before) == {*CORE} - {"read_file"}
    assert loaded(before) == {*offered.loaded} == {*CORE, "calculate"}
    assert before.context_tokens == after.context_tokens


async def test_under_a_strict_plan_with_a_cap_no_tool_is_certain(play):
    async with play([finish("ok")], price=PRICE, budget="6000tok") as shell:
        assert ahead(await shell.status()) == {*CORE}
        shell.deps.settings.strict = True
        assert ahead(await shell.status()) == set()


async def test_the_tool_list_says_what_the_first_question_loads(play):
    async with play([finish("ok")], price=PRICE) as shell:
        before = (await shell.command("/tools")).text
        await turn(shell)
        after = (await shell.command("/tools")).text
    assert "6 of 28 loaded, 6 of them with the first question; names and schemas take" in before
    (line,) = [line for line in before.splitlines() if "read_file" in line.split()[:2]]
    assert line.startswith("+ read_file")
    assert "first question" in line
    assert "6 of 28 loaded; names and schemas take" in after
    assert "first question" not in after


async def test_no_local_model_is_loaded_to_say_it(play):
    async with play([finish("ok")]) as shell:
        model = shell.deps.models.current.model
        model._model.loaded = False
        model.count = lambda text: pytest.fail("a tokenizer was loaded")
        status = await shell.status()
    assert ahead(status) == {*CORE}
    assert not status.exact

"""Registration `auto`: the schemas a local and a remote model get of the built-in tools."""

from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn

from ecoshell.catalog import CORE
from ecoshell.events import ToolRegistered, ToolsOffered, TurnFinished

PRICE = (Decimal(1), Decimal(4))
QUESTIONS = [
    "what is in notes.txt?",
    "how many lines has src/app.py",
    "rename the function foo to bar in util.py and run the tests",
    "what is 12% of 340",
    "which of the orders in orders.csv is the largest",
]


@pytest.mark.parametrize("price", [None, PRICE])
@pytest.mark.parametrize("question", QUESTIONS)
async def test_the_core_set_is_loaded_and_other_tools_are_known_by_name(play, question, price):
    async with play([finish("ok")], price=price) as shell:
        offered = of(await turn(shell, question), ToolsOffered)[0]
        (request,) = shell.requests
    assert offered.presentation == "grow"
    assert offered.core == CORE
    assert offered.loaded == CORE
    assert [tool.name for tool in request.tools] == [*CORE, "tool_register"]
    assert offered.known
    assert {*offered.known, *offered.loaded} == set(shell.deps.catalog.names)
    assert all(name in offered.listing for name in offered.known)


async def test_a_remote_model_without_a_price_loads_the_core_set(play):
    async with play([finish("ok")]) as shell:
        script = shell.deps.models.current.model._model
        script.traits = replace(script.traits, local=False, price=None)
        offered = of(await turn(shell, QUESTIONS[0]), ToolsOffered)[0]
    assert (offered.presentation, offered.core) == ("grow", CORE)


async def test_a_first_call_registers_a_tool_and_counts_the_loaded_ones(play):
    lines = [say("", "git_status"), finish("clean")]
    async with play(lines) as shell:
        events = await turn(shell, "hello")
    (offered,) = of(events, ToolsOffered)
    registered = of(events, ToolRegistered)[-1]
    assert (registered.name, registered.by) == ("git_status", "first_call")
    assert (registered.loaded, registered.total) == (len(offered.loaded) + 1, len(offered.names))


async def test_all_text_sends_every_schema_once_as_text(play):
    lines = [
        say("", "tool_call", name="count_text", arguments={"path": "notes.txt"}),
        finish("3"),
        say("", "tool_call", name="read_file", arguments={"path": "notes.txt"}),
        finish("one"),
    ]
    async with play(lines, registration="all_text") as shell:
        events = [*await turn(shell), *await turn(shell, "And what is its first line?")]
        requests = shell.requests
    assert [event.presentation for event in of(events, ToolsOffered)] == ["text", "text"]
    assert all([schema.name for schema in request.tools] == ["tool_call"] for request in requests)
    last = "\n".join(message.text for message in requests[-1].messages)
    for schema in shell.deps.catalog.schemas:
        assert last.count(schema.as_text()) == 1
    assert [event.status for event in of(events, TurnFinished)] == ["answered", "answered"]


async def test_a_small_cap_leaves_tools_known_by_name(play):
    async with play([finish("ok")], price=PRICE, budget="6000tok") as shell:
        offered = of(await turn(shell), ToolsOffered)[0]
    assert len(offered.upfront) < len(shell.deps.catalog.names)
    assert "known by name" in offered.why

"""What `auto` puts before a model: the built-in tools, as a model on this machine and one of a provider see them."""

from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn

from ecoshell.events import ToolsOffered, TurnFinished

PRICE = (Decimal(1), Decimal(4))
QUESTIONS = [
    "what is in notes.txt?",
    "how many lines has src/app.py",
    "rename the function foo to bar in util.py and run the tests",
    "what is 12% of 340",
    "which of the orders in orders.csv is the largest",
]


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_free_model_on_this_machine_is_shown_every_tool(play, question):
    async with play([finish("ok")]) as shell:
        offered = of(await turn(shell, question), ToolsOffered)[0]
        (request,) = shell.requests
    assert set(offered.upfront) == set(shell.deps.catalog.names)
    assert offered.presentation == "plain"
    assert {"read_file", "run_command"} <= {schema.name for schema in request.tools}


async def test_so_is_a_model_of_a_server_that_has_no_price(play):
    async with play([finish("ok")]) as shell:
        script = shell.deps.models.current.model._model
        script.traits = replace(script.traits, local=False, price=None)
        offered = of(await turn(shell, QUESTIONS[0]), ToolsOffered)[0]
    assert (offered.presentation, set(offered.upfront)) == ("plain", set(shell.deps.catalog.names))


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_model_with_a_price_never_has_read_file_as_a_bare_name_beside_an_unlikelier_document(play, question):
    async with play([finish("ok")], price=PRICE) as shell:
        offered = of(await turn(shell, question), ToolsOffered)[0]
        chances = shell.conversation.plan.inputs.chances
    hidden = [name for name in offered.names if name not in offered.upfront]
    assert not hidden or min(chances[name] for name in offered.upfront) > max(chances[name] for name in hidden)


async def test_all_text_shows_every_document_once_as_text_and_calls_go_through_one_tool(play):
    lines = [
        say("", "tool_call", name="count_text", arguments={"path": "notes.txt"}),
        finish("3"),
        say("", "tool_call", name="read_file", arguments={"path": "notes.txt"}),
        finish("one"),
    ]
    async with play(lines, registration="all_text") as shell:
        events = [*await turn(shell), *await turn(shell, "And what is its first line?")]
        requests = shell.requests
    assert [one.presentation for one in of(events, ToolsOffered)] == ["text", "text"]
    assert all([schema.name for schema in request.tools] == ["tool_call"] for request in requests)
    last = "\n".join(message.text for message in requests[-1].messages)
    for schema in shell.deps.catalog.schemas:
        assert last.count(schema.as_text()) == 1
    assert [event.status for event in of(events, TurnFinished)] == ["answered", "answered"]


async def test_a_cap_that_documents_would_eat_leaves_names(play):
    async with play([finish("ok")], price=PRICE, budget="6000tok") as shell:
        offered = of(await turn(shell), ToolsOffered)[0]
    assert len(offered.upfront) < len(shell.deps.catalog.names)
    assert "no room" in offered.why

"""Reasoning effort: the fields each provider receives for a level, over real HTTP through litellm."""

from dataclasses import replace

import pytest
import pytest_asyncio
from hostile_server import hostile_server

from ecoshell.budget import PriceBook
from ecoshell.messages import Call, Message, ProviderState, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.models.effort import level_of
from ecoshell.models.keys import Keys
from ecoshell.models.remote import RemoteModel, RemoteOptions, RemoteProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = Keys({"OPENAI_API_KEY": "sk-test-0123456789", "ANTHROPIC_API_KEY": "k-anthropic-1"})
TOOL = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {}})
CLAUDE, ADAPTIVE = "anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-6"


@pytest.fixture(scope="module")
def server():
    with hostile_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process():
    running = RemoteProcess()
    yield running
    await running.aclose()


@pytest.fixture
def sent(server, process):
    """Gives the body that a provider receives for a request."""

    async def ask(name, request, native_tools=True):
        server.forget()
        address = server.address if name.startswith("anthropic/") else server.openai
        options = RemoteOptions(address, native_tools=native_tools)
        model = RemoteModel(name, book=PriceBook(), keys=KEYS, process=process, options=options)
        pieces = [piece async for piece in model.stream(request)]
        assert isinstance(pieces[-1], Reply)
        return server.asked[0]

    return ask


def request(effort, **fields):
    defaults = {"tools": (TOOL,), "callable_now": (TOOL,), "max_tokens": 20_000, "temperature": 0.0}
    return Request((Message("user", "Hello."),), effort=effort, **{**defaults, **fields})


@pytest.mark.parametrize(
    ("name", "effort", "level"),
    [
        (CLAUDE, "max", "max"),
        (ADAPTIVE, "max", "max"),
        (ADAPTIVE, "low", "low"),
        (ADAPTIVE, "off", "none"),
        ("openai/gpt-5", "off", "minimal"),
        ("openai/gpt-5", "max", "high"),
        ("openai/gpt-5.2", "off", "none"),
        ("openai/gpt-5.2", "max", "xhigh"),
        ("openai/o3", "off", "low"),
        ("gemini/gemini-2.5-pro", "off", "minimal"),
        ("gemini/gemini-2.5-flash", "off", "none"),
        ("gemini/gemini-2.5-flash", "max", "high"),
        ("openai/gpt-4.1", "high", None),
        ("openai/some-server", "max", "high"),
        ("openai/some-server", "off", "none"),
        ("openai/gpt-5", "auto", None),
    ],
)
async def test_a_level_maps_to_one_the_model_accepts(name, effort, level):
    assert level_of(request(effort), name, PriceBook().facts(name)) == level


@pytest.mark.parametrize(
    ("effort", "max_tokens", "level"),
    [
        ("high", 20_000, "high"),
        ("high", 4_096, "medium"),
        ("max", 5_000, "high"),
        ("low", 1_024, None),
    ],
)
async def test_the_thinking_budget_stays_below_the_output_limit(effort, max_tokens, level):
    level_request = request(effort, max_tokens=max_tokens)
    assert level_of(level_request, CLAUDE, PriceBook().facts(CLAUDE)) == level


async def test_a_custom_server_gets_the_effort_without_temperature_or_forced_tools(sent):
    body = await sent("openai/good", request("high", want="call"))
    assert (body["reasoning_effort"], body["tool_choice"]) == ("high", "auto")
    assert "temperature" not in body
    body = await sent("openai/good", request("auto", want="call"))
    assert (body["tool_choice"], body["temperature"]) == ("required", 0.0)
    assert "reasoning_effort" not in body


async def test_claude_gets_a_thinking_budget(sent):
    body = await sent(CLAUDE, request("high", want="call"))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4_096}
    assert body["tool_choice"]["type"] == "auto"
    assert "temperature" not in body
    assert "thinking" not in await sent(CLAUDE, request("off"))


@pytest.mark.parametrize("closing", [(), (Message("user", "Answer now."),)])
async def test_claude_does_not_start_thinking_in_the_middle_of_a_turn(sent, closing):
    call = Call("read_file", {}, "toolu_1")
    state = {
        "content": None,
        "tool_calls": [{"id": "toolu_1", "function": {"name": "read_file", "arguments": "{}"}}],
    }
    step = Message("assistant", "", (call,), state=ProviderState("other", state))
    messages = (Message("user", "Hello."), step, Message("tool", "text", (call,)), *closing)

    body = await sent(CLAUDE, replace(request("high"), messages=messages))
    assert "thinking" not in body
    body = await sent(ADAPTIVE, replace(request("high"), messages=messages))
    assert body["output_config"] == {"effort": "high"}
    next_turn = (*messages, Message("assistant", "It says text."), Message("user", "And now?"))
    body = await sent(CLAUDE, replace(request("high"), messages=next_turn))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4_096}

"""The Python API: questions, events, caps, tools, custom models and state."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest

from ecoshell import Agent, tool
from ecoshell.agent import Approval, NonInteractive
from ecoshell.budget import Price, Rates
from ecoshell.errors import (
    GaveUp,
    LimitReached,
    ModelBroken,
    ModelMissing,
    PriceUnknown,
    StepsSpent,
    TurnStopped,
    UsageError,
)
from ecoshell.events import (
    ApprovalWanted,
    CallFinished,
    Event,
    TextArrived,
    ToolsOffered,
    TurnFinished,
)
from ecoshell.messages import Attachment, Call, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits
from ecoshell.options import Options

Script = Callable[..., str]
FREE = Price(Rates(*[Decimal(0)] * 5), source="test")
DEAR = Price(Rates(*[Decimal(1_000)] * 5), source="test")


@tool
def stock(item: Annotated[str, "its name, in the plural"]) -> int:
    """Return the stock of an item."""
    return {"apples": 12}.get(item, 0)


@tool(name="order", effects=["network"], price="1c")
async def send_order(item: str, count: int) -> str:
    """Order an item."""
    return f"{count} {item} are on their way."


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": {"name": name, "arguments": arguments}}


def names_in(folder: Path) -> set[str]:
    return {file.name for file in folder.rglob("*")}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a script and returns the name of its model."""

    def script(*replies: dict[str, Any]) -> str:
        file = tmp_path / "script.jsonl"
        file.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
        return f"script:{file}"

    return script


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the user's shell, which programs must not write to."""
    home = tmp_path / "users"
    monkeypatch.setenv("ECOSHELL_HOME", str(home))
    return home


class CustomModel:
    """A custom model that always gives the same reply and records its requests."""

    def __init__(self, reply: Reply, price: Price | None = FREE) -> None:
        self.traits = Traits("mine", price, 10_000, 1_000, native_tools=True, local=False)
        self.reply = reply
        self.requests: list[Request] = []
        self.closed = False

    def count(self, text: str) -> int:
        return len(text)

    def size(self, request: Request) -> PromptSize:
        size = sum(len(message.text) for message in request.messages)
        return PromptSize(size, size + 1_000, exact=False)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Reply]:
        self.requests.append(request)
        yield Delta(self.reply.text)
        yield self.reply

    async def aclose(self) -> None:
        self.closed = True


async def test_a_question_is_answered_with_a_function_as_a_tool(
    script: Script, tmp_path: Path, user_home: Path
):
    model = script(
        calls("stock", item="apples"),
        {"text": "There are 12 apples.", "usage": {"input": 9, "output": 4}},
    )
    async with Agent(model, tools=[stock], home=tmp_path / "state") as agent:
        outcome = await agent.ask("How many apples are there?")
        assert (outcome.answer, outcome.status, outcome.session) == (
            "There are 12 apples.",
            "answered",
            agent.session,
        )
        assert (outcome.cost_usd, outcome.refused, outcome.usage.output > 4) == (0, (), True)
    assert {"ledger.sqlite", "sessions.sqlite", "experience.sqlite"} <= names_in(tmp_path / "state")
    assert names_in(user_home) == set()


async def test_an_open_agent_cannot_be_opened_again_and_stays_usable(
    script: Script, tmp_path: Path
):
    async with Agent(script(calls("finish", answer="yes")), home=tmp_path) as agent:
        with pytest.raises(UsageError, match="already open"):
            await agent.__aenter__()
        assert (await agent.ask("Still there?")).answer == "yes"


@pytest.mark.parametrize("line", ["/budget 1", "/nosuch"])
async def test_a_command_of_the_chat_is_not_asked(line: str, tmp_path: Path):
    model = CustomModel(Reply("Yes."))
    async with Agent(model, home=tmp_path) as agent:
        with pytest.raises(UsageError, match="command"):
            await agent.ask(line)
        assert model.requests == []
        assert (await agent.ask(f"What does {line} do?")).answer == "Yes."


async def test_an_unknown_cap_is_refused_with_those_there_are(script: Script, tmp_path: Path):
    async with Agent(script(), home=tmp_path) as agent:
        with pytest.raises(UsageError) as caught:
            await agent.set_cap("week", "1")
    assert str(caught.value) == "Unknown cap 'week'. Available: turn, session, day, month."


async def test_two_tools_of_one_name_are_refused(script: Script, tmp_path: Path):
    @tool(name="stock")
    def twin() -> str:
        """Return the stock of everything."""
        return "12 apples"

    with pytest.raises(UsageError) as caught:
        async with Agent(script(), tools=[stock, twin], home=tmp_path):
            raise AssertionError("opened")
    assert str(caught.value) == "Two tools are named stock. Give one of them another name."


async def test_the_events_of_a_turn_can_be_streamed(script: Script, tmp_path: Path):
    model = script(calls("stock", item="apples"), {"text": "There are 12."})
    async with Agent(model, tools=[stock, "calculate"], home=tmp_path) as agent:
        events = [
            event async for event in agent.stream("How many?", [Attachment("list", "apples")])
        ]
    (offered,) = (event for event in events if isinstance(event, ToolsOffered))
    (result,) = (event for event in events if isinstance(event, CallFinished))
    assert offered.names == ("stock", "calculate")
    assert (result.name, result.observation, result.ok) == ("stock", "12", True)
    assert (
        "".join(event.text for event in events if isinstance(event, TextArrived)) == "There are 12."
    )
    assert isinstance(events[-1], TurnFinished)


def test_a_tool_is_still_a_function():
    assert stock("apples") == 12
    assert asyncio.run(send_order("pears", count=2)) == "2 pears are on their way."
    assert (send_order.name, send_order.price_nano, send_order.effects) == (
        "order",
        10_000_000,
        {"network"},
    )


def test_a_price_of_a_tool_is_in_dollars():
    with pytest.raises(UsageError, match="not a price of a tool"):
        tool(price="20 tok")


@pytest.mark.parametrize("effects", ["write", ["writes"]])
def test_unknown_effects_of_a_tool_are_refused(effects: Any):
    with pytest.raises(UsageError, match="not effects of a tool") as refused:
        tool(effects=effects)
    assert "execute" in (refused.value.fix or "")


def test_a_cap_can_be_a_number():
    number: Any = 0.05
    Agent("script:none.jsonl", cap=number)
    number = -1
    with pytest.raises(UsageError, match="is negative"):
        Agent("script:none.jsonl", cap=number)


async def test_all_built_in_tools_are_offered_unless_others_are_named(
    script: Script, tmp_path: Path
):
    offered: dict[str, tuple[str, ...]] = {}
    some = ("read_*", "read_file", stock)  # duplicates are offered once
    for name, tools in {"all": ("*",), "some": some, "none": ()}.items():
        async with Agent(script({"text": "Hello."}), tools=tools, home=tmp_path) as agent:
            async for event in agent.stream("Hello?"):
                if isinstance(event, ToolsOffered):
                    offered[name] = event.names
    assert {"read_file", "run_command"} <= {*offered["all"]}
    assert (offered["some"], offered["none"]) == (("read_file", "stock"), ())
    with pytest.raises(UsageError, match=r"Unknown tool 'red_file'.*read_file"):
        async with Agent(script(), tools=["red_file"], home=tmp_path):
            pass
    with pytest.raises(UsageError, match=r"is not a tool.*@ecoshell.tool"):
        async with Agent(script(), tools=[script], home=tmp_path):  # pyright: ignore[reportArgumentType]
            pass


async def test_a_tool_with_effects_needs_approval(script: Script, tmp_path: Path):
    class Clerk(NonInteractive):
        async def approve(self, request: ApprovalWanted) -> Approval:
            return Approval("once", {**request.arguments, "count": 1})

    replies = (calls("order", item="pears", count=9), {"text": "Done."})
    async with Agent(script(*replies), tools=[send_order], home=tmp_path) as agent:
        outcome = await agent.ask("Order nine pears.")
    assert (outcome.refused, outcome.cost_usd) == (('order(item="pears", count=9)',), 0)
    async with Agent(script(*replies), tools=[send_order], home=tmp_path, user=Clerk()) as agent:
        events = [event async for event in agent.stream("Order nine pears.")]
        assert agent.outcome.cost_usd == Decimal("0.01")
    (result,) = (event.observation for event in events if isinstance(event, CallFinished))
    assert result.endswith("1 pears are on their way.")


async def test_no_call_exceeds_the_cap_and_reaching_it_raises_limit_reached(tmp_path: Path):
    model = CustomModel(Reply("Never said.", usage=Usage(10, 10)), price=DEAR)
    async with Agent(model, tools=[stock], cap="0.50", home=tmp_path) as agent:
        with pytest.raises(LimitReached) as reached:
            await agent.ask("How many?")
        assert (reached.value.scope, reached.value.unit, reached.value.left) == (
            "session",
            "usd",
            500_000_000,
        )
        assert reached.value.need > reached.value.left
        assert (agent.outcome.status, model.requests) == ("limit", [])
        (cap,) = await agent.caps()
        assert (cap.spent, cap.held) == (0, 0)
        await agent.set_cap("session", None)
        assert (await agent.ask("How many?")).cost_usd == Decimal("0.02")
        await agent.set_cap("day", "0.01")
        with pytest.raises(LimitReached, match="day"):
            await agent.ask("How many?")
    assert not model.closed


def test_an_empty_cap_is_refused(tmp_path: Path):
    with pytest.raises(UsageError):
        Agent("script:x", cap="", home=tmp_path)


async def test_a_custom_model_is_used_and_not_closed(tmp_path: Path):
    model = CustomModel(Reply("", (Call("finish", {"answer": "Twelve."}),), Usage(100, 5)))
    async with Agent(model, tools=[stock], home=tmp_path) as agent:
        outcome = await agent.ask("How many?")
    assert (outcome.answer, outcome.usage) == ("Twelve.", Usage(100, 5))
    assert "stock" in [schema.name for schema in model.requests[0].tools]
    assert not model.closed


async def test_the_effort_reaches_a_custom_model(tmp_path: Path):
    model = CustomModel(Reply("Hello.", (), Usage(100, 5)))
    async with Agent(model, tools=(), home=tmp_path, options=Options(effort="high")) as agent:
        await agent.ask("Hello?")
    assert [request.effort for request in model.requests] == ["high"]


async def test_a_model_of_unknown_price_is_not_called_under_a_cap(tmp_path: Path):
    model = CustomModel(Reply("Never said."), price=None)
    async with Agent(model, tools=(), cap="0.50", home=tmp_path) as agent:
        with pytest.raises(PriceUnknown):
            await agent.ask("Hello?")
    assert model.requests == []


async def test_failures_raise_specific_errors(script: Script, tmp_path: Path):
    with pytest.raises(ModelMissing):
        async with Agent("local:/nowhere/model.gguf", home=tmp_path) as agent:
            await agent.ask("Hello?")
    async with Agent(script(), home=tmp_path) as agent:
        with pytest.raises(ModelBroken, match="has only 0 replies"):
            await agent.ask("Hello?")
        with pytest.raises(UsageError, match="empty"):
            await agent.ask(" ")
    with pytest.raises(UsageError, match="not open"):
        await agent.ask("Hello?")
    with pytest.raises(UsageError, match="not an amount"):
        Agent(cap="much")


async def test_the_step_limit_and_giving_up_are_errors_and_keep_a_partial_answer(
    script: Script, tmp_path: Path
):
    replies = (calls("stock", item="apples"), {"text": "At least 12."})
    async with Agent(
        script(*replies), tools=[stock], home=tmp_path, options=Options(max_steps=1)
    ) as agent:
        with pytest.raises(StepsSpent):
            await agent.ask("How many apples and pears?")
        assert (agent.outcome.status, agent.outcome.answer) == ("limit", "At least 12.")
    give_up = calls("finish", answer="It is unknown.", give_up=True)
    async with Agent(script(give_up), tools=[stock], home=tmp_path) as agent:
        with pytest.raises(GaveUp, match="It is unknown"):
            await agent.ask("How many?")


async def test_a_turn_can_be_stopped_and_timed_out(tmp_path: Path):
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait forever."""
        started.set()
        await asyncio.sleep(600)
        return "never"

    model = CustomModel(Reply("", (Call("wait", {}),)))
    async with Agent(model, tools=[wait], home=tmp_path) as agent:
        question = asyncio.create_task(agent.ask("Wait."))
        await started.wait()
        with pytest.raises(UsageError, match=r"A turn is running.*stop\(\) in Python"):
            await agent.ask("And this?")
        await agent.stop()
        with pytest.raises(TurnStopped):
            await question
        started.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await agent.ask("Wait.")
        assert started.is_set()


async def test_a_question_stopped_before_its_turn_has_no_answer(script: Script, tmp_path: Path):
    async def nothing(question: str, attachments: object) -> AsyncGenerator[Event]:
        return
        yield

    async with Agent(script({"text": "first"}), tools=(), home=tmp_path) as agent:
        assert (await agent.ask("One?")).answer == "first"
        agent._open.ask = nothing  # as if stopped while reading an MCP resource
        with pytest.raises(TurnStopped):
            await agent.ask("Two?")
        assert agent.outcome.answer == ""


async def test_a_session_can_be_resumed_by_another_program(script: Script, tmp_path: Path):
    async with Agent(script({"text": "Hello."}), tools=(), home=tmp_path / "state") as agent:
        await agent.ask("My name is Ada.")
        session = agent.session
    model = CustomModel(Reply("Ada."))
    async with Agent(
        model, tools=(), home=tmp_path / "state", options=Options(resume=session[:6])
    ) as agent:
        assert agent.resumed is not None
        assert (await agent.ask("What is my name?")).session == session
    assert "My name is Ada." in str(model.requests[0].messages)


def test_importing_the_api_loads_nothing_heavy():
    look = "import sys; from ecoshell import Agent, tool; print(*[n for n in sys.argv[1:] if n in sys.modules])"
    heavy = (
        "textual",
        "litellm",
        "llama_cpp",
        "mcp",
        "numpy",
        "pydantic",
        "httpx",
        "rich",
        "ecoshell.assembly",
    )
    done = subprocess.run(
        [sys.executable, "-c", look, *heavy], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("\n", "")
    light = "import sys, ecoshell; print('ecoshell.api' in sys.modules, hasattr(ecoshell, 'agent_of_mine'))"
    done = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


async def test_an_agent_plans_and_carries_the_plan_out(script: Script, tmp_path: Path):
    items = [{"text": "write a.txt", "state": "in_progress"}]
    model = script({"text": "1. Write a.txt."}, calls("todo", items=items), {"text": "Done."})
    async with Agent(
        model, tools=["todo"], home=tmp_path, options=Options(approval_mode="plan")
    ) as agent:
        assert (await agent.ask("Plan it.")).answer == "1. Write a.txt."
        assert (await agent.accept_plan()).answer == "Done."
        assert [(item.text, item.state) for item in agent.todo] == [("write a.txt", "in_progress")]

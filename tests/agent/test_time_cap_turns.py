"""Turns under a cap in working time: slow models, slow tools, waiting for the user, and the answer at the limit."""

import asyncio

from agent_play import User, finish, of, say, turn
from ledger_totals import wrong_totals

from ecoshell.agent.user_interface import LimitChoice
from ecoshell.events import Answer, BudgetHeld, BudgetSettled, CallFinished, LimitHit, TurnFinished
from ecoshell.models import Delta
from ecoshell.models.script import ScriptModel
from ecoshell.tools.function import FunctionTool


def slow_from(shell, step, text="So far "):
    """Make the model write this text and then hang from this step on."""
    model, calls = shell.deps.models.current.model._model, 0
    reply = model.stream

    async def stream(request):
        nonlocal calls
        calls += 1
        if calls < step:
            async for piece in reply(request):
                yield piece
            return
        yield Delta(text)
        await asyncio.Event().wait()

    model.stream = stream
    assert isinstance(model, ScriptModel)


def caps_of(shell):
    return {cap.scope: cap for cap in shell.ledger.caps(shell.session, 1)}


def with_tool(shell, function):
    shell.deps.catalog.__init__(
        [*shell.deps.catalog._tools.values(), FunctionTool(function, effects=("read",))]
    )
    shell.deps.ranker.__init__(shell.deps.catalog.schemas)


async def test_a_slow_model_is_stopped_at_the_cap_and_its_text_is_kept(play):
    async with play([], budget="3s") as shell:
        slow_from(shell, 1, "The answer is ")
        events = await turn(shell)
        cap = caps_of(shell)["session"]
        verified = wrong_totals(shell.ledger)
    (hit,) = of(events, LimitHit)
    assert (hit.unit, hit.scope) == ("ms", "session")
    assert "cap of 3 s" in hit.message
    assert of(events, Answer)[-1].text == "The answer is"
    assert of(events, Answer)[-1].partial
    assert isinstance(events[-1], TurnFinished)
    assert events[-1].status == "limit"
    assert cap.spent <= cap.limit == 3_000
    assert cap.left < 1_000
    assert cap.held == 0
    assert verified == ()
    assert all(event.held_ms is not None for event in of(events, BudgetHeld))
    assert sum(round(1_000 * event.seconds) for event in of(events, BudgetSettled)) == cap.spent


async def test_a_slow_tool_is_stopped_at_the_cap(play):
    async def crawl() -> str:
        await asyncio.Event().wait()
        return "done"

    async with play(
        [say("", "crawl"), finish("I stopped.")], registration="all", budget="3s"
    ) as shell:
        with_tool(shell, crawl)
        events = await turn(shell)
        cap = caps_of(shell)["session"]
        verified = wrong_totals(shell.ledger)
    (call,) = of(events, CallFinished)
    assert not call.ok
    assert "crawl was stopped. The session's cap of 3 s working time" in call.observation
    assert cap.spent + cap.held <= cap.limit
    assert cap.spent >= 1_500
    assert verified == ()


async def test_the_user_can_raise_a_cap_in_time_and_go_on(play):
    user = User(LimitChoice("raise", "10min"))
    async with play([finish("42")], budget="0.5s", user=user) as shell:
        events = await turn(shell)
    (hit,) = of(events, LimitHit)
    assert (hit.need, hit.enough) == (1_000, 1_000)
    assert events[-1].status == "answered"


async def test_waiting_for_an_approval_takes_no_time_from_the_cap(play):
    asked = asyncio.Event()

    class Patient(User):
        async def approve(self, request):
            asked.set()
            await asyncio.sleep(1.5)
            return await super().approve(request)

    lines = [say("", "write_file", path="new.txt", content="x"), finish("written")]
    async with play(
        lines, registration="all", budget="60s", user=Patient(approval="once")
    ) as shell:
        events = await turn(shell)
        cap = caps_of(shell)["session"]
    assert asked.is_set()
    assert events[-1].status == "answered"
    assert 0 < cap.spent < 1_500


async def test_parallel_calls_wait_for_each_others_reservations(play):
    three = {
        "text": "",
        "calls": [{"name": "look", "arguments": {"at": number}} for number in range(3)],
    }
    async with play(
        [three, finish("done")], registration="all", budget="18s"
    ) as shell:  # less than three slices
        with_tool(shell, look)
        events = await turn(shell)
    assert [(call.name, call.ok, call.refused) for call in of(events, CallFinished)] == [
        ("look", True, "")
    ] * 3
    assert events[-1].status == "answered"


def look(at: int) -> str:
    return f"seen {at}"

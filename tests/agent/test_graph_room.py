"""Parallel nodes under one cap: a node waits for budget that others reserve, and the cap is never exceeded."""

import asyncio
import json
from decimal import Decimal

import pytest
from agent_play import User, finish, of, say, turn
from graph_turns import Probe, add, plan, states

from ecoshell.agent import Approval, LimitChoice
from ecoshell.events import (
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallStarted,
    LimitHit,
    NodeChanged,
)
from ecoshell.messages import Call, Usage
from ecoshell.models import Reply

PRICE = (Decimal(1), Decimal(4))
PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "more": {"type": "string"}},
    "required": ["path"],
}
NAMES = tuple(f"p{at}" for at in range(8))
EIGHT = say(json.dumps([part for name in NAMES for part in (name, ["<task>"])]))


def fill_calls(shell, prepare):
    """Let a model fill in the call of every node after it awaits `prepare(tool)`."""
    model = shell.deps.models.current.model._model
    script = model.stream

    async def stream(request):
        if request.want != "call":
            async for piece in script(request):
                yield piece
            return
        tool = request.callable_now[-1].name
        await prepare(tool)
        yield Reply("", (Call(tool, {"path": "notes.txt"}),), Usage(300, 20))

    model.stream = stream


async def slowly(tool):
    """Wait until the other nodes have requested their reservations."""
    for _ in range(20):
        await asyncio.to_thread(lambda: None)


def peak_commitment(events):
    """The highest sum of spent and reserved amounts of model calls."""
    reserved, spent, peak = {}, 0, 0
    for event in events:
        if isinstance(event, BudgetHeld):
            reserved[event.entry] = event.held_nano
        elif isinstance(event, BudgetSettled):
            reserved.pop(event.entry)
            spent += event.spent_nano
        peak = max(peak, spent + sum(reserved.values()))
    return peak


ANSWER = LimitChoice("answer")


@pytest.mark.parametrize(
    ("mode", "plan_mode", "budget"),
    [
        ("single", "off", "0.05"),
        ("single", "btp", "0.07"),
        ("single", "off", "50000 tokens"),
        ("umi", "off", "0.05"),
    ],
)
async def test_eight_calls_all_run_though_their_reservations_do_not_fit_together(
    play, mode, plan_mode, budget
):
    async with play(
        [EIGHT, *[finish("ok")] * 3],
        user=User(limit=ANSWER),
        strategy="graph",
        price=PRICE,
        budget=budget,
        registration="all",
    ) as shell:
        tools = [Probe(name, parameters=PATH) for name in NAMES]
        add(shell, *tools)
        await shell.deps.models.change(mode=mode)
        shell.deps.settings.plan = plan_mode
        fill_calls(shell, slowly)
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    assert [len(tool.runs) for tool in tools] == [1] * 8
    assert {state for _, state in states(events)} == {"running", "done"}
    assert of(events, LimitHit) == []
    assert cap.held == 0
    assert cap.spent <= cap.limit
    assert cap.unit == "tokens" or peak_commitment(events) <= cap.limit


async def test_the_price_of_a_tool_waits_for_reservations_of_parallel_calls(play, monkeypatch):
    asking, holds = asyncio.Event(), asyncio.Semaphore(0)

    async def prepare(tool):
        holds.release()
        await asking.wait()
        await slowly(tool)

    async def when_three_hold():
        for _ in range(3):
            await holds.acquire()
        return "go"

    lines = [plan(p0=[], p1=[], p2=[], first=[], buy=["first"]), finish("ok")]
    async with play(
        lines, strategy="graph", price=PRICE, budget="0.075", registration="all"
    ) as shell:
        shell.deps.settings.plan = "off"
        buy = Probe("buy", price=25_000_000)
        add(
            shell,
            *(Probe(name, parameters=PATH) for name in NAMES[:3]),
            Probe("first", when_three_hold),
            buy,
        )
        fill_calls(shell, prepare)
        gate = shell.deps.budget.gate
        require = gate.require

        async def required(account, nano):
            asking.set()
            await require(account, nano)

        monkeypatch.setattr(gate, "require", required)
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    assert len(buy.runs) == 1
    assert [event.name for event in of(events, CallStarted)].count("buy") == 1
    assert {event.refused for event in of(events, CallFinished)} == {""}
    assert (cap.held, cap.spent <= cap.limit) == (0, True)


async def test_a_node_waiting_for_approval_does_not_block_other_nodes(play):
    finished_nodes = asyncio.Semaphore(0)

    class Late(User):
        async def approve(self, request):
            for _ in range(4):
                await finished_nodes.acquire()
            return Approval("once")

    async def done():
        finished_nodes.release()
        return "done"

    lines = [plan(visit=[], p0=[], p1=[], p2=[], p3=[]), finish("ok")]
    async with play(
        lines,
        user=Late(limit=ANSWER),
        strategy="graph",
        price=PRICE,
        budget="0.05",
        registration="all",
    ) as shell:
        shell.deps.settings.plan = "off"
        visit = Probe("visit", effects=("network",))
        add(shell, visit, *(Probe(name, done, parameters=PATH) for name in NAMES[:4]))
        fill_calls(shell, slowly)
        events = await asyncio.wait_for(turn(shell), 600)
    assert {state for _, state in states(events)} == {"running", "done"}
    assert len(visit.runs) == 1


async def test_stopping_waiting_nodes_ends_them_without_reservations(play):
    started = asyncio.Event()

    async def hangs(tool):
        started.set()
        await asyncio.Event().wait()

    async with play(
        [EIGHT], strategy="graph", price=PRICE, budget="0.05", registration="all"
    ) as shell:
        shell.deps.settings.plan = "off"
        add(shell, *(Probe(name, parameters=PATH) for name in NAMES))
        fill_calls(shell, hangs)
        reading = asyncio.create_task(turn(shell))
        await started.wait()
        await slowly("")
        await shell.conversation.stop()
        events = await reading
        (cap,) = await shell.deps.budget.caps()
    assert events[-1].status == "interrupted"
    assert (cap.held, cap.spent <= cap.limit) == (0, True)
    last = {event.label: event.state for event in of(events, NodeChanged)}
    assert last == dict.fromkeys(NAMES, "stopped")

"""Branches side by side under one cap: room that a branch holds for the moment is waited for, and never passed."""

import asyncio
import json
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn
from graph_turns import Probe, add, plan, states

from ecoshell.agent import Approval, LimitChoice
from ecoshell.events import BudgetHeld, BudgetSettled, CallFinished, CallStarted, LimitHit, NodeChanged
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


def filled_by(shell, before):
    """Have every node's call made out by a model that first awaits `before(tool)`."""
    model = shell.deps.models.current.model._model
    script = model.stream

    async def stream(request):
        if request.want != "call":
            async for piece in script(request):
                yield piece
            return
        tool = request.callable_now[-1].name
        await before(tool)
        yield Reply("", (Call(tool, {"path": "notes.txt"}),), Usage(300, 20))

    model.stream = stream


async def slowly(tool):
    """As long as the others take to ask for room."""
    for _ in range(20):
        await asyncio.to_thread(lambda: None)


def held_at_most(events):
    """The most that was spent and held by model calls at one time."""
    held, spent, most = {}, 0, 0
    for event in events:
        if isinstance(event, BudgetHeld):
            held[event.entry] = event.held_nano
        elif isinstance(event, BudgetSettled):
            held.pop(event.entry)
            spent += event.spent_nano
        most = max(most, spent + sum(held.values()))
    return most


class Answers:
    """A user who approves everything and, at a limit, answers from the results so far."""

    async def approve(self, wanted):
        return Approval("once")

    async def at_limit(self, hit):
        return LimitChoice("answer")


@pytest.mark.parametrize(
    ("mode", "plan_mode", "budget"),
    [("single", "off", "0.05"), ("single", "btp", "0.07"), ("single", "off", "30000 tokens"), ("umi", "off", "0.05")],
)
async def test_eight_calls_that_are_small_are_all_made_where_their_reservations_do_not_fit_side_by_side(
    play, mode, plan_mode, budget
):
    async with play(
        [EIGHT, *[finish("ok")] * 3], user=Answers(), strategy="graph", price=PRICE, budget=budget, registration="all"
    ) as shell:
        tools = [Probe(name, parameters=PATH) for name in NAMES]
        add(shell, *tools)
        await shell.deps.models.change(mode=mode)
        shell.deps.settings.plan = plan_mode
        filled_by(shell, slowly)
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    assert [len(tool.runs) for tool in tools] == [1] * 8
    assert {state for _, state in states(events)} == {"running", "done"}
    assert of(events, LimitHit) == []
    assert cap.held == 0
    assert cap.spent <= cap.limit
    assert cap.unit == "tokens" or held_at_most(events) <= cap.limit


async def test_a_tools_price_waits_for_what_calls_hold_that_are_made_out_beside_it(play, monkeypatch):
    asking, held = asyncio.Event(), asyncio.Semaphore(0)

    async def before(tool):
        held.release()
        await asking.wait()
        await slowly(tool)

    async def when_three_hold():
        for _ in range(3):
            await held.acquire()
        return "go"

    lines = [plan(p0=[], p1=[], p2=[], first=[], buy=["first"]), finish("ok")]
    async with play(lines, strategy="graph", price=PRICE, budget="0.05", registration="all") as shell:
        shell.deps.settings.plan = "off"
        buy = Probe("buy", price=25_000_000)
        add(shell, *(Probe(name, parameters=PATH) for name in NAMES[:3]), Probe("first", when_three_hold), buy)
        filled_by(shell, before)
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


async def test_a_branch_that_waits_for_the_person_keeps_no_other_from_room(play):
    others = asyncio.Semaphore(0)

    class Late(Answers):
        async def approve(self, wanted):
            for _ in range(4):
                await others.acquire()
            return Approval("once")

    async def done():
        others.release()
        return "done"

    lines = [plan(visit=[], p0=[], p1=[], p2=[], p3=[]), finish("ok")]
    async with play(lines, user=Late(), strategy="graph", price=PRICE, budget="0.03", registration="all") as shell:
        shell.deps.settings.plan = "off"
        visit = Probe("visit", effects=("network",))
        add(shell, visit, *(Probe(name, done, parameters=PATH) for name in NAMES[:4]))
        filled_by(shell, slowly)
        events = await asyncio.wait_for(turn(shell), 600)
    assert {state for _, state in states(events)} == {"running", "done"}
    assert len(visit.runs) == 1


async def test_stopping_while_branches_wait_for_room_ends_them_all_and_leaves_no_hold(play):
    started = asyncio.Event()

    async def hangs(tool):
        started.set()
        await asyncio.Event().wait()

    async with play([EIGHT], strategy="graph", price=PRICE, budget="0.03", registration="all") as shell:
        shell.deps.settings.plan = "off"
        add(shell, *(Probe(name, parameters=PATH) for name in NAMES))
        filled_by(shell, hangs)
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

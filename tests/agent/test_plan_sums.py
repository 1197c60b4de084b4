"""The planned cost never exceeds the planned budget, at any point of a turn and after it."""

import random
from decimal import Decimal

import pytest
from agent_play import finish, of, register, say, turn
from graph_turns import Probe, add

from ecoshell.agent.judge import JUDGE
from ecoshell.agent.plan_text import plan_summary
from ecoshell.agent.turn_plan import ThinkingCost
from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallStarted,
    PlanChanged,
    StepProposed,
    StepStarted,
    ToolRegistered,
)
from ecoshell.messages import Usage
from ecoshell.planning.btp.costs import StepCost

NAMES = ("alpha", "beta", "gamma", "delta")
LONG = "I do not know what to do about this. " * 12
GIVE_UP = say(LONG, "finish", give_up=True, answer="no path leads any further")
SETTLED = BudgetSettled(1, "single", "m", 700, Usage(60, 40), reported=True, seconds=2.0)
PROPOSED = StepProposed("", "alpha()", "single")
PRICE = (Decimal(1), Decimal(4))


def planned(plan):
    return sum(row.left * row.cost for row in plan.rows)


def adds_up(plan):
    """Whether the figures of a plan with all its rows add up."""
    return (
        plan.others == 0
        and planned(plan) == plan.planned_cost <= plan.budget
        and plan.budget == max(0, plan.cap - plan.reserved + plan.paid)
    )


def random_lines(draw):
    """Random replies of a model in a turn, including expensive ones and branches that fail."""
    dear = {"input": draw.randint(100, 900), "output": draw.randint(50, 900)}
    choices = [
        *(say(LONG * draw.randint(0, 2), name, usage=draw.choice([None, dear])) for name in NAMES),
        register(draw.choice(NAMES)),
        say("", "tool_search", query="beta"),
        GIVE_UP,
        say("1"),
        say("2"),
    ]
    return [*draw.choices(choices, k=draw.randint(1, 8)), *[finish("done " * draw.randint(1, 80))] * 4]


@pytest.mark.parametrize("strategy", ["react", "dfsdt", "tot"])
@pytest.mark.parametrize("seed", range(8))
async def test_the_planned_cost_never_exceeds_the_budget_for_tools(play, strategy, seed):
    draw = random.Random(f"{strategy} {seed}")
    options = {"budget": f"{draw.randint(4_500, 20_000)}tok", "registration": draw.choice(["all", "names"])}
    if seed % 2:
        options |= {"price": PRICE, "budget": f"0.0{draw.randint(10, 45)}"}
    async with play(random_lines(draw), strategy=strategy, yes=True, **options) as shell:
        add(shell, *(Probe(name, price=draw.choice([0, 100_000])) for name in NAMES))
        plans = of(await turn(shell, "alpha beta gamma"), PlanChanged)
        after = await shell.conversation.planned()
    assert plans
    assert [plan for plan in (*plans, after) if not adds_up(plan)] == []
    assert after.paid == 0


async def test_a_step_that_gives_up_pays_for_no_call(play):
    lines = [say("", "alpha"), GIVE_UP, say("", "beta"), say("", "gamma"), finish("done")]
    async with play(lines, strategy="dfsdt", registration="all", budget="60000tok") as shell:
        add(shell, *map(Probe, NAMES))
        plans = of(await turn(shell), PlanChanged)
    assert [plan.paid for plan in plans] == [0] * len(plans)


async def test_the_answer_of_a_turn_pays_for_no_call(play):
    lines = [say("", "alpha"), finish("so it is " * 50)]
    async with play(lines, registration="all", budget="60000tok") as shell:
        add(shell, *map(Probe, NAMES))
        last = of(await turn(shell), PlanChanged)[-1]
        after = await shell.conversation.planned()
    assert after.paid == 0
    assert after.budget == after.cap - after.reserved
    assert after.cap < last.cap


async def test_a_proposal_pays_for_at_most_one_use(play):
    dear = {"input": 900, "output": 200}
    lines = [say("", "alpha", usage=dear), say("", "beta"), say("A"), finish("done"), finish("done")]
    async with play(lines, strategy="tot", registration="all", budget="5850tok") as shell:
        shell.deps.settings.strict = True
        add(shell, *map(Probe, NAMES))
        plans = of(await turn(shell), PlanChanged)
    first, proposed = plans[:2]
    assert first.paid == 0
    assert proposed.paid == next(row.cost for row in proposed.rows if row.left) < 1_100
    assert f"{proposed.paid} tokens already paid for thinking of the next use)" in plan_summary(proposed)
    assert "already paid" not in plan_summary(first)
    assert all(map(adds_up, plans))


@pytest.mark.parametrize("money", [{"budget": "60000tok"}, {"budget": "0.50", "price": PRICE}])
async def test_the_reserve_in_the_plan_equals_the_reservation_for_the_answer(play, money):
    async with play([say("", "alpha"), finish("done")], registration="all", **money) as shell:
        add(shell, *map(Probe, NAMES))
        mode, reserves = shell.deps.models.current.mode, []
        set_aside = mode.hold_answer

        async def noting(view):
            await set_aside(view)
            reserves.append(mode.answer_hold.tokens if "tok" in money["budget"] else mode.answer_hold.nano)

        mode.hold_answer = noting
        first, used = of(await turn(shell), PlanChanged)[:2]
        after = await shell.conversation.planned()
    assert (first.reserved, used.reserved) == (reserves[0], reserves[0])
    assert after.reserved == first.reserved


def thinking_after(*events):
    forethought = ThinkingCost()
    for event in events:
        forethought.see(event)
    return forethought


def test_a_step_pays_for_its_call_until_the_call_ends():
    started, ended = CallStarted("c1", "alpha", {}), CallFinished("c1", "alpha", True, "", False, 0.1)
    running = thinking_after(SETTLED, started)
    assert (running.total, running.ahead) == (StepCost(), StepCost(700, 100, 2.0))
    assert thinking_after(SETTLED, started, ended).ahead == StepCost()


def test_a_judge_call_pays_for_no_tool_call():
    judged = BudgetSettled(1, JUDGE, "m", 700, Usage(60, 40), reported=True, seconds=2.0)
    assert thinking_after(judged).ahead == thinking_after(judged).total == StepCost()


def test_only_a_proposal_pays_beyond_the_next_step():
    dead, proposed = thinking_after(SETTLED, StepStarted(1, "single", "m")), thinking_after(SETTLED, PROPOSED, SETTLED)
    dead.step()
    proposed.step()
    assert (dead.ahead, dead.total.tokens) == (StepCost(), 100)
    assert proposed.ahead == StepCost(700, 100, 2.0)


def test_an_abandoned_branch_loses_its_proposal():
    thinking = thinking_after(SETTLED, PROPOSED, BranchLeft((), 1, "given up"))
    thinking.step()
    assert thinking.ahead == StepCost()


def test_a_registration_step_pays_for_no_call():
    registered = thinking_after(SETTLED, ToolRegistered("alpha", 10, True, 1, "agent"))
    assert (registered.ahead.tokens, registered.total.tokens) == (0, 0)


def test_a_registration_by_the_user_does_not_use_the_step():
    assert thinking_after(SETTLED, ToolRegistered("alpha", 10, True, 0, "user")).ahead.tokens == 100

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
    return [
        *draw.choices(choices, k=draw.randint(1, 8)),
        *[finish("done " * draw.randint(1, 80))] * 4,
    ]


@pytest.mark.parametrize("strategy", ["react", "dfsdt", "tot"])
@pytest.mark.parametrize("seed", range(8))
async def test_the_planned_cost_never_exceeds_the_budget_for_tools(play, strategy, seed):
    draw = random.Random(f"{strategy} {seed}")
    options = {
        "budget": f"{draw.randint(4_500, 20_000)}tok",
        "registration": draw.choice(["all", "names"]),
    }
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
    lines = [
        say("", "alpha", usage=dear),
        say("", "beta"),
        say("A"),
        finish("done"),
        finish("done"),
    ]
    async with play(lines, strategy="tot", registration="all", budget="5850tok") as shell:
        shell.deps.settings.strict = True
        add(shell, *map(Probe, NAMES))
        plans = of(await turn(shell), PlanChanged)
    first, proposed = plans[:2]
    assert first.paid == 0
    assert proposed.paid == next(row.cost for row in proposed.rows if row.left) < 1_100
    assert f"{proposed.paid} tokens already paid for thinking of the next use)" in plan_summary(
        proposed
    )
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
            reserves.append(
                mode.answer_hold.tokens if "tok" in money["budget"] else mode.answer_hold.nano
            )

        mode.hold_answer = noting
        first, used = of(await turn(shell), PlanChanged)[:2]
        after = await shell.conversation.planned()
    assert (first.reserved, used.reserved) == (reserves[0], reserves[0])
    assert after.reserved == first.reserved


STARTED = CallStarted("c1", "alpha", {})
ENDED = CallFinished("c1", "alpha", True, "", False, 0.1)
JUDGED = BudgetSettled(1, JUDGE, "m", 700, Usage(60, 40), reported=True, seconds=2.0)
STEP = StepCost(700, 100, 2.0)
NOTHING = StepCost()


@pytest.mark.parametrize(
    ("events", "is_followed_by_step", "ahead", "total_tokens"),
    [
        pytest.param((SETTLED, STARTED), False, STEP, 0, id="a running call is paid by its step"),
        pytest.param((SETTLED, STARTED, ENDED), False, NOTHING, 0, id="a finished call"),
        pytest.param((JUDGED,), False, NOTHING, 0, id="a judge call"),
        pytest.param(
            (SETTLED, StepStarted(1, "single", "m")), True, NOTHING, 100, id="a step without a call"
        ),
        pytest.param(
            (SETTLED, PROPOSED, SETTLED), True, STEP, 200, id="a proposal pays beyond the next step"
        ),
        pytest.param(
            (SETTLED, PROPOSED, BranchLeft((), 1, "given up")),
            True,
            NOTHING,
            100,
            id="an abandoned branch",
        ),
        pytest.param(
            (SETTLED, ToolRegistered("alpha", 10, True, 1, "agent")),
            False,
            NOTHING,
            0,
            id="a registration",
        ),
        pytest.param(
            (SETTLED, ToolRegistered("alpha", 10, True, 0, "user")),
            False,
            STEP,
            100,
            id="a registration by the user",
        ),
    ],
)
def test_a_step_pays_only_for_the_call_it_proposed(
    events, is_followed_by_step, ahead, total_tokens
):
    thinking = ThinkingCost()
    for event in events:
        thinking.see(event)
    if is_followed_by_step:
        thinking.step()
    assert (thinking.ahead, thinking.total.tokens) == (ahead, total_tokens)

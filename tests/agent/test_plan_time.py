"""The plan under a cap in working time: costs in seconds from experience, from the model's speed, or unknown."""

from dataclasses import replace

from agent_play import finish, of, say, turn

from ecoshell.agent.plan_text import plan_summary
from ecoshell.budget import Ask
from ecoshell.events import BudgetSettled, PlanChanged
from ecoshell.messages import Usage
from ecoshell.planning.btp.experience import Use

QUESTION = "How many lines has notes.txt?"
COUNT = say("", "count_text", path="notes.txt")


def used(shell, tool, seconds):
    """Add four helpful uses of this duration to the experience."""
    schema = shell.deps.catalog.schema(tool).digest
    use = Use(QUESTION, tool, schema, "{}", "3", "0", True, True, "rules", "m", 0, 0, 9, seconds, 0)
    shell.deps.experience.records.add(
        [replace(use, session="s", turn=at, call="c") for at in range(4)]
    )


def timed_step(shell, tokens, ms):
    """Book a step of the session's model with this usage and duration."""
    account = replace(shell.deps.budget.account(), model=shell.deps.models.name, purpose="step")
    hold = shell.ledger.hold(Ask(None, tokens, 16, account))
    shell.ledger.settle(hold, Usage(tokens), ms=ms)


def row(plan, tool):
    return next(row for row in plan.rows if row.tool == tool)


async def test_costs_are_seconds_from_experience_under_a_cap_in_time(play):
    async with play([COUNT, finish("3")], registration="all", budget="60s") as shell:
        used(shell, "count_text", 2.5)
        events = await turn(shell, QUESTION)
        why = (await shell.command("/plan why count_text")).text
        text = (await shell.command("/plan")).text
    first = of(events, PlanChanged)[0]
    assert (first.unit, first.cap, first.reserved) == ("ms", 60_000, 15_000)
    assert first.budget == first.cap - first.reserved + first.paid
    assert (row(first, "count_text").cost, row(first, "count_text").spread) == (2_500, 0)
    assert row(first, "count_text").state == "planned"
    assert "model step and tool" in why
    assert "from 5 uses" in why
    assert "budget  R = " in why
    assert "reserved for the answer" in why
    assert " s left" in why
    assert "time" in text.splitlines()[2].split()


async def test_a_tool_that_takes_longer_than_the_cap_leaves_is_blocked(play):
    async with play([COUNT, finish("3")], registration="all", budget="20s") as shell:
        used(shell, "count_text", 40.0)
        timed_step(shell, 1_000, 1_000)
        events = await turn(shell, QUESTION)
    first = of(events, PlanChanged)[0]
    blocked = row(first, "count_text")
    assert (blocked.state, blocked.why) == ("forbidden", "budget")
    assert 40_000 <= blocked.cost < 45_000  # with the step that registers it


async def test_without_experience_the_cost_follows_from_the_speed_of_the_model_or_is_unknown(play):
    async with play([], registration="all", budget="10min") as shell:
        plan = await shell.conversation.setup.forecast(QUESTION)
        unknown, unknown_why = plan.event(), plan.explain("count_text")
        timed_step(shell, 1_000, 20_000)  # 50 tokens a second
        plan = await shell.conversation.setup.forecast(QUESTION)
        known, known_why = plan.event(), plan.explain("count_text")
    assert unknown.unit == known.unit == "ms"
    assert (unknown.low, unknown.high) == (None, None)
    assert not row(unknown, "count_text").is_cost_known
    assert "unknown: neither the tool nor the model was used before" in unknown_why
    assert row(known, "count_text").is_cost_known
    assert row(known, "count_text").cost > 1_000
    assert "estimated from the model's speed" in known_why
    assert known.high >= known.low > 0


async def test_the_speed_observed_in_the_first_turn_estimates_the_rest_of_it(play):
    async with play([], registration="all", budget="10min") as shell:
        plan = await shell.conversation.setup.forecast(QUESTION)
        assert "speed is unknown" in plan_summary(plan.event())
        usage = Usage(1_000, 100)
        plan.see(BudgetSettled(1, "single", "m", 0, usage, reported=True, seconds=22.0))
        known = plan.event()
    assert known.high >= known.low > 0
    assert "speed is unknown" not in plan_summary(known)


async def test_a_free_model_without_a_cap_is_planned_in_tokens(play):
    async with play([]) as shell:
        plan = await shell.conversation.setup.forecast(QUESTION)
    assert plan.event().unit == "tokens"

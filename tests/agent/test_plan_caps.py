"""A cap that is changed is planned for at once, while a tool runs too, and what was changed is told by its name."""

import asyncio

import pytest
from agent_play import finish, of, say, turn
from graph_turns import Probe, add

from ecoshell.agent.turn_plan import ThinkingCost
from ecoshell.budget import CapState
from ecoshell.events import BudgetSettled, CallFinished, CallStarted, PlanChanged, TurnFinished
from ecoshell.messages import Usage


class Slow:
    """A tool that waits until it may go on, and a turn that has come to it."""

    def __init__(self, shell):
        self._may_go_on = asyncio.Event()
        self.runs = asyncio.Event()
        self.events = []
        add(shell, Probe("slow", self._act))
        self._turn = asyncio.create_task(self._listen(shell))

    async def _act(self):
        self.runs.set()
        await self._may_go_on.wait()
        return "at last"

    async def _listen(self, shell):
        async for event in shell.ask("Be slow."):
            self.events.append(event)

    async def finished(self):
        self._may_go_on.set()
        await self._turn
        return self.events


LINES = [say("Slowly.", "slow"), say("Once more.", "slow"), finish("done")]


@pytest.mark.parametrize(("cap", "words"), [("20000tok", "20,000 tokens"), ("90000tok", "90,000 tokens")])
async def test_a_cap_that_is_changed_while_a_tool_runs_is_planned_for_before_it_ends(play, cap, words):
    async with play(LINES, registration="all", budget="30000tok") as shell:
        slow = Slow(shell)
        await slow.runs.wait()
        await shell.command(f"/budget {cap}")
        shown, why = (await shell.command("/plan")).text, (await shell.command("/plan why slow")).text
        events = await slow.finished()
    (changed,) = (plan for plan in of(events, PlanChanged) if "cap" in plan.reason)
    limit, (first, *_) = int(cap.removesuffix("tok")), of(events, BudgetSettled)
    assert events.index(of(events, CallStarted)[0]) < events.index(changed) < events.index(of(events, CallFinished)[0])
    assert changed.reason == f"the session's cap is {words} now"
    assert (changed.whole, changed.cap) == (limit, limit - first.usage.total)
    assert f"of {changed.cap:,} tokens" in shown
    assert f"= {changed.cap:,} tokens left" in why


async def test_a_call_under_way_is_not_barred_by_its_own_cost(play):
    async with play(LINES, registration="all", budget="30000tok") as shell:
        slow = Slow(shell)
        await slow.runs.wait()
        thought = shell.conversation.plan.thinking.total
        await shell.command("/budget 90000tok")
        events = await slow.finished()
    changed = next(plan for plan in of(events, PlanChanged) if "cap" in plan.reason)
    assert thought.tokens == 0
    assert changed.paid > 0
    assert next(row for row in changed.rows if row.tool == "slow").state == "planned"


async def test_a_cap_that_is_changed_between_turns_is_in_the_plan_that_is_shown(play):
    async with play([say("", "slow"), finish("done")], registration="all", budget="30000tok") as shell:
        add(shell, Probe("slow"))
        assert (await shell.status()).planned is None
        last = of(await turn(shell), PlanChanged)[-1]
        before = (await shell.status()).planned
        await shell.command("/budget 90000tok")
        after = (await shell.status()).planned
        text = (await shell.command("/plan")).text
    assert (before.reason, before.number) == (last.reason, last.number)
    assert after.reason == "the session's cap is 90,000 tokens now"
    assert (before.whole, after.whole) == (30_000, 90_000)
    assert f"of {after.cap:,} tokens" in text


async def test_while_a_turn_runs_it_alone_tells_its_plan(play):
    async with play(LINES, registration="all", budget="30000tok") as shell:
        slow = Slow(shell)
        await slow.runs.wait()
        assert (await shell.status()).planned is None
        await slow.finished()
        assert (await shell.status()).planned is not None


async def test_a_turn_that_was_stopped_hears_of_no_cap_any_more(play):
    async with play(LINES, registration="all", budget="30000tok") as shell:
        slow = Slow(shell)
        await slow.runs.wait()
        await shell.stop()
        await shell.command("/budget 9000tok")
        events = await slow.finished()
    assert isinstance(events[-1], TurnFinished)
    assert not any("cap" in plan.reason for plan in of(events, PlanChanged))


def caps(**limits):
    return [CapState(scope, "tokens", limit, 0, 0) for scope, limit in limits.items()]


async def reasons(play, *standing):
    """The reasons a plan gives as these caps stand one after another, and once the last of them were told."""
    found = []
    async with play([]) as shell:
        now, caps_now = iter(standing), shell.deps.budget.caps

        async def caps(*, at_rest=False):
            return next(now) if at_rest else await caps_now()

        shell.deps.budget.caps = caps
        plan = await shell.conversation.forecast("How many lines has notes.txt?")
        for _ in standing[1:]:
            await plan.renew()
            found.append(plan.event().reason)
        plan.report(lambda _: None, "")
    return found, plan._caps_changed


async def test_a_team_s_cap_of_another_model_limits_no_plan(play):
    async with play([]) as shell:
        model = shell.deps.models.current.model.traits.name
        standing = [CapState("everybody day", "usd", 10**9, 0, 0), CapState("model:other day", "usd", 10**7, 10**7, 0)]

        async def caps(*, at_rest=False):
            return tuple(standing)

        shell.deps.budget.caps = caps
        plan = await shell.conversation.forecast("How many lines has notes.txt?")
        assert plan.event().cap == 10**9
        standing.append(CapState(f"model:{model} day", "usd", 10**8, 10**7, 0))
        await plan.renew()
        assert plan.event().cap == 9 * 10**7


async def test_the_caps_that_stand_first_are_no_change(play):
    assert await reasons(play, caps(session=10), caps(session=10)) == ([""], "")


async def test_each_cap_that_was_set_changed_or_removed_is_named_until_it_is_told(play):
    now = [*caps(session=20, day=7), CapState("month", "usd", 500_000_000, 0, 0)]
    words = "the session's cap is 20 tokens now and the month's cap is $0.50 now and the turn's cap was removed"
    assert await reasons(play, caps(turn=5, session=10, day=7), now, now) == ([words, words], "")


async def test_a_change_that_was_taken_back_before_it_was_told_is_none(play):
    found, _ = await reasons(play, *(caps(session=limit) for limit in (10, 20, 10)))
    assert found == ["the session's cap is 20 tokens now", ""]


def test_what_a_turn_has_spent_is_its_calls_and_its_tools():
    thinking = ThinkingCost()
    thinking.see(BudgetSettled(1, "single", "m", 700, Usage(60, 40), reported=True, seconds=2.0))
    thinking.see(CallFinished("c1", "slow", True, "", False, 0.1, spent_nano=50))
    assert (thinking.spent.amount("usd"), thinking.spent.amount("tokens")) == (750, 100)

"""A changed cap leads to a new plan at once, even while a tool runs; the reason names the cap."""

import asyncio

import pytest
from agent_play import finish, of, say, turn
from graph_turns import Probe, add

from ecoshell.agent.turn_plan import ThinkingCost
from ecoshell.budget import CapState
from ecoshell.events import BudgetSettled, CallFinished, CallStarted, PlanChanged, TurnFinished
from ecoshell.messages import Usage


class Slow:
    """A tool that waits until it is released, and a turn that calls it."""

    def __init__(self, shell):
        self._released = asyncio.Event()
        self.runs = asyncio.Event()
        self.events = []
        add(shell, Probe("slow", self._act))
        self._turn = asyncio.create_task(self._listen(shell))

    async def _act(self):
        self.runs.set()
        await self._released.wait()
        return "at last"

    async def _listen(self, shell):
        async for event in shell.ask("Be slow."):
            self.events.append(event)

    async def finished(self):
        self._released.set()
        await self._turn
        return self.events


LINES = [say("Slowly.", "slow"), say("Once more.", "slow"), finish("done")]


@pytest.mark.parametrize(
    ("cap", "words"), [("50000tok", "50,000 tokens"), ("90000tok", "90,000 tokens")]
)
async def test_a_cap_changed_while_a_tool_runs_changes_the_plan_at_once(play, cap, words):
    async with play(LINES, registration="all", budget="60000tok") as shell:
        slow = Slow(shell)
        await asyncio.wait_for(slow.runs.wait(), 60)
        await shell.command(f"/budget {cap}")
        printed, why = (
            (await shell.command("/plan")).text,
            (await shell.command("/plan why slow")).text,
        )
        events = await slow.finished()
    (changed,) = (plan for plan in of(events, PlanChanged) if "cap" in plan.reason)
    limit, (first, *_) = int(cap.removesuffix("tok")), of(events, BudgetSettled)
    assert (
        events.index(of(events, CallStarted)[0])
        < events.index(changed)
        < events.index(of(events, CallFinished)[0])
    )
    assert changed.reason == f"the session's cap is {words} now"
    assert (changed.whole, changed.cap) == (limit, limit - first.usage.total)
    assert f"of {changed.cap:,} tokens" in printed
    assert f"= {changed.cap:,} tokens left" in why


async def test_a_running_call_is_not_forbidden_by_its_own_cost(play):
    async with play(LINES, registration="all", budget="60000tok") as shell:
        slow = Slow(shell)
        await asyncio.wait_for(slow.runs.wait(), 60)
        thought = shell.conversation.plan.thinking.total
        await shell.command("/budget 90000tok")
        events = await slow.finished()
    changed = next(plan for plan in of(events, PlanChanged) if "cap" in plan.reason)
    assert thought.tokens == 0
    assert changed.paid > 0
    assert next(row for row in changed.rows if row.tool == "slow").state == "planned"


async def test_a_cap_changed_between_turns_appears_in_the_shown_plan(play):
    async with play(
        [say("", "slow"), finish("done")], registration="all", budget="60000tok"
    ) as shell:
        add(shell, Probe("slow"))
        assert (await shell.status()).planned is None
        last = of(await turn(shell), PlanChanged)[-1]
        old = (await shell.status()).planned
        await shell.command("/budget 90000tok")
        new = (await shell.status()).planned
        text = (await shell.command("/plan")).text
    assert (old.reason, old.number) == (last.reason, last.number)
    assert new.reason == "the session's cap is 90,000 tokens now"
    assert (old.whole, new.whole) == (60_000, 90_000)
    assert f"of {new.cap:,} tokens" in text


async def test_the_status_has_no_plan_while_a_turn_runs(play):
    async with play(LINES, registration="all", budget="60000tok") as shell:
        slow = Slow(shell)
        await asyncio.wait_for(slow.runs.wait(), 60)
        assert (await shell.status()).planned is None
        await slow.finished()
        assert (await shell.status()).planned is not None


async def test_a_stopped_turn_ignores_changed_caps(play):
    async with play(LINES, registration="all", budget="60000tok") as shell:
        slow = Slow(shell)
        await asyncio.wait_for(slow.runs.wait(), 60)
        await shell.stop()
        await shell.command("/budget 9000tok")
        events = await slow.finished()
    assert isinstance(events[-1], TurnFinished)
    assert not any("cap" in plan.reason for plan in of(events, PlanChanged))


def caps(**limits):
    return [CapState(scope, "tokens", limit, 0, 0) for scope, limit in limits.items()]


async def reasons(play, *states):
    """The reasons of a plan after each of these changes of the caps, and the reason left once it was reported."""
    texts = []
    async with play([]) as shell:
        upcoming, current_caps = iter(states), shell.deps.budget.caps

        async def caps(*, at_rest=False):
            return next(upcoming) if at_rest else await current_caps()

        shell.deps.budget.caps = caps
        plan = await shell.conversation.setup.forecast("How many lines has notes.txt?")
        for _ in states[1:]:
            await plan.renew()
            texts.append(plan.event().reason)
        plan.report(lambda _: None, "")
    return texts, plan._caps_changed


async def test_a_team_cap_for_another_model_does_not_limit_the_plan(play):
    async with play([]) as shell:
        model = shell.deps.models.current.model.traits.name
        states = [
            CapState("everybody day", "usd", 10**9, 0, 0),
            CapState("model:other day", "usd", 10**7, 10**7, 0),
        ]

        async def caps(*, at_rest=False):
            return tuple(states)

        shell.deps.budget.caps = caps
        plan = await shell.conversation.setup.forecast("How many lines has notes.txt?")
        assert plan.event().cap == 10**9
        states.append(CapState(f"model:{model} day", "usd", 10**8, 10**7, 0))
        await plan.renew()
        assert plan.event().cap == 9 * 10**7


async def test_the_first_caps_are_not_a_change(play):
    assert await reasons(play, caps(session=10), caps(session=10)) == ([""], "")


async def test_each_changed_cap_is_named_until_it_is_reported(play):
    changed = [*caps(session=20, day=7), CapState("month", "usd", 500_000_000, 0, 0)]
    words = "the session's cap is 20 tokens now and the month's cap is $0.50 now and the turn's cap was removed"
    assert await reasons(play, caps(turn=5, session=10, day=7), changed, changed) == (
        [words, words],
        "",
    )


async def test_a_change_reverted_before_the_report_is_not_a_change(play):
    texts, _ = await reasons(play, *(caps(session=limit) for limit in (10, 20, 10)))
    assert texts == ["the session's cap is 20 tokens now", ""]


def test_spending_of_a_turn_covers_model_calls_and_tools():
    thinking = ThinkingCost()
    thinking.see(BudgetSettled(1, "single", "m", 700, Usage(60, 40), reported=True, seconds=2.0))
    thinking.see(CallFinished("c1", "slow", True, "", False, 0.1, spent_nano=50))
    assert (thinking.spent.amount("usd"), thinking.spent.amount("tokens")) == (750, 100)

"""Planner, caller and summarizer in whole turns."""

from decimal import Decimal

import pytest
from agent_play import every_pair, finish, is_replayed, of, register, say, turn

from ecoshell.agent import LimitChoice
from ecoshell.errors import UsageError
from ecoshell.events import (
    Answer,
    BudgetSettled,
    CallFinished,
    LimitHit,
    Rationale,
    StepProposed,
    StepStarted,
    TextArrived,
    ToolRegistered,
)

PRICE = (Decimal(1), Decimal(4))
COUNT = say("", "count_text", path="notes.txt")
NEXT = say("Count them. Next: caller.")
ENOUGH = say("Enough is known. Next: conclusion.")
TRIO = [
    say("A counter is needed. Next: caller."),
    register("count_text"),
    NEXT,
    COUNT,
    ENOUGH,
    say("3 lines"),
]


async def test_events_name_the_role_of_each_step(play):
    async with play(TRIO, registration="names") as shell:
        await shell.deps.models.change(mode="umi")
        events = await turn(shell)
        assert is_replayed(shell)
    assert [event.role for event in of(events, BudgetSettled)] == [
        *("planner", "caller", "planner", "caller", "planner", "summarizer"),
    ]
    assert {event.role for event in (*of(events, StepStarted), *of(events, Rationale))} == {
        "planner"
    }
    assert {event.role for event in of(events, TextArrived) if event.channel == "answer"} == {
        "summarizer"
    }
    assert [event.name for event in of(events, ToolRegistered)] == ["count_text"]
    assert (events[0].mode, events[-1].status, events[-1].answer) == ("umi", "answered", "3 lines")


async def test_a_call_by_the_planner_runs(play):
    """A remote model may return a call although text was requested; a valid call needs no repair."""
    async with play([COUNT, ENOUGH, say("3 lines")], registration="all") as shell:
        await shell.deps.models.change(mode="umi")
        events = await turn(shell)
        request = shell.requests[0]
    assert "count_text" in {schema.name for schema in request.callable_now}
    assert request.want == "text"
    assert [event.name for event in of(events, CallFinished)] == ["count_text"]


async def test_the_planners_reason_precedes_the_answer(play):
    async with play(TRIO, registration="names") as shell:
        await shell.deps.models.change(mode="umi")
        events = await turn(shell)
    why = [
        at for at, event in enumerate(events) if event == Rationale("Enough is known.", "planner")
    ]
    arrived = [event.channel if isinstance(event, TextArrived) else "" for event in events]
    assert len(why) == 1
    assert why[0] < arrived.index("answer") < events.index(of(events, Answer)[0])


async def test_the_reason_to_conclude_appears_with_the_proposal_only(play):
    lines = [NEXT, COUNT, ENOUGH, say("3 lines"), say("A"), say("A")]
    async with play(lines, registration="all", strategy="tot") as shell:
        await shell.deps.models.change(mode="umi")
        events = await turn(shell)
    proposed = of(events, StepProposed)
    assert [(event.rationale, event.step) for event in proposed][1] == (
        "Enough is known.",
        "answer",
    )
    assert Rationale("Enough is known.", "planner") not in events


class RaisesToTheNeed:
    """A user who at each limit raises the cap to exactly what the next call needs."""

    def __init__(self, cap):
        self.cap = cap
        self.hits = []

    async def at_limit(self, hit):
        self.hits.append(hit)
        self.cap += hit.need - hit.left
        return LimitChoice("raise", f"{self.cap}tok")


@pytest.mark.parametrize("strategy", ["react", "dfsdt"])
async def test_a_paid_decision_is_executed_after_the_cap_is_raised(play, strategy):
    user, lines = RaisesToTheNeed(500), [NEXT, COUNT, ENOUGH, say("3 lines")]
    async with play(
        lines, user=user, registration="all", strategy=strategy, budget="500tok"
    ) as shell:
        await shell.deps.models.change(mode="umi")
        shell.deps.settings.plan = "off"
        events = await turn(shell)
    settled = [at for at, event in enumerate(events) if isinstance(event, BudgetSettled)]
    hits = [at for at, event in enumerate(events) if isinstance(event, LimitHit)]
    assert [events[at].role for at in settled] == ["planner", "caller", "planner", "summarizer"]
    assert any(settled[0] < hit < settled[1] for hit in hits)
    assert (events[-1].status, events[-1].answer) == ("answered", "3 lines")


@pytest.mark.parametrize(
    ("strategy", "budget", "plan"),
    every_pair(["react", "dfsdt", "tot"], ["0.006", "0.02", "0.05"], ["off", "btp"]),
)
async def test_the_cap_holds_under_every_strategy_with_and_without_a_plan(
    play, strategy, budget, plan
):
    async with play(
        [NEXT, COUNT] * 40, strategy=strategy, price=PRICE, budget=budget, registration="all"
    ) as shell:
        await shell.deps.models.change(mode="umi")
        shell.deps.settings.plan = plan
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    paid = sum(event.spent_nano for event in of(events, BudgetSettled))
    assert cap.spent == paid <= cap.limit
    assert cap.held == 0


@pytest.mark.parametrize("strategy", ["react", "dfsdt"])
async def test_a_planner_that_never_concludes_ends_with_a_partial_answer(play, strategy):
    lines = [NEXT, COUNT, NEXT, COUNT, say("Three, it seems.")]
    async with play(lines, registration="all", strategy=strategy, max_steps=2) as shell:
        await shell.deps.models.change(mode="umi")
        events = await turn(shell)
    answer = Answer("Three, it seems.", partial=True, role="summarizer")
    assert (events[-1].status, of(events, Answer)[0]) == ("limit", answer)
    assert of(events, BudgetSettled)[-1].role == "summarizer"


async def test_a_caller_that_invents_a_tool_gets_the_known_names(play):
    lines = [NEXT, say("", "count_txt", path="notes.txt"), NEXT, COUNT, ENOUGH, say("3")]
    async with play(lines, registration="all") as shell:
        await shell.deps.models.change(mode="umi")
        events = await turn(shell)
    invented, valid = of(events, CallFinished)
    assert (invented.refused, valid.ok) == ("unknown", True)
    assert "count_text" in invented.observation


async def test_the_mode_can_change_during_a_session_and_survives_a_model_switch(play, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "Hello. Next: conclusion."}\n{"text": "Hi."}\n')
    lines = [
        say("Count.", "count_text", path="notes.txt"),
        finish("3"),
        ENOUGH,
        say("3, as before"),
    ]
    async with play(lines, registration="all") as shell:
        await turn(shell)
        assert "›  umi" in (await shell.command("/mode umi")).text
        again = await turn(shell, "And now?")
        texts = [message.text for message in shell.requests[2].messages]
        assert (again[0].mode, again[-1].answer) == ("umi", "3, as before")
        assert "3" in texts
        await shell.command(f"/model script:{other}")
        assert (await turn(shell, "Hello"))[0].mode == "umi"
        with pytest.raises(UsageError, match="single, umi"):
            await shell.command("/mode duo")


async def test_a_resumed_session_keeps_its_mode_unless_options_override_it(play):
    async with play(
        [say("Hello. Next: conclusion."), say("Hi.")], mode="umi", strategy="graph"
    ) as shell:
        await shell.deps.models.change(mode="umi")
        assert ((await turn(shell, "Hello"))[0].strategy, shell.deps.models.mode) == (
            "graph",
            "umi",
        )
        session = shell.session
    async with play([], resume=session) as again:
        assert (again.deps.settings.strategy, again.deps.models.mode) == ("react", "umi")
    async with play([], resume=session, mode="single", strategy="tot") as again:
        assert (again.session, again.deps.settings.strategy, again.deps.models.mode) == (
            session,
            "tot",
            "single",
        )

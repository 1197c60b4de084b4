"""Quality of a tool graph (QoP): performance from marks, a checker or a judge, and cost from the ledger."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.agent.scoring import resources_value, score_graph
from ecoshell.budget import CapState
from ecoshell.events import (
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    GraphNode,
    GraphPlanned,
    NodeChanged,
    Notice,
    PlanScored,
    TurnFinished,
    TurnStarted,
    from_json,
    to_json,
)
from ecoshell.messages import Usage
from ecoshell.planning.catp.costs import quality
from ecoshell.sessions.tool_graphs import PlannedTurns

PRICE = (Decimal(1), Decimal(4))
TWO = say('["count_text", ["<task>"], "count_text#2", ["<task>"]]')
COUNT = say("", "count_text", path="notes.txt")
COUNT_TEXT = say("", "count_text", text="four words are here")
GONE = say("", "count_text", path="gone.txt")
SCRIPT = (TWO, COUNT, COUNT_TEXT, finish("3 lines, 4 words"))
FIX = say("Answer: it is not there")
GRAPH = {"strategy": "graph", "registration": "all"}


async def test_a_finished_plan_is_scored_by_the_judge_and_the_ledger(play):
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
        paid = sum(event.spent_nano for event in of(events, BudgetSettled))
        (score,) = of(events, PlanScored)
        (row,) = shell.ledger.turn_rows(shell.session).values()
    assert paid > 0
    assert (score.cost_nano, score.resources_nano, row.spent_nano) == (paid, 0, paid)
    assert (score.turn, score.performance, score.judged_by, score.checked) == (
        1,
        1.0,
        "rules",
        None,
    )
    assert (score.most_nano, score.alpha) == (50_000_000, 0.5)
    assert score.quality == quality(1.0, Decimal(paid), max_cost=Decimal(50_000_000))
    assert events.index(score) < len(events) - 1
    assert events[-1].type == "turn_finished"
    assert from_json(to_json(score)) == score


async def test_a_lower_cap_lowers_the_maximum_cost_of_a_plan(play):
    async with play(SCRIPT, price=PRICE, budget="0.04", **GRAPH) as shell:
        (score,) = of(await turn(shell), PlanScored)
        assert score.most_nano == 40_000_000
        await shell.conversation.leave()


async def test_a_team_cap_for_another_model_does_not_lower_the_maximum_cost(play, monkeypatch):
    async with play(SCRIPT, price=PRICE, budget="0.04", **GRAPH) as shell:
        caps = [
            CapState("session", "usd", 40_000_000, 0, 0),
            CapState("model:other day", "usd", 1_000, 0, 0),
        ]
        monkeypatch.setattr(shell.ledger, "caps", lambda *_, **__: caps)
        (score,) = of(await turn(shell), PlanScored)
    assert score.most_nano == 40_000_000


async def test_the_weight_of_performance_is_a_setting(play):
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        shell.deps.settings.alpha = 0.25
        shell.deps.settings.most_nano = 1_000_000
        (score,) = of(await turn(shell), PlanScored)
    assert score.quality == quality(
        1.0, Decimal(score.cost_nano), alpha=0.25, max_cost=Decimal(1_000_000)
    )


async def test_a_plan_that_costs_nothing_says_so(play):
    async with play(SCRIPT, **GRAPH) as shell:
        (score,) = of(await turn(shell), PlanScored)
    assert (score.cost_nano, score.quality) == (0, 0.5)
    assert (
        score.render().words
        == "plan of turn 1: QoP 0.50: P 1.00 by rules, C $0 (nothing was paid) of $0.05"
    )


async def test_a_failed_node_does_not_count_as_helpful(play):
    async with play([TWO, GONE, COUNT_TEXT, FIX], **GRAPH) as shell:
        events = await turn(shell)
    (score,) = of(events, PlanScored)
    assert sorted(event.ok for event in of(events, CallFinished)) == [False, True]
    assert (score.performance, score.judged_by) == (0.5, "rules")


async def test_the_repaired_plan_is_scored_with_its_kept_nodes(play):
    async with play(
        [TWO, GONE, COUNT_TEXT, TWO, COUNT, finish("done")], price=PRICE, **GRAPH
    ) as shell:
        events = await turn(shell)
    first, second = of(events, GraphPlanned)
    (score,) = of(events, PlanScored)
    assert (first.repaired, second.repaired, second.kept) == (False, True, ("count_text#2",))
    assert (score.performance, score.judged_by) == (1.0, "rules")
    assert score.cost_nano == sum(event.spent_nano for event in of(events, BudgetSettled))


async def test_a_plan_of_a_turn_that_gave_up_scores_zero(play):
    async with play([TWO, COUNT, COUNT_TEXT, finish("no idea", give_up=True)], **GRAPH) as shell:
        events = await turn(shell)
    (score,) = of(events, PlanScored)
    assert events[-1].status == "gave_up"
    assert (score.performance, score.judged_by) == (0.0, "agent")


async def test_a_stopped_plan_is_not_scored(play):
    async with play(SCRIPT, **GRAPH) as shell:
        events = []
        async for event in shell.ask("How many lines?"):
            events.append(event)
            if isinstance(event, GraphPlanned):
                await shell.stop()
    assert events[-1].status == "interrupted"
    assert of(events, PlanScored) == []


async def test_a_turn_without_a_tool_graph_is_not_scored(play):
    async with play([COUNT, finish("3")], registration="all") as shell:
        events = await turn(shell)
        call = of(events, CallFinished)[0]
        happened = await shell.mark(1, call.id, call.name, helpful=False)
    assert of(events, PlanScored) == []
    assert happened == (CallMarked(1, call.id, call.name, helpful=False),)


async def test_a_mark_changes_the_score_until_it_is_removed(play):
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
        (original,) = of(events, PlanScored)
        call = of(events, CallFinished)[0]
        _, marked = await shell.mark(1, call.id, call.name, helpful=False)
        _, back = await shell.mark(1, call.id, call.name, helpful=None)
        scores = [
            event for _, event in shell.store.events(shell.session) if isinstance(event, PlanScored)
        ]
    assert (marked.performance, marked.judged_by) == (0.5, "you + rules")
    assert marked.quality == pytest.approx(original.quality - 0.25)
    assert back == original
    assert scores == [original, marked, original]


async def test_a_mark_that_agrees_with_the_judge_adds_the_user_once(play):
    async with play(SCRIPT, **GRAPH) as shell:
        events = await turn(shell)
        (original,) = of(events, PlanScored)
        call = of(events, CallFinished)[0]
        _, marked = await shell.mark(1, call.id, call.name, helpful=True)
        again = await shell.mark(1, call.id, call.name, helpful=True)
    assert marked == replace(original, judged_by="you + rules")
    assert len(again) == 1


async def test_a_resumed_session_scores_marks_like_the_live_one(play):
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
        session = shell.session
        (original,) = of(events, PlanScored)
        call = of(events, CallFinished)[1]
    async with play([], resume=session, **GRAPH) as shell:
        shell.deps.settings.most_nano = 1
        _, marked = await shell.mark(1, call.id, call.name, helpful=False)
    assert marked == replace(
        original,
        performance=0.5,
        judged_by="you + rules",
        quality=pytest.approx(original.quality - 0.25),
    )


async def test_a_later_summary_does_not_add_to_the_cost_of_the_plan(play):
    summary = say("The file has 3 lines.")
    async with play([*SCRIPT, summary], price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
        (original,) = of(events, PlanScored)
        await shell.conversation.compact()
        call = of(events, CallFinished)[0]
        _, marked = await shell.mark(1, call.id, call.name, helpful=True)
    assert marked.cost_nano == original.cost_nano


async def test_a_checker_overrides_the_judge(play):
    async with play([*SCRIPT, *SCRIPT], **GRAPH) as shell:
        shell.deps.settings.checker = "grep -q '3 lines'"
        (right,) = of(await turn(shell), PlanScored)
        shell.deps.settings.checker = "grep -q '4 lines'"
        events = await turn(shell)
        (wrong,) = of(events, PlanScored)
        call = of(events, CallFinished)[0]
        _, marked = await shell.mark(2, call.id, call.name, helpful=True)
    assert (right.performance, right.judged_by, right.checked) == (1.0, "checker", True)
    assert (wrong.performance, wrong.judged_by, wrong.checked) == (0.0, "checker", False)
    assert (marked.performance, marked.judged_by, marked.checked) == (0.5, "you + checker", False)


async def test_a_checker_that_cannot_run_leaves_the_score_to_the_judge(play):
    async with play(SCRIPT, **GRAPH) as shell:
        shell.deps.settings.checker = "/nowhere/check\x07er"
        events = await turn(shell)
    (score,) = of(events, PlanScored)
    assert (score.performance, score.judged_by, score.checked) == (1.0, "rules", None)
    (notice,) = [event.text for event in of(events, Notice) if "checker" in event.text]
    assert "\x07" not in notice
    assert events[-1].status == "answered"


async def test_a_read_only_shell_runs_no_checker(play, home):
    async with play(SCRIPT, read_only=True, **GRAPH) as shell:
        shell.deps.settings.checker = "touch checked.txt"
        (score,) = of(await turn(shell), PlanScored)
    assert (score.judged_by, score.checked) == ("rules", None)
    assert not (home / "checked.txt").exists()


async def test_stopping_the_checker_keeps_the_answer_without_a_score(play):
    async with play(SCRIPT, **GRAPH) as shell:
        shell.deps.settings.checker = "sleep 600"
        started = asyncio.Event()
        check = shell.deps.workspace.check

        async def watched(command, text):
            started.set()
            return await check(command, text)

        shell.deps.workspace.check = watched
        asking = asyncio.create_task(turn(shell))
        await asyncio.wait_for(started.wait(), 600)
        await shell.stop()
        events = await asking
    assert (events[-1].status, events[-1].answer) == ("answered", "3 lines, 4 words")
    assert of(events, PlanScored) == []


async def test_priced_time_and_memory_count_as_cost(play, monkeypatch):
    monkeypatch.setenv("ECOSHELL_PLAN_RESOURCE_PRICE", "1")
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        shell.deps.profiles.resources.update({"count_text": 700})
        events = await turn(shell)
    (score,) = of(events, PlanScored)
    by_hand = resources_value(of(events, CallFinished), 1_000_000_000, {"count_text": 700})
    assert score.resources_nano == by_hand > 0
    assert score.cost_nano == by_hand + sum(event.spent_nano for event in of(events, BudgetSettled))
    assert "of it time and memory" in score.render().words


def ran(name, units):
    return CallFinished("c", name, True, "", False, 0.1, units=units)


def test_resources_are_measured_else_profiled_else_unknown():
    assert (
        resources_value([ran("a", 2.5e-7), ran("b", 1e-6)], 1_000_000_000, {"a": 9}) == 250 + 1_000
    )
    assert (
        resources_value([ran("a", 1.0000001e-9)], 1_000_000_000, {}) == 2
    )  # rounded up, as costs are
    assert resources_value([ran("a", None), ran("b", 1e-6)], 1_000_000_000, {"a": 9}) == 9 + 1_000
    assert resources_value([ran("a", None), ran("b", 1e-6)], 1_000_000_000, {}) is None
    assert resources_value([ran("a", None)], 0, {}) == 0
    unknown = score_graph(turn_of(*done("a")), "answered", 5, replace(BASE, resources_nano=None))
    assert (unknown.cost_nano, unknown.quality) == (None, None)
    assert "not every run was measured" in unknown.render().words


NODES = tuple(GraphNode(label, label, ("<task>",)) for label in "abc")
BASE = PlanScored(
    1, None, "", None, most_nano=1_000, alpha=0.5, quality=None, resources_nano=0, checked=None
)


def turn_of(*events):
    """A turn with a plan of three nodes and these events."""
    return PlannedTurns(
        (TurnStarted(1, "q", "m", "single", "graph"), GraphPlanned(NODES, "[]"), *events)
    ).by_number[1]


def done(label, helpful=True, by="rules"):
    return NodeChanged(label, "done", call=f"c{label}"), CallJudged(f"c{label}", label, helpful, by)


def test_results_without_a_verdict_do_not_count():
    turn = turn_of(*done("a"), *done("b", None, ""), *done("c", False, "model"))
    score = score_graph(turn, "answered", 0, BASE)
    assert (score.performance, score.judged_by) == (0.5, "model + rules")
    unjudged = score_graph(
        turn_of(*(event for label in "abc" for event in done(label, None, ""))), "answered", 0, BASE
    )
    assert (unjudged.performance, unjudged.judged_by, unjudged.quality) == (None, "", None)
    assert unjudged.render().words.startswith(
        f"plan of turn {unjudged.turn}: QoP unknown: P unknown, C $0"
    )


def test_a_mark_of_an_earlier_plan_does_not_count_for_a_skipped_node():
    skipped = NodeChanged("a", "skipped", reason="b failed")
    turn = turn_of(
        *done("a"),
        CallMarked(1, "ca", "a", True),
        GraphPlanned(NODES, "[]", repaired=True),
        skipped,
    )
    score = score_graph(turn, "answered", 0, BASE)
    assert (score.performance, score.judged_by) == (0.0, "rules")


def test_an_unknown_price_leaves_the_quality_unknown():
    score = score_graph(turn_of(*done("a")), "answered", None, BASE)
    assert (score.performance, score.cost_nano, score.quality) == (pytest.approx(1 / 3), None, None)
    assert "C unknown of" in score.render().words


@given(
    marks=st.lists(st.sampled_from([None, True, False]), min_size=3, max_size=3),
    verdicts=st.lists(st.sampled_from([None, True, False]), min_size=3, max_size=3),
    checked=st.sampled_from([None, True, False]),
    spent=st.integers(0, 10_000),
)
def test_marks_override_the_checker_and_the_checker_overrides_the_judge(
    marks, verdicts, checked, spent
):
    events = [
        event
        for label, verdict in zip("abc", verdicts, strict=True)
        for event in done(label, verdict)
    ]
    events.append(TurnFinished(1, "answered", "", spent, Usage(), 1, (), 1.0))
    events += [
        CallMarked(1, f"c{label}", label, mark) for label, mark in zip("abc", marks, strict=True)
    ]
    score = score_graph(turn_of(*events), "answered", spent, replace(BASE, checked=checked))
    final = [
        mark if mark is not None else checked if checked is not None else verdict
        for mark, verdict in zip(marks, verdicts, strict=True)
    ]
    decisive = [word for word in final if word is not None]
    assert score.performance == (sum(decisive) / len(decisive) if decisive else None)
    if decisive:
        assert score.quality == pytest.approx(0.5 * score.performance - 0.5 * spent / 1_000)
    assert ("you" in score.judged_by) == any(mark is not None for mark in marks)

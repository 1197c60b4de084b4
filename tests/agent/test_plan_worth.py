"""What a tool graph was worth: performance from marks, a checker or a judge, cost from the ledger (QoP)."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.agent.scoring import scored, taken
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
from ecoshell.events.describe import describe
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
    assert (score.turn, score.performance, score.judged_by, score.checked) == (1, 1.0, "rules", None)
    assert (score.most_nano, score.alpha) == (50_000_000, 0.5)
    assert score.quality == quality(1.0, Decimal(paid), max_cost=Decimal(50_000_000))
    assert events.index(score) < len(events) - 1
    assert events[-1].type == "turn_finished"
    assert from_json(to_json(score)) == score


async def test_where_a_cap_allows_less_that_is_what_the_dearest_plan_may_cost(play):
    async with play(SCRIPT, price=PRICE, budget="0.04", **GRAPH) as shell:
        (score,) = of(await turn(shell), PlanScored)
        assert score.most_nano == 40_000_000
        await shell.conversation.leave()


async def test_a_teams_cap_of_another_model_says_nothing_of_what_a_plan_may_cost(play, monkeypatch):
    async with play(SCRIPT, price=PRICE, budget="0.04", **GRAPH) as shell:
        caps = [CapState("session", "usd", 40_000_000, 0, 0), CapState("model:other day", "usd", 1_000, 0, 0)]
        monkeypatch.setattr(shell.ledger, "caps", lambda *_, **__: caps)
        (score,) = of(await turn(shell), PlanScored)
    assert score.most_nano == 40_000_000


async def test_the_settings_say_how_much_performance_weighs(play):
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        shell.deps.settings.alpha = 0.25
        shell.deps.settings.most_nano = 1_000_000
        (score,) = of(await turn(shell), PlanScored)
    assert score.quality == quality(1.0, Decimal(score.cost_nano), alpha=0.25, max_cost=Decimal(1_000_000))


async def test_a_plan_that_costs_nothing_says_so(play):
    async with play(SCRIPT, **GRAPH) as shell:
        (score,) = of(await turn(shell), PlanScored)
    assert (score.cost_nano, score.quality) == (0, 0.5)
    assert describe(score) == "plan of turn 1: QoP 0.50: P 1.00 by rules, C $0 (nothing was paid) of $0.05"


async def test_a_node_that_came_to_nothing_did_not_help(play):
    async with play([TWO, GONE, COUNT_TEXT, FIX], **GRAPH) as shell:
        events = await turn(shell)
    (score,) = of(events, PlanScored)
    assert sorted(event.ok for event in of(events, CallFinished)) == [False, True]
    assert (score.performance, score.judged_by) == (0.5, "rules")


async def test_of_a_repaired_plan_the_last_one_counts_with_what_it_kept(play):
    async with play([TWO, GONE, COUNT_TEXT, TWO, COUNT, finish("done")], price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
    first, second = of(events, GraphPlanned)
    (score,) = of(events, PlanScored)
    assert (first.repaired, second.repaired, second.kept) == (False, True, ("count_text#2",))
    assert (score.performance, score.judged_by) == (1.0, "rules")
    assert score.cost_nano == sum(event.spent_nano for event in of(events, BudgetSettled))


async def test_where_the_agent_gave_up_nothing_of_the_plan_helped(play):
    async with play([TWO, COUNT, COUNT_TEXT, finish("no idea", give_up=True)], **GRAPH) as shell:
        events = await turn(shell)
    (score,) = of(events, PlanScored)
    assert events[-1].status == "gave_up"
    assert (score.performance, score.judged_by) == (0.0, "agent")


async def test_a_plan_that_was_stopped_is_not_scored(play):
    async with play(SCRIPT, **GRAPH) as shell:
        events = []
        async for event in shell.ask("How many lines?"):
            events.append(event)
            if isinstance(event, GraphPlanned):
                await shell.stop()
    assert events[-1].status == "interrupted"
    assert of(events, PlanScored) == []


async def test_a_turn_without_a_plan_is_not_scored_and_marks_in_it_score_nothing(play):
    async with play([COUNT, finish("3")], registration="all") as shell:
        events = await turn(shell)
        call = of(events, CallFinished)[0]
        happened = await shell.mark(1, call.id, call.name, helpful=False)
    assert of(events, PlanScored) == []
    assert happened == (CallMarked(1, call.id, call.name, helpful=False),)


async def test_a_mark_changes_the_score_and_so_does_taking_it_back(play):
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
        (before,) = of(events, PlanScored)
        call = of(events, CallFinished)[0]
        _, marked = await shell.mark(1, call.id, call.name, helpful=False)
        _, back = await shell.mark(1, call.id, call.name, helpful=None)
        kept = [event for _, event in shell.store.events(shell.session) if isinstance(event, PlanScored)]
    assert (marked.performance, marked.judged_by) == (0.5, "you + rules")
    assert marked.quality == pytest.approx(before.quality - 0.25)
    assert back == before
    assert kept == [before, marked, before]


async def test_a_mark_that_agrees_with_the_judge_names_the_person_and_the_same_again_nothing(play):
    async with play(SCRIPT, **GRAPH) as shell:
        events = await turn(shell)
        (before,) = of(events, PlanScored)
        call = of(events, CallFinished)[0]
        _, marked = await shell.mark(1, call.id, call.name, helpful=True)
        again = await shell.mark(1, call.id, call.name, helpful=True)
    assert marked == replace(before, judged_by="you + rules")
    assert len(again) == 1


async def test_a_session_that_is_resumed_scores_as_the_running_one_would(play):
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
        session = shell.session
        (before,) = of(events, PlanScored)
        call = of(events, CallFinished)[1]
    async with play([], resume=session, **GRAPH) as shell:
        shell.deps.settings.most_nano = 1
        _, marked = await shell.mark(1, call.id, call.name, helpful=False)
    assert marked == replace(
        before, performance=0.5, judged_by="you + rules", quality=pytest.approx(before.quality - 0.25)
    )


async def test_what_a_summary_costs_afterwards_is_no_cost_of_the_plan(play):
    summary = say("The file has 3 lines.")
    async with play([*SCRIPT, summary], price=PRICE, **GRAPH) as shell:
        events = await turn(shell)
        (before,) = of(events, PlanScored)
        await shell.conversation.compact()
        call = of(events, CallFinished)[0]
        _, marked = await shell.mark(1, call.id, call.name, helpful=True)
    assert marked.cost_nano == before.cost_nano


async def test_a_checker_that_reads_the_answer_outweighs_the_judge(play):
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


async def test_a_checker_that_cannot_be_run_leaves_it_to_the_judge_and_says_so(play):
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


async def test_stopping_while_the_checker_runs_keeps_the_answer_and_leaves_no_score(play):
    async with play(SCRIPT, **GRAPH) as shell:
        shell.deps.settings.checker = "sleep 600"
        begun = asyncio.Event()
        check = shell.deps.workspace.check

        async def watched(command, text):
            begun.set()
            return await check(command, text)

        shell.deps.workspace.check = watched
        asking = asyncio.create_task(turn(shell))
        await asyncio.wait_for(begun.wait(), 600)
        await shell.stop()
        events = await asking
    assert (events[-1].status, events[-1].answer) == ("answered", "3 lines, 4 words")
    assert of(events, PlanScored) == []


async def test_time_and_memory_count_where_they_have_a_price(play, monkeypatch):
    monkeypatch.setenv("ECOSHELL_PLAN_RESOURCE_PRICE", "1")
    async with play(SCRIPT, price=PRICE, **GRAPH) as shell:
        shell.deps.profiles.resources.update({"count_text": 700})
        events = await turn(shell)
    (score,) = of(events, PlanScored)
    by_hand = taken(of(events, CallFinished), 1_000_000_000, {"count_text": 700})
    assert score.resources_nano == by_hand > 0
    assert score.cost_nano == by_hand + sum(event.spent_nano for event in of(events, BudgetSettled))
    assert "of it time and memory" in describe(score)


def ran(name, units):
    return CallFinished("c", name, True, "", False, 0.1, units=units)


def test_a_run_is_worth_what_was_measured_else_what_was_profiled_else_nobody_knows():
    assert taken([ran("a", 2.5e-7), ran("b", 1e-6)], 1_000_000_000, {"a": 9}) == 250 + 1_000
    assert taken([ran("a", 1.0000001e-9)], 1_000_000_000, {}) == 2  # rounded up, as costs are
    assert taken([ran("a", None), ran("b", 1e-6)], 1_000_000_000, {"a": 9}) == 9 + 1_000
    assert taken([ran("a", None), ran("b", 1e-6)], 1_000_000_000, {}) is None
    assert taken([ran("a", None)], 0, {}) == 0
    unknown = scored(turn_of(*done("a")), "answered", 5, replace(BEFORE, resources_nano=None))
    assert (unknown.cost_nano, unknown.quality) == (None, None)
    assert "not every run was measured" in describe(unknown)


NODES = tuple(GraphNode(label, label, ("<task>",)) for label in "abc")
BEFORE = PlanScored(1, None, "", None, most_nano=1_000, alpha=0.5, quality=None, resources_nano=0, checked=None)


def turn_of(*events):
    """The turn of a plan of three nodes, of which these events tell."""
    return PlannedTurns((TurnStarted(1, "q", "m", "single", "graph"), GraphPlanned(NODES, "[]"), *events)).by_number[1]


def done(label, helpful=True, by="rules"):
    return NodeChanged(label, "done", call=f"c{label}"), CallJudged(f"c{label}", label, helpful, by)


def test_results_that_nobody_could_judge_count_neither_way():
    turn = turn_of(*done("a"), *done("b", None, ""), *done("c", False, "model"))
    score = scored(turn, "answered", 0, BEFORE)
    assert (score.performance, score.judged_by) == (0.5, "model + rules")
    nobody = scored(turn_of(*(event for label in "abc" for event in done(label, None, ""))), "answered", 0, BEFORE)
    assert (nobody.performance, nobody.judged_by, nobody.quality) == (None, "", None)
    assert describe(nobody).startswith(f"plan of turn {nobody.turn}: QoP unknown: P unknown, C $0")


def test_a_mark_of_an_earlier_plan_says_nothing_of_a_node_that_the_last_one_skipped():
    skipped = NodeChanged("a", "skipped", reason="b failed")
    turn = turn_of(*done("a"), CallMarked(1, "ca", "a", True), GraphPlanned(NODES, "[]", repaired=True), skipped)
    score = scored(turn, "answered", 0, BEFORE)
    assert (score.performance, score.judged_by) == (0.0, "rules")


def test_an_unknown_price_leaves_the_worth_unknown():
    score = scored(turn_of(*done("a")), "answered", None, BEFORE)
    assert (score.performance, score.cost_nano, score.quality) == (pytest.approx(1 / 3), None, None)
    assert "C unknown of" in describe(score)


@given(
    marks=st.lists(st.sampled_from([None, True, False]), min_size=3, max_size=3),
    verdicts=st.lists(st.sampled_from([None, True, False]), min_size=3, max_size=3),
    checked=st.sampled_from([None, True, False]),
    spent=st.integers(0, 10_000),
)
def test_marks_go_before_the_checker_and_that_before_the_judge(marks, verdicts, checked, spent):
    events = [event for label, said in zip("abc", verdicts, strict=True) for event in done(label, said)]
    events.append(TurnFinished(1, "answered", "", spent, Usage(), 1, (), 1.0))
    events += [CallMarked(1, f"c{label}", label, mark) for label, mark in zip("abc", marks, strict=True)]
    score = scored(turn_of(*events), "answered", spent, replace(BEFORE, checked=checked))
    final = [
        mark if mark is not None else checked if checked is not None else verdict
        for mark, verdict in zip(marks, verdicts, strict=True)
    ]
    known = [word for word in final if word is not None]
    assert score.performance == (sum(known) / len(known) if known else None)
    if known:
        assert score.quality == pytest.approx(0.5 * score.performance - 0.5 * spent / 1_000)
    assert ("you" in score.judged_by) == any(mark is not None for mark in marks)

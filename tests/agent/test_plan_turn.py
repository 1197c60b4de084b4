"""Whole turns under a plan, with scripted models, real SQLite and real tools."""

import asyncio
import itertools
import re
import sqlite3
import threading
from contextlib import closing
from decimal import Decimal

import pytest
from agent_play import counts, finish, of, register, say, turn

from ecoshell.agent import Approval, LimitChoice
from ecoshell.agent.memory import Memory
from ecoshell.assembly.shell import assemble
from ecoshell.budget import Amount
from ecoshell.errors import UsageError
from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    LimitHit,
    Notice,
    PlanChanged,
    ToolsOffered,
    TurnFinished,
)
from ecoshell.messages import Call
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.btp.experience import Use
from ecoshell.planning.judging import Verdict

COUNT = say("Count them.", "count_text", path="notes.txt")
READ = say("Read it.", "read_file", path="notes.txt")
PRICE = (Decimal(1), Decimal(4))


@pytest.fixture(autouse=True)
def _built_in_tools_only(monkeypatch):
    """The caps of these tests fit the costs of thirteen tools."""
    monkeypatch.setenv("ECOSHELL_PLUGINS_DISABLED", '["git", "data", "web"]')


def row(plan, tool):
    return next(row for row in plan.rows if row.tool == tool)


def uses(shell):
    return [*shell.deps.experience.records.uses()]


async def test_the_plan_follows_a_turn_from_planned_to_used(play):
    lines = [register("count_text"), COUNT, finish("3 lines")]
    async with play(lines, registration="names", budget="60000tok") as shell:
        events = await turn(shell)
    plans = of(events, PlanChanged)
    first, registered, used = plans[0], plans[1], plans[2]
    assert [plan.number for plan in plans] == list(range(1, len(plans) + 1))
    assert first.enforced
    assert (first.unit, first.reason) == ("tokens", "the question")
    assert first.budget == first.cap - first.reserved
    assert (row(first, "count_text").state, row(first, "count_text").why) == ("planned", "new")
    assert registered.reason == "count_text was registered"
    assert row(registered, "count_text").cost < row(first, "count_text").cost
    assert used.reason == "count_text was used"
    assert (row(used, "count_text").used, row(used, "count_text").left) == (1, 1)
    assert used.cap < first.cap


async def test_the_first_plan_and_its_price_range_come_before_anything_is_spent(play):
    async with play([finish("hello")], budget="0.50", price=PRICE) as shell:
        events = await turn(shell, "Say hello.")
    plan = of(events, PlanChanged)[0]
    assert events.index(plan) < events.index(of(events, BudgetSettled)[0])
    assert 0 < plan.low <= plan.high <= plan.cap


async def test_a_strict_plan_refuses_a_use_beyond_the_quota(play):
    lines = [*counts(2), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        shell.deps.settings.strict, shell.deps.settings.earned = True, False
        events = await turn(shell)
        messages = shell.requests[-1].messages
    first, second = of(events, CallFinished)
    assert (first.ok, first.refused, second.refused) == (True, "", "forbidden")
    assert "(quota)" in second.observation
    judged = of(events, CallJudged)
    assert [(event.helpful, event.by) for event in judged] == [(True, "rules")]
    assert "Not to be used any more: count_text (quota)." in judged[0].note
    assert any(
        "Not to be used any more: count_text (quota)." in message.text for message in messages
    )
    last = of(events, PlanChanged)[-1]
    assert (row(last, "count_text").state, row(last, "count_text").why) == ("forbidden", "quota")
    assert events[-1].status == "answered"


async def test_a_use_beyond_the_quota_runs_if_better_uses_remain_affordable(play):
    lines = [*counts(2), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        shell.deps.settings.earned = False
        events = await turn(shell)
        why = (await shell.command("/plan why count_text")).text
    assert [event.refused for event in of(events, CallFinished)] == ["", ""]
    assert why.startswith("count_text: unplanned (quota)")
    explanation = (
        "If called, it runs: the answer and all uses known to be better remain affordable."
    )
    assert why.endswith(explanation)


async def test_a_call_is_refused_only_when_a_better_cheaper_use_becomes_unaffordable(play):
    lines = [say("", "calculate", expression="1 + 1"), COUNT, finish("3 lines")]
    async with play(lines, registration="all", budget="0.20", price=PRICE) as shell:
        shell.deps.profiles.resources.update({"calculate": 185_000_000, "count_text": 20_000_000})
        _remember(shell, "calculate", helpful=False)
        _remember(shell, "count_text", helpful=True)
        events = await turn(shell)
        why = (await shell.command("/plan why calculate")).text
    refused, counted = of(events, CallFinished)
    assert (refused.refused, counted.refused) == ("forbidden", "")
    assert "would leave count_text unpaid ($0.02" in refused.observation
    assert "Affordable instead: count_text ($0.02" in refused.observation
    assert why.splitlines()[0].startswith("calculate: ")


async def _with_dear_steps(shell, tool, budget):
    """Load all tools in a first turn; then give one a history of dear steps, and read_file one of cheap steps."""
    await turn(shell, "Hello.")
    _remember(shell, "read_file", helpful=True)
    _remember(shell, tool, helpful=True, step_tokens=30_000, step_nano=30_000_000)
    await shell.command(f"/budget {budget}")


@pytest.mark.parametrize(("budget", "price"), [("40000tok", None), ("0.035", PRICE)])
async def test_a_free_call_runs_once_its_step_is_paid(play, home, budget, price):
    write = say("", "write_file", path="new.txt", content="x" * 5_000)
    lines = [finish("Hello."), write, finish("done")]
    async with play(lines, registration="all", yes=True, price=price) as shell:
        await _with_dear_steps(shell, "write_file", budget)
        events = await turn(shell, "Write a file of 5,000 characters.")
        caps = await shell.deps.budget.caps()
    assert row(of(events, PlanChanged)[0], "write_file").why == "budget"
    assert [event.refused for event in of(events, CallFinished)] == [""]
    assert (home / "new.txt").read_text() == "x" * 5_000
    assert all(cap.spent <= cap.limit for cap in caps)
    assert events[-1].answer


async def test_every_free_call_of_a_paid_reply_runs(play):
    texts = ["one", "one two", "one two three"]
    calls = [{"name": "count_text", "arguments": {"text": text}} for text in texts]
    lines = [finish("Hello."), {"text": "", "calls": calls}, finish("done")]
    async with play(lines, registration="all") as shell:
        await _with_dear_steps(shell, "count_text", "40000tok")
        events = await turn(shell)
    assert [event.refused for event in of(events, CallFinished)] == ["", "", ""]


async def test_a_priced_call_that_would_take_the_reserve_of_the_answer_is_refused(play):
    lines = [say("", "calculate", expression="1 + 1"), finish("3 lines")]
    async with play(lines, registration="all", budget="0.20", price=PRICE) as shell:
        shell.deps.profiles.resources["calculate"] = 199_999_000
        events = await turn(shell)
    assert [event.refused for event in of(events, CallFinished)] == ["forbidden"]
    assert events[-1].answer == "3 lines"


async def test_a_strict_plan_refuses_a_free_call_whose_steps_are_dear(play):
    lines = [finish("Hello."), say("", "calculate", expression="1 + 1"), finish("2")]
    async with play(lines, registration="all") as shell:
        shell.deps.settings.strict = True
        await _with_dear_steps(shell, "calculate", "40000tok")
        events = await turn(shell)
    assert [event.refused for event in of(events, CallFinished)] == ["forbidden"]


async def test_a_call_is_not_refused_in_favour_of_a_tool_without_history(play):
    lines = [say("", "calculate", expression="1 + 1"), finish("3 lines")]
    async with play(lines, registration="all", budget="0.20", price=PRICE) as shell:
        shell.deps.profiles.resources.update({"calculate": 185_000_000, "count_text": 20_000_000})
        events = await turn(shell)
    assert [event.refused for event in of(events, CallFinished)] != ["forbidden"]


async def test_a_helpful_use_earns_another(play):
    lines = [*counts(3), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        events = await turn(shell)
    assert [event.refused for event in of(events, CallFinished)] == ["", "", ""]
    assert row(of(events, PlanChanged)[-1], "count_text").used == 3


class FixedJudge:
    """A judge that always gives the same verdict."""

    def __init__(self, helpful):
        self.helpful = helpful

    async def judge(self, query, call, observation, emit):
        return Verdict(self.helpful, "rules", "so it is")


async def test_a_strict_plan_blacklists_an_unhelpful_tool_for_one_turn(play):
    lines = [*counts(2), finish("?"), finish("ok")]
    async with play(lines, registration="all", budget="90000tok") as shell:
        shell.deps.judge.judge, shell.deps.settings.strict = FixedJudge(False).judge, True
        events = await turn(shell)
        again = await turn(shell, "Something else.")
    first, second = of(events, CallFinished)
    assert (first.refused, second.refused) == ("", "forbidden")
    assert "(blacklist)" in second.observation
    assert row(of(events, PlanChanged)[-1], "count_text").why == "blacklist"
    assert row(of(again, PlanChanged)[0], "count_text").why != "blacklist"


async def test_calls_that_run_together_leave_one_note_that_is_true(play):
    others_are_judged = asyncio.Event()

    class OutOfOrder:
        async def judge(self, query, call, observation, emit):
            if call.arguments["text"] == "helps":
                await others_are_judged.wait()
            return Verdict(call.arguments["text"] == "helps", "rules", "so it is")

    texts = ["helps", *(f"fails {number}" for number in range(8))]
    calls = [{"name": "count_text", "arguments": {"text": text}} for text in texts]
    lines, judged = [{"text": "", "calls": calls}, finish("?")], 0
    async with play(lines, registration="all", budget="300000tok") as shell:
        shell.deps.judge.judge = OutOfOrder().judge
        async for event in shell.ask("How many?"):
            judged += isinstance(event, CallJudged)
            if judged == len(texts) - 1:  # the tool is on the blacklist until the first call helps
                others_are_judged.set()
        results = [m.text for m in shell.requests[1].messages if m.speaker == "tool"]
        assert "count_text" not in shell.conversation.plan.forbidden
    assert not any("used" in text for text in results)
    assert sum("Budget: " in text for text in results) == 1


async def test_a_mistake_of_the_caller_can_be_corrected(play):
    lines = [say("", "count_text", path="note.txt"), COUNT, finish("3 lines")]
    async with play(lines, registration="all", budget="90000tok") as shell:
        events = await turn(shell)
    assert [(event.ok, event.refused) for event in of(events, CallFinished)] == [
        (False, ""),
        (True, ""),
    ]
    assert [event.helpful for event in of(events, CallJudged)] == [None, True]


async def test_without_a_cap_the_plan_is_advice_and_forbids_nothing(play):
    lines = [*counts(2), finish("3 lines")]
    async with play(lines, registration="all") as shell:
        shell.deps.settings.earned = False
        events = await turn(shell)
    plans = of(events, PlanChanged)
    assert not any(plan.enforced for plan in plans)
    assert all(plan.budget is None and plan.cap is None for plan in plans)
    assert [event.refused for event in of(events, CallFinished)] == ["", ""]


async def test_uses_are_recorded_with_the_plan_off(play):
    async with play([COUNT, finish("3 lines")], registration="all", budget="60000tok") as shell:
        shell.deps.settings.plan = "off"
        events = await turn(shell)
        recorded = uses(shell)
    assert of(events, PlanChanged) == []
    assert len(recorded) == 1


async def test_the_prompt_mode_shows_costs_and_budget_and_forbids_nothing(play):
    lines = [*counts(2), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        shell.deps.settings.plan, shell.deps.settings.earned = "prompt", False
        events = await turn(shell)
        opening = shell.requests[0].messages[-1].text
        after = shell.requests[1].messages[-1].text
    assert "Expected cost of one use:" in opening
    assert "count_text" in opening.partition("Expected cost of one use:")[2]
    assert "Budget left for tools:" in after
    assert [event.refused for event in of(events, CallFinished)] == ["", ""]


async def test_a_resumed_session_repeats_the_notes_of_the_plan(play):
    lines = [*counts(2), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        shell.deps.settings.plan, shell.deps.settings.earned = "btp+prompt", False
        await turn(shell)
        past = [event for _, event in shell.store.events(shell.session)]
        assert Memory(shell.deps.catalog, past).messages == shell.conversation.memory.messages
        assert any(
            "Budget left for tools" in message.text
            for message in shell.conversation.memory.messages
        )


async def test_each_request_extends_the_previous_one(play):
    lines = [*counts(2), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        shell.deps.settings.plan, shell.deps.settings.earned = "btp+prompt", False
        await turn(shell)
        sent = [request.messages for request in shell.requests]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(sent))


async def test_a_tool_that_is_repeatedly_unhelpful_is_blacklisted(play):
    lines = [*(say("", "count_text", path=f"{name}.txt") for name in "abcdefgh"), finish("?")]
    async with play(lines, registration="all", budget="300000tok") as shell:
        shell.deps.judge.judge = FixedJudge(False).judge
        events = await turn(shell)
    refused = [event.refused for event in of(events, CallFinished)]
    assert refused[0] == ""
    assert refused[-1] == "forbidden"
    assert "(blacklist)" in of(events, CallFinished)[-1].observation


async def test_a_cap_hides_no_tool_even_of_low_value(play):
    lines = [register("count_text"), COUNT, finish("3 lines")]
    async with play(lines, registration="names", budget="60000tok") as shell:
        _remember(shell, "count_text", helpful=False)
        events = await turn(shell)
    assert set(of(events, ToolsOffered)[0].names) == set(shell.deps.catalog.names)
    assert [(event.name, event.refused) for event in of(events, CallFinished)] == [
        ("count_text", "")
    ]


async def test_tool_search_is_offered_if_a_tool_is_hidden(play):
    async with play([finish("no")], registration="names", budget="60000tok") as shell:
        shell.deps.settings.strict = True
        _remember(shell, "count_text", helpful=False)
        await turn(shell)
        assert "tool_search" in [schema.name for schema in shell.requests[0].tools]
    async with play([finish("no")], registration="names", budget="60000tok") as shell:
        await turn(shell)
        assert "tool_search" not in [schema.name for schema in shell.requests[0].tools]


async def test_a_search_that_matches_forbidden_tools_only_says_so(play):
    lines = [
        say("", "tool_search", query="bytes"),
        say("", "tool_search", query="xyzzy"),
        finish("no"),
    ]
    async with play(lines, registration="names", budget="60000tok") as shell:
        shell.deps.settings.strict = True
        _remember(shell, "count_text", helpful=False)
        events = await turn(shell)
    assert [event.observation for event in of(events, CallFinished)] == [
        "What fits 'bytes' may not be used now: count_text (low past success).",
        "No tool fits 'xyzzy'.",
    ]


async def test_a_strict_plan_neither_offers_nor_registers_forbidden_tools(play):
    lines = [register("count_text"), finish("no")]
    async with play(lines, registration="names", budget="60000tok") as shell:
        shell.deps.settings.strict = True
        _remember(shell, "count_text", helpful=False)
        events = await turn(shell)
    assert "count_text" not in of(events, ToolsOffered)[0].names
    refused = of(events, CallFinished)[0]
    assert refused.refused == "forbidden"
    assert "low past success" in refused.observation


async def test_the_model_must_answer_when_no_tool_is_allowed(play):
    async with play([say("That is all I found.")], registration="all", budget="60000tok") as shell:
        shell.deps.settings.strict = True
        for name in shell.deps.catalog.names:
            _remember(shell, name, helpful=False)
        events = await turn(shell)
        assert shell.requests[0].want == "text"
    assert events[-1].status == "answered"
    assert events[-1].answer == "That is all I found."


async def test_a_cap_below_the_price_of_an_answer_stops_before_spending(play):
    async with play([finish("hi")], budget="60tok") as shell:
        events = await turn(shell)
    assert of(events, PlanChanged)[0].budget == 0
    assert of(events, BudgetSettled) == []
    assert of(events, LimitHit) != []
    end = of(events, TurnFinished)[0]
    assert (end.status, end.usage.total) == ("limit", 0)


async def test_a_cap_lowered_during_a_turn_changes_the_plan_at_the_next_step(play):
    class Lowering:
        def __init__(self):
            self.shell = None

        async def approve(self, request):
            await self.shell.set_cap("session", Amount(12_000, "tokens"))
            return Approval("once")

        async def at_limit(self, hit):
            return LimitChoice("answer")

    user = Lowering()
    lines = [say("", "write_file", path="x.txt", text="x"), COUNT, finish("done")]
    async with play(lines, user=user, registration="all", budget="200000tok") as shell:
        user.shell = shell
        events = await turn(shell)
    plans = of(events, PlanChanged)
    assert plans[0].cap > 150_000
    assert plans[-1].cap < 12_000


async def test_every_use_is_recorded_with_its_cost_and_judge(play):
    async with play(
        [COUNT, finish("3 lines")], registration="all", budget="0.50", price=PRICE
    ) as shell:
        events = await turn(shell, "How many lines? My key is sk-abcdefghijklmnopqrstuvwxyz123456")
        (use,) = uses(shell)
    step = of(events, BudgetSettled)[0]
    assert (use.tool, use.helpful, use.judged_by, use.price_nano) == (
        "count_text",
        True,
        "rules",
        0,
    )
    assert use.step_nano == step.spent_nano
    assert use.step_tokens == step.usage.total
    assert "sk-abcdefghijkl" not in use.query
    assert use.session == shell.session


async def test_the_next_turn_is_planned_with_recorded_uses(play):
    lines = [COUNT, finish("3 lines"), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        await turn(shell)
        events = await turn(shell)
    learned = row(of(events, PlanChanged)[0], "count_text")
    assert learned.value > 0.5
    assert learned.why == "value"


async def test_a_mark_overrides_the_rules_and_can_be_removed(play):
    async with play([COUNT, finish("3 lines")], registration="all", budget="60000tok") as shell:
        events = await turn(shell)
        call = of(events, CallFinished)[0]
        (marked,) = await shell.mark(1, call.id, call.name, helpful=False)
        assert isinstance(marked, CallMarked)
        assert (uses(shell)[0].helpful, uses(shell)[0].judged_by) == (False, "you")
        await shell.mark(1, call.id, call.name, helpful=None)
        assert (uses(shell)[0].helpful, uses(shell)[0].judged_by) == (True, "rules")
        marks = [
            event for _, event in shell.store.events(shell.session) if isinstance(event, CallMarked)
        ]
    assert [event.helpful for event in marks] == [False, None]


async def test_the_plan_command_prints_rows_and_the_arithmetic_of_a_tool(play):
    async with play([COUNT, finish("3 lines")], registration="all", budget="60000tok") as shell:
        shell.deps.settings.strict = True
        first_plan = (await shell.command("/plan")).text
        await turn(shell)
        last_plan = (await shell.command("/plan")).text
        why = (await shell.command("/plan why count_text")).text
    assert "count_text" in first_plan
    assert "Left for tools" in first_plan
    assert "count_text" in last_plan
    assert "budget  R = " in why
    assert "0.1000 = 0.1 / 1.0" in why


async def test_the_plan_command_switches_modes_and_rejects_unknown_ones(play):
    async with play([], budget="60000tok") as shell:
        for mode in ("off", "prompt", "btp+prompt", "btp"):
            assert mode in (await shell.command(f"/plan {mode}")).text
            assert shell.deps.settings.plan == mode
        with pytest.raises(UsageError, match="Unknown argument of"):
            await shell.command("/plan maybe")
        with pytest.raises(UsageError, match="no tool called"):
            await shell.command("/plan why cuont_text")


def _remember(shell, tool, *, helpful, step_tokens=10, step_nano=0):
    """Give a tool a long history in which it always helped, or never."""
    schema_hash = shell.deps.catalog.schema(tool).digest
    shell.deps.experience.records.add(
        Use(
            query="How many lines has notes.txt?",
            tool=tool,
            document_hash=schema_hash,
            arguments="{}",
            result="error",
            result_hash="0",
            ok=False,
            helpful=helpful,
            judged_by="you",
            model=shell.deps.models.name,
            price_nano=0,
            step_nano=step_nano,
            step_tokens=step_tokens,
            seconds=0.1,
            size_level=0,
            session="earlier",
            turn=number,
            call=f"{tool}-{number}",
            at="2026-01-01T00:00:00+00:00",
        )
        for number in range(10)
    )


async def test_a_use_in_a_search_costs_every_step_that_led_to_it(play):
    lines = [say("", "list_files"), COUNT, say("B"), say("A"), finish("3 lines")]
    async with play(lines, registration="all", budget="90000tok", strategy="tot") as shell:
        events = await turn(shell)
        (use,) = uses(shell)
    thoughts = of(events[: events.index(of(events, CallFinished)[0])], BudgetSettled)
    assert len(thoughts) == 4
    assert use.step_tokens == sum(settled.usage.total for settled in thoughts)


async def test_a_tool_registered_in_an_abandoned_branch_costs_its_registration_again(play):
    lines = [
        register("count_text"),
        say("", "finish", give_up=True, answer="no"),
        COUNT,
        finish("?"),
    ]
    async with play(lines, registration="names", budget="90000tok", strategy="dfsdt") as shell:
        events = await turn(shell)
    plans = of(events, PlanChanged)
    registered = next(plan for plan in plans if plan.reason == "count_text was registered")
    later = plans[plans.index(registered) + 1 :]
    costs = [row(plan, "count_text").cost for plan in (plans[0], registered, *later[:1])]
    assert costs[1] < costs[0]
    assert costs[2] == costs[0]


async def test_unreadable_experience_is_reported_once_and_turns_continue(play, home):
    file = user_paths().experience_file
    file.parent.mkdir(parents=True)
    file.write_text("not a database " * 300)
    lines = [COUNT, finish("3 lines"), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        first, second = await turn(shell), await turn(shell)
    assert (first[-1].status, second[-1].status) == ("answered", "answered")
    notices = [notice.text for notice in of(first, Notice)]
    assert "planned without experience" in notices[0]
    assert "are not recorded" in notices[1]
    assert of(second, Notice) == []
    assert file.read_text().startswith("not a database")


async def test_an_experience_file_removed_in_use_does_not_end_the_turn(play):
    async with play(
        [COUNT, finish("3 lines"), finish("3 lines")], registration="all", budget="60000tok"
    ) as shell:
        for file in user_paths().data.glob("experience.sqlite*"):
            file.unlink()
        first, second = await turn(shell), await turn(shell)
    assert (first[-1].status, second[-1].status) == ("answered", "answered")
    assert any("was removed or replaced" in notice.text for notice in of(first, Notice))


@pytest.mark.slow
async def test_the_plan_follows_a_turn_of_the_embedded_model(home, embedded_model):
    shell = await assemble(Options(model="embedded", workspace=home, budget="9000tok"))
    try:
        events = await turn(shell, "How many lines has notes.txt and what is 17 * 23?")
    finally:
        await shell.aclose()
    plans = of(events, PlanChanged)
    first, last = plans[0], plans[-1]
    rows = [row(first, "count_text"), row(first, "calculate")]
    assert [(each.state, each.used) for each in rows] == [("planned", 0), ("planned", 0)]
    assert [row(last, name).used for name in ("count_text", "calculate")] == [1, 1]
    assert {plan.reason for plan in plans} >= {
        "the question",
        "count_text was used",
        "calculate was used",
    }
    assert any(each.why == "budget" for each in last.rows)
    assert "391" in events[-1].answer


def fill_catalog(shell, count):
    """Give the shell a catalog of `count` tools."""
    from ecoshell.tools.function import FunctionTool

    def work(x: str = "") -> str:
        """Does a thing."""
        return "a fine result"

    tools = [FunctionTool(work, name=f"tool_{number:04}", effects=()) for number in range(count)]
    shell.deps.catalog.__init__(tools)
    shell.deps.ranker.__init__(shell.deps.catalog.schemas)


async def test_a_cap_hides_none_of_hundreds_of_tools_and_notes_stay_short(play):
    lines = [register("tool_0007"), say("", "tool_0007"), finish("done")]
    async with play(lines, registration="names", budget="24000tok") as shell:
        fill_catalog(shell, 527)
        events = await turn(shell, "Use tool 0007, please.")
    offered, first = of(events, ToolsOffered)[0], of(events, PlanChanged)[0]
    assert events[-1].status == "answered"
    assert first.budget > 10_000
    assert len(offered.names) == 527
    assert (len(first.rows), first.others) == (60, 467)
    assert all(len(judged.note) < 500 for judged in of(events, CallJudged))


async def test_a_tool_over_another_cap_is_not_planned(play):
    async with play([finish("ok")], registration="names", price=PRICE, budget="30000tok") as shell:
        await shell.command("/budget turn 0.04")
        shell.deps.catalog.tool("calculate").price_nano = 50_000_000
        events = await turn(shell)
    first = of(events, PlanChanged)[0]
    assert (row(first, "calculate").state, row(first, "calculate").why) == ("forbidden", "budget")
    assert row(first, "count_text").state == "planned"


async def test_changed_caps_and_modes_during_a_turn_are_reported(play):
    lines = [*counts(6), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        events = []
        async for event in shell.ask("How many lines has notes.txt?"):
            events.append(event)
            if isinstance(event, CallFinished) and len(of(events, CallFinished)) == 1:
                await shell.command("/budget 500000tok")
            if isinstance(event, PlanChanged) and event.cap > 400_000 and event.mode != "off":
                await shell.command("/plan off")
        after = (await shell.command("/plan")).text
        await shell.command("/budget 100000tok")
        lowered = (await shell.command("/plan")).text
    plans = of(events, PlanChanged)
    assert any(plan.cap > 400_000 for plan in plans)
    assert (plans[-1].mode, plans[-1].enforced) == ("off", False)
    assert after != lowered
    assert re.search(r"of [6-9]\d,\d{3} tokens", lowered)


async def test_loaded_tools_cost_no_registration(play):
    async with play([finish("ok")], registration="all", budget="60000tok") as shell:
        await turn(shell)
        why = (await shell.command("/plan why read_file")).text
    assert "registering 0 tokens" in why


def _announced(run, running):
    async def announced(arguments):
        running.set()
        return await run(arguments)

    return announced


async def test_a_stopped_use_is_recorded_without_a_verdict(play):
    slow = say("", "run_python", code="import time; time.sleep(30)")
    async with play([slow], registration="all", budget="60000tok", yes=True) as shell:
        running = asyncio.Event()
        tool = shell.deps.catalog.tool("run_python")
        tool.run = _announced(tool.run, running)
        async for event in shell.ask("Wait."):
            if isinstance(event, CallStarted):
                await running.wait()
                await shell.stop()
        (use,) = uses(shell)
    assert (use.tool, use.helpful, use.ok) == ("run_python", None, False)


async def test_an_abandoned_branch_repeats_notes_about_forbidden_tools(play):
    async with play([], registration="all", budget="90000tok") as shell:
        shell.deps.settings.strict, shell.deps.settings.earned = True, False
        plan = await shell.conversation.setup.forecast("How many lines has notes.txt?")
        await plan.settle(plan.inputs.view, shell.deps.catalog.names)

        async def used(tool, call):
            await plan.count(Call(tool, {}, call), StepCost(), price=0, seconds=0.1, helpful=True)
            return plan.news(call)

        first, second = await used("count_text", "c1"), await used("read_file", "c2")
        plan.see(BranchLeft(("c1",), 1, "given up"))
        third = await used("list_files", "c3")
        plan.see(BranchLeft((), 1, "given up"))
        fourth = await used("calculate", "c4")
    assert [
        ("count_text" in note, "read_file" in note) for note in (first, second, third, fourth)
    ] == [
        (True, False),
        (False, True),
        (False, True),
        (True, True),
    ]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("UPDATE uses SET helpful = 'abc'", "is damaged"),
        ("DELETE FROM state", "is damaged"),
    ],
)
async def test_damaged_experience_does_not_end_the_turn(play, damage, text):
    lines = [COUNT, finish("3 lines"), finish("3 lines")]
    async with play(lines, registration="all", budget="60000tok") as shell:
        await turn(shell)
        with closing(sqlite3.connect(user_paths().experience_file)) as db, db:
            db.execute(damage)
    async with play([finish("3 lines")], registration="all", budget="60000tok") as shell:
        events = await turn(shell)
    assert events[-1].status == "answered"
    assert text in "".join(notice.text for notice in of(events, Notice))


async def test_a_tool_registered_during_planning_costs_no_registration(play, monkeypatch):
    async with play([finish("one")], registration="names", budget="90000tok") as shell:
        started, released = threading.Event(), threading.Event()
        mode = shell.deps.models.current.mode
        forecast = type(mode).forecast

        def paused(self, view):
            started.set()
            assert released.wait(240)
            return forecast(self, view)

        monkeypatch.setattr(type(mode), "forecast", paused)
        running = asyncio.create_task(turn(shell, "How many lines has notes.txt?"))
        await asyncio.to_thread(started.wait, 240)
        await shell.conversation.register("read_file")
        released.set()
        await running
        plan = shell.conversation.plan
        assert plan.inputs.question == "How many lines has notes.txt?"
        assert plan.priced.costs["read_file"].registering == 0

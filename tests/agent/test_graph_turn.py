"""Tool graphs in whole turns: drafted, registered, filled in, run in parallel, paid and recorded."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import User, every_pair, finish, is_replayed, of, register, say, turn
from graph_turns import Probe, add, plan, states

from ecoshell.agent import LimitChoice
from ecoshell.agent.memory import Memory
from ecoshell.agent.rules import Rules
from ecoshell.assembly.shell import assemble
from ecoshell.events import (
    Answer,
    ApprovalWanted,
    BudgetSettled,
    CallFinished,
    CallStarted,
    GraphPlanned,
    LimitHit,
    NodeChanged,
    Notice,
    StepStarted,
    TextArrived,
    ToolRegistered,
    from_json,
    to_json,
)
from ecoshell.messages import Observation
from ecoshell.options import Options
from ecoshell.planning.btp.costs import StepCost
from ecoshell.tools import Limits, ResultSize
from ecoshell.tools.function import FunctionTool

PRICE = (Decimal(1), Decimal(4))
TWO = say('["count_text", ["<task>"], "count_text#2", ["<task>"]]')
COUNT = say("", "count_text", path="notes.txt")
COUNT_TEXT = say("", "count_text", text="four words are here")
_NAMES = (
    "count_text",
    "list_files",
    "search_text",
    "calculate",
    "convert_units",
    "json_query",
    "read_file",
    "fetch_url",
)
EIGHT = say(json.dumps([part for name in _NAMES for part in (name, ["<task>"])]))
"""Eight tools that each need a model call to be filled in."""


def texts(messages):
    return "\n".join(message.text for message in messages)


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_a_tool_graph_registers_its_tools_and_runs_its_nodes_before_the_answer(
    play, presentation
):
    lines = [TWO, COUNT, COUNT_TEXT, finish("3 lines and 4 words")]
    if presentation == "stable":
        inside = [
            say("", "tool_call", name="count_text", arguments=line["call"]["arguments"])
            for line in lines[1:3]
        ]
        lines[1:3] = inside
    async with play(
        lines, strategy="graph", registration="names", presentation=presentation
    ) as shell:
        events = await turn(shell)
        requests = shell.requests
        assert is_replayed(shell)
        steps = [
            message.call.subject
            for message in shell.conversation.memory.messages
            if message.speaker == "tool"
        ]
    (planned,) = of(events, GraphPlanned)
    assert [(node.label, node.after) for node in planned.nodes] == [
        ("count_text", ("<task>",)),
        ("count_text#2", ("<task>",)),
    ]
    assert planned.text == '["count_text", ["<task>"], "count_text#2", ["<task>"]]'
    assert [(event.name, event.by) for event in of(events, ToolRegistered)] == [
        ("count_text", "agent")
    ]
    assert steps == ["count_text"] * 3  # one registration and two uses
    assert [event.state for event in of(events, NodeChanged) if event.label == "count_text#2"] == [
        "running",
        "done",
    ]
    assert len({event.id for event in of(events, CallStarted)}) == 2
    assert (events[-1].status, events[-1].answer, events[-1].steps) == (
        "answered",
        "3 lines and 4 words",
        2,
    )
    assert "Called already" in requests[2].messages[-1].text
    assert "notes.txt" in requests[2].messages[-1].text
    assert "3 lines" in texts(requests[3].messages)
    assert "4 words" in texts(requests[3].messages)


async def test_the_three_roles_draft_fill_in_and_answer(play):
    lines = [TWO, COUNT, say('Action: count_text\nAction Input: {"text": "a b"}')]
    lines += [say("That is enough. Next: conclusion."), say("3 lines, 2 words")]
    async with play(lines, strategy="graph", registration="names") as shell:
        await shell.deps.models.change(mode="umi")
        events = await turn(shell)
        assert is_replayed(shell)
    roles = [event.role for event in of(events, BudgetSettled)]
    assert roles == ["planner", "caller", "caller", "planner", "summarizer"]
    assert [event.ok for event in of(events, CallFinished)] == [True, True]
    assert {(event.role, event.node) for event in of(events, TextArrived)} == {
        ("planner", ""),
        ("caller", "count_text#2"),
        ("summarizer", ""),
    }
    assert events[-1].answer == "3 lines, 2 words"


async def test_nodes_overlap_and_their_steps_keep_the_order_of_the_plan(play):
    late = asyncio.Event()

    async def waits():
        await late.wait()
        return "slow"

    async def frees():
        late.set()
        return "quick"

    async with play(
        [plan(slow=[], quick=[]), finish("both")], strategy="graph", registration="all"
    ) as shell:
        add(shell, Probe("slow", waits), Probe("quick", frees))
        events = await turn(shell)
        steps = [
            message.text for message in shell.requests[1].messages if message.speaker == "tool"
        ]
        assert is_replayed(shell)
    assert {event.name for event in of(events, CallFinished)} == {"quick", "slow"}
    assert [step.partition("\n")[0] for step in steps] == ["slow", "quick"]


async def test_unambiguous_results_become_arguments_without_a_model_call(play):
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def says():
        return "a text"

    shout = Probe("shout", parameters=text)
    lines = [plan(source=[], shout=["source"]), finish("A TEXT")]
    async with play(lines, strategy="graph", registration="all") as shell:
        add(shell, Probe("source", says), shout)
        events = await turn(shell)
    assert shout.runs == [{"text": "a text"}]
    assert len(of(events, BudgetSettled)) == 2
    assert events[-1].answer == "A TEXT"


async def test_two_invalid_plans_fall_back_to_single_steps_with_a_notice(play):
    lines = [say("nothing"), say("nothing again"), COUNT, finish("3")]
    async with play(lines, strategy="graph", registration="all") as shell:
        events = await turn(shell)
    assert "continuing step by step" in of(events, Notice)[-1].text
    assert of(events, GraphPlanned) == []
    assert (events[-1].status, events[-1].answer, events[-1].steps) == ("answered", "3", 4)


async def test_a_question_without_tools_is_answered_directly(play):
    async with play([say("Answer: Hello to you.")], strategy="graph") as shell:
        events = await turn(shell, "Hello")
    assert of(events, Answer) == [Answer("Hello to you.", role="single")]
    assert len(of(events, StepStarted)) == 1


async def test_a_failed_node_skips_its_dependents_and_the_plan_is_repaired_once(play):
    async def breaks():
        return Observation("it is out of order", ok=False)

    lines = [
        plan(source=[], broken=[], after=["broken"]),
        plan(source=[], other=["source"]),
        finish("done another way"),
    ]
    async with play(lines, strategy="graph", registration="all") as shell:
        probes = [Probe("source"), Probe("broken", breaks), Probe("after"), Probe("other")]
        add(shell, *probes)
        events = await turn(shell)
        redraft = shell.requests[1].messages[-1].text
        assert is_replayed(shell)
    first, second = of(events, GraphPlanned)
    assert (first.repaired, second.repaired, second.kept) == (False, True, ("source",))
    assert [len(probe.runs) for probe in probes] == [1, 1, 0, 1]
    assert ("broken", "failed") in states(events)
    assert ("after", "skipped") in states(events)
    assert "done: source" in redraft
    assert "broken failed: it is out of order" in redraft
    assert "after skipped: broken failed" in redraft
    assert events[-1].answer == "done another way"


async def test_a_call_that_cannot_be_filled_in_fails_its_node_only(play):
    wrong = say("", "list_files")
    lines = [TWO, wrong, wrong, COUNT, say("Answer: one of two"), finish("never")]
    async with play(lines, strategy="graph", registration="all") as shell:
        events = await turn(shell)
    assert [event.ok for event in of(events, CallFinished)] == [True]
    (failed,) = [event for event in of(events, NodeChanged) if event.state == "failed"]
    assert failed.label == "count_text"
    assert "A call of count_text was wanted" in failed.reason
    assert events[-1].answer == "one of two"


class Decides(User):
    """A user who counts simultaneous approval requests."""

    def __init__(self, *decisions):
        super().__init__(*decisions, limit=LimitChoice("answer"))
        self.open_requests = 0
        self.most_open = 0

    async def approve(self, request):
        self.open_requests += 1
        self.most_open = max(self.most_open, self.open_requests)
        await asyncio.sleep(0)
        self.open_requests -= 1
        return await super().approve(request)


async def test_approval_requests_and_side_effects_of_nodes_are_sequential(play):
    user, order = Decides("once", "once", "once"), []

    def writes(name):
        async def act():
            order.append(name)
            return name

        return Probe(name, act, effects=("write",))

    async with play(
        [plan(one=[], two=[], three=[]), finish("done")],
        user=user,
        strategy="graph",
        registration="all",
    ) as shell:
        add(shell, *map(writes, ("one", "two", "three")))
        events = await turn(shell)
    assert order == ["one", "two", "three"]
    assert (user.most_open, len(of(events, ApprovalWanted))) == (1, 3)
    assert "the plan" in user.asked[0].rationale
    assert events[-1].status == "answered"


async def test_a_waiting_node_uses_an_approval_for_the_session(play):
    user = Decides("session")
    async with play(
        [plan(visit=[], **{"visit#2": []}), finish("done")],
        user=user,
        strategy="graph",
        registration="all",
    ) as shell:
        add(shell, Probe("visit", effects=("network",)))
        events = await turn(shell)
    assert len(user.asked) == 1
    assert [event.ok for event in of(events, CallFinished)] == [True, True]


async def test_a_refused_node_skips_its_dependents(play):
    user = Decides("no")
    lines = [plan(visit=[], after=["visit"]), say("Answer: not allowed")]
    async with play(lines, user=user, strategy="graph", registration="all") as shell:
        after = Probe("after")
        add(shell, Probe("visit", effects=("network",)), after)
        events = await turn(shell)
    assert after.runs == []
    assert of(events, CallFinished)[0].refused == "unapproved"
    assert events[-1].answer == "not allowed"


@pytest.mark.parametrize("rules", [Rules(deny=("one",)), Rules(read_only=True)])
async def test_nodes_follow_the_rules_of_the_settings(play, rules):
    lines = [plan(one=[]), say("Answer: forbidden")]
    async with play(lines, strategy="graph", registration="all") as shell:
        probe = Probe("one", effects=("write",))
        add(shell, probe)
        shell.deps.approvals.rules = rules
        events = await turn(shell)
    assert probe.runs == []
    assert of(events, CallFinished)[0].refused == "unapproved"


@pytest.mark.parametrize(
    ("budget", "plan_mode", "mode"),
    every_pair(["0.004", "0.016", "0.02", "0.05"], ["off", "btp"], ["single", "umi"]),
)
async def test_the_cap_holds_under_parallel_nodes(play, budget, plan_mode, mode):
    lines = [EIGHT, *[COUNT] * 16, say("Answer: enough"), *[finish("3")] * 30]
    async with play(
        lines, strategy="graph", price=PRICE, budget=budget, registration="all"
    ) as shell:
        await shell.deps.models.change(mode=mode)
        shell.deps.settings.plan = plan_mode
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    paid = sum(event.spent_nano for event in of(events, BudgetSettled))
    assert cap.spent == paid <= cap.limit
    assert cap.held == 0
    assert events[-1].type == "turn_finished"


async def test_parallel_priced_tools_stay_within_the_cap(play):
    async with play(
        [plan(buy=[], **{f"buy#{at}": [] for at in range(2, 6)}), say("Answer: some")],
        strategy="graph",
        budget="0.005",
        registration="all",
    ) as shell:
        shell.deps.settings.plan = shell.deps.settings.quote = "off"
        buy = Probe("buy", price=2_000_000)
        add(shell, buy)
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    assert len(buy.runs) == 2
    assert (cap.spent, cap.held) == (4_000_000, 0)
    refused = [event.refused for event in of(events, CallFinished) if not event.ok]
    assert refused == ["unaffordable"] * 3
    spent = {
        event.label: event.spent_nano for event in of(events, NodeChanged) if event.state == "done"
    }
    assert sorted(spent.values()) == [2_000_000, 2_000_000]


async def test_quotas_apply_to_nodes_and_a_helpful_use_allows_another(play):
    running, counts = [], []

    async def acts():
        running.append(1)
        counts.append(len(running))
        await asyncio.sleep(0)
        running.pop()
        return "It has 3 lines, which answers it."

    async with play(
        [plan(probe=[], **{"probe#2": []}), finish("3")],
        strategy="graph",
        price=PRICE,
        budget="1.00",
        registration="all",
    ) as shell:
        shell.deps.settings.strict = True
        add(shell, Probe("probe", acts))
        events = await turn(shell, "Probe it: what does probe do?")
    assert counts == [1, 1]
    assert [event.ok for event in of(events, CallFinished)] == [True, True]


async def test_a_tool_over_budget_is_not_run_as_a_node(play):
    dear = Probe("dear", price=900_000_000)
    async with play(
        [plan(dear=[]), say("Answer: too dear")],
        strategy="graph",
        price=PRICE,
        budget="0.10",
        registration="names",
    ) as shell:
        add(shell, dear)
        events = await turn(shell)
    assert "dear was not run" in of(events, Notice)[-1].text
    assert dear.runs == []
    assert events[-1].answer == "too dear"


@pytest.mark.parametrize("price", [None, PRICE])
async def test_stopping_the_turn_ends_all_nodes_without_reservations(play, price):
    started, ended = asyncio.Semaphore(0), []

    def hangs(name):
        async def act():
            started.release()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)

        return Probe(name, act)

    async with play(
        [plan(one=[], two=[], after=["one"]), finish("never")],
        strategy="graph",
        price=price,
        budget="1.00",
        registration="all",
    ) as shell:
        shell.deps.settings.plan = "off"
        add(shell, hangs("one"), hangs("two"), Probe("after"))
        reading = asyncio.create_task(turn(shell))
        for _ in range(2):
            await started.acquire()
        await shell.conversation.stop()
        events = await reading
        (cap,) = await shell.deps.budget.caps()
        assert is_replayed(shell)
    assert sorted(ended) == ["one", "two"]
    assert cap.held == 0
    assert events[-1].status == "interrupted"
    assert {event.ok for event in of(events, CallFinished)} == {False}
    last = {event.label: event.state for event in of(events, NodeChanged)}
    assert last == {"one": "stopped", "two": "stopped", "after": "skipped"}


async def test_stopping_while_calls_are_filled_in_settles_them(play):
    started = asyncio.Event()
    async with play(
        [TWO, COUNT, COUNT], strategy="graph", price=PRICE, budget="1.00", registration="all"
    ) as shell:
        stream = shell.deps.models.current.model._model.stream

        async def hanging(request):
            if request.want == "call":
                started.set()
                await asyncio.Event().wait()
            async for piece in stream(request):
                yield piece

        shell.deps.models.current.model._model.stream = hanging
        reading = asyncio.create_task(turn(shell))
        await started.wait()
        await shell.conversation.stop()
        events = await reading
        (cap,) = await shell.deps.budget.caps()
    assert (events[-1].status, cap.held) == ("interrupted", 0)
    assert cap.spent > 0


async def test_the_user_decides_at_a_limit_before_the_repair(play):
    """Nodes over the cap fail; the user decides at the next step, when no node is running."""
    user = Decides()
    async with play(
        [EIGHT, *[COUNT] * 20],
        user=user,
        strategy="graph",
        price=PRICE,
        budget="0.045",
        registration="all",
    ) as shell:
        shell.deps.settings.plan = "off"
        events = await turn(shell)
    failed = [event for event in of(events, NodeChanged) if event.state == "failed"]
    assert failed
    assert "could not be filled in" in failed[0].reason
    assert of(events, LimitHit)
    assert events[-1].status == "limit"


async def test_plan_events_can_be_serialized(play):
    async with play(
        [plan(source=[], after=["source"]), finish("ok")], strategy="graph", registration="all"
    ) as shell:
        add(shell, Probe("source", price=5), Probe("after", price=7))
        events = await turn(shell)
    (planned,) = of(events, GraphPlanned)
    assert (planned.price_nano, planned.seconds, planned.critical) == (
        12,
        None,
        ("source", "after"),
    )
    for event in (planned, *of(events, NodeChanged)):
        assert from_json(json.loads(json.dumps(to_json(event)))) == event


async def test_the_next_estimate_excludes_the_time_for_drafting(play, monkeypatch):
    monkeypatch.setattr(StepCost, "part", lambda thought, of: replace(thought, seconds=1_000.0))
    lines = [plan(source=[]), finish("ok")] * 2
    async with play(lines, strategy="graph", registration="all") as shell:
        add(shell, Probe("source"))
        await turn(shell)
        events = await turn(shell)
    (planned,) = of(events, GraphPlanned)
    assert 0 <= planned.seconds < 1_000


async def test_nodes_of_a_killed_turn_are_replayed_as_stopped(play):
    async with play(
        [plan(one=[], two=[]), finish("ok")], strategy="graph", registration="all"
    ) as shell:
        add(shell, Probe("one"), Probe("two"))
        events = await turn(shell)
        cut = [
            event
            for event in events
            if not isinstance(event, (CallFinished, Answer)) and event is not events[-1]
        ]
        replayed = texts(Memory(shell.deps.catalog, cut).messages)
    assert "The turn ended before one did." in replayed
    assert "The turn ended before two did." in replayed


async def test_a_tool_graph_reuses_registrations_of_earlier_turns(play):
    lines = [
        register("list_files"),
        finish("ok"),
        plan(list_files=[]),
        say("", "list_files"),
        finish("again"),
    ]
    async with play(lines, registration="names") as shell:
        await turn(shell)
        assert "›  graph" in (await shell.command("/strategy graph")).text
        events = await turn(shell)
    assert events[0].strategy == "graph"
    assert len(of(events, GraphPlanned)) == 1
    assert of(events, ToolRegistered) == []
    assert events[-1].answer == "again"


async def test_tools_that_hang_fail_or_return_too_much_affect_their_own_nodes_only(play):
    async def hang() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return "never"

    def die() -> str:
        """Die."""
        raise SystemError("out of order")

    def shout() -> str:
        """Say too much."""
        return "x" * 10_000_000

    tools = [
        FunctionTool(run, effects=(), limits=Limits(0.2, ResultSize(1_000)))
        for run in (hang, die, shout)
    ]
    lines = [
        plan(hang=[], die=[], shout=[], after=["die"], last=["shout"]),
        say("Answer: some of it"),
    ]
    async with play(lines, strategy="graph", registration="all") as shell:
        after, last = Probe("after"), Probe("last")
        add(shell, *tools, after, last)
        events = await turn(shell)
    ended = {event.label: event for event in of(events, NodeChanged) if event.state != "running"}
    assert {label: event.state for label, event in ended.items()} == {
        "hang": "failed",
        "die": "failed",
        "shout": "done",
        "after": "skipped",
        "last": "done",
    }
    assert "took longer than 0.2 s" in ended["hang"].reason
    assert "SystemError: out of order" in ended["die"].reason
    shouted = next(event for event in of(events, CallFinished) if event.name == "shout")
    assert (shouted.truncated, len(shouted.observation) < 2_000) == (True, True)
    assert (len(after.runs), len(last.runs)) == (0, 1)


@pytest.fixture
def files(home):
    (home / "a.txt").write_text("one two three\nfour five\n")
    (home / "b.txt").write_text("alpha beta\n")
    return home


@pytest.mark.slow
async def test_the_embedded_model_plans_one_node_per_file(files, embedded_model):
    shell = await assemble(Options(model="embedded", workspace=files, strategy="graph"))
    try:
        events = await turn(shell, "count the words in a.txt and b.txt")
        assert is_replayed(shell)
    finally:
        await shell.aclose()
    (planned,) = of(events, GraphPlanned)
    assert [(node.label, node.after) for node in planned.nodes] == [
        ("count_text", ("<task>",)),
        ("count_text#2", ("<task>",)),
    ]
    assert [event.ok for event in of(events, CallFinished)] == [True, True]
    assert {event.arguments["path"] for event in of(events, CallStarted)} == {"a.txt", "b.txt"}
    assert (events[-1].status, events[-1].answer) == ("answered", "a.txt has 5 words, b.txt has 2.")

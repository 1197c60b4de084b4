"""Repaired plans: completed calls with lasting effects are not repeated, and other calls are."""

import asyncio

import pytest
from agent_play import finish, is_replayed, of, say, turn
from graph_turns import Probe, add, plan, states

from ecoshell.agent.finished_nodes import FinishedNodes
from ecoshell.catalog import Catalog
from ecoshell.events import CallFinished, GraphPlanned, NodeChanged, Notice
from ecoshell.messages import TOOL_CALL, Call, Observation
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node
from ecoshell.strategies import Step

QUESTION = "Keep everything."
"""Names no file, so that a model fills in paths."""
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


async def breaks():
    return Observation("it is out of order", ok=False)


def fill(tool, path):
    return say("", tool, path=path)


def repeated(events):
    """Nodes reported as not run again."""
    return [
        event.text.partition(" ")[0]
        for event in of(events, Notice)
        if "was not run again" in event.text
    ]


async def test_a_node_with_other_inputs_runs_again_under_the_same_name(play):
    lines = [plan(read=[], b=[]), plan(other=[], read=["other"], kept=[]), finish("ok")]
    async with play(lines, strategy="graph", registration="all") as shell:
        read = Probe("read")
        add(shell, read, Probe("b", breaks), Probe("other"), Probe("kept"))
        events = await turn(shell, QUESTION)
        assert is_replayed(shell)
    assert of(events, GraphPlanned)[1].kept == ()
    assert len(read.runs) == 2


async def test_an_invalid_repair_is_requested_again_with_the_executed_plan(play):
    ran, wrong = plan(keep=[], b=[]), plan(unknown=[])
    async with play(
        [ran, wrong, plan(keep=[]), finish("ok")], strategy="graph", registration="all"
    ) as shell:
        add(shell, Probe("keep"), Probe("b", breaks))
        await turn(shell, QUESTION)
        prompt = shell.requests[2].messages[-1].text
    assert f"{ran['text']}\ndone: keep\n- b failed: it is out of order" in prompt
    assert f"This plan cannot be run:\n{wrong['text']}\n" in prompt


async def test_a_completed_node_is_kept_although_the_budget_cannot_cover_it_again(play):
    lines = [plan(buy=[], b=[]), plan(buy=[], other=["buy"]), finish("ok")]
    async with play(lines, strategy="graph", registration="all", budget="1.00") as shell:
        buy, other = Probe("buy", price=600_000_000), Probe("other")
        add(shell, buy, Probe("b", breaks), other)
        events = await turn(shell, QUESTION)
        await shell.conversation.leave()
    assert of(events, GraphPlanned)[1].kept == ("buy",)
    assert of(events, Notice) == []
    assert (len(buy.runs), len(other.runs), events[-1].answer) == (1, 1, "ok")


async def test_a_second_use_is_refused_if_the_budget_cannot_cover_it(play):
    lines = [plan(buy=[], b=[]), plan(buy=[], **{"buy#2": []}), finish("ok"), finish("ok")]
    async with play(lines, strategy="graph", registration="all", budget="1.00") as shell:
        buy = Probe("buy", price=600_000_000)
        add(shell, buy, Probe("b", breaks))
        events = await turn(shell, QUESTION)
        await shell.conversation.leave()
    assert "`buy#2`: buy was not run" in of(events, Notice)[0].text
    assert len(buy.runs) == 1


async def test_dependents_of_a_repeated_node_run_again(play):
    lines = [
        plan(source=[], read=["source"], last=["read"], b=[]),
        plan(source=[], other=[], read=["other"], last=["read"]),
        finish("ok"),
    ]
    async with play(lines, strategy="graph", registration="all") as shell:
        source, read, last = Probe("source"), Probe("read"), Probe("last")
        add(shell, source, read, last, Probe("b", breaks), Probe("other"))
        events = await turn(shell, QUESTION)
    assert of(events, GraphPlanned)[1].kept == ("source",)
    assert [len(probe.runs) for probe in (source, read, last)] == [1, 2, 2]


@pytest.mark.parametrize("effect", ["write", "execute"])
@pytest.mark.parametrize(
    ("again", "runs"),
    [
        (plan(other=[], keep=["other"], last=["keep"]), 1),
        (plan(other=[], **{"keep": ["other"], "keep#2": ["keep"], "last": ["keep#2"]}), 2),
        (say('[[1, "other", ["<task>"]], [2, "keep", [1]], [3, "last", [2]]]'), 1),
    ],
)
async def test_a_completed_call_with_lasting_effects_is_not_repeated_under_another_label(
    play, again, runs, effect
):
    lines = [plan(keep=[], b=[]), again, finish("ok")]
    async with play(lines, strategy="graph", registration="all", yes=True) as shell:
        keep, last = Probe("keep", effects=(effect,)), Probe("last")
        add(shell, keep, last, Probe("b", breaks), Probe("other"))
        events = await turn(shell, QUESTION)
        assert is_replayed(shell)
    assert (len(keep.runs), len(last.runs)) == (runs, 1)
    assert repeated(events) == ["keep"]
    made = next(event.id for event in of(events, CallFinished) if event.name == "keep")
    assert [
        event.call
        for event in of(events, NodeChanged)
        if (event.label, event.state) == ("keep", "done")
    ] == [made] * 2
    assert events[-1].status == "answered"


@pytest.mark.parametrize(
    ("path", "runs"), [("x.txt", ["x.txt", "y.txt"]), ("z.txt", ["x.txt", "y.txt", "z.txt"])]
)
async def test_a_call_with_lasting_effects_and_other_arguments_runs(play, path, runs):
    lines = [plan(keep=[], **{"keep#2": []}, b=[]), fill("keep", "x.txt"), fill("keep", "y.txt")]
    lines += [plan(other=[], keep=["other"]), fill("keep", path), finish("ok")]
    async with play(lines, strategy="graph", registration="all", yes=True) as shell:
        keep = Probe("keep", effects=("write",), parameters=PATH)
        add(shell, keep, Probe("b", breaks), Probe("other"))
        await turn(shell, QUESTION)
        prompt = shell.requests[4].messages[-1].text
    assert [run["path"] for run in keep.runs] == runs
    assert 'Called already: keep(path="x.txt"); keep(path="y.txt")' in prompt


@pytest.mark.parametrize(
    ("path", "ran"), [("x.txt", ["x.txt", "y.txt", "x.txt"]), ("y.txt", ["x.txt", "y.txt"])]
)
async def test_a_repair_matches_completed_uses_by_their_arguments(play, path, ran):
    outcomes = [Observation("x.txt is locked", ok=False), "kept", "kept"]

    async def next_outcome():
        return outcomes.pop(0)

    lines = [plan(keep=[], **{"keep#2": []}), fill("keep", "x.txt"), fill("keep", "y.txt")]
    lines += [say('[[1, "keep", ["<task>"]]]'), fill("keep", path), finish("ok")]
    async with play(lines, strategy="graph", registration="all", yes=True) as shell:
        keep = Probe("keep", next_outcome, effects=("write",), parameters=PATH)
        add(shell, keep)
        events = await turn(shell, QUESTION)
        assert is_replayed(shell)
    assert [run["path"] for run in keep.runs] == ran
    assert states(events)[-1] == ("keep", "done")
    assert repeated(events) == (["keep"] if path == "y.txt" else [])


async def test_a_wrapped_call_is_recognized_as_completed(play):
    inside = say("", "tool_call", name="keep", arguments={"path": "x.txt"})
    lines = [plan(keep=[], b=[]), inside, plan(other=[], keep=["other"]), inside, finish("ok")]
    async with play(
        lines, strategy="graph", registration="all", presentation="stable", yes=True
    ) as shell:
        keep = Probe("keep", effects=("write",), parameters=PATH)
        add(shell, keep, Probe("b", breaks), Probe("other"))
        events = await turn(shell, QUESTION)
    assert len(keep.runs) == 1
    assert repeated(events) == ["keep"]


def finished(*tools):
    return FinishedNodes(Catalog(tools))


def step(name, call="", **arguments):
    return Step("", Call(name, arguments, call), Observation("done"))


AGAIN = GraphPlan((Node("keep", (TASK,), 2),))


def repaired(*done, parameters=None):
    """The record of these steps of `keep`, each with its executed call, once the repaired plan was applied."""
    record = finished(Probe("keep", effects=("write",), parameters=parameters))
    for number, (finished_step, executed) in enumerate(done, 3):
        record.add(Node("keep", (TASK,), number), finished_step, executed)
    assert record.take_over(AGAIN.nodes[0], done[0][1]) is None
    record.follow(AGAIN)
    return record


def reused(record, call):
    """The finished step that the node reuses for a call, if any."""
    use = record.take_over(AGAIN.nodes[0], call)
    return use and use.step


@pytest.mark.parametrize(
    ("done", "again"),
    [
        (Call("keep", {"path": "x"}), Call("keep", {"path": "x"})),
        (
            Call("keep", {"path": "x"}),
            Call(TOOL_CALL, {"name": "keep", "arguments": {"path": "x"}}),
        ),
        (Call("keep", {"path": "x", "count": 1}), Call("keep", {"count": 1.0, "path": "x"})),
        (Call("keep", {"path": "x"}), Call("keep", {"path": "x", "append": False})),
        (Call("keep", {"path": "x", "append": False}), Call("keep", {"path": "x"})),
        (
            Call("keep", {"path": "x", "lines": [{"at": 1}]}),
            Call("keep", {"path": "x", "lines": [{"at": 1.0}]}),
        ),
    ],
)
def test_two_spellings_of_a_call_count_as_the_same_call(done, again):
    parameters = {
        "type": "object",
        "properties": {"path": {}, "append": {"type": "boolean", "default": False}},
    }
    finished_step = Step("", done, Observation("done"))
    assert reused(repaired((finished_step, done), parameters=parameters), again) is finished_step


@pytest.mark.parametrize("again", [{"path": "y"}, {"path": "x", "more": None}, {"path": True}, {}])
def test_other_arguments_make_another_call(again):
    write = step("keep", path="x")
    assert reused(repaired((write, write.call)), Call("keep", again)) is None
    write = step("keep", path=1)
    assert reused(repaired((write, write.call)), Call("keep", {"path": True})) is None


def test_a_call_the_user_edited_is_recognized_in_both_forms():
    write = step("keep", path="x")
    for path, expected in (("x", write), ("y", write), ("z", None)):
        assert (
            reused(repaired((write, Call("keep", {"path": "y"}))), Call("keep", {"path": path}))
            is expected
        )


def test_a_completed_call_is_reused_once():
    write = step("keep", path="x")
    record = repaired((write, write.call))
    assert [reused(record, write.call) for _ in range(3)] == [write, None, None]


def test_a_reused_call_counts_the_lasting_calls_after_it():
    first, second = step("keep", "1", path="x"), step("keep", "2", path="y")
    record = repaired((first, first.call), (second, second.call))
    assert record.take_over(AGAIN.nodes[0], first.call).calls_after == 1
    assert record.take_over(AGAIN.nodes[0], second.call).calls_after == 0


def test_a_reading_call_can_be_repeated():
    record, read = finished(Probe("read")), step("read", path="x")
    record.add(Node("read"), read, read.call)
    record.follow(GraphPlan((Node("read", (TASK,), 2),)))
    assert record.take_over(Node("read", (TASK,), 2), read.call) is None


def test_the_order_of_dependencies_does_not_matter():
    record = finished(Probe("a"), Probe("b"), Probe("c"))
    nodes = Node("a"), Node("b"), Node("c", ("a", "b"))
    for node in nodes:
        record.add(node, step(node.tool), Call(node.tool))
    record.follow(GraphPlan((*nodes[:2], Node("c", ("b", "a")))))
    assert list(record.steps) == ["a", "b", "c"]
    record.follow(GraphPlan((nodes[0], Node("c", ("a",)))))
    assert list(record.steps) == ["a"]


async def test_a_tool_that_ignores_cancellation_does_not_block_a_stopped_plan(play):
    started, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn():
        started.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    async with play(
        [plan(stubborn=[], quick=[], after=["stubborn"])],
        strategy="graph",
        registration="all",
        budget="1.00",
    ) as shell:
        add(shell, Probe("stubborn", stubborn), Probe("quick"), Probe("after"))
        reading = asyncio.create_task(turn(shell, QUESTION))
        await started.wait()
        await shell.conversation.stop()
        events = await asyncio.wait_for(reading, 600)
        may_end.set()
        (cap,) = await shell.deps.budget.caps()
        assert is_replayed(shell)
    last = {event.label: event.state for event in of(events, NodeChanged)}
    assert (last["stubborn"], last["after"]) == ("stopped", "skipped")
    assert (events[-1].status, cap.held) == ("interrupted", 0)

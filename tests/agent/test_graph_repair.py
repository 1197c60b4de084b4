"""What a repaired plan keeps: nothing that is done and lasts is done twice, and nothing stands for what it is not."""

import asyncio

import pytest
from agent_play import finish, of, say, turn
from graph_turns import Probe, add, plan, states

from ecoshell.agent.graph.finished import Finished
from ecoshell.agent.memory import Memory
from ecoshell.catalog.catalog import Catalog
from ecoshell.events import CallFinished, GraphPlanned, NodeChanged, Notice
from ecoshell.messages import TOOL_CALL, Call, Observation
from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.strategies.base import Step
from ecoshell.tools import containing

QUESTION = "Keep what there is."
"""Names no file, so that the model is asked for paths."""
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


async def breaks():
    return Observation("it is out of order", ok=False)


def fill(tool, path):
    return say("", tool, path=path)


def is_replayed(shell):
    """Whether the session read from the store is the session as it is."""
    again = Memory(shell.kit.catalog, [event for _, event in shell.store.events(shell.session)])
    return again.messages == shell.conversation.memory.messages


def repeated(events):
    """Nodes of which it is said that they were not run again."""
    return [event.text.partition(" ")[0] for event in of(events, Notice) if "was not run again" in event.text]


async def test_a_node_whose_inputs_have_changed_runs_again_though_its_name_is_the_same(play):
    lines = [plan(read=[], b=[]), plan(other=[], read=["other"], kept=[]), finish("ok")]
    async with play(lines, strategy="graph", registration="all") as shell:
        read = Probe("read")
        add(shell, read, Probe("b", breaks), Probe("other"), Probe("kept"))
        events = await turn(shell, QUESTION)
        assert is_replayed(shell)
    assert of(events, GraphPlanned)[1].kept == ()
    assert len(read.runs) == 2


async def test_what_waits_for_a_node_that_runs_anew_runs_anew_itself(play):
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
    ("again", "labels"),
    [
        (plan(other=[], keep=["other"], last=["keep"]), ["keep"]),
        (plan(other=[], **{"keep": ["other"], "keep#2": ["keep"], "last": ["keep#2"]}), ["keep", "keep#2"]),
        (say('[[1, "other", ["<task>"]], [2, "keep", [1]], [3, "last", [2]]]'), ["keep"]),
    ],
)
async def test_a_lasting_call_that_is_done_is_not_made_again_under_whatever_name(play, again, labels, effect):
    lines = [plan(keep=[], b=[]), again, finish("ok")]
    async with play(lines, strategy="graph", registration="all", yes=True) as shell:
        keep, last = Probe("keep", effects=(effect,)), Probe("last")
        add(shell, keep, last, Probe("b", breaks), Probe("other"))
        events = await turn(shell, QUESTION)
        assert is_replayed(shell)
    assert (len(keep.runs), len(last.runs)) == (1, 1)
    assert repeated(events) == labels
    made = next(event.id for event in of(events, CallFinished) if event.name == "keep")
    taken = [event.call for event in of(events, NodeChanged) if event.label in labels and event.state == "done"]
    assert taken == [made] * (1 + len(labels))
    assert events[-1].status == "answered"


@pytest.mark.parametrize(("path", "runs"), [("x.txt", ["x.txt", "y.txt"]), ("z.txt", ["x.txt", "y.txt", "z.txt"])])
async def test_a_lasting_call_with_other_arguments_is_made(play, path, runs):
    lines = [plan(keep=[], **{"keep#2": []}, b=[]), fill("keep", "x.txt"), fill("keep", "y.txt")]
    lines += [plan(other=[], keep=["other"]), fill("keep", path), finish("ok")]
    async with play(lines, strategy="graph", registration="all", yes=True) as shell:
        keep = Probe("keep", effects=("write",), parameters=PATH)
        add(shell, keep, Probe("b", breaks), Probe("other"))
        await turn(shell, QUESTION)
        asked = shell.requests[4].messages[-1].text
    assert [run["path"] for run in keep.runs] == runs
    assert 'Called already: keep(path="x.txt"); keep(path="y.txt")' in asked


@pytest.mark.parametrize(("path", "ran"), [("x.txt", ["x.txt", "y.txt", "x.txt"]), ("y.txt", ["x.txt", "y.txt"])])
async def test_where_the_second_use_is_done_and_the_first_is_not_a_repair_that_names_one_goes_by_its_arguments(
    play, path, ran
):
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


async def test_a_call_that_a_tool_call_carries_is_known_again(play):
    inside = say("", "tool_call", name="keep", arguments={"path": "x.txt"})
    lines = [plan(keep=[], b=[]), inside, plan(other=[], keep=["other"]), inside, finish("ok")]
    async with play(lines, strategy="graph", registration="all", presentation="stable", yes=True) as shell:
        keep = Probe("keep", effects=("write",), parameters=PATH)
        add(shell, keep, Probe("b", breaks), Probe("other"))
        events = await turn(shell, QUESTION)
    assert len(keep.runs) == 1
    assert repeated(events) == ["keep"]


def finished(*tools):
    return Finished(Catalog(tools))


def step(name, **arguments):
    return Step("", Call(name, arguments), Observation("done"))


def test_within_one_plan_the_same_lasting_call_may_stand_twice():
    known, kept = finished(Probe("keep", effects=("write",))), step("keep", path="x")
    known.add(Node("keep"), kept, kept.call)
    assert known.alike(kept.call) is None
    known.follow(GraphPlan((Node("keep", ("<task>",), 2),)))
    assert known.alike(kept.call) is kept
    assert known.alike(Call(TOOL_CALL, {"name": "keep", "arguments": {"path": "x"}})) is kept
    assert known.alike(Call("keep", {"path": "y"})) is None
    assert known.alike(Call("keep", {"path": "x", "more": None})) is None


def test_true_is_another_argument_than_one():
    known, kept = finished(Probe("keep", effects=("write",))), step("keep", count=1)
    known.add(Node("keep"), kept, kept.call)
    known.follow(GraphPlan((Node("keep", (TASK,), 2),)))
    assert known.alike(Call("keep", {"count": True})) is None


def test_what_a_person_made_of_a_call_is_what_was_done():
    known, kept = finished(Probe("keep", effects=("write",))), step("keep", path="x")
    known.add(Node("keep"), kept, Call("keep", {"path": "y"}))
    known.follow(GraphPlan((Node("keep", (TASK,), 2),)))
    assert known.alike(Call("keep", {"path": "x"})) is None
    assert known.alike(Call("keep", {"path": "y"})) is kept


def test_a_call_that_only_reads_may_be_made_again():
    known, read = finished(Probe("read")), step("read", path="x")
    known.add(Node("read"), read, read.call)
    known.follow(GraphPlan((Node("read", (TASK,), 2),)))
    assert known.alike(read.call) is None


def test_a_node_is_kept_in_whatever_order_it_names_what_it_waits_for():
    known = finished(Probe("a"), Probe("b"), Probe("c"))
    nodes = Node("a"), Node("b"), Node("c", ("a", "b"))
    for node in nodes:
        known.add(node, step(node.tool), Call(node.tool))
    known.follow(GraphPlan((*nodes[:2], Node("c", ("b", "a")))))
    assert list(known.steps) == ["a", "b", "c"]
    known.follow(GraphPlan((nodes[0], Node("c", ("a",)))))
    assert list(known.steps) == ["a"]


async def test_a_tool_that_ignores_that_it_is_called_off_does_not_keep_a_stopped_plan(play, monkeypatch):
    monkeypatch.setattr(containing, "GRACE", 0.05)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn():
        begun.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    async with play(
        [plan(stubborn=[], quick=[], after=["stubborn"])], strategy="graph", registration="all", budget="1.00"
    ) as shell:
        add(shell, Probe("stubborn", stubborn), Probe("quick"), Probe("after"))
        reading = asyncio.create_task(turn(shell, QUESTION))
        await begun.wait()
        await shell.conversation.stop()
        events = await asyncio.wait_for(reading, 60)
        may_end.set()
        (cap,) = await shell.caps()
        assert is_replayed(shell)
    last = {event.label: event.state for event in of(events, NodeChanged)}
    assert (last["stubborn"], last["after"]) == ("stopped", "skipped")
    assert (events[-1].status, cap.held) == ("interrupted", 0)

"""What a repaired plan keeps: nothing that is done and lasts is done twice, and nothing stands for what it is not."""

import asyncio

import pytest
from agent_play import finish, of, say, turn
from graph_turns import Probe, add, plan, states

from ecoshell.agent.memory import Memory
from ecoshell.agent.tool_graph import Finished
from ecoshell.catalog import Catalog
from ecoshell.events import CallFinished, GraphPlanned, NodeChanged, Notice
from ecoshell.messages import TOOL_CALL, Call, Observation
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node
from ecoshell.strategies import Step
from ecoshell.tools import running

QUESTION = "Keep what there is."
"""Names no file, so that the model is asked for paths."""
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


async def breaks():
    return Observation("it is out of order", ok=False)


def fill(tool, path):
    return say("", tool, path=path)


def is_replayed(shell):
    """Whether the session read from the store is the session as it is."""
    again = Memory(shell.deps.catalog, [event for _, event in shell.store.events(shell.session)])
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


async def test_a_repair_that_cannot_be_run_is_asked_for_again_beside_the_plan_that_ran(play):
    ran, wrong = plan(keep=[], b=[]), plan(nobody=[])
    async with play([ran, wrong, plan(keep=[]), finish("ok")], strategy="graph", registration="all") as shell:
        add(shell, Probe("keep"), Probe("b", breaks))
        await turn(shell, QUESTION)
        told = shell.requests[2].messages[-1].text
    assert f"{ran['text']}\ndone: keep\n- b failed: it is out of order" in told
    assert f"This plan cannot be run:\n{wrong['text']}\n" in told


async def test_what_is_done_is_kept_also_where_the_budget_has_no_room_for_it_any_more(play):
    lines = [plan(buy=[], b=[]), plan(buy=[], other=["buy"]), finish("ok")]
    async with play(lines, strategy="graph", registration="all", budget="1.00") as shell:
        buy, other = Probe("buy", price=600_000_000), Probe("other")
        add(shell, buy, Probe("b", breaks), other)
        events = await turn(shell, QUESTION)
        await shell.conversation.leave()
    assert of(events, GraphPlanned)[1].kept == ("buy",)
    assert of(events, Notice) == []
    assert (len(buy.runs), len(other.runs), events[-1].answer) == (1, 1, "ok")


async def test_what_is_done_is_not_done_once_more_where_the_budget_has_no_room_for_it(play):
    lines = [plan(buy=[], b=[]), plan(buy=[], **{"buy#2": []}), finish("ok"), finish("ok")]
    async with play(lines, strategy="graph", registration="all", budget="1.00") as shell:
        buy = Probe("buy", price=600_000_000)
        add(shell, buy, Probe("b", breaks))
        events = await turn(shell, QUESTION)
        await shell.conversation.leave()
    assert "`buy#2`: buy was not run" in of(events, Notice)[0].text
    assert len(buy.runs) == 1


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
    ("again", "runs"),
    [
        (plan(other=[], keep=["other"], last=["keep"]), 1),
        (plan(other=[], **{"keep": ["other"], "keep#2": ["keep"], "last": ["keep#2"]}), 2),
        (say('[[1, "other", ["<task>"]], [2, "keep", [1]], [3, "last", [2]]]'), 1),
    ],
)
async def test_a_lasting_call_that_is_done_is_not_made_again_under_whatever_name(play, again, runs, effect):
    lines = [plan(keep=[], b=[]), again, finish("ok")]
    async with play(lines, strategy="graph", registration="all", yes=True) as shell:
        keep, last = Probe("keep", effects=(effect,)), Probe("last")
        add(shell, keep, last, Probe("b", breaks), Probe("other"))
        events = await turn(shell, QUESTION)
        assert is_replayed(shell)
    assert (len(keep.runs), len(last.runs)) == (runs, 1)
    assert repeated(events) == ["keep"]
    made = next(event.id for event in of(events, CallFinished) if event.name == "keep")
    assert [event.call for event in of(events, NodeChanged) if (event.label, event.state) == ("keep", "done")] == [
        made
    ] * 2
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


def step(name, call="", **arguments):
    return Step("", Call(name, arguments, call), Observation("done"))


AGAIN = GraphPlan((Node("keep", (TASK,), 2),))


def after(*done, parameters=None):
    """What is known once these were done as `keep`, each with the call that was made, and the plan was repaired."""
    known = finished(Probe("keep", effects=("write",), parameters=parameters))
    for at, (one, made) in enumerate(done, 3):
        known.add(Node("keep", (TASK,), at), one, made)
    assert known.take_over(AGAIN.nodes[0], done[0][1]) is None
    known.follow(AGAIN)
    return known


def taken(known, call):
    found = known.take_over(AGAIN.nodes[0], call)
    return found and found.step


@pytest.mark.parametrize(
    ("done", "again"),
    [
        (Call("keep", {"path": "x"}), Call("keep", {"path": "x"})),
        (Call("keep", {"path": "x"}), Call(TOOL_CALL, {"name": "keep", "arguments": {"path": "x"}})),
        (Call("keep", {"path": "x", "count": 1}), Call("keep", {"count": 1.0, "path": "x"})),
        (Call("keep", {"path": "x"}), Call("keep", {"path": "x", "append": False})),
        (Call("keep", {"path": "x", "append": False}), Call("keep", {"path": "x"})),
        (Call("keep", {"path": "x", "lines": [{"at": 1}]}), Call("keep", {"path": "x", "lines": [{"at": 1.0}]})),
    ],
)
def test_one_call_in_two_spellings_is_one_call(done, again):
    parameters = {"type": "object", "properties": {"path": {}, "append": {"type": "boolean", "default": False}}}
    kept = Step("", done, Observation("done"))
    assert taken(after((kept, done), parameters=parameters), again) is kept


@pytest.mark.parametrize("again", [{"path": "y"}, {"path": "x", "more": None}, {"path": True}, {}])
def test_another_argument_makes_another_call(again):
    kept = step("keep", path="x")
    assert taken(after((kept, kept.call)), Call("keep", again)) is None
    kept = step("keep", path=1)
    assert taken(after((kept, kept.call)), Call("keep", {"path": True})) is None


def test_a_call_that_a_person_changed_is_known_as_it_was_and_as_it_became():
    kept = step("keep", path="x")
    for path, found in (("x", kept), ("y", kept), ("z", None)):
        assert taken(after((kept, Call("keep", {"path": "y"}))), Call("keep", {"path": path})) is found


def test_of_three_equal_calls_of_which_one_is_done_two_are_made_yet():
    kept = step("keep", path="x")
    known = after((kept, kept.call))
    assert [taken(known, kept.call) for _ in range(3)] == [kept, None, None]


def test_it_is_known_how_many_lasting_calls_came_after_one():
    first, second = step("keep", "1", path="x"), step("keep", "2", path="y")
    known = after((first, first.call), (second, second.call))
    assert known.take_over(AGAIN.nodes[0], first.call).followed == 1
    assert known.take_over(AGAIN.nodes[0], second.call).followed == 0


def test_a_call_that_only_reads_may_be_made_again():
    known, read = finished(Probe("read")), step("read", path="x")
    known.add(Node("read"), read, read.call)
    known.follow(GraphPlan((Node("read", (TASK,), 2),)))
    assert known.take_over(Node("read", (TASK,), 2), read.call) is None


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
    monkeypatch.setattr(running, "GRACE", 0.05)
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
        events = await asyncio.wait_for(reading, 600)
        may_end.set()
        (cap,) = await shell.deps.budget.caps()
        assert is_replayed(shell)
    last = {event.label: event.state for event in of(events, NodeChanged)}
    assert (last["stubborn"], last["after"]) == ("stopped", "skipped")
    assert (events[-1].status, cap.held) == ("interrupted", 0)

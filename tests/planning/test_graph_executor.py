"""Running a tool graph: the order, the bound, and what becomes of the rest when a node fails or all stops."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.catp.executor import NodeFailed, run_graph
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node


@st.composite
def plans(draw, most=12):
    """A plan of one tool, each node waiting for any of those before it."""
    nodes = []
    for index in range(1, draw(st.integers(1, most)) + 1):
        labels = [node.label for node in nodes]
        after = draw(st.lists(st.sampled_from([TASK, *labels]), min_size=1, max_size=4, unique=True))
        nodes.append(Node("t", tuple(after), index))
    return GraphPlan(tuple(nodes))


def ancestors(plan, label):
    by_label = {node.label: node for node in plan.nodes}
    found, rest = set(), [label]
    while rest:
        fresh = set(by_label[rest.pop()].after) - {TASK} - found
        found |= fresh
        rest += fresh
    return found


class Stage:
    """Runs nodes that take a few turns of the loop, fails those it is told to, and writes down what happened."""

    def __init__(self, failing=(), turns=lambda label: len(label) % 3):
        self.failing = set(failing)
        self.turns = turns
        self.began = []
        self.running = set()
        self.ended = []
        self.most = 0
        self.given = {}

    async def __call__(self, node, given):
        self.began.append((node.label, frozenset(self.ended)))
        self.given[node.label] = dict(given)
        self.running.add(node.label)
        self.most = max(self.most, len(self.running))
        try:
            for _ in range(self.turns(node.label)):
                await asyncio.sleep(0)
            if node.label in self.failing:
                raise NodeFailed("it was told to")
            return f"result of {node.label}"
        finally:
            self.running.discard(node.label)
            self.ended.append(node.label)


def chain(*tools):
    """Each tool after the one before it."""
    nodes, last = [], TASK
    for tool in tools:
        nodes.append(Node(tool, (last,)))
        last = tool
    return GraphPlan(tuple(nodes))


def side_by_side(count):
    return GraphPlan(tuple(Node("t", index=index) for index in range(1, count + 1)))


@given(plans(), st.integers(1, 5))
def test_a_node_begins_when_all_it_waits_for_has_ended_and_gets_their_results(plan, parallel):
    stage = Stage()
    ran = asyncio.run(run_graph(plan, stage, parallel=parallel))
    assert {run.state for run in ran.nodes} == {"done"}
    assert [run.node for run in ran.nodes] == list(plan.nodes)
    for label, ended in stage.began:
        assert ancestors(plan, label) <= ended
    for node in plan.nodes:
        before = set(node.after) - {TASK}
        assert stage.given[node.label] == {label: f"result of {label}" for label in before}
    assert stage.most <= parallel


@given(plans(), st.data())
def test_a_failing_node_lets_only_its_descendants_be_skipped(plan, data):
    labels = [node.label for node in plan.nodes]
    failing = data.draw(st.sets(st.sampled_from(labels)))
    ran = asyncio.run(run_graph(plan, Stage(failing), parallel=3))
    for run in ran.nodes:
        label = run.node.label
        if ancestors(plan, label) & failing:
            assert (run.state, run.started) == ("skipped", None)
            assert run.reason.endswith("failed")
        elif label in failing:
            assert (run.state, run.reason) == ("failed", "it was told to")
        else:
            assert run.state == "done"


@given(plans(), st.data())
def test_nodes_whose_order_counts_run_one_at_a_time_as_they_stand(plan, data):
    labels = [node.label for node in plan.nodes]
    ordered = data.draw(st.sets(st.sampled_from(labels)))
    failing = data.draw(st.sets(st.sampled_from(labels)))
    overlaps = []

    class Watched(Stage):
        async def __call__(self, node, given):
            if node.label in ordered:
                overlaps.append(self.running & ordered)
            return await super().__call__(node, given)

    stage = Watched(failing)
    ran = asyncio.run(run_graph(plan, stage, parallel=4, ordered=ordered))
    ran_in_order = [label for label, _ in stage.began if label in ordered]
    skipped = {run.node.label for run in ran.nodes if run.state == "skipped"}
    assert ran_in_order == [label for label in labels if label in ordered and label not in skipped]
    assert not any(overlaps)
    assert all(run.state in ("done", "failed", "skipped") for run in ran.nodes)


@given(plans(), st.integers(0, 20))
def test_a_cancellation_leaves_nothing_running_and_says_what_was_stopped(plan, turns):
    stage, told = Stage(turns=lambda label: 5), {}

    async def stopped():
        working = asyncio.create_task(
            run_graph(plan, stage, parallel=3, watch=lambda run: told.update({run.node.label: run}))
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        working.cancel()
        done = await asyncio.gather(working, return_exceptions=True)
        return done[0], len(asyncio.all_tasks()) - 1

    outcome, others = asyncio.run(stopped())
    assert others == 0
    assert not stage.running
    if isinstance(outcome, asyncio.CancelledError) and told:
        assert all(run.state in ("done", "stopped", "skipped") for run in told.values())
        assert len(told) == len(plan.nodes)


async def test_an_error_of_the_program_stops_all_branches_and_is_raised_as_it_is():
    ended = []

    async def run_node(node, given):
        if node.tool == "breaks":
            raise ZeroDivisionError("no node's business")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(node.label)

    told = {}
    plan = GraphPlan((Node("waits"), Node("breaks"), Node("waits", index=2)))
    with pytest.raises(ZeroDivisionError, match="no node's business"):
        await run_graph(plan, run_node, parallel=2, watch=lambda run: told.update({run.node.label: run}))
    assert ended == ["waits"]
    assert [(label, run.state, run.reason) for label, run in told.items()] == [
        ("waits", "stopped", ""),
        ("breaks", "failed", "no node's business"),
        ("waits#2", "skipped", "the plan was stopped"),
    ]


async def test_a_node_that_cancels_itself_has_failed():
    async def run_node(node, given):
        raise asyncio.CancelledError

    ran = await run_graph(side_by_side(1), run_node, parallel=1)
    assert [(run.state, run.reason) for run in ran.nodes] == [("failed", "it was cancelled from within")]


async def test_the_clock_tells_when_each_node_ran():
    async def run_node(node, given):
        await asyncio.sleep(0.02)

    ran = await run_graph(chain("a", "b"), run_node, parallel=2)
    first, second = ran.nodes
    assert 0 <= first.started < first.finished <= second.started < second.finished <= ran.seconds
    assert second.finished - second.started >= 0.015


async def test_as_many_nodes_as_may_are_under_way_at_once():
    plan, barrier = side_by_side(8), asyncio.Barrier(8)

    async def run_node(node, given):
        async with asyncio.timeout(600):
            await barrier.wait()  # which opens only when all eight are there
        return node.label

    ran = await run_graph(plan, run_node, parallel=8)
    assert {run.state for run in ran.nodes} == {"done"}


async def test_a_thousand_nodes_are_kept_in_order_whatever_the_bound():
    nodes = [Node("t", index=1)]
    for index in range(2, 1001):
        nodes.append(Node("t", (nodes[(index * 7) % (index - 1)].label,), index))
    stage = Stage(turns=lambda label: 0)
    ran = await run_graph(GraphPlan(tuple(nodes)), stage, parallel=1000)
    assert all(run.state == "done" for run in ran.nodes)
    assert stage.began[0] == ("t", frozenset())
    assert len(stage.began) == 1000

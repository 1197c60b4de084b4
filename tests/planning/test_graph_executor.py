"""Running a tool graph: order, parallelism, failures and cancellation."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.catp.executor import NodeFailed, run_graph
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node


@st.composite
def plans(draw, max_nodes=12):
    """A plan of one tool whose nodes depend on any earlier nodes."""
    nodes = []
    for index in range(1, draw(st.integers(1, max_nodes)) + 1):
        labels = [node.label for node in nodes]
        after = draw(
            st.lists(st.sampled_from([TASK, *labels]), min_size=1, max_size=4, unique=True)
        )
        nodes.append(Node("t", tuple(after), index))
    return GraphPlan(tuple(nodes))


def ancestors(plan, label):
    by_label = {node.label: node for node in plan.nodes}
    labels, queue = set(), [label]
    while queue:
        fresh = set(by_label[queue.pop()].after) - {TASK} - labels
        labels |= fresh
        queue += fresh
    return labels


class Recorder:
    """Runs nodes that take a few turns of the event loop, fails some of them and records the order."""

    def __init__(self, failing=(), turns=lambda label: len(label) % 3):
        self.failing = set(failing)
        self.turns = turns
        self.starts = []
        self.running = set()
        self.ended = []
        self.max_running = 0
        self.inputs = {}

    async def __call__(self, node, results):
        self.starts.append((node.label, frozenset(self.ended)))
        self.inputs[node.label] = dict(results)
        self.running.add(node.label)
        self.max_running = max(self.max_running, len(self.running))
        try:
            for _ in range(self.turns(node.label)):
                await asyncio.sleep(0)
            if node.label in self.failing:
                raise NodeFailed("scripted failure")
            return f"result of {node.label}"
        finally:
            self.running.discard(node.label)
            self.ended.append(node.label)


def chain(*tools):
    """A plan in which each tool depends on the previous one."""
    nodes, last = [], TASK
    for tool in tools:
        nodes.append(Node(tool, (last,)))
        last = tool
    return GraphPlan(tuple(nodes))


def side_by_side(count):
    return GraphPlan(tuple(Node("t", index=index) for index in range(1, count + 1)))


@given(plans(), st.integers(1, 5))
def test_a_node_starts_after_its_dependencies_and_gets_their_results(plan, parallel):
    recorder = Recorder()
    ran = asyncio.run(run_graph(plan, recorder, parallel=parallel))
    assert {run.state for run in ran.nodes} == {"done"}
    assert [run.node for run in ran.nodes] == list(plan.nodes)
    for label, ended in recorder.starts:
        assert ancestors(plan, label) <= ended
    for node in plan.nodes:
        dependencies = set(node.after) - {TASK}
        assert recorder.inputs[node.label] == {
            label: f"result of {label}" for label in dependencies
        }
    assert recorder.max_running <= parallel


@given(plans(), st.data())
def test_only_descendants_of_a_failed_node_are_skipped(plan, data):
    labels = [node.label for node in plan.nodes]
    failing = data.draw(st.sets(st.sampled_from(labels)))
    ran = asyncio.run(run_graph(plan, Recorder(failing), parallel=3))
    for run in ran.nodes:
        label = run.node.label
        if ancestors(plan, label) & failing:
            assert (run.state, run.started) == ("skipped", None)
            assert run.reason.endswith("failed")
        elif label in failing:
            assert (run.state, run.reason) == ("failed", "scripted failure")
        else:
            assert run.state == "done"


@given(plans(), st.data())
def test_ordered_nodes_run_one_at_a_time_in_plan_order(plan, data):
    labels = [node.label for node in plan.nodes]
    ordered = data.draw(st.sets(st.sampled_from(labels)))
    failing = data.draw(st.sets(st.sampled_from(labels)))
    overlaps = []

    class OverlapRecorder(Recorder):
        async def __call__(self, node, results):
            if node.label in ordered:
                overlaps.append(self.running & ordered)
            return await super().__call__(node, results)

    recorder = OverlapRecorder(failing)
    ran = asyncio.run(run_graph(plan, recorder, parallel=4, ordered=ordered))
    order = [label for label, _ in recorder.starts if label in ordered]
    skipped = {run.node.label for run in ran.nodes if run.state == "skipped"}
    assert order == [label for label in labels if label in ordered and label not in skipped]
    assert not any(overlaps)
    assert all(run.state in ("done", "failed", "skipped") for run in ran.nodes)


@given(plans(), st.integers(0, 20))
def test_a_cancellation_stops_all_nodes_and_reports_them(plan, turns):
    recorder, runs = Recorder(turns=lambda label: 5), {}

    async def run_and_cancel():
        task = asyncio.create_task(
            run_graph(
                plan, recorder, parallel=3, watch=lambda run: runs.update({run.node.label: run})
            )
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        outcomes = await asyncio.gather(task, return_exceptions=True)
        return outcomes[0], len(asyncio.all_tasks()) - 1

    outcome, running_tasks = asyncio.run(run_and_cancel())
    assert running_tasks == 0
    assert not recorder.running
    if isinstance(outcome, asyncio.CancelledError) and runs:
        assert all(run.state in ("done", "stopped", "skipped") for run in runs.values())
        assert len(runs) == len(plan.nodes)


async def test_a_defect_in_a_node_stops_the_graph_and_is_raised():
    ended = []

    async def run_node(node, results):
        if node.tool == "breaks":
            raise ZeroDivisionError("a defect")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(node.label)

    runs = {}
    plan = GraphPlan((Node("waits"), Node("breaks"), Node("waits", index=2)))
    with pytest.raises(ZeroDivisionError, match="a defect"):
        await run_graph(
            plan, run_node, parallel=2, watch=lambda run: runs.update({run.node.label: run})
        )
    assert ended == ["waits"]
    assert [(label, run.state, run.reason) for label, run in runs.items()] == [
        ("waits", "stopped", ""),
        ("breaks", "failed", "a defect"),
        ("waits#2", "skipped", "the plan was stopped"),
    ]


async def test_a_node_that_cancels_itself_fails():
    async def run_node(node, results):
        raise asyncio.CancelledError

    ran = await run_graph(side_by_side(1), run_node, parallel=1)
    assert [(run.state, run.reason) for run in ran.nodes] == [
        ("failed", "it was cancelled from within")
    ]


async def test_start_and_end_times_of_nodes_are_recorded():
    async def run_node(node, results):
        await asyncio.sleep(0.02)

    ran = await run_graph(chain("a", "b"), run_node, parallel=2)
    first, second = ran.nodes
    assert 0 <= first.started < first.finished <= second.started < second.finished <= ran.seconds
    assert second.finished - second.started >= 0.015


async def test_independent_nodes_run_in_parallel_up_to_the_limit():
    plan, barrier = side_by_side(8), asyncio.Barrier(8)

    async def run_node(node, results):
        async with asyncio.timeout(600):
            await barrier.wait()  # opens only when all eight nodes run
        return node.label

    ran = await run_graph(plan, run_node, parallel=8)
    assert {run.state for run in ran.nodes} == {"done"}


async def test_a_graph_of_a_thousand_nodes_runs_completely():
    nodes = [Node("t", index=1)]
    for index in range(2, 1001):
        nodes.append(Node("t", (nodes[(index * 7) % (index - 1)].label,), index))
    recorder = Recorder(turns=lambda label: 0)
    ran = await run_graph(GraphPlan(tuple(nodes)), recorder, parallel=1000)
    assert all(run.state == "done" for run in ran.nodes)
    assert recorder.starts[0] == ("t", frozenset())
    assert len(recorder.starts) == 1000

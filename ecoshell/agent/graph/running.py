"""Runs a plan of branches: each node's call is made out, passes the guards like any other, and becomes a step.

A tool's price, its approval and its run are the guards' business. Here is what comes before: the registrations a plan
implies, which take no model call; a call's arguments; and that a tool whose uses are limited waits for the use under
way, which may earn it another.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from ecoshell.agent.context import Frame
from ecoshell.agent.graph.arguments import direct_call
from ecoshell.agent.graph.finished import Finished
from ecoshell.agent.graph.spending import Spending
from ecoshell.agent.guards import Scene, Source
from ecoshell.agent.mode import FillTask, Mode
from ecoshell.agent.plan.tool_costs import Thought
from ecoshell.budget.sharing import sharing
from ecoshell.errors import BudgetError, ModelError
from ecoshell.events import Emit, NodeChanged, Notice
from ecoshell.messages import TOOL_REGISTER, Call
from ecoshell.planning.catp.base import GraphPlan, Node
from ecoshell.planning.catp.executor import NodeFailed, NodeRun, run_graph
from ecoshell.planning.catp.tpl import render
from ecoshell.strategies.base import Gathered, Path, Step
from ecoshell.tools.base import LASTING
from ecoshell.untrusted import visible_line

PARALLEL = 8
"""Nodes that run at the same time."""
_REASON = 300
"""Characters of the reason for which a node failed."""
_DONE = "this very call was done before the plan was repaired."


@dataclass(slots=True)
class _Costs:
    """What one node has come to so far."""

    call: str
    """The id of its call."""
    filled: Thought = field(default_factory=Thought)
    tool_nano: int = 0

    @property
    def spent_nano(self) -> int | None:
        return None if self.filled.nano is None else self.filled.nano + self.tool_nano


class Run:
    """One plan under way, in one mode."""

    def __init__(
        self,
        plan: GraphPlan,
        *,
        frame: Frame,
        mode: Mode,
        source: Source,
        emit: Emit,
        finished: Finished,
    ) -> None:
        """`finished` knows the nodes that need not run, and hears of those that are done."""
        self._finished = finished
        self._plan = plan
        self._text = render(plan, "text")
        self._kept = finished.steps
        self._frame = frame
        self._mode = mode
        self._source = source
        self._emit = emit
        self._steps: dict[str, Step] = {}
        """What was done, by the labels of the nodes, failures included."""
        self._costs: dict[str, _Costs] = {}
        self._base = Path("")
        self._share = Thought()
        self._filling: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Nodes with the same tool make out their calls one after another, each told of those before it."""
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        """Calls that were made out, or done for an earlier plan, by tool."""
        self._uses = _Uses(frame)

    async def whole(self, path: Path, number: int, share: Thought) -> Gathered:
        """Run it from this path; `share` is what each node's part of drafting the plan took."""
        self._share = share
        self._costs = {node.label: _Costs(f"g{number}n{at}") for at, node in enumerate(self._plan.nodes, 1)}
        registrations = await self._register(path, number)
        self._base = path.then(*registrations)
        for step in path.found:
            self._calls[step.call.subject].append(step.call)
        nodes, catalog = self._plan.nodes, self._frame.catalog
        lasting = [node.label for node in nodes if catalog.tool(node.tool).effects & LASTING]
        with sharing():
            ran = await run_graph(self._plan, self._node, parallel=PARALLEL, ordered=lasting, watch=self._changed)
        steps = (self._steps[node.label] for node in nodes if node.label in self._steps)
        unfinished = tuple(f"{one.node.label} {one.state}: {one.reason}" for one in ran.nodes if one.state != "done")
        return Gathered((*registrations, *steps), unfinished)

    async def _register(self, path: Path, number: int) -> list[Step]:
        """Register what the plan uses and the path has not; a plan says so by naming a tool, so no model is asked."""
        registered = self._frame.registered(path)
        tools = dict.fromkeys(node.tool for node in self._plan.nodes if node.label not in self._kept)
        steps: list[Step] = []
        for at, tool in enumerate((tool for tool in tools if tool not in registered), 1):
            call = Call(TOOL_REGISTER, {"tool_name": tool}, f"g{number}r{at}")
            seen = await self._source.act(call, Scene(path.then(*steps), frozenset(registered), self._emit))
            steps.append(Step("", call, seen))
        return steps

    async def _node(self, node: Node, given: Mapping[str, Step]) -> Step:
        """Make one node's call, or take over what it came to before; raises NodeFailed."""
        if node.label in self._kept:
            return self._kept[node.label]
        if node.tool not in self._frame.registered(self._base):
            raise NodeFailed(f"{node.tool} is not registered")
        async with self._uses.one(node.tool):
            refusal = self._frame.plan.refusal(node.tool)
            if refusal:  # before anybody is paid for making out a call that the guards would refuse
                raise NodeFailed(refusal)
            path = self._base.then(*self._before(node))
            call = await self._call(node, given, path)
            return self._taken_over(node, call) or await self._act(node, call, path)

    def _taken_over(self, node: Node, call: Call) -> Step | None:
        """The step in which this call was done before the repair and which lasts; None where it is to be made."""
        done = self._finished.take_over(node, call)
        if done is None:
            return None
        self._costs[node.label].call = done.step.call.id
        since = f" Calls after it that may have changed something: {done.followed}." if done.followed else ""
        self._emit(Notice(f"{visible_line(node.label)} was not run again: {_DONE}{since}"))
        return done.step

    async def _call(self, node: Node, given: Mapping[str, Step], path: Path) -> Call:
        """The node's call: as the results before it give it, else as the mode fills it in."""
        results = tuple(given[label] for label in node.after if label in given)
        call = direct_call(self._frame.catalog.document(node.tool), results)
        if call is None:
            async with self._filling[node.tool]:
                call = await self._filled(node, results, path)
                self._calls[node.tool].append(call)
        return replace(call, id=self._costs[node.label].call)

    async def _filled(self, node: Node, given: tuple[Step, ...], path: Path) -> Call:
        """The call as the mode makes it out; what that took is the node's cost, whatever came of it."""
        alike = [one.label for one in self._plan.nodes if (one.tool, one.after) == (node.tool, node.after)]
        task = FillTask(
            label=node.label,
            document=self._frame.catalog.document(node.tool),
            plan=self._text,
            given=given,
            use=alike.index(node.label) + 1,
            uses=len(alike),
            calls=tuple(self._calls[node.tool]),
        )
        spending = Spending(self._emit, node.label)
        try:
            return await self._mode.fill(self._frame.view(path), task, spending.emit)
        except (BudgetError, ModelError) as failure:
            raise NodeFailed(f"its arguments could not be filled in: {failure.message}") from failure
        finally:
            self._costs[node.label].filled = spending.thought

    async def _act(self, node: Node, call: Call, path: Path) -> Step:
        """Send the call through the guards; raises NodeFailed for what comes to nothing."""
        costs = self._costs[node.label]
        scene = Scene(
            path,
            frozenset(self._frame.registered(self._base)),
            self._emit,
            rationale=f"It is {node.label} in the plan {self._text}",
            node=True,
            thought=replace(self._share, seconds=0.0) + costs.filled,  # a node's clock does not run while it is drafted
        )
        try:
            seen = await self._source.act(call, scene)
        finally:
            costs.tool_nano = scene.bill.spent_nano
        step = self._steps[node.label] = Step("", call, seen)
        if not seen.ok:
            raise NodeFailed(visible_line(seen.text)[:_REASON])
        self._finished.add(node, step, scene.bill.made or call)
        return step

    def _before(self, node: Node) -> list[Step]:
        """The steps of this plan that the node waits for, directly or not, in the plan's order."""
        by_label = {one.label: one for one in self._plan.nodes}
        waited, rest = set[str](), [node]
        while rest:
            fresh = [label for label in rest.pop().after if label in by_label and label not in waited]
            waited.update(fresh)
            rest += [by_label[label] for label in fresh]
        return [self._steps[label] for label in by_label if label in waited and label in self._steps]

    def _changed(self, run: NodeRun[Step]) -> None:
        label = run.node.label
        if label in self._kept:
            return
        costs, begun = self._costs[label], run.started or 0.0
        call = "" if run.state == "skipped" else costs.call
        seconds = 0.0 if run.finished is None else run.finished - begun
        step = self._steps.get(label)
        denied = run.state == "failed" and step is not None and step.observation.refused == "unapproved"
        state = "denied" if denied else run.state
        self._emit(NodeChanged(label, state, call, seconds, costs.spent_nano, run.reason))


class _Uses:
    """Uses that are under way, by tool: none begins that the turn's plan leaves no room for beside them."""

    def __init__(self, frame: Frame) -> None:
        self._plan = frame.plan
        self._under_way: Counter[str] = Counter()
        self._ended = asyncio.Condition()

    @asynccontextmanager
    async def one(self, tool: str) -> AsyncGenerator[None]:
        """Begin a use as soon as there is room for it, or no other use is under way whose end could make some."""
        async with self._ended:
            await self._ended.wait_for(lambda: self._has_room(tool))
            self._under_way[tool] += 1
        try:
            yield
        finally:
            self._under_way[tool] -= 1
            async with self._ended:
                self._ended.notify_all()

    def _has_room(self, tool: str) -> bool:
        allowed, under_way = self._plan.allows(tool), self._under_way[tool]
        return allowed is None or not under_way or under_way < allowed

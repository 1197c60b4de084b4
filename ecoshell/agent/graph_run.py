"""The run of one tool graph: registrations, arguments of nodes, limited uses, and calls through the guards."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from ecoshell.agent.direct_call import direct_call
from ecoshell.agent.finished_nodes import FinishedNodes
from ecoshell.agent.guards import CallContext, ToolExecutor
from ecoshell.agent.judge import JUDGE
from ecoshell.agent.mode import FillTask
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.view import View
from ecoshell.budget.gate import sharing
from ecoshell.catalog import Catalog
from ecoshell.errors import BudgetError, ModelError
from ecoshell.events import BudgetSettled, Emit, Event, NodeChanged, Notice, TextArrived
from ecoshell.messages import TOOL_REGISTER, Call, visible_line
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.catp.executor import NodeFailed, NodeRun, run_graph
from ecoshell.planning.catp.plan import GraphPlan, Node
from ecoshell.planning.catp.tpl import render
from ecoshell.strategies import GraphResult, Path, Step
from ecoshell.tools import LASTING

Fill = Callable[[Path, FillTask, Emit], Awaitable[Call]]
"""Makes the call of a node that continues a path; raises BudgetError and ModelError."""
MAX_CONCURRENT_NODES = 8
_REASON_CHARACTERS = 300


@dataclass(slots=True)
class Spending:
    """Forwards events, marked with their node, and adds up the cost of thinking."""

    forward: Emit
    node: str = ""
    call: str = ""
    """The ID of the node's call."""
    thought: StepCost = field(default_factory=StepCost)
    tool_nano: int = 0

    def emit(self, event: Event) -> None:
        if isinstance(event, BudgetSettled) and event.role != JUDGE:
            self.thought = self.thought.plus(event)
        if self.node and isinstance(event, TextArrived):
            event = replace(event, node=self.node)
        self.forward(event)


@dataclass(slots=True, kw_only=True)
class GraphRun:
    """Runs one tool graph."""

    plan: GraphPlan
    finished: FinishedNodes
    catalog: Catalog
    turn_plan: TurnPlan
    view_of: Callable[[Path], View]
    fill: Fill
    path: Path
    """The path that the nodes continue."""
    executor: ToolExecutor
    emit: Emit
    number: int
    """Makes the IDs of its calls unique in the turn."""
    share: StepCost
    """Each node's part of the cost of the draft."""
    _text: str = field(init=False)
    _kept_steps: dict[str, Step] = field(init=False)
    _spent: dict[str, Spending] = field(init=False)
    _steps: dict[str, Step] = field(default_factory=dict[str, Step])
    """The new steps by node label, including failures."""
    _filling: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    """Locks by tool: its nodes get their arguments one after another, knowing the earlier calls."""
    _calls: defaultdict[str, list[Call]] = field(default_factory=lambda: defaultdict(list[Call]))
    """Calls by tool, including those of earlier graphs."""
    _running_uses: Counter[str] = field(default_factory=Counter[str])
    _use_ended: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self._text = render(self.plan, "text")
        self._kept_steps = dict(self.finished.steps)
        labels = enumerate((node.label for node in self.plan.nodes), 1)
        self._spent = {
            label: Spending(self.emit, label, f"g{self.number}n{at}") for at, label in labels
        }

    @property
    def spent_nano(self) -> int | None:
        """The cost of all nodes so far; None if a part is unknown."""
        costs = self._spent.values()
        return sum((cost.thought + StepCost(cost.tool_nano) for cost in costs), StepCost()).nano

    async def run(self) -> GraphResult:
        for step in self.path.result_steps:
            self._calls[step.call.subject].append(step.call)
        registrations = await self._register()
        nodes, tool = self.plan.nodes, self.catalog.tool
        lasting = [node.label for node in nodes if tool(node.tool).effects & LASTING]
        width = MAX_CONCURRENT_NODES
        with sharing():
            ran = await run_graph(
                self.plan, self._node, parallel=width, ordered=lasting, watch=self._report
            )
        steps = (self._steps[node.label] for node in nodes if node.label in self._steps)
        rest = [run for run in ran.nodes if run.state != "done"]
        unfinished = tuple(f"{run.node.label} {run.state}: {run.reason}" for run in rest)
        return GraphResult((*registrations, *steps), unfinished)

    async def _register(self) -> list[Step]:
        """Register the tools that the graph names, without a model call."""
        view, steps = self.view_of(self.path), list[Step]()
        if view.presentation.by_call:
            return steps  # the first call of a tool registers it
        new_nodes = [node for node in self.plan.nodes if node.label not in self._kept_steps]
        tools = dict.fromkeys(node.tool for node in new_nodes)
        registered = frozenset(view.registered_names)
        for at, tool in enumerate((tool for tool in tools if tool not in registered), 1):
            call = Call(TOOL_REGISTER, {"tool_name": tool}, f"g{self.number}r{at}")
            context = CallContext(self.path.then(*steps), {*registered}, self.emit)
            steps.append(Step("", call, await self.executor.execute(call, context)))
        self.path = self.path.then(*steps)
        return steps

    async def _node(self, node: Node, inputs: Mapping[str, Step]) -> Step:
        """Make one node's call, or reuse its earlier result; raises NodeFailed."""
        if node.label in self._kept_steps:
            return self._kept_steps[node.label]
        view = self.view_of(self.path)
        if not view.presentation.by_call and node.tool not in view.registered_names:
            raise NodeFailed(f"{node.tool} is not registered")
        async with self._use(node.tool):
            refusal = self.turn_plan.refusal(node.tool)
            # before a model is paid for arguments of a call that the guards would refuse
            if refusal:
                raise NodeFailed(refusal)
            path = self._path_to(node)
            call, spent = await self._call(node, inputs, path), self._spent[node.label]
            done = self.finished.take_over(node, call)
            if done is not None:
                spent.call = done.step.call.id
                later = ""
                if done.calls_after:
                    later = f" Later calls that may have changed something: {done.calls_after}."
                text = "was not run again: this very call was done before the plan was repaired."
                self.emit(Notice(f"{visible_line(node.label)} {text}{later}"))
                return done.step
            context = CallContext(
                path,
                set(self.view_of(self.path).registered_names),
                self.emit,
                rationale=f"It is {node.label} in the plan {self._text}",
                node=True,
                # the time of the draft does not count for a node
                thought=replace(self.share, seconds=0.0) + spent.thought,
            )
            try:
                observation = await self.executor.execute(call, context)
            finally:
                spent.tool_nano = context.bill.total_nano
            step = self._steps[node.label] = Step("", call, observation)
            if not observation.ok:
                raise NodeFailed(visible_line(observation.text)[:_REASON_CHARACTERS])
            self.finished.add(node, step, context.bill.made or call)
            return step

    def _path_to(self, node: Node) -> Path:
        """The path with the steps of all direct and indirect inputs of a node."""
        labels = {*node.after}
        for earlier in reversed(self.plan.nodes):
            if earlier.label in labels:
                labels.update(earlier.after)
        needed = [other.label for other in self.plan.nodes if other.label in labels]
        return self.path.then(*(self._steps[label] for label in needed if label in self._steps))

    @asynccontextmanager
    async def _use(self, tool: str) -> AsyncGenerator[None]:
        """Wait until the plan allows a further use of the tool; running uses may earn more."""
        running, plan = self._running_uses, self.turn_plan
        async with self._use_ended:
            while (allowed := plan.allows(tool)) is not None and running[tool] >= max(1, allowed):
                await self._use_ended.wait()
            running[tool] += 1
        try:
            yield
        finally:
            running[tool] -= 1
            async with self._use_ended:
                self._use_ended.notify_all()

    async def _call(self, node: Node, inputs: Mapping[str, Step], path: Path) -> Call:
        """The node's call, from the results before it or with arguments from a model; raises NodeFailed.

        The cost of the arguments is the node's, even if it fails.
        """
        results = tuple(inputs[label] for label in node.after if label in inputs)
        schema, spent = self.catalog.schema(node.tool), self._spent[node.label]
        call = direct_call(schema, results)
        if call is not None:
            return replace(call, id=spent.call)
        kind = (node.tool, node.after)
        similar = [other.label for other in self.plan.nodes if (other.tool, other.after) == kind]
        async with self._filling[node.tool]:
            task = FillTask(
                label=node.label,
                schema=schema,
                plan=self._text,
                inputs=results,
                use=similar.index(node.label) + 1,
                uses=len(similar),
                calls=tuple(self._calls[node.tool]),
            )
            try:
                call = await self.fill(path, task, spent.emit)
            except (BudgetError, ModelError) as failure:
                reason = f"its arguments could not be filled in: {failure.message}"
                raise NodeFailed(reason) from failure
            self._calls[node.tool].append(call)
        return replace(call, id=spent.call)

    def _report(self, run: NodeRun) -> None:
        label = run.node.label
        if label in self._kept_steps:
            return
        spent, step, state = self._spent[label], self._steps.get(label), run.state
        if state == "failed" and step is not None and step.observation.refused == "unapproved":
            state = "denied"
        call = "" if state == "skipped" else spent.call
        seconds = 0.0 if run.finished is None else run.finished - (run.started or 0.0)
        nano = (spent.thought + StepCost(spent.tool_nano)).nano
        self.emit(NodeChanged(label, state, call, seconds, nano, run.reason))

"""Tool graphs in a turn: drafted, looked at, run side by side through the guards (CATP-LLM §3, SPEC §3).

A tool's price, its approval and its run are the guards' business. Here is what comes before: the registrations a plan
implies, which take no model call; a call's arguments; that a tool whose uses are limited waits for the use under way,
which may earn it another; and that a repaired plan does nothing that lasts once more.
"""

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from ecoshell.agent.guards import CallContext, ToolExecutor, unwrap
from ecoshell.agent.judge import JUDGE
from ecoshell.agent.mode import DraftTask, FillTask, Mode, View
from ecoshell.agent.offer import TurnContext
from ecoshell.agent.turn_plan import Estimate, TurnPlan
from ecoshell.budget import amount_text, rounded_up
from ecoshell.budget.gate import sharing
from ecoshell.catalog import Catalog
from ecoshell.errors import BudgetError, ModelError
from ecoshell.events import BudgetSettled, Emit, Event, GraphNode, GraphPlanned, NodeChanged, Notice, TextArrived
from ecoshell.messages import META_TOOLS, TOOL_REGISTER, Call, ToolSchema, visible_line
from ecoshell.models.protocol import call_fault
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.catp.costs import CostTable
from ecoshell.planning.catp.executor import NodeFailed, NodeRun, run_graph
from ecoshell.planning.catp.masking import plan_grammar
from ecoshell.planning.catp.plan import ITSELF, TASK, GraphPlan, Node, PlanFault, longest_path, shown
from ecoshell.planning.catp.rules import Problem, validate
from ecoshell.planning.catp.tpl import find_plan, render
from ecoshell.planning.catp.types import FILE, JSON, NUMBER, TABLE, TEXT, URL, Signature, signature
from ecoshell.strategies import DraftGraph, GraphDraft, GraphResult, Path, Step, Thought
from ecoshell.tools import LASTING

MOST = 12
"""Tools whose costs are spoken of, the likeliest for the question first."""
_HELD_NODES = 8
"""Nodes of a plan that is written under a grammar: each takes it more rules."""
_CONTENT = frozenset({"text", "content", "contents", "body", "document", "passage", "input", "html", "markdown"})
"""Words by which a parameter says that it takes a text whole; any other may want a part of it."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_URL = re.compile(r"https?://\S+")
_FILE = re.compile(r"[^\s:*?\"<>|]{1,255}")


class ParallelPlan:
    """Fulfils a strategy's requests for a plan whose branches run side by side. One turn has one."""

    def __init__(self, turn_context: TurnContext, *, executor: ToolExecutor, emit: Emit) -> None:
        self.turn_context = turn_context
        self.executor = executor
        self.emit = emit
        self._written = ""
        """The plan that was written last, whether it can be run or not."""
        self._plan: GraphPlan | None = None
        """The last one that can be."""
        self._plan_text = ""
        """That one as it was written."""
        self.finished = Finished(turn_context.catalog)
        """The nodes that need not run."""
        self._drafting = Spending(emit)

    async def draft(self, mode: Mode, view: View, want: DraftGraph) -> Thought | GraphDraft:
        """Have a plan written and looked at; raises BudgetError and ModelError."""
        task = DraftTask(
            before=self._plan_text,
            unfinished=want.unfinished,
            finished=tuple(self.finished.steps),
            faulty=self._written,
            fault=want.fault,
            costs=self.turn_context.costs,
            grammar=partial(_grammar, view, self.turn_context, self.finished),
        )
        if not want.fault:
            self._drafting = Spending(self.emit)
        written = await mode.draft(view, task, self._drafting.emit)
        if isinstance(written, Thought):
            return written
        self._written = written
        try:
            plan = self._plan = await asyncio.to_thread(_read, written, view, self.turn_context, self.finished)
        except PlanFault as fault:
            again = " a second time, so it goes on step by step" if want.fault else ""
            self.emit(Notice(f"The plan cannot be run{again}. {fault}"))
            return GraphDraft(str(fault))
        self._plan_text = written
        self.finished.follow(plan)
        self.emit(await asyncio.to_thread(self._planned, plan, repaired=bool(want.unfinished)))
        return GraphDraft()

    async def run(self, mode: Mode, path: Path, number: int) -> GraphResult:
        """Run the plan from this path; `number` tells it from the turn's other plans in the ids of its calls."""
        if self._plan is None:
            return GraphResult()
        new = len(self._plan.nodes) - len(self.finished.steps)
        run = Run(self, self._plan, mode, path, number=number, share=self._drafting.thought.part(max(1, new)))
        return await run.whole()

    def _planned(self, plan: GraphPlan, *, repaired: bool) -> GraphPlanned:
        """The plan as the event that tells of it, with the price and time it is expected to take; may block."""
        turn_context, kept, nodes = self.turn_context, self.finished.steps, list[GraphNode]()
        for node in plan.nodes:
            kinds, estimate = signature(turn_context.catalog.schema(node.tool)), turn_context.plan.expected(node.tool)
            takes, gives = tuple(sorted(kinds.takes)), tuple(sorted(kinds.gives))
            price, seconds = (0, 0.0) if node.label in kept else (estimate.price_nano, estimate.seconds)
            nodes.append(GraphNode(node.label, node.tool, node.after, takes, gives, price, seconds))
        prices = [node.price_nano for node in nodes if node.price_nano is not None]
        known = [node.seconds for node in nodes if node.seconds is not None]
        usual = sum(known) / len(known) if any(known) else 1.0
        times = {node.label: usual if node.seconds is None else node.seconds for node in nodes}
        length, critical = longest_path({node.label: node.after for node in nodes}, times)
        return GraphPlanned(
            nodes=tuple(nodes),
            text=render(plan, "text"),
            repaired=repaired,
            kept=tuple(node.label for node in nodes if node.label in kept),
            critical=critical,
            price_nano=sum(prices) if len(prices) == len(nodes) else None,
            seconds=length if len(known) == len(nodes) else None,
        )


def _read(written: str, view: View, turn_context: TurnContext, finished: "Finished") -> GraphPlan:
    """The plan in a text, around which there may be prose; raises PlanFault, which names line, column and node.

    It may name what the view knows and the turn's plan allows, and what it keeps.
    """
    tools = _tools(view, turn_context)
    found = find_plan(written, {*tools, *META_TOOLS, *turn_context.plan.forbidden})
    kept = finished.kept(found.plan)
    for at, node in enumerate(found.plan.nodes):
        meta = f"{node.tool} is no part of a plan; tools alone are." if node.tool in META_TOOLS else ""
        if said := meta or ("" if node.label in kept else turn_context.plan.refusal(node.tool)):
            raise found.placed(PlanFault(f"{shown(node.label)}: {said}", node=node.label, spot=(at, ITSELF)))
    validate(found.plan, Problem(tools), found)
    return found.plan


def _grammar(view: View, turn_context: TurnContext, finished: "Finished") -> str:
    """The grammar of the plans that can be run, for models that can be held to it; empty where there is none.

    May take a second.
    """
    barred = turn_context.plan.forbidden.keys() - {step.call.subject for step in finished.steps.values()}
    allowed = {name: kinds for name, kinds in _tools(view, turn_context).items() if name not in barred}
    try:
        return plan_grammar(Problem(allowed, max_nodes=_HELD_NODES))
    except PlanFault:
        return ""


def _tools(view: View, turn_context: TurnContext) -> dict[str, Signature]:
    """What a plan may name, with the kinds it takes and gives."""
    names = dict.fromkeys((*view.usable, *(schema.name for schema in view.registered)))
    return {name: signature(turn_context.catalog.schema(name)) for name in names if name in turn_context.catalog}


def costs_text(plan: TurnPlan, profiled: CostTable, tools: Iterable[str], size: int | None) -> str:
    """What the prompt for a plan says of costs: by price and time, and by what a use takes of the machine (§3.2.1).

    Empty if nothing is known; `size` is the present input's in bytes, None is unknown.
    """
    likely = sorted(tools, key=lambda tool: -plan.inputs.chances.get(tool, 0.0))
    spoken_of = [tool for tool in likely if tool in profiled.vectors or _figures(plan.expected(tool))][:MOST]
    figures = {tool: _figures(plan.expected(tool, size)) for tool in spoken_of}
    lines = [f"- {tool}: {said}" for tool, said in figures.items() if said]
    taken = "\n".join(("What one use of a tool is expected to take:", *lines)) if lines else ""
    return "\n".join(part for part in (taken, profiled.prompt(spoken_of, size)) if part)


def _figures(estimate: Estimate) -> str:
    """Price and time of one use; empty where it is free, as far as is known, and its time is unknown."""
    found = [amount_text(rounded_up(estimate.price_nano), "usd")] if estimate.price_nano else []
    if estimate.seconds is not None:
        milliseconds = max(1, round(estimate.seconds * 1000))
        found.append(f"{estimate.seconds:.1f} s" if estimate.seconds >= 1 else f"{milliseconds} ms")
    return ", ".join(found)


PARALLEL = 8
"""Nodes that run at the same time."""
_REASON = 300
"""Characters of the reason for which a node failed."""
_DONE = "this very call was done before the plan was repaired."


@dataclass(slots=True)
class Spending:
    """Passes events on, with the node they are about, and adds up what they say was spent on thinking."""

    tell: Emit
    node: str = ""
    call: str = ""
    """The id of the node's call."""
    thought: StepCost = field(default_factory=StepCost)
    tool_nano: int = 0
    """What its tool has cost."""

    def emit(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, BudgetSettled) and event.role != JUDGE:
            self.thought = self.thought.plus(event)
        self.tell(replace(event, node=self.node) if self.node and isinstance(event, TextArrived) else event)


@dataclass(slots=True)
class Lasting:
    """A lasting call that was done."""

    step: Step
    known_as: frozenset[str]
    """What it was: as it was proposed, and as its tool got it, which a person may have changed."""
    followed: int = 0
    """How many others were done after it, by the end of its plan."""
    left: bool = False
    """Whether the present plan has not come to it, nor keeps it."""


@dataclass(slots=True)
class Finished:
    """What the plans of one turn have finished: nodes of the present one, and every lasting call, in their order."""

    catalog: Catalog
    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    """What the finished nodes of the present plan came to, by their labels."""
    _nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    _lasting: list[Lasting] = field(default_factory=list[Lasting])

    def add(self, node: Node, step: Step, made: Call) -> None:
        """A node of the present plan is done; `made` is the call as its tool got it."""
        self._nodes[node.label], self.steps[node.label] = node, step
        if self.catalog.tool(node.tool).effects & LASTING:
            self._lasting.append(Lasting(step, frozenset((self._what(step.call), self._what(made)))))

    def kept(self, plan: GraphPlan) -> dict[str, Node]:
        """What a repaired plan keeps, by label: what it names as before, the same use of a tool for the same inputs.

        A node whose inputs have changed, or wait for what has, runs anew.
        """
        kept: dict[str, Node] = {}
        for node in plan.nodes:
            before = self._nodes.get(node.label)
            same = before is not None and set(before.after) == set(node.after)
            if same and kept.keys() >= set(node.after) - {TASK}:
                kept[node.label] = node
        return kept

    def follow(self, plan: GraphPlan) -> None:
        """Go on with a repaired plan."""
        self._nodes = self.kept(plan)
        self.steps = {label: self.steps[label] for label in self._nodes}
        for followed, lasting in enumerate(reversed(self._lasting)):
            lasting.followed, lasting.left = followed, lasting.step not in self.steps.values()

    def take_over(self, node: Node, call: Call) -> Lasting | None:
        """What was done for a plan before this one by this very call, as the node's; None where it is to be made.

        One call that was done stands for one node: of three equal ones two are made yet.
        """
        what = self._what(call)
        found = next((one for one in self._lasting if one.left and what in one.known_as), None)
        if found is not None:
            found.left = False
            self._nodes[node.label], self.steps[node.label] = node, found.step
        return found

    def _what(self, call: Call) -> str:
        """The tool and its arguments, written so that calls that are the same read the same: `1.0` is `1`."""
        made = unwrap(call)
        arguments = dict(made.arguments)
        properties: Mapping[str, Any] = self.catalog.schema(made.name).parameters.get("properties") or {}
        for name, schema in properties.items():
            if isinstance(schema, dict) and "default" in schema:
                arguments.setdefault(name, cast("dict[str, Any]", schema)["default"])
        plain = json.loads(json.dumps(arguments, default=str), parse_float=_number)
        return f"{made.name} {json.dumps(plain, sort_keys=True)}"


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value


class Run:
    """One plan under way, in one mode."""

    def __init__(
        self, parallel: ParallelPlan, plan: GraphPlan, mode: Mode, path: Path, *, number: int, share: StepCost
    ) -> None:
        """It runs from this path; `number` tells it from the turn's other plans in the ids of its calls, and `share` is
        what each node's part of drafting it took."""
        self._finished = parallel.finished
        self._plan = plan
        self._text = render(plan, "text")
        self._kept = dict(parallel.finished.steps)
        self._turn_context = parallel.turn_context
        self._mode = mode
        self._base = path
        """What the nodes go on from."""
        self._number = number
        self._share = share
        self._executor = parallel.executor
        self._emit = parallel.emit
        labels = enumerate((node.label for node in plan.nodes), 1)
        self._spent = {label: Spending(self._emit, label, f"g{number}n{at}") for at, label in labels}
        self._steps: dict[str, Step] = {}
        """What was done, by the labels of the nodes, failures included."""
        self._filling: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Nodes with the same tool make out their calls one after another, each told of those before it."""
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        """Calls that were made out, or done for an earlier plan, by tool."""
        self._under_way: Counter[str] = Counter()
        """Uses of each tool that have begun and not ended."""
        self._use_ended = asyncio.Condition()

    async def whole(self) -> GraphResult:
        """Run it to its end."""
        for step in self._base.result_steps:
            self._calls[step.call.subject].append(step.call)
        # a plan says by naming a tool that it is to be registered, so no model is asked
        registered, registrations = self._turn_context.registered(self._base), list[Step]()
        tools = dict.fromkeys(node.tool for node in self._plan.nodes if node.label not in self._kept)
        for at, tool in enumerate((tool for tool in tools if tool not in registered), 1):
            call = Call(TOOL_REGISTER, {"tool_name": tool}, f"g{self._number}r{at}")
            context = CallContext(self._base.then(*registrations), frozenset(registered), self._emit)
            registrations.append(Step("", call, await self._executor.execute(call, context)))
        self._base = self._base.then(*registrations)
        nodes, catalog = self._plan.nodes, self._turn_context.catalog
        lasting = [node.label for node in nodes if catalog.tool(node.tool).effects & LASTING]
        with sharing():
            ran = await run_graph(self._plan, self._node, parallel=PARALLEL, ordered=lasting, watch=self._changed)
        steps = (self._steps[node.label] for node in nodes if node.label in self._steps)
        unfinished = tuple(f"{one.node.label} {one.state}: {one.reason}" for one in ran.nodes if one.state != "done")
        return GraphResult((*registrations, *steps), unfinished)

    async def _node(self, node: Node, given: Mapping[str, Step]) -> Step:
        """Make one node's call, or take over what it came to before; raises NodeFailed."""
        if node.label in self._kept:
            return self._kept[node.label]
        if node.tool not in self._turn_context.registered(self._base):
            raise NodeFailed(f"{node.tool} is not registered")
        async with self._use(node.tool):
            refusal = self._turn_context.plan.refusal(node.tool)
            if refusal:  # before anybody is paid for making out a call that the guards would refuse
                raise NodeFailed(refusal)
            waited = {*node.after}  # directly or not
            for one in reversed(self._plan.nodes):
                if one.label in waited:
                    waited.update(one.after)
            known = waited & self._steps.keys()
            path = self._base.then(*(self._steps[one.label] for one in self._plan.nodes if one.label in known))
            call, spent = await self._call(node, given, path), self._spent[node.label]
            done = self._finished.take_over(node, call)
            if done is not None:
                spent.call = done.step.call.id
                since = f" Calls after it that may have changed something: {done.followed}." if done.followed else ""
                self._emit(Notice(f"{visible_line(node.label)} was not run again: {_DONE}{since}"))
                return done.step
            context = CallContext(
                path,
                frozenset(self._turn_context.registered(self._base)),
                self._emit,
                rationale=f"It is {node.label} in the plan {self._text}",
                node=True,
                # a node's clock does not run while it is drafted
                thought=replace(self._share, seconds=0.0) + spent.thought,
            )
            try:
                seen = await self._executor.execute(call, context)
            finally:
                spent.tool_nano = context.bill.spent_nano
            step = self._steps[node.label] = Step("", call, seen)
            if not seen.ok:
                raise NodeFailed(visible_line(seen.text)[:_REASON])
            self._finished.add(node, step, context.bill.made or call)
            return step

    @asynccontextmanager
    async def _use(self, tool: str) -> AsyncGenerator[None]:
        """Begin a use as soon as the turn's plan leaves room for it beside those under way, or none of them could make
        some by its end."""
        under_way, plan = self._under_way, self._turn_context.plan
        async with self._use_ended:
            while under_way[tool] and (allowed := plan.allows(tool)) is not None and under_way[tool] >= allowed:
                await self._use_ended.wait()
            under_way[tool] += 1
        try:
            yield
        finally:
            under_way[tool] -= 1
            async with self._use_ended:
                self._use_ended.notify_all()

    async def _call(self, node: Node, given: Mapping[str, Step], path: Path) -> Call:
        """The node's call: as the results before it give it, else as the mode fills it in.

        What filling it in took is the node's cost, whatever came of it; raises NodeFailed.
        """
        results = tuple(given[label] for label in node.after if label in given)
        schema, spent = self._turn_context.catalog.schema(node.tool), self._spent[node.label]
        call = direct_call(schema, results)
        if call is not None:
            return replace(call, id=spent.call)
        alike = [one.label for one in self._plan.nodes if (one.tool, one.after) == (node.tool, node.after)]
        async with self._filling[node.tool]:
            task = FillTask(
                label=node.label,
                schema=schema,
                plan=self._text,
                given=results,
                use=alike.index(node.label) + 1,
                uses=len(alike),
                calls=tuple(self._calls[node.tool]),
            )
            try:
                call = await self._mode.fill(self._turn_context.view(path), task, spent.emit)
            except (BudgetError, ModelError) as failure:
                raise NodeFailed(f"its arguments could not be filled in: {failure.message}") from failure
            self._calls[node.tool].append(call)
        return replace(call, id=spent.call)

    def _changed(self, run: NodeRun) -> None:
        label = run.node.label
        if label in self._kept:
            return
        spent, begun = self._spent[label], run.started or 0.0
        call = "" if run.state == "skipped" else spent.call
        seconds = 0.0 if run.finished is None else run.finished - begun
        step = self._steps.get(label)
        denied = run.state == "failed" and step is not None and step.observation.refused == "unapproved"
        state = "denied" if denied else run.state
        nano = None if spent.thought.nano is None else spent.thought.nano + spent.tool_nano
        self._emit(NodeChanged(label, state, call, seconds, nano, run.reason))


# -- arguments that need no thinking: of a tool without any, and of one that takes what comes before it as it is


def direct_call(schema: ToolSchema, given: Sequence[Step]) -> Call | None:
    """The call that results leave no choice about; None where somebody has to think.

    That is a tool without parameters, and a tool with one, where one result is that parameter's value as it stands.
    """
    properties: Mapping[str, Any] = schema.parameters.get("properties") or {}
    if not properties:
        return Call(schema.name)
    required = schema.parameters.get("required") or ()
    if len(properties) != 1 or len(given) != 1 or not set(properties) <= set(required):
        return None
    if given[0].observation.truncated:
        return None
    (name,) = properties
    value = _value(name, signature(schema).takes, given[0].observation.text)
    call = Call(schema.name, {name: value})
    return None if value is None or call_fault(call, [schema]) else call


def _value(name: str, kinds: frozenset[str], result: str) -> Any:
    """The result as a value of one of these kinds; None where it is none, or not by itself."""
    text = result.strip()
    if NUMBER in kinds and _NUMBER.fullmatch(text):
        whole = _WHOLE.fullmatch(text)  # the schema takes 7.0 for an integer, tools do not
        text = whole[1] if whole else text
    elif not (kinds & {JSON, TABLE} and text[:1] in ("{", "[")):
        if (URL in kinds and _URL.fullmatch(text)) or (FILE in kinds and _FILE.fullmatch(text)):
            return text
        return result if TEXT in kinds and not _CONTENT.isdisjoint(name.lower().split("_")) else None
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):  # also of `007`, NaN, and numbers too large to be held
        return None
    return value

"""The tool graphs of a turn: costs for their author, drafts, checks, and repairs (CATP-LLM §3, SPEC §3)."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import islice

from ecoshell.agent import NonInteractive
from ecoshell.agent.finished_nodes import FinishedNodes
from ecoshell.agent.graph_run import Fill, GraphRun, Spending
from ecoshell.agent.guards import ToolExecutor
from ecoshell.agent.mode import DraftTask, Mode
from ecoshell.agent.quoting import Figures, Quoter
from ecoshell.agent.spending import AnswerNow
from ecoshell.agent.turn_plan import Estimate, TurnPlan
from ecoshell.agent.view import View
from ecoshell.budget import amount_text, rounded_up
from ecoshell.events import Emit, GraphNode, GraphPlanned, Notice, Quote
from ecoshell.messages import META_TOOLS
from ecoshell.planning.catp.costs import CostTable
from ecoshell.planning.catp.masking import plan_grammar
from ecoshell.planning.catp.plan import ITSELF, GraphPlan, PlanFault, longest_path, shown
from ecoshell.planning.catp.rules import Problem, validate
from ecoshell.planning.catp.tpl import find_plan, render
from ecoshell.planning.catp.types import Signature, signature
from ecoshell.planning.quote import Part
from ecoshell.strategies import DraftGraph, GraphDraft, GraphResult, Path, Thought

_GRAMMAR_NODES = 8
"""Nodes of a graph under a grammar, which needs more rules for each."""


class ToolGraphs:
    """Drafts and runs the tool graphs of one turn."""

    def __init__(
        self, view_of: Callable[[Path], View], *, executor: ToolExecutor, emit: Emit, quoter: Quoter
    ) -> None:
        self._view_of = view_of
        self._quoter = quoter
        self._turn_plan = quoter.plan
        self._catalog = quoter.deps.catalog
        self._executor = executor
        self._emit = emit
        self._draft_text = ""
        """The last draft, valid or not."""
        self._plan: GraphPlan | None = None
        """The last valid graph."""
        self._plan_text = ""
        self._finished = FinishedNodes(self._catalog)
        self._drafting = Spending(emit)

    async def draft(self, mode: Mode, view: View, want: DraftGraph) -> Thought | GraphDraft:
        """Let the mode draft a graph, and check it; raises BudgetError and ModelError."""
        task = DraftTask(
            previous=self._plan_text,
            unfinished=want.unfinished,
            finished=tuple(self._finished.steps),
            faulty=self._draft_text,
            fault=want.fault,
            costs=view.costs,
            grammar=partial(self._grammar, view),
        )
        if not want.fault:
            self._drafting = Spending(self._emit)
        draft = await mode.draft(view, task, self._drafting.emit)
        if isinstance(draft, Thought):
            return draft
        self._draft_text = draft
        try:
            plan = self._plan = await asyncio.to_thread(self._parse, draft, view)
        except PlanFault as fault:
            again = " again; continuing step by step" if want.fault else ""
            self._emit(Notice(f"The tool graph is invalid{again}. {fault}"))
            return GraphDraft(str(fault))
        self._plan_text = draft
        self._finished.follow(plan)
        self._emit(await asyncio.to_thread(self._planned, plan, repaired=bool(want.unfinished)))
        return GraphDraft()

    async def run(self, fill: Fill, path: Path, number: int) -> GraphResult:
        """Run the last valid graph from this path; `number` makes the IDs of its calls unique in the turn."""
        if self._plan is None:
            return GraphResult()
        quoted, refusal = await self._agreed(self._plan)
        if refusal:
            return GraphResult(unfinished=(refusal,))
        new_nodes = len(self._plan.nodes) - len(self._finished.steps)
        run = GraphRun(
            plan=self._plan,
            finished=self._finished,
            catalog=self._catalog,
            turn_plan=self._turn_plan,
            view_of=self._view_of,
            fill=fill,
            path=path,
            executor=self._executor,
            emit=self._emit,
            number=number,
            share=self._drafting.thought.part(max(1, new_nodes)),
        )
        async with self._quoter.billed(quoted, lambda: run.spent_nano):
            return await run.run()

    async def _agreed(self, plan: GraphPlan) -> tuple[Quote | None, str]:
        """Quote the new nodes of the graph, which the user may trim; returns the quote, and why nothing may start."""
        quoter = self._quoter
        figures = await asyncio.to_thread(Figures.of, self._turn_plan)
        quoted = await quoter.quoted("graph", *self._parts(plan, figures))
        if quoted is None:
            return None, ""
        choice = await quoter.decide(quoted)
        if choice.kind == "refuse":
            if not isinstance(quoter.deps.user, NonInteractive):
                raise AnswerNow
            return None, f"the plan was not started: {quoted.reason}; make a smaller one"
        if choice.kind == "start" or (smaller := without(plan, choice.without)) is None:
            return quoted, ""
        self._plan, self._plan_text = smaller, render(smaller, "text")
        self._emit(await asyncio.to_thread(self._planned, smaller, repaired=False))
        return await quoter.trimmed("graph", *self._parts(smaller, figures)), ""

    def _parts(self, plan: GraphPlan, figures: Figures) -> tuple[list[Part], int]:
        """The graph's new nodes as parts of a quote, and their tokens."""
        nodes = [node for node in plan.nodes if node.label not in self._finished.steps]
        parts = [figures.part(node.label, node.tool, node.after) for node in nodes]
        return parts, figures.tokens_of(node.tool for node in nodes)

    def _planned(self, plan: GraphPlan, *, repaired: bool) -> GraphPlanned:
        """The graph as an event, with its expected price and time; may block."""
        kept, nodes = self._finished.steps, list[GraphNode]()
        for node in plan.nodes:
            kinds = signature(self._catalog.schema(node.tool))
            estimate = self._turn_plan.expected(node.tool)
            if node.label in kept:
                estimate = Estimate(0, 0.0)
            takes, gives = tuple(sorted(kinds.takes)), tuple(sorted(kinds.gives))
            figures = (estimate.price_nano, estimate.seconds)
            nodes.append(GraphNode(node.label, node.tool, node.after, takes, gives, *figures))
        prices = [node.price_nano for node in nodes if node.price_nano is not None]
        known_times = [node.seconds for node in nodes if node.seconds is not None]
        mean = sum(known_times) / len(known_times) if any(known_times) else 1.0
        times = {node.label: mean if node.seconds is None else node.seconds for node in nodes}
        length, critical = longest_path({node.label: node.after for node in nodes}, times)
        return GraphPlanned(
            nodes=tuple(nodes),
            text=render(plan, "text"),
            repaired=repaired,
            kept=tuple(node.label for node in nodes if node.label in kept),
            critical=critical,
            price_nano=sum(prices) if len(prices) == len(nodes) else None,
            seconds=length if len(known_times) == len(nodes) else None,
        )

    def _parse(self, text: str, view: View) -> GraphPlan:
        """The graph in a text, which may contain prose; raises PlanFault with line, column and node.

        It may use the tools of the view that the turn's plan allows, and keep finished nodes.
        """
        tools = self._tools(view)
        match = find_plan(text, {*tools, *META_TOOLS, *self._turn_plan.forbidden})
        kept = self._finished.kept(match.plan)
        for at, node in enumerate(match.plan.nodes):
            fault = ""
            if node.tool in META_TOOLS:
                fault = f"{node.tool} is no part of a plan; tools alone are."
            elif node.label not in kept:
                fault = self._turn_plan.refusal(node.tool)
            if fault:
                text = f"{shown(node.label)}: {fault}"
                raise match.placed(PlanFault(text, node=node.label, spot=(at, ITSELF)))
        validate(match.plan, Problem(tools), match)
        return match.plan

    def _grammar(self, view: View) -> str:
        """The grammar of valid graphs for local models; empty if none exists. May take a second."""
        finished = {step.call.subject for step in self._finished.steps.values()}
        forbidden = self._turn_plan.forbidden.keys() - finished
        tools = self._tools(view)
        allowed = {name: kinds for name, kinds in tools.items() if name not in forbidden}
        try:
            return plan_grammar(Problem(allowed, max_nodes=_GRAMMAR_NODES))
        except PlanFault:
            return ""

    def _tools(self, view: View) -> dict[str, Signature]:
        """The tools that a graph may use, with the kinds of their inputs and results."""
        names = dict.fromkeys((*view.usable, *(schema.name for schema in view.registered)))
        return {
            name: signature(self._catalog.schema(name)) for name in names if name in self._catalog
        }


def without(plan: GraphPlan, labels: Collection[str]) -> GraphPlan | None:
    """The graph without these nodes and those that depend on them; None if nothing remains."""
    left_out = set(labels)
    for node in plan.nodes:
        if left_out.intersection(node.after):
            left_out.add(node.label)
    nodes = tuple(node for node in plan.nodes if node.label not in left_out)
    return GraphPlan(nodes) if nodes else None


MAX_TOOLS = 12
"""Tools with costs in the text, the likeliest for the question first."""


def costs_text(plan: TurnPlan, profiled: CostTable, tools: Iterable[str], size: int | None) -> str:
    """Prices and times of the likeliest tools, and the resources that they use; empty if nothing is known.

    `size` is the size of the question's input in bytes; None if unknown.
    """
    by_chance = sorted(tools, key=lambda tool: -plan.inputs.chances.get(tool, 0.0))
    known = (
        tool for tool in by_chance if tool in profiled.vectors or _figures(plan.expected(tool))
    )
    listed = [*islice(known, MAX_TOOLS)]
    figures = {tool: _figures(plan.expected(tool, size)) for tool in listed}
    lines = [f"- {tool}: {text}" for tool, text in figures.items() if text]
    uses = ["What one use of a tool is expected to take:", *lines] if lines else []
    return "\n".join(filter(None, (*uses, profiled.prompt(listed, size))))


def _figures(estimate: Estimate) -> str:
    """Price and time of one use; empty if it is free and its time unknown."""
    seconds = estimate.seconds
    figures = [amount_text(rounded_up(estimate.price_nano), "usd")] if estimate.price_nano else []
    if seconds is not None:
        milliseconds = max(1, round(seconds * 1000))
        figures.append(f"{seconds:.1f} s" if seconds >= 1 else f"{milliseconds} ms")
    return ", ".join(figures)

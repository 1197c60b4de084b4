"""The parallel plan of one turn: written by a model, looked at, run, and run again where a part of it had failed."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from ecoshell.agent.context import TurnContext
from ecoshell.agent.graph.running import Finished, Run, Spending
from ecoshell.agent.guards import ToolExecutor
from ecoshell.agent.mode import DraftTask, Mode, View
from ecoshell.agent.planning import Estimate
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.budget.money import amount_text, rounded_up
from ecoshell.events import Emit, GraphNode, GraphPlanned, Notice
from ecoshell.messages import META_TOOLS, Attachment
from ecoshell.planning.catp.costs import CostTable
from ecoshell.planning.catp.masking import plan_grammar
from ecoshell.planning.catp.plan import ITSELF, GraphPlan, PlanFault, longest_path, shown
from ecoshell.planning.catp.rules import Problem, validate
from ecoshell.planning.catp.tpl import find_plan, render
from ecoshell.planning.catp.types import Signature, signature
from ecoshell.strategies.base import Draft, Drafted, Gathered, Path, Thought

MOST = 12
"""Tools whose costs are spoken of, the likeliest for the question first."""
_HELD_NODES = 8
"""Nodes of a plan that is written under a grammar: each takes it more rules."""


class ParallelPlan:
    """Fulfils a strategy's wishes for a plan whose branches run side by side. One turn has one."""

    def __init__(self, turn_context: TurnContext, *, executor: ToolExecutor, emit: Emit) -> None:
        self._turn_context = turn_context
        self._executor = executor
        self._emit = emit
        self._written = ""
        """The plan that was written last, whether it can be run or not."""
        self._plan: GraphPlan | None = None
        self._finished = Finished(turn_context.catalog)
        self._drafting = Spending(emit)

    async def draft(self, mode: Mode, view: View, want: Draft) -> Thought | Drafted:
        """Have a plan written and looked at; raises BudgetError and ModelError."""
        task = DraftTask(
            before=self._written,
            fault=want.fault,
            unfinished=want.unfinished,
            finished=tuple(self._finished.steps),
            costs=self._turn_context.costs,
            grammar=partial(_grammar, view, self._turn_context),
        )
        if not want.fault:
            self._drafting = Spending(self._emit)
        written = await mode.draft(view, task, self._drafting.emit)
        if isinstance(written, Thought):
            return written
        self._written = written
        try:
            plan = self._plan = await asyncio.to_thread(_read, written, view, self._turn_context)
        except PlanFault as fault:
            again = " a second time, so it goes on step by step" if want.fault else ""
            self._emit(Notice(f"The plan cannot be run{again}. {fault}"))
            return Drafted(str(fault))
        self._finished.follow(plan)
        self._emit(await asyncio.to_thread(self._planned, plan, repaired=bool(want.unfinished)))
        return Drafted()

    async def run(self, mode: Mode, path: Path, number: int) -> Gathered:
        """Run the plan from this path; `number` tells it from the turn's other plans in the ids of its calls."""
        if self._plan is None:
            return Gathered()
        new = len(self._plan.nodes) - len(self._finished.steps)
        run = Run(
            self._plan,
            turn_context=self._turn_context,
            mode=mode,
            executor=self._executor,
            emit=self._emit,
            finished=self._finished,
        )
        return await run.whole(path, number, self._drafting.thought.part(max(1, new)))

    def _planned(self, plan: GraphPlan, *, repaired: bool) -> GraphPlanned:
        """The plan as the event that tells of it, with the price and time it is expected to take; may block."""
        turn_context, kept, nodes = self._turn_context, self._finished.steps, list[GraphNode]()
        for node in plan.nodes:
            kinds, estimate = signature(turn_context.catalog.document(node.tool)), turn_context.plan.expected(node.tool)
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


def _read(written: str, view: View, turn_context: TurnContext) -> GraphPlan:
    """The plan in a text, around which there may be prose; raises PlanFault, which names line, column and node.

    It may name what the view knows and the turn's plan allows.
    """
    tools = _tools(view, turn_context)
    found = find_plan(written, {*tools, *META_TOOLS, *turn_context.plan.forbidden})
    for at, node in enumerate(found.plan.nodes):
        meta = node.tool in META_TOOLS
        if (
            said := f"{node.tool} is no part of a plan; tools alone are."
            if meta
            else turn_context.plan.refusal(node.tool)
        ):
            raise found.placed(PlanFault(f"{shown(node.label)}: {said}", node=node.label, spot=(at, ITSELF)))
    validate(found.plan, Problem(tools), found)
    return found.plan


def _grammar(view: View, turn_context: TurnContext) -> str:
    """The grammar of the plans that can be run, for models that can be held to it; empty where there is none.

    May take a second.
    """
    allowed = {
        name: kinds for name, kinds in _tools(view, turn_context).items() if name not in turn_context.plan.forbidden
    }
    try:
        return plan_grammar(Problem(allowed, max_nodes=_HELD_NODES))
    except PlanFault:
        return ""


def _tools(view: View, turn_context: TurnContext) -> dict[str, Signature]:
    """What a plan may name, with the kinds it takes and gives."""
    names = dict.fromkeys((*view.usable, *(document.name for document in view.registered)))
    return {name: signature(turn_context.catalog.document(name)) for name in names if name in turn_context.catalog}


def costs_text(plan: TurnPlan, profiled: CostTable, tools: Iterable[str], size: int | None) -> str:
    """What the prompt for a plan says of costs: by price and time, and by what a use takes of the machine (§3.2.1).

    Empty if nothing is known; `size` is the present input's in bytes, None is unknown.
    """
    likely = sorted(tools, key=lambda tool: -plan.inputs.chances.get(tool, 0.0))
    spoken_of = [tool for tool in likely if tool in profiled.vectors or _figures(plan.expected(tool))][:MOST]
    figures = {tool: _figures(plan.expected(tool, size)) for tool in spoken_of}
    lines = [f"- {tool}: {said}" for tool, said in figures.items() if said]
    taken = "\n".join(("What one use of a tool is expected to take:", *lines)) if lines else ""
    return "\n".join(part for part in (taken, profiled.told(spoken_of, size)) if part)


def _figures(estimate: Estimate) -> str:
    """Price and time of one use; empty where it is free, as far as is known, and its time is unknown."""
    found = [amount_text(rounded_up(estimate.price_nano), "usd")] if estimate.price_nano else []
    if estimate.seconds is not None:
        milliseconds = max(1, round(estimate.seconds * 1000))
        found.append(f"{estimate.seconds:.1f} s" if estimate.seconds >= 1 else f"{milliseconds} ms")
    return ", ".join(found)


def input_size(attachments: Sequence[Attachment], named: int | None) -> int | None:
    """The size of what a question gives, in bytes: of its largest attachment or `named` file; None is unknown."""
    known = [len(attached.text.encode("utf-8", "replace")) for attached in attachments]
    return max([*known, *(() if named is None else (named,))], default=None)

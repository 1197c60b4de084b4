"""The plan of branches of one turn: drafted, kept, and run again where a part of it had failed."""

import asyncio
from functools import partial

from ecoshell.agent.context import Frame
from ecoshell.agent.graph.drafting import grammar_of_plans, planned, read_plan
from ecoshell.agent.graph.finished import Finished
from ecoshell.agent.graph.running import Run
from ecoshell.agent.graph.spending import Spending
from ecoshell.agent.guards import Source
from ecoshell.agent.mode import DraftTask, Mode, View
from ecoshell.events import Emit, Notice
from ecoshell.planning.catp.base import GraphPlan
from ecoshell.planning.catp.faults import PlanFault
from ecoshell.strategies.base import Draft, Drafted, Gathered, Path, Thought


class Branches:
    """Fulfils a strategy's wishes for a plan of branches. One turn has one."""

    def __init__(self, frame: Frame, *, source: Source, emit: Emit) -> None:
        self._frame = frame
        self._source = source
        self._emit = emit
        self._written = ""
        """The plan that was written last, whether it can be run or not."""
        self._plan = GraphPlan(())
        self._finished = Finished(frame.catalog)
        self._drafting = Spending(emit)

    async def draft(self, mode: Mode, view: View, want: Draft) -> Thought | Drafted:
        """Have a plan written and looked at; raises BudgetError and ModelError."""
        task = DraftTask(
            before=self._written,
            fault=want.fault,
            unfinished=want.unfinished,
            finished=tuple(self._finished.steps),
            costs=self._frame.costs,
            grammar=partial(grammar_of_plans, view, self._frame),
        )
        if not want.fault:
            self._drafting = Spending(self._emit)
        written = await mode.draft(view, task, self._drafting.emit)
        if isinstance(written, Thought):
            return written
        self._written = written
        try:
            plan = await asyncio.to_thread(read_plan, written, view, self._frame)
        except PlanFault as fault:
            again = " a second time, so it goes on step by step" if want.fault else ""
            self._emit(Notice(f"The plan cannot be run{again}. {fault}"))
            return Drafted(str(fault))
        self._plan, repaired = plan, bool(want.unfinished)
        self._finished.follow(plan)
        event = await asyncio.to_thread(planned, plan, self._frame, tuple(self._finished.steps), repaired=repaired)
        self._emit(event)
        return Drafted()

    async def run(self, mode: Mode, path: Path, number: int) -> Gathered:
        """Run the plan from this path; `number` tells it from the turn's other plans in the ids of its calls."""
        run = Run(
            self._plan,
            frame=self._frame,
            mode=mode,
            source=self._source,
            emit=self._emit,
            finished=self._finished,
        )
        new = len(self._plan.nodes) - len(self._finished.steps)
        return await run.whole(path, number, self._drafting.thought.part(max(1, new)))

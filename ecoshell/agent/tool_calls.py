"""The tool calls of a turn: which run together, and what runs several subagents."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING

from ecoshell.agent.guards import Bill, CallContext, ToolExecutor, finished, refuse, unwrap
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.view import View
from ecoshell.budget.gate import sharing
from ecoshell.events import CallStarted, Emit, Notice, Rationale
from ecoshell.messages import Call, Observation
from ecoshell.strategies import Path, Thought, same
from ecoshell.tools.builtin.task import TASK

if TYPE_CHECKING:
    from ecoshell.agent.quoting import Quoter

MOST_CALLS = 64
"""Calls of one reply that run; the others are dropped."""


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """Where a call comes from."""

    rationale: str = ""
    role: str = ""
    unreported_role: str = ""
    """The role whose rationale is reported when the call is made; empty if it was reported before."""


@dataclass(eq=False)
class ToolCalls:
    """Runs the calls of a turn's replies through the guards."""

    plan: TurnPlan
    executor: ToolExecutor
    emit: Emit
    _origins: dict[str, CallOrigin] = field(default_factory=dict[str, CallOrigin])
    """The origin of each pending call, by ID."""
    _ids: set[str] = field(default_factory=set[str])
    """IDs of all calls so far, since some providers number them per reply."""

    @cached_property
    def quoter(self) -> "Quoter":
        """Quotes subagents and tool graphs, which few turns have."""
        from ecoshell.agent.quoting import Quoter

        return Quoter(self.plan.deps, self.plan, self.emit)

    def accept(
        self, thought: Thought, call: Call, step: int, role: str, unreported_role: str
    ) -> Thought:
        """The thought with unique IDs of its calls, of which the first is `call`."""
        call = self.identified(call, step)
        self._origins[call.id] = CallOrigin(thought.rationale, role, unreported_role)
        more = tuple([self.identified(call, step) for call in thought.more[: MOST_CALLS - 1]])
        self._origins |= {call.id: CallOrigin(role=role) for call in more}
        if len(more) < len(thought.more):
            made = 1 + len(thought.more)
            text = f"The model made {made:,} calls in one reply; only the first {MOST_CALLS} run."
            self.emit(Notice(text))
        return replace(thought, call=call, more=more)

    def identified(self, call: Call, step: int) -> Call:
        """The call with an ID that is unique in the turn."""
        names = chain((call.id, f"c{step}"), (f"c{step}.{number}" for number in count(2)))
        id_ = next(name for name in names if name and name not in self._ids)
        self._ids.add(id_)
        return replace(call, id=id_)

    def next_group(self, pending: Sequence[Call], view: View) -> Sequence[Call]:
        """The first pending call, and those after it that may run concurrently with it: different calls that read."""
        group, catalog = [pending[0]], self.plan.deps.catalog
        for call in pending[1:]:
            only_read = all(
                name in catalog and catalog.tool(name).effects <= {"read"}
                for name in (group[0].name, call.name)
            )
            if not only_read or any(same(member, call) for member in group):
                break
            is_registered = call.name in view.registered_names
            if not is_registered and any(member.name == call.name for member in group):
                break  # the first call registers it
            group.append(call)
        return group

    async def run(self, path: Path, view: View, group: Sequence[Call]) -> list[Observation]:
        """Run calls concurrently; several subagents are quoted first."""
        bills = {call.id: Bill() for call in group}
        delegated = [call for call in group if unwrap(call).name == TASK]
        if len(delegated) < 2:
            return await self._run(path, view, group, bills, {})
        agreed = await self.quoter.tasks(delegated)
        async with self.quoter.bills.of(
            agreed.quoted, lambda: sum(bills[call.id].total_nano for call in delegated)
        ):
            return await self._run(path, view, group, bills, agreed.refusals)

    async def _run(
        self,
        path: Path,
        view: View,
        group: Sequence[Call],
        bills: Mapping[str, Bill],
        refusals: Mapping[str, str],
    ) -> list[Observation]:
        """Run calls concurrently, except those with a refusal."""
        try:
            with sharing():  # each reserves more time than it usually takes
                async with asyncio.TaskGroup() as tasks:
                    works = [
                        self._call(path, view, call, bills[call.id], refusals.get(call.id, ""))
                        for call in group
                    ]
                    running = [tasks.create_task(work) for work in works]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in running]

    async def _call(
        self, path: Path, view: View, call: Call, bill: Bill, refusal: str
    ) -> Observation:
        origin = self._origins.pop(call.id, CallOrigin())
        if origin.rationale and origin.unreported_role:
            self.emit(Rationale(origin.rationale, origin.unreported_role))
        context = CallContext(
            path,
            frozenset(view.registered_names),
            self.emit,
            origin.rationale,
            bill,
            role=origin.role,
            forgotten=view.condensed.forgotten,
        )
        if not refusal:
            return await self.executor.execute(call, context)
        observation = refuse("unapproved", refusal)
        self.emit(
            CallStarted(call.id, call.name, call.arguments, role=origin.role, group=call.group)
        )
        self.emit(finished(call, observation, context))
        return observation

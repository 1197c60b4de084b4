"""The tool calls of a turn: which run together, and what runs several subagents."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING

from ecoshell.agent.checks import repetition
from ecoshell.agent.guards import CallContext, ReplyCalls, ToolExecutor, announce, refuse, unwrap
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.turn_usage import UserTime
from ecoshell.agent.view import View
from ecoshell.budget.gate import sharing
from ecoshell.events import Emit, Notice, Rationale
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
    user_time: UserTime
    _origins: dict[str, CallOrigin] = field(default_factory=dict[str, CallOrigin])
    """The origin of each pending call, by ID."""
    _ids: set[str] = field(default_factory=set[str])
    """IDs of all calls so far, since some providers number them per reply."""

    @cached_property
    def quoter(self) -> "Quoter":
        """Quotes subagents and tool graphs, which few turns have."""
        from ecoshell.agent.quoting import Quoter

        return Quoter(self.plan, self.emit, self.user_time)

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

    def next_group(self, pending: Sequence[Call]) -> Sequence[Call]:
        """The first pending call, and those after it that may run concurrently with it: different calls that read."""
        group, catalog = [pending[0]], self.plan.deps.catalog
        for call in pending[1:]:
            only_read = all(
                name in catalog and catalog.tool(name).effects <= {"read"}
                for name in (unwrap(group[0]).name, unwrap(call).name)
            )
            if not only_read or any(same(member, call) for member in group):
                break
            group.append(call)
        return group

    async def run(
        self, path: Path, view: View, group: Sequence[Call], reply: ReplyCalls
    ) -> list[Observation]:
        """Run calls of a reply concurrently; several subagents are quoted first."""
        contexts = self._contexts(path, view, group, reply)
        delegated = [call for call in group if self._may_start(call, contexts[call.id])]
        if len(delegated) < 2 or await self._is_forbidden(TASK):
            return await self._run(group, contexts, {})
        quoted, refusals = await self.quoter.tasks(delegated)
        contexts[delegated[0].id].delegating.difference_update(refusals)
        bills = [contexts[call.id].bill for call in delegated]
        async with self.quoter.billed(quoted, lambda: sum(bill.total_nano for bill in bills)):
            return await self._run(group, contexts, refusals)

    def _contexts(
        self, path: Path, view: View, group: Sequence[Call], reply: ReplyCalls
    ) -> Mapping[str, CallContext]:
        """The circumstances of calls that run together, by ID."""
        registered, unjudged = set(view.registered_names), {call.id for call in group}
        delegating = {call.id for call in group if unwrap(call).name == TASK}
        contexts: dict[str, CallContext] = {}
        for call in group:
            origin = self._origins.pop(call.id, CallOrigin())
            if origin.rationale and origin.unreported_role:
                self.emit(Rationale(origin.rationale, origin.unreported_role))
            contexts[call.id] = CallContext(
                path,
                registered,
                self.emit,
                origin.rationale,
                role=origin.role,
                forgotten=view.condensed.forgotten,
                unjudged=unjudged,
                delegating=delegating,
                reply=reply,
            )
        return contexts

    def _may_start(self, call: Call, context: CallContext) -> bool:
        """Whether a call delegates and is not refused as unknown, faulty or repeated."""
        inner, deps = unwrap(call), self.plan.deps
        if inner.name != TASK or TASK not in deps.catalog or inner.fault:
            return False
        return repetition(inner, context, deps) is None

    async def _is_forbidden(self, tool: str) -> bool:
        """Whether the plan forbids the tool, whatever the user decides."""
        is_refused = bool(await asyncio.to_thread(self.plan.refusal, tool, is_call=True))
        return is_refused and self.plan.shortage(tool, is_call=True) is None

    async def _run(
        self,
        group: Sequence[Call],
        contexts: Mapping[str, CallContext],
        refusals: Mapping[str, str],
    ) -> list[Observation]:
        """Run calls concurrently, except those with a refusal."""
        try:
            with sharing():  # each reserves more time than it usually takes
                async with asyncio.TaskGroup() as tasks:
                    running = [
                        tasks.create_task(self._call(call, contexts[call.id], refusals))
                        for call in group
                    ]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in running]

    async def _call(
        self, call: Call, context: CallContext, refusals: Mapping[str, str]
    ) -> Observation:
        try:
            if call.id not in refusals:
                return await self.executor.execute(call, context)
            observation = refuse("unapproved", refusals[call.id])
            announce(call, observation, context)
            return observation
        finally:
            context.reply.pending.discard(call.id)
            context.unjudged.discard(call.id)
            context.delegating.discard(call.id)

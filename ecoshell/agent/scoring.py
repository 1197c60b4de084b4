"""What a tool graph has come to, and what it was worth: how far it helped against its cost (QoP, CATP-LLM eq. 5).

Each node counts as its result was judged: by the person's mark, else by the checker of the settings, else by whoever
judged the call. A node that failed or was skipped did not help, nor did any where the agent gave up.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from ecoshell.agent.dependencies import Dependencies
from ecoshell.budget import amount_text
from ecoshell.errors import ToolError
from ecoshell.events import CallFinished, Emit, Notice, PlanScored, Status
from ecoshell.messages import visible_line
from ecoshell.planning.catp.costs import worth
from ecoshell.planning.catp.plan import longest_path
from ecoshell.sessions.tool_graphs import PlannedTurn, PlannedTurns, ToolGraph

_FINISHED: frozenset[Status] = frozenset({"answered", "limit", "gave_up"})
"""How a turn ends whose plan is scored; a stop and an error say nothing of the plan."""
_JUDGES = ("you", "checker", "agent", "model", "plugin", "classifier", "rules")
"""Who may judge, in the order in which they are named."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores the plans of one session."""

    deps: Dependencies
    session: str
    turns: PlannedTurns
    """Is to be told of every event."""

    async def end(self, number: int, status: Status, answer: str, emit: Emit) -> None:
        """Score the plan of a turn that ends so, where it has one; raises StoreError."""
        turn = self.turns.by_number.get(number)
        if turn is None or status not in _FINISHED:
            return
        settings, profiles, checked = self.deps.settings, self.deps.profiles, None
        caps = self.deps.models.current.capped_by(await self.deps.budget.caps())
        limits = [cap.limit for cap in caps if cap.unit == "usd"]
        if settings.checker and status != "gave_up" and not self.deps.approvals.rules.read_only:
            try:
                checked = await self.deps.workspace.check(settings.checker, answer)
            except ToolError as failure:
                emit(Notice(f"[graph] checker said nothing of the answer: {visible_line(failure.message)}"))
        blank = PlanScored(
            turn=number,
            performance=None,
            judged_by="",
            cost_nano=None,
            most_nano=min((settings.most_nano, *limits)),
            alpha=settings.alpha,
            quality=None,
            resources_nano=taken(turn.runs.values(), profiles.unit_nano, profiles.resources),
            checked=checked,
        )
        emit(scored(turn, status, await self._spent(number), blank))

    async def again(self, number: int) -> PlanScored | None:
        """The new score of a plan that was scored before, now that a mark has changed; None where it stays the same.

        All but marks and what was spent counts as it did then. Raises StoreError.
        """
        turn = self.turns.by_number.get(number)
        if turn is None or turn.status is None or turn.scored is None:
            return None
        after = scored(turn, turn.status, await self._spent(number), turn.scored)
        return None if after == turn.scored else after

    async def _spent(self, number: int) -> int | None:
        """What the turn has cost by the ledger; None when the price of a call is unknown."""
        rows = await asyncio.to_thread(self.deps.budget.gate.ledger.turn_rows, self.session)
        row = rows.get(number)
        return None if row is None or row.unpriced else row.spent_nano


def taken(runs: Iterable[CallFinished], unit_nano: int, profiled: Mapping[str, int]) -> int | None:
    """What time and memory of runs are worth: as measured, else as profiled in nano-dollars by tool, else unknown.

    `unit_nano` is what a price unit is worth; 0 is nothing.
    """
    if not unit_nano:
        return 0
    amounts = [
        profiled.get(run.name) if run.units is None else math.ceil(Decimal(repr(run.units)) * unit_nano) for run in runs
    ]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def scored(turn: PlannedTurn, status: Status, spent_nano: int | None, before: PlanScored) -> PlanScored:
    """The score of a turn's plan, with what no mark changes as it was `before`."""
    told: list[tuple[bool, str]] = []  # whether each node helped, where somebody could tell, and who says so
    for node in turn.tool_graph.plan.nodes if turn.tool_graph is not None else ():
        call = turn.calls.get(node.label, "")
        verdict = turn.verdicts.get(call)
        if call in turn.marks:
            told.append((turn.marks[call], "you"))
        elif before.checked is not None:
            told.append((before.checked, "checker"))
        elif status == "gave_up":
            told.append((False, "agent"))
        elif turn.tool_graph is not None and turn.tool_graph.state(node.label) != "done":
            told.append((False, "rules"))
        elif verdict is not None and verdict.helpful is not None:
            told.append((verdict.helpful, verdict.by))
    performance = sum(helped for helped, _ in told) / len(told) if told else None
    judges = {by for _, by in told}
    cost = None if spent_nano is None or before.resources_nano is None else spent_nano + before.resources_nano
    return replace(
        before,
        performance=performance,
        judged_by=" + ".join(judge for judge in _JUDGES if judge in judges),
        cost_nano=cost,
        quality=worth(performance, cost, alpha=before.alpha, most_nano=before.most_nano),
    )


def outcome(tool_graph: ToolGraph) -> str:
    """What it has come to: how its nodes stand, what they have cost, and how long its longest path took by the clock.

    `2 done, 1 failed · $0.0021, 1.4 s`
    """
    counts = ", ".join(f"{count:,} {state}" for state, count in tool_graph.counts.items())
    spent = tool_graph.spent_nano
    price = "price unknown" if spent is None else amount_text(spent, "usd")
    waits = {node.label: node.after for node in tool_graph.plan.nodes}
    took = {label: tool_graph.result(label) for label in waits}
    longest, _ = longest_path(waits, {label: one.seconds if one else 0.0 for label, one in took.items()})
    return f"{counts} · {price}, {longest:.1f} s"

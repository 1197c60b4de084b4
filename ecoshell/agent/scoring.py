"""The outcome and the score of a tool graph: its performance against its cost (QoP, CATP-LLM eq. 5).

The performance is the share of helpful nodes, by the user's mark, otherwise by the checker of the settings, otherwise
by the judge of the call. Failed and skipped nodes are not helpful, nor is any node if the agent gave up.
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
"""Endings of turns whose graph is scored."""
_JUDGES = ("you", "checker", "agent", "model", "plugin", "classifier", "rules")
"""Sources of judgements, in display order."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores the tool graphs of one session."""

    deps: Dependencies
    session: str
    turns: PlannedTurns
    """Must receive every event."""

    async def end(self, number: int, status: Status, answer: str, emit: Emit) -> None:
        """Score the graph of a turn that ends, if it has one; raises StoreError."""
        turn = self.turns.by_number.get(number)
        if turn is None or status not in _FINISHED:
            return
        settings, profiles = self.deps.settings, self.deps.profiles
        is_correct: bool | None = None
        caps = self.deps.models.current.capped_by(await self.deps.budget.caps())
        limits = [cap.limit for cap in caps if cap.unit == "usd"]
        if settings.checker and status != "gave_up" and not self.deps.approvals.rules.read_only:
            try:
                is_correct = await self.deps.workspace.check(settings.checker, answer)
            except ToolError as failure:
                reason = visible_line(failure.message)
                emit(Notice(f"The command in [graph] checker failed: {reason}"))
        runs, unit = turn.runs.values(), profiles.unit_nano
        unscored = PlanScored(
            turn=number,
            performance=None,
            judged_by="",
            cost_nano=None,
            most_nano=min((settings.most_nano, *limits)),
            alpha=settings.alpha,
            quality=None,
            resources_nano=resources_value(runs, unit, profiles.resources),
            checked=is_correct,
        )
        emit(score_graph(turn, status, await self._spent(number), unscored))

    async def rescore(self, number: int) -> PlanScored | None:
        """The score of a graph after a mark has changed; None if it has no score or the same one.

        Only marks and costs are read again. Raises StoreError.
        """
        turn = self.turns.by_number.get(number)
        if turn is None or turn.status is None or turn.scored is None:
            return None
        new_score = score_graph(turn, turn.status, await self._spent(number), turn.scored)
        return None if new_score == turn.scored else new_score

    async def _spent(self, number: int) -> int | None:
        """The cost of the turn in the ledger; None if a price is unknown."""
        rows = await asyncio.to_thread(self.deps.budget.gate.ledger.turn_rows, self.session)
        row = rows.get(number)
        return None if row is None or row.unpriced else row.spent_nano


def resources_value(
    runs: Iterable[CallFinished], unit_nano: int, profiled: Mapping[str, int]
) -> int | None:
    """The value of the runs' time and memory in nano-dollars, measured or by the tool's profile; None if unknown.

    `unit_nano` is the price of a price unit.
    """
    if not unit_nano:
        return 0
    amounts = [
        profiled.get(run.name)
        if run.units is None
        else math.ceil(Decimal(repr(run.units)) * unit_nano)
        for run in runs
    ]
    known_amounts = [amount for amount in amounts if amount is not None]
    return sum(known_amounts) if len(known_amounts) == len(amounts) else None


def score_graph(
    turn: PlannedTurn, status: Status, spent_nano: int | None, previous: PlanScored
) -> PlanScored:
    """The score of a turn's graph; everything that marks do not change is copied from `previous`."""
    judgements: list[tuple[bool, str]] = []  # for each judged node, whether it helped, and by whom
    for node in turn.tool_graph.plan.nodes if turn.tool_graph is not None else ():
        call = turn.calls.get(node.label, "")
        verdict = turn.verdicts.get(call)
        if call in turn.marks:
            judgements.append((turn.marks[call], "you"))
        elif previous.checked is not None:
            judgements.append((previous.checked, "checker"))
        elif status == "gave_up":
            judgements.append((False, "agent"))
        elif turn.tool_graph is not None and turn.tool_graph.state(node.label) != "done":
            judgements.append((False, "rules"))
        elif verdict is not None and verdict.helpful is not None:
            judgements.append((verdict.helpful, verdict.by))
    performance = sum(helped for helped, _ in judgements) / len(judgements) if judgements else None
    judges, cost = {by for _, by in judgements}, None
    if spent_nano is not None and previous.resources_nano is not None:
        cost = spent_nano + previous.resources_nano
    return replace(
        previous,
        performance=performance,
        judged_by=" + ".join(judge for judge in _JUDGES if judge in judges),
        cost_nano=cost,
        quality=worth(performance, cost, alpha=previous.alpha, most_nano=previous.most_nano),
    )


def outcome(tool_graph: ToolGraph) -> str:
    """A graph's node states, its cost, and the time of its longest path: `2 done, 1 failed · $0.0021, 1.4 s`."""
    counts = ", ".join(f"{count:,} {state}" for state, count in tool_graph.counts.items())
    spent = tool_graph.spent_nano
    price = "price unknown" if spent is None else amount_text(spent, "usd")
    inputs = {node.label: node.after for node in tool_graph.plan.nodes}
    runs = {label: tool_graph.result(label) for label in inputs}
    seconds = {label: run.seconds if run else 0.0 for label, run in runs.items()}
    longest, _ = longest_path(inputs, seconds)
    return f"{counts} · {price}, {longest:.1f} s"

"""What a parallel plan has come to, and what it was worth: how far it helped against its cost (QoP, CATP-LLM eq. 5).

Each node counts as its result was judged: by the person's mark, else by the checker of the settings, else by whoever
judged the call. A node that failed or was skipped did not help, nor did any where the agent gave up.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from ecoshell.agent.dependencies import Dependencies
from ecoshell.budget.money import amount_text
from ecoshell.errors import ToolError
from ecoshell.events import CallFinished, Emit, Event, Notice, PlanScored, Status
from ecoshell.planning.catp.costs import worth
from ecoshell.planning.catp.plan import longest_path
from ecoshell.sessions.plans import Branching, PlannedTurn, PlannedTurns
from ecoshell.untrusted import visible_line

_FINISHED: frozenset[Status] = frozenset({"answered", "limit", "gave_up"})
"""How a turn ends whose plan is scored; a stop and an error say nothing of the plan."""
_JUDGES = ("you", "checker", "agent", "model", "plugin", "classifier", "rules")
"""Who may judge, in the order in which they are named."""


class Scorer:
    """Scores the plans of one session; hears every event of it."""

    def __init__(self, deps: Dependencies, session: str, past: Iterable[Event] = ()) -> None:
        self._deps = deps
        self._session = session
        self._turns = PlannedTurns(past)

    def see(self, event: Event) -> None:
        """Take the next event into account."""
        self._turns.see(event)

    async def end(self, number: int, status: Status, answer: str, emit: Emit) -> None:
        """Score the plan of a turn that ends so, where it has one; raises StoreError."""
        turn = self._turns.by_number.get(number)
        if turn is None or status not in _FINISHED:
            return
        settings, profiles = self._deps.settings, self._deps.profiles
        limits = [cap.limit for cap in await self._deps.budget.caps() if cap.unit == "usd"]
        blank = PlanScored(
            turn=number,
            performance=None,
            judged_by="",
            cost_nano=None,
            most_nano=min((settings.most_nano, *limits)),
            alpha=settings.alpha,
            quality=None,
            resources_nano=taken(turn.runs.values(), profiles.unit_nano, profiles.resources),
            checked=None if status == "gave_up" else await self._checked(answer, emit),
        )
        emit(scored(turn, status, await self._spent(number), blank))

    async def again(self, number: int) -> PlanScored | None:
        """The new score of a plan that was scored before, now that a mark has changed; None where it stays the same.

        All but marks and what was spent counts as it did then. Raises StoreError.
        """
        turn = self._turns.by_number.get(number)
        if turn is None or turn.status is None or turn.scored is None:
            return None
        after = scored(turn, turn.status, await self._spent(number), turn.scored)
        return None if after == turn.scored else after

    async def _spent(self, number: int) -> int | None:
        """What the turn has cost by the ledger; None when the price of a call is unknown."""
        rows = await asyncio.to_thread(self._deps.budget.gate.ledger.turn_rows, self._session)
        row = rows.get(number)
        return None if row is None or row.unpriced else row.spent_nano

    async def _checked(self, answer: str, emit: Emit) -> bool | None:
        """What the checker says of the answer; None without one, and where it could not tell, which is said."""
        command = self._deps.settings.checker
        if not command or self._deps.approvals.rules.read_only:
            return None
        try:
            return await self._deps.workspace.check(command, answer)
        except ToolError as failure:
            emit(Notice(f"[graph] checker said nothing of the answer: {visible_line(failure.message)}"))
            return None


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
    told = [(helped, by) for helped, by in _judgments(turn, status, before.checked) if helped is not None]
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


def _judgments(turn: PlannedTurn, status: Status, checked: bool | None) -> Iterator[tuple[bool | None, str]]:
    """Whether each node of the plan helped, None where nobody could tell, and who says so."""
    if turn.branching is None:
        return
    for node in turn.branching.plan.nodes:
        call = turn.calls.get(node.label, "")
        verdict = turn.verdicts.get(call)
        if call in turn.marks:
            yield turn.marks[call], "you"
        elif checked is not None:
            yield checked, "checker"
        elif status == "gave_up":
            yield False, "agent"
        elif turn.branching.stands(node.label) != "done":
            yield False, "rules"
        else:
            yield (verdict.helpful, verdict.by) if verdict else (None, "")


def outcome(branching: Branching) -> str:
    """What it has come to: how its nodes stand, what they have cost, and how long its longest path took by the clock.

    `2 done, 1 failed · $0.0021, 1.4 s`
    """
    counts = ", ".join(f"{count:,} {state}" for state, count in branching.counts.items())
    spent = branching.spent_nano
    price = "price unknown" if spent is None else amount_text(spent, "usd")
    waits = {node.label: node.after for node in branching.plan.nodes}
    took = {label: branching.came_to(label) for label in waits}
    longest, _ = longest_path(waits, {label: one.seconds if one else 0.0 for label, one in took.items()})
    return f"{counts} · {price}, {longest:.1f} s"

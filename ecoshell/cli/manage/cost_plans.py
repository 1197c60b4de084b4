"""`ecoshell cost --by plan`: what each parallel plan has cost, how it did, and what it was worth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ecoshell.agent.commands import spent_text
from ecoshell.budget.costs import CostRow
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.money import nano_to_usd_text
from ecoshell.cli.manage.show import print_table
from ecoshell.events import GraphPlanned
from ecoshell.planning.catp.costs import worth
from ecoshell.sessions.plans import PlannedTurn, PlannedTurns
from ecoshell.sessions.store import SessionStore
from ecoshell.untrusted import visible_line

_QUESTION = 40
"""Characters of the question that a table shows."""
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class PlanCost:
    """One turn's plan; what is unknown is None."""

    turn: PlannedTurn
    cost: CostRow | None
    """What the turn has cost; its own key is the session's. None where the ledger has nothing of the turn."""
    key: str
    """The session and the turn: `k3f9-2q/3`."""

    @property
    def nodes(self) -> int:
        return len(self.turn.branching.plan.nodes) if self.turn.branching else 0

    @property
    def performance(self) -> float | None:
        return self.turn.scored and self.turn.scored.performance

    @property
    def cost_nano(self) -> int | None:
        """C by the ledger as it stands: a call may have been reconciled since the plan was scored."""
        scored, cost = self.turn.scored, self.cost
        if cost is None or cost.unpriced or cost.spent_nano is None or scored is None or scored.resources_nano is None:
            return None
        return cost.spent_nano + scored.resources_nano

    @property
    def quality(self) -> float | None:
        """QoP with that cost; None of a plan that was not finished."""
        scored = self.turn.scored
        if scored is None:
            return None
        return worth(scored.performance, self.cost_nano, alpha=scored.alpha, most_nano=scored.most_nano)

    def record(self) -> dict[str, object]:
        """What JSON says of it beside the columns of every row."""
        scored = self.turn.scored
        session, _, turn = self.key.rpartition("/")
        return {
            "session": session,
            "turn": int(turn),
            "question": self.turn.question,
            "nodes": self.nodes,
            "seconds": self.turn.seconds,
            "performance": self.performance,
            "judged_by": scored.judged_by if scored else "",
            "cost_usd": None if self.cost_nano is None else nano_to_usd_text(self.cost_nano),
            "most_usd": nano_to_usd_text(scored.most_nano) if scored else None,
            "alpha": scored.alpha if scored else None,
            "qop": self.quality,
        }


def plan_costs(store: SessionStore, ledger: Ledger) -> Iterator[PlanCost]:
    """Every parallel plan that is kept, the first one first; raises StoreError."""
    for session in store.with_any(GraphPlanned):
        costs = ledger.turn_rows(session)
        for number, turn in PlannedTurns(store.past(session)).by_number.items():
            yield PlanCost(turn, costs.get(number), f"{session}/{number}")


def print_plans(plans: Sequence[PlanCost]) -> None:
    """A row for each plan."""
    if not plans:
        print("No parallel plan was made yet: --strategy graph makes them.")
        return
    right = ("nodes", "spent", "seconds", "P", "QoP")
    cells = [
        (
            plan.key,
            _beginning(plan.turn.question),
            f"{plan.nodes:,}",
            _UNKNOWN if plan.cost is None else spent_text(plan.cost),
            _figure(plan.turn.seconds, 1),
            _figure(plan.performance, 2),
            _figure(plan.quality, 2),
        )
        for plan in plans
    ]
    print_table(("plan", "question", *right), cells, right=right)


def _beginning(question: str) -> str:
    shown = visible_line(question)
    return shown if len(shown) <= _QUESTION else f"{shown[: _QUESTION - 1].rstrip()}…"


def _figure(value: float | None, digits: int) -> str:
    return _UNKNOWN if value is None else f"{value:.{digits}f}"

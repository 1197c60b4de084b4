"""Plans, quotes and bills as plain text."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ecoshell.agent.command_table import table
from ecoshell.budget import Unit, amount_text
from ecoshell.events import Bill, PlanChanged, PlanRow
from ecoshell.events.figures import duration, span_text, usd_text
from ecoshell.events.plan import untried, why_words
from ecoshell.planning.btp.explanations import state_word

_SIGNS = {"planned": "√", "blocked": "×", "advised against": "!", "unplanned": "·"}


def plan_table(rows: Sequence[PlanRow], unit: Unit, *, enforced: bool) -> str:
    """One row per tool, within 80 columns; tools without history share a line."""
    new = untried(rows)
    cells: list[tuple[str, ...]] = []
    for row in rows:
        if row.tool in new:
            continue
        state, tool = state_word(row, enforced=enforced), row.tool
        amount = amount_text(row.cost, unit).removesuffix(" tokens")
        figures = (
            f"{row.value:.2f}",
            f"{row.chance:.2f}",
            amount if row.is_cost_known else "unknown",
        )
        why = f"{state}: {why_words(row.why)}"
        cells.append((f"{_SIGNS[state]} {tool}", *figures, f"{row.used}/{row.planned}", why))
    amounts = {"usd": "cost", "tokens": "tokens", "ms": "time"}[unit]
    lines = [table(("  tool", "value", "chance", amounts, "used", "state"), cells)] if cells else []
    if new:
        lines.append(f"{_SIGNS['planned']} {len(new)} tools not used yet  {', '.join(new)}")
    return "\n".join(lines)


def plan_summary(plan: PlanChanged) -> str:
    """The mode of the plan, the budget for tools and the estimated cost of the turn."""
    sentences, text = [f"Mode {plan.mode}."], partial(amount_text, unit=plan.unit)
    if plan.budget is None:
        sentences.append(
            "No cap is set, so the plan is advice and blocks nothing; /budget sets one."
        )
    else:
        cap = plan.cap or 0
        details = f"of {text(cap)}, {text(plan.reserved)} reserved for the answer"
        if plan.paid:
            details += f", {text(plan.paid)} already paid for thinking of the next use"
        sentences.append(f"Left for tools: {text(plan.budget)} ({details}).")
        if plan.reserved > cap:
            sentences.append(
                "This does not cover an answer; a turn would stop before it spends anything."
            )
        sentences.append(f"Planned uses are expected to cost {text(plan.planned_cost)}.")
        if not plan.enforced:
            sentences.append("Nothing is blocked in this mode.")
    if plan.low is None or plan.high is None:
        unknown = "speed is unknown, so costs without experience count as 0 s"
        if plan.unit != "ms":
            unknown = "price is unknown, so the costs include only tools and waiting"
        sentences.append(f"The model's {unknown}.")
    else:
        low, high = text(plan.low), text(plan.high)
        sentences.append(f"The turn is estimated at {low if low == high else f'{low} to {high}'}.")
    return " ".join(sentences)


KINDS = {"graph": "tool graph", "tasks": "subagents", "plan": "written plan"}
_ROWS = 10
"""The latest bills that are shown."""


def quote_table(bills: Sequence[Bill]) -> str:
    """The latest bills and their quotes, and how many quotes held; empty without bills."""
    if not bills:
        return ""
    rows = [
        (
            f"{KINDS[bill.kind]} {bill.id}",
            span_text(bill.low_usd, bill.high_usd, usd_text) or "unknown",
            "unknown" if bill.spent_usd is None else usd_text(float(bill.spent_usd)),
            span_text(bill.low_seconds, bill.high_seconds, duration) or "unknown",
            duration(bill.seconds),
        )
        for bill in bills[-_ROWS:]
    ]
    text = table(("quoted work", "price quoted", "bill", "time quoted", "taken"), rows)
    verdicts = [bill.is_within for bill in bills if bill.is_within is not None]
    if verdicts:
        text += f"\n{sum(verdicts)} of {len(verdicts)} bills are within their quote."
    return text


def bill_record(session: str, bill: Bill) -> dict[str, Any]:
    """A bill as a JSON object."""
    return {
        "session": session,
        "id": bill.id,
        "kind": bill.kind,
        "low_usd": bill.low_usd,
        "high_usd": bill.high_usd,
        "spent_usd": bill.spent_usd,
        "low_seconds": bill.low_seconds,
        "high_seconds": bill.high_seconds,
        "seconds": bill.seconds,
        "within": bill.is_within,
    }

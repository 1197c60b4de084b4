"""Plan mode: a turn that only reads and ends with a written plan, which the user accepts or changes."""

import re

from ecoshell.agent.quoting import Figures, quote_event
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.budget import Amount
from ecoshell.errors import UsageError
from ecoshell.events import PlanWritten, Quote
from ecoshell.planning.quote import quote

INSTRUCTION = (
    "Plan mode: only tools that read run now. Find out what you need, then answer with a numbered plan, one step per "
    "line with the file or command that it concerns. Change nothing; the user accepts the plan or changes it first."
)
"""Precedes the question of a turn in plan mode."""
_CHANGED = "Carry out this plan, which I have changed:\n\n"
_NUMBERED = re.compile(r"^\s{0,3}(?:#+\s*|\*\*)?(?:step\s+)?\d+[.):]", re.IGNORECASE | re.MULTILINE)
_BULLETED = re.compile(r"^[-*+]\s+\S", re.MULTILINE)
_MAX_STEPS = 50


def written(text: str) -> PlanWritten:
    """The plan of an answer."""
    steps = len(_NUMBERED.findall(text)) or len(_BULLETED.findall(text))
    return PlanWritten(text, min(_MAX_STEPS, max(1, steps)))


def quoted_plan(plan: PlanWritten, turn: int, costs: TurnPlan) -> Quote:
    """What carrying out the plan is expected to take: a use of a tool for each step, and the answer. May block."""
    figures = Figures.of(costs)
    labels = [f"step {number}" for number in range(1, plan.steps + 1)] + ["answer"]
    parts = [
        figures.step(label, labels[at - 1 : at] if at else ()) for at, label in enumerate(labels)
    ]
    return quote_event(f"{turn}.plan", "plan", parts, quote(parts))


def question_for(plan: PlanWritten | None, text: str) -> str:
    """The question that carries out the last plan, or `text` in its place; raises UsageError without either.

    It contains the plan, because compaction and /undo remove the turn that wrote it.
    """
    if text:
        return f"{_CHANGED}{text}"
    if plan is None:
        raise UsageError(
            "No plan was written in this session.",
            fix="Switch with /plan mode, then ask for something.",
        )
    return f"Carry out your plan, step by step:\n\n{plan.text}"


def accepted_text(plan: PlanWritten | None, question: str) -> str | None:
    """The changed plan that a question carries out, empty for the last plan unchanged; None for other questions."""
    if plan is not None and question == question_for(plan, ""):
        return ""
    return question.removeprefix(_CHANGED) if question.startswith(_CHANGED) else None


def turn_cap(quoted: Quote | None, least_nano: int) -> Amount | None:
    """The cap of the turn that carries out a plan: the upper end of its quote, and at least `least_nano`.

    None if the price is unknown or zero.
    """
    high = None if quoted is None else quoted.high_nano
    return Amount(max(high, least_nano), "usd") if high else None

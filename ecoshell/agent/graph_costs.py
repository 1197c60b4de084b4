"""The costs of tools as text for the author of a tool graph (CATP-LLM §3.2.1)."""

from collections.abc import Iterable

from ecoshell.agent.turn_plan import Estimate, TurnPlan
from ecoshell.budget import amount_text, rounded_up
from ecoshell.planning.catp.costs import CostTable

MAX_TOOLS = 12
"""Tools with costs in the text, the likeliest for the question first."""


def costs_text(plan: TurnPlan, profiled: CostTable, tools: Iterable[str], size: int | None) -> str:
    """Prices and times of the likeliest tools, and the resources that they use; empty if nothing is known.

    `size` is the size of the question's input in bytes; None if unknown.
    """
    by_chance = sorted(tools, key=lambda tool: -plan.inputs.chances.get(tool, 0.0))
    listed = [
        tool for tool in by_chance if tool in profiled.vectors or _figures(plan.expected(tool))
    ][:MAX_TOOLS]
    figures = {tool: _figures(plan.expected(tool, size)) for tool in listed}
    lines = [f"- {tool}: {text}" for tool, text in figures.items() if text]
    uses = "\n".join(("What one use of a tool is expected to take:", *lines)) if lines else ""
    return "\n".join(part for part in (uses, profiled.prompt(listed, size)) if part)


def _figures(estimate: Estimate) -> str:
    """Price and time of one use; empty if it is free and its time unknown."""
    figures = [amount_text(rounded_up(estimate.price_nano), "usd")] if estimate.price_nano else []
    if estimate.seconds is not None:
        milliseconds = max(1, round(estimate.seconds * 1000))
        figures.append(
            f"{estimate.seconds:.1f} s" if estimate.seconds >= 1 else f"{milliseconds} ms"
        )
    return ", ".join(figures)

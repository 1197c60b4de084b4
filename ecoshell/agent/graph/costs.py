"""What the prompt for a plan of branches says of costs, as far as they are known (CATP-LLM §3.2.1)."""

from collections.abc import Iterable, Sequence

from ecoshell.agent.context import Estimate
from ecoshell.agent.plan.live import LivePlan
from ecoshell.budget.money import amount_text, rounded_up
from ecoshell.messages import Attachment
from ecoshell.planning.catp.sizes import CostTable

MOST = 12
"""Tools that are spoken of, the likeliest for the question first."""


def costs_text(plan: LivePlan, profiled: CostTable, tools: Iterable[str], size: int | None) -> str:
    """What one use of each tool costs: by price and time, and by what it takes of the machine; empty if unknown.

    `size` is the present input's in bytes, None is unknown.
    """
    likely = sorted(tools, key=lambda tool: -plan.outset.chances.get(tool, 0.0))
    spoken_of = [tool for tool in likely if tool in profiled.vectors or _figures(plan.expected(tool))][:MOST]
    figures = {tool: _figures(plan.expected(tool, size)) for tool in spoken_of}
    lines = [f"- {tool}: {said}" for tool, said in figures.items() if said]
    taken = "\n".join(("What one use of a tool is expected to take:", *lines)) if lines else ""
    return "\n".join(part for part in (taken, profiled.told(spoken_of, size)) if part)


def input_size(attachments: Sequence[Attachment], named: int | None) -> int | None:
    """The size of what a question gives, in bytes: of its largest attachment or `named` file; None is unknown."""
    known = [len(attached.text.encode("utf-8", "replace")) for attached in attachments]
    return max([*known, *(() if named is None else (named,))], default=None)


def _figures(estimate: Estimate) -> str:
    """Price and time of one use; empty where it is free, as far as is known, and its time is unknown."""
    price = [amount_text(rounded_up(estimate.price_nano), "usd")] if estimate.price_nano else []
    time = [] if estimate.seconds is None else [_duration(estimate.seconds)]
    return ", ".join((*price, *time))


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1000))} ms"

"""What the prompt for a plan of branches says of costs, as far as they are known (CATP-LLM §3.2.1)."""

from collections.abc import Iterable, Sequence

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
    spoken_of = [tool for tool in likely if tool in profiled.vectors or _figures(plan, tool)][:MOST]
    return "\n".join(part for part in (_paid(plan, spoken_of), profiled.told(spoken_of, size)) if part)


def input_size(attachments: Sequence[Attachment], named: int | None) -> int | None:
    """The size of what a question gives, in bytes: of its largest attachment or `named` file; None is unknown."""
    known = [len(attached.text.encode("utf-8", "replace")) for attached in attachments]
    return max([*known, *(() if named is None else (named,))], default=None)


def _paid(plan: LivePlan, tools: Iterable[str]) -> str:
    lines = [f"- {tool}: {figures}" for tool in tools if (figures := _figures(plan, tool))]
    return "\n".join(("What one use of a tool is expected to take:", *lines)) if lines else ""


def _figures(plan: LivePlan, tool: str) -> str:
    """Price and time of one use; empty where it is free, as far as is known, and its time is unknown."""
    estimate = plan.expected(tool)
    price = [amount_text(rounded_up(estimate.price_nano), "usd")] if estimate.price_nano else []
    time = [] if estimate.seconds is None else [f"{estimate.seconds:.1f} s"]
    return ", ".join((*price, *time))

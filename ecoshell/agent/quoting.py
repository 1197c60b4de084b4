"""Quotes before planned work, the decision whether it starts, and the bill afterwards."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import unwrap
from ecoshell.agent.mode import used
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.user_interface import NonInteractive, QuoteChoice
from ecoshell.budget import NANO, CapState, amount_text, nano_to_usd_text
from ecoshell.events import Bill, Emit, Quote, QuoteChosen
from ecoshell.events.work import BEYOND
from ecoshell.messages import Call, visible_line
from ecoshell.planning.btp.costs import Expected
from ecoshell.planning.btp.evidence import Figure
from ecoshell.planning.quote import Interval, Part, QuotedCost, quote
from ecoshell.tools.builtin.task import TASK

Kind = Literal["graph", "tasks", "plan"]
_TASK_STEPS = 6
"""Assumed steps of a subagent before there is experience with tasks."""
_LABEL_CHARACTERS = 48
_PRIOR_SECONDS = 3.0
"""Assumed duration of a node of unknown duration."""


@dataclass(slots=True)
class Bills:
    """The bills of one turn's quoted work."""

    emit: Emit
    _count: int = 0

    def next_id(self, turn: int) -> str:
        """The ID of the turn's next quote."""
        self._count += 1
        return f"{turn}.{self._count}"

    @asynccontextmanager
    async def of(
        self, quoted: Quote | None, spent_nano: Callable[[], int | None]
    ) -> AsyncGenerator[None]:
        """Emit the bill of quoted work when it ends, also if it is stopped."""
        started = time.monotonic()
        try:
            yield
        finally:
            if quoted is not None:
                self.emit(bill_of(quoted, spent_nano(), time.monotonic() - started))


@dataclass(frozen=True, slots=True)
class Quoter:
    """Quotes the work of one turn, and lets the user or the caps decide about it."""

    deps: Dependencies
    plan: TurnPlan
    emit: Emit
    bills: Bills = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bills", Bills(self.emit))

    async def quoted(
        self, kind: Kind, parts: Sequence[Part], tokens: int, *, least: int = 2
    ) -> Quote | None:
        """The quote of parts that need `tokens`; None if there are fewer than `least`, and if quotes are off."""
        if self.deps.settings.quote == "off" or len(parts) < least:
            return None
        costs = await asyncio.to_thread(quote, parts)
        turn = self.deps.budget.account().turn
        event = quote_event(self.bills.next_id(turn), kind, parts, costs)
        return replace(event, reason=self._reason(costs, tokens))

    async def decide(self, quoted: Quote) -> QuoteChoice:
        """Emit the quote and decide: the user if it asks, otherwise the caps."""
        has_user = not isinstance(self.deps.user, NonInteractive)
        if has_user and self.deps.settings.quote == "show":
            quoted = replace(quoted, reason="")
        self.emit(quoted)
        if not quoted.reason:
            return QuoteChoice("start")
        choice = await self.deps.user.at_quote(quoted)
        by = "person" if has_user else "cap"
        self.emit(QuoteChosen(quoted.id, choice.kind, by, choice.without))
        return choice

    async def tasks(self, calls: Sequence[Call]) -> "TaskQuote":
        """Quote the subagents of one reply, and decide which of them start."""
        figures = await asyncio.to_thread(Figures.of, self.plan, self.deps)
        labels = {f"{at}. {_beginning(call)}": call for at, call in enumerate(calls, 1)}
        tokens = _TASK_STEPS * figures.tokens_of([TASK] * len(calls))
        quoted = await self.quoted("tasks", [figures.task(label) for label in labels], tokens)
        if quoted is None:
            return TaskQuote(None, {})
        choice = await self.decide(quoted)
        if choice.kind == "refuse":
            reason = "the user refused it"
            if isinstance(self.deps.user, NonInteractive):
                reason = quoted.reason
            return TaskQuote(
                None, {call.id: f"The subagent was not started: {reason}." for call in calls}
            )
        left_out = {labels[label].id for label in choice.without if label in labels}
        return TaskQuote(quoted, dict.fromkeys(left_out, "The user left this subagent out."))

    def _reason(self, costs: QuotedCost, tokens: int) -> str:
        """Why the work needs a decision; empty if it is cheap."""
        settings, models = self.deps.settings, self.deps.models.current
        hold = models.mode.answer_hold
        for cap in models.capped_by(self.plan.caps):
            rest = cap.limit - used(cap, hold) - (hold.amount(cap.unit) if hold else 0)
            amounts = _in_unit(cap, costs, tokens)
            if amounts is None:
                continue
            expected, high = amounts
            if expected > rest:
                return f"{BEYOND} {amount_text(max(0, rest), cap.unit)} left for it under the {cap.scope}'s cap"
            if high > settings.quote_share * rest:
                return f"it may take {high / rest:.0%} of the remaining budget under the {cap.scope}'s cap"
        threshold = settings.ask_above_nano
        if threshold is not None and costs.price is not None and costs.price.high > threshold:
            return f"it may cost more than {amount_text(threshold, 'usd')} ([budget] ask_above)"
        return ""


def _in_unit(cap: CapState, costs: QuotedCost, tokens: int) -> tuple[int, int] | None:
    """The expected amount and the upper bound in the unit of a cap; None if unknown."""
    if cap.unit == "tokens":
        return tokens, tokens
    interval, scale = (costs.price, 1) if cap.unit == "usd" else (costs.seconds, 1_000)
    if interval is None:
        return None
    return (round(interval.expected * scale), round(interval.high * scale))


def quote_event(identity: str, kind: Kind, parts: Sequence[Part], costs: QuotedCost) -> Quote:
    """The event of a quote."""
    price, seconds = _scaled(costs.price, NANO, 9), _scaled(costs.seconds, 1, 3)
    return Quote(
        identity,
        kind,
        len(parts),
        price and price.low,
        price and price.expected,
        price and price.high,
        seconds and seconds.low,
        seconds and seconds.expected,
        seconds and seconds.high,
        costs.sample_count,
        tuple(part.label for part in parts),
    )


def _scaled(interval: Interval | None, divisor: int, digits: int) -> Interval | None:
    if interval is None:
        return None
    low, expected, high = (
        round(value / divisor, digits) for value in (interval.low, interval.expected, interval.high)
    )
    return Interval(low, expected, high)


@dataclass(frozen=True, slots=True)
class TaskQuote:
    """The decision on the subagents of one reply."""

    quoted: Quote | None
    refusals: Mapping[str, str]
    """Why a call does not start, by its ID."""


def _beginning(call: Call) -> str:
    return visible_line(str(unwrap(call).arguments.get("instructions", "")), _LABEL_CHARACTERS)


def bill_of(quoted: Quote, spent_nano: int | None, seconds: float) -> Bill:
    """The bill of quoted work."""
    spent = None if spent_nano is None else nano_to_usd_text(spent_nano)
    bounds = quoted.low_usd, quoted.high_usd, quoted.low_seconds, quoted.high_seconds
    return Bill(quoted.id, quoted.kind, spent, round(seconds, 3), *bounds)


@dataclass(frozen=True, slots=True)
class Figures:
    """The past costs of one use of each tool, or of a typical one, in the form of a quote."""

    price: dict[str, Expected]
    milliseconds: dict[str, Expected]
    tokens: dict[str, Expected]
    is_priced: bool

    @classmethod
    def of(cls, plan: TurnPlan, deps: Dependencies) -> "Figures":
        """Collect them from the plan of a turn."""
        is_priced = deps.models.current.price is not None
        return cls(plan.uses("usd"), plan.uses("ms"), plan.uses("tokens"), is_priced)

    def part(self, label: str, tool: str, after: Iterable[str] = ()) -> Part:
        """A node that uses a tool, without the registration, which costs no model call in a plan."""
        price = _figure(self.price[tool]) if self.is_priced else None
        return Part(label, price, _seconds(self.milliseconds[tool]), tuple(after))

    def tokens_of(self, tools: Iterable[str]) -> int:
        """The tokens of one use of each."""
        return sum(self.tokens[tool].step for tool in tools)

    def task(self, label: str) -> Part:
        """A subagent's task, from earlier tasks or as several usual steps."""
        if self.price.get(TASK) is not None and self.price[TASK].sample_count:
            return self.part(label, TASK)
        step = self.step(label)
        return Part(label, _times(step.price, _TASK_STEPS), _times(step.seconds, _TASK_STEPS))

    def step(self, label: str, after: Iterable[str] = ()) -> Part:
        """A step of a written plan: like the usual use of a tool, as far as uses are known."""
        used_tools = [tool for tool, cost in self.price.items() if cost.sample_count]
        tools = used_tools or [*self.price][:1]
        if not tools:
            return Part(label, None, None, tuple(after))
        price = _pooled([self.part(label, tool).price for tool in tools])
        return Part(
            label, price, _pooled([self.part(label, tool).seconds for tool in tools]), tuple(after)
        )


def _times(figure: Figure | None, factor: int) -> Figure | None:
    if figure is None:
        return None
    return Figure(figure.count, factor * figure.mean, factor * figure.spread)


def _figure(cost: Expected) -> Figure:
    return Figure(cost.sample_count, cost.tool + cost.step + cost.time, cost.spread)


def _seconds(cost: Expected) -> Figure:
    mean = (cost.step + cost.tool) / 1_000
    return (
        Figure(cost.sample_count, mean, cost.spread / 1_000) if mean else Figure(0, _PRIOR_SECONDS)
    )


def _pooled(figures: Sequence[Figure | None]) -> Figure | None:
    """The usual cost of several kinds of use; None if one is unknown. It counts as a prior."""
    certain = [figure for figure in figures if figure is not None]
    if len(certain) < len(figures) or not certain:
        return None
    count = sum(max(1, figure.count) for figure in certain)
    return Figure(0, sum(max(1, figure.count) * figure.mean for figure in certain) / count)

"""Quotes before planned work, the decision whether it starts, and the bill afterwards."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import unwrap
from ecoshell.agent.mode import used
from ecoshell.agent.plan_snapshot import STEP_OUTPUT
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.turn_usage import UserTime
from ecoshell.agent.user_interface import NonInteractive, QuoteChoice
from ecoshell.budget import NANO, Amount, CapState, Price, Unit, amount_text, nano_to_usd_text
from ecoshell.errors import EcoshellError
from ecoshell.events import Bill, Emit, Quote, QuoteChosen
from ecoshell.events.work import BEYOND
from ecoshell.messages import Call, Usage, visible_line
from ecoshell.planning.btp.costs import Expected
from ecoshell.planning.btp.evidence import Figure
from ecoshell.planning.quote import Interval, Part, QuotedCost, quote
from ecoshell.tools import Delegation
from ecoshell.tools.builtin.task import TASK

Kind = Literal["graph", "tasks", "plan"]
_TASK_STEPS = 6
"""Assumed steps of a subagent before there is experience with tasks."""
_STEP_TOKENS = 8_000
"""Most tokens assumed for a step of a subagent, whose context does not hold the conversation."""
_LABEL_CHARACTERS = 48
_PRIOR_SECONDS = 3.0
"""Assumed duration of a node of unknown duration."""


@dataclass(frozen=True, slots=True)
class _PlannedTask:
    """A subagent that can start."""

    label: str
    call: Call
    model: str
    price: Price | None
    """The price of the model that it runs on."""
    share: Amount | None
    """The stated share."""

    def most(self, unit: Unit) -> float:
        """The most that it may use of a unit."""
        is_limited = self.share is not None and self.share.unit == unit
        return self.share.value if self.share is not None and is_limited else math.inf


class Quoter:
    """Quotes the work of one turn, lets the user or the caps decide about it, and bills it."""

    def __init__(self, plan: TurnPlan, emit: Emit, user_time: UserTime) -> None:
        self.deps = plan.deps
        self.plan = plan
        self.emit = emit
        self._user_time = user_time
        self._count = 0

    @asynccontextmanager
    async def billed(
        self, quoted: Quote | None, spent_nano: Callable[[], int | None]
    ) -> AsyncGenerator[None]:
        """Emit the bill of quoted work when it ends, also if it is stopped; the user's own time does not count."""
        started = self._user_time.clock
        try:
            yield
        finally:
            if quoted is not None:
                self.emit(bill_of(quoted, spent_nano(), self._user_time.clock - started))

    async def quoted(
        self, kind: Kind, parts: Sequence[Part], tokens: int, *, least: int = 2
    ) -> Quote | None:
        """The quote of parts that need `tokens`; None if there are fewer than `least`, and if quotes are off."""
        if self.deps.settings.quote == "off" or len(parts) < least:
            return None
        costs = await asyncio.to_thread(quote, parts)
        self._count += 1
        identity = f"{self.deps.budget.account().turn}.{self._count}"
        event = quote_event(identity, kind, parts, costs)
        return replace(event, reason=self._reason(costs, tokens))

    async def trimmed(self, kind: Kind, parts: Sequence[Part], tokens: int) -> Quote | None:
        """Quote the rest of work that the user trimmed, which starts at once, and emit the quote."""
        quoted = await self.quoted(kind, parts, tokens, least=1)
        if quoted is None:
            return None
        quoted = replace(quoted, reason="")
        self.emit(quoted)
        return quoted

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

    async def tasks(self, calls: Sequence[Call]) -> tuple[Quote | None, Mapping[str, str]]:
        """Quote the subagents of one reply; also returns why some do not start, by the IDs of their calls."""
        tasks = await asyncio.to_thread(_planned_tasks, calls, self.deps)
        figures = await asyncio.to_thread(Figures.of, self.plan)
        quoted = await self.quoted("tasks", *self._task_parts(tasks, figures))
        if quoted is None:
            return None, {}
        choice = await self.decide(quoted)
        if choice.kind == "refuse":
            has_user = not isinstance(self.deps.user, NonInteractive)
            reason = "the user refused it" if has_user else quoted.reason
            refusal = f"The subagent was not started: {reason}."
            return None, {call.id: refusal for call in calls}
        left_out = [task.call.id for task in tasks if task.label in choice.without]
        if left_out:
            rest = [task for task in tasks if task.label not in choice.without]
            quoted = await self.trimmed("tasks", *self._task_parts(rest, figures))
        return quoted, dict.fromkeys(left_out, "The user left this subagent out.")

    def _task_parts(
        self, tasks: Sequence[_PlannedTask], figures: "Figures"
    ) -> tuple[list[Part], int]:
        """Subagents as parts of a quote, each after the one whose place it takes, and their tokens."""
        labels, width = [task.label for task in tasks], self.deps.settings.tasks_at_once
        parts = [
            figures.task(task, labels[max(0, at - width) : max(0, at - width + 1)])
            for at, task in enumerate(tasks)
        ]
        return parts, sum(map(figures.task_tokens, tasks))

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
                left = amount_text(max(0, rest), cap.unit)
                left += " of working time" if cap.unit == "ms" else ""
                return f"{BEYOND} {left} left for it under the {cap.scope}'s cap"
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
    interval, scale = (costs.price, 1) if cap.unit == "usd" else (costs.working_seconds, 1_000)
    return interval and (round(interval.expected * scale), round(interval.high * scale))


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


def _delegation(call: Call) -> Delegation:
    """What a call of `task` delegates, without the tools, which change no price."""
    instructions, agent, model, budget = (
        str(call.arguments.get(name) or "") for name in ("instructions", "agent", "model", "budget")
    )
    return Delegation(instructions, agent, model=model, budget=budget)


def _planned_tasks(calls: Sequence[Call], deps: Dependencies) -> list[_PlannedTask]:
    """The subagents that calls of `task` can start; the others report why not when they run. May block."""
    from ecoshell.agent.subagents import planned

    tasks: list[_PlannedTask] = []
    for at, call in enumerate(calls, 1):
        delegation = _delegation(unwrap(call))
        try:
            models, share = planned(delegation, deps)
        except EcoshellError:
            continue
        label = f"{at}. {visible_line(delegation.instructions, _LABEL_CHARACTERS)}"
        tasks.append(_PlannedTask(label, call, models.name, models.current.price, share))
    return tasks


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
    tasks: Mapping[str, Figure]
    """The past prices of subagents by their model, without the steps that delegated to them."""

    @classmethod
    def of(cls, plan: TurnPlan) -> "Figures":
        """Collect them from the plan of a turn."""
        is_priced = plan.deps.models.current.price is not None
        uses = plan.uses("usd"), plan.uses("ms"), plan.uses("tokens")
        return cls(*uses, is_priced, plan.subagent_prices(TASK))

    def part(self, label: str, tool: str, after: Iterable[str] = ()) -> Part:
        """A node that uses a tool, without the registration, which costs no model call in a plan."""
        price = _figure(self.price[tool]) if self.is_priced else None
        return Part(label, price, _seconds(self.milliseconds[tool]), tuple(after))

    def tokens_of(self, tools: Iterable[str]) -> int:
        """The tokens of one use of each."""
        return sum(self.tokens[tool].step for tool in tools)

    def task(self, task: _PlannedTask, after: Collection[str]) -> Part:
        """A subagent, from earlier ones of its model or as several usual steps of it, up to its share."""
        step_nano = None if task.price is None else task.price.cost(self._task_usage)
        price = None if step_nano is None else _of_task(Figure(0, step_nano))
        if price is not None:
            price = self.tasks.get(task.model, price)
        seconds = _of_task(self.step(task.label).seconds)
        if self.milliseconds[TASK].sample_count:
            seconds = _seconds(self.milliseconds[TASK])
        most = task.most("usd"), task.most("ms") / 1_000
        return Part(task.label, price, seconds, after, *most)

    def task_tokens(self, task: _PlannedTask) -> int:
        """The tokens of a subagent."""
        return int(min(_TASK_STEPS * self._task_usage.total, task.most("tokens")))

    @property
    def _task_usage(self) -> Usage:
        """The usage of a step of a subagent; the step that delegates has no tokens in turns of `/task`."""
        tokens = min(_STEP_TOKENS, self.tokens[TASK].step or _STEP_TOKENS)
        output = min(STEP_OUTPUT, tokens)
        return Usage(input=tokens - output, output=output)

    def step(self, label: str, after: Iterable[str] = ()) -> Part:
        """A step of a written plan: like the usual use of a tool, as far as uses are known."""
        used_tools = [tool for tool, cost in self.price.items() if cost.sample_count]
        tools = used_tools or [*self.price][:1]
        parts = [self.part(label, tool) for tool in tools]
        price = _pooled([part.price for part in parts])
        return Part(label, price, _pooled([part.seconds for part in parts]), tuple(after))


def _of_task(step: Figure | None) -> Figure | None:
    """The figure of a subagent's usual number of steps."""
    return step and Figure(step.count, _TASK_STEPS * step.mean, _TASK_STEPS * step.spread)


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

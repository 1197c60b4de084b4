"""What one use of a tool is expected to cost: the tool, the model step that calls it, and the time (BTP eq. 1)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ecoshell.budget.money import Unit
from ecoshell.planning.btp.base import Evidence, Figure

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Step:
    """What a model step is expected to take while there is no experience with it; unknown is None."""

    nano: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected cost of one use, part by part, in the plan's unit; `spread` is one standard deviation of the sum."""

    unit: Unit
    tool: int
    step: int
    time: int
    spread: int
    seen: int
    """Uses that the means come from; 0 is the declared price and an estimate."""
    registering: int = 0
    """The step that registers the tool, where this is still to come."""

    @property
    def total(self) -> int:
        return self.tool + self.step + self.time + self.registering

    @property
    def next_thought(self) -> int:
        """The step that comes first of it: the one that registers the tool, or else the one that calls it."""
        return self.registering or self.step


def expected_cost(evidence: Evidence, declared_nano: int, step: Step, unit: Unit, hour_nano: int = 0) -> Expected:
    """c = c_tool + c_LLM + T: running means from experience, the declared price and an estimate before there are any.

    `hour_nano` is what an hour of waiting is worth. In tokens, tools and time cost nothing.
    """
    if unit == "tokens":
        taken = evidence.step_tokens
        mean = taken.mean if taken.count else step.tokens
        return Expected(unit, 0, _up(mean), 0, _up(taken.spread), evidence.uses)
    rate = hour_nano / SECONDS_PER_HOUR
    tool = evidence.price.mean if evidence.price.count else declared_nano
    thought = evidence.step_nano.mean if evidence.step_nano.count else (step.nano or 0)
    spread = math.hypot(evidence.price.spread, evidence.step_nano.spread, rate * evidence.seconds.spread)
    return Expected(unit, _up(tool), _up(thought), _up(rate * evidence.seconds.mean), _up(spread), evidence.uses)


def with_sample(figure: Figure, sample: float) -> Figure:
    """The figure with one more sample, by Welford's update."""
    count = figure.count + 1
    mean = figure.mean + (sample - figure.mean) / count
    squares = figure.spread**2 * figure.count + (sample - figure.mean) * (sample - mean)
    return Figure(count, mean, math.sqrt(max(0.0, squares / count)))


def pooled(figures: Iterable[Figure]) -> Figure:
    """One figure of all samples that went into several; its spread is left at 0."""
    known = [figure for figure in figures if figure.count]
    count = sum(figure.count for figure in known)
    return Figure(count, sum(figure.count * figure.mean for figure in known) / count) if count else Figure()


def with_use(evidence: Evidence, *, price: int, seconds: float, step: Step) -> Evidence:
    """The evidence after one more use in the present task; its costs count, its judgment is for the next task."""
    return replace(
        evidence,
        uses=evidence.uses + 1,
        price=with_sample(evidence.price, price),
        seconds=with_sample(evidence.seconds, seconds),
        step_nano=evidence.step_nano if step.nano is None else with_sample(evidence.step_nano, step.nano),
        step_tokens=with_sample(evidence.step_tokens, step.tokens),
    )


def _up(amount: float) -> int:
    """Whole units, rounded up as costs are (BTP Appendix A.1)."""
    return max(0, math.ceil(round(amount, 6)))

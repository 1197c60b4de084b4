"""One figure of a benchmark."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured, in which unit, beside the baseline it is judged by; `ratio` is value over baseline."""

    what: str
    value: float
    unit: str
    baseline: float
    ratio: float

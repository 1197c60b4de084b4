"""One figure of a benchmark."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured and in which unit; beside it, where there is one, the baseline and value over baseline."""

    what: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None

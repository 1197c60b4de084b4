"""All that `bench catp` measures, together."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from ecoshell_bench.catp.choice import Choice, choose
from ecoshell_bench.catp.paper import printed_rows
from ecoshell_bench.catp.parallel import Parallel, carried_out
from ecoshell_bench.catp.recordings import Constants, RecordedPlan
from ecoshell_bench.catp.validity import Validity, validity


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; None where the recorded plans have nothing to measure it on."""

    plans: int
    price_error_max: float
    """Of a recorded plan's price, as a share of it."""
    qop_rows: int
    qop_error_max: float
    validity: tuple[Validity, ...]
    choice: Choice | None
    parallel: Parallel | None


def measure(plans: Sequence[RecordedPlan], constants: Constants, policy_plans: int) -> Figures:
    """Measure on recorded plans; `policy_plans` are drawn for each kind of task."""
    rows = printed_rows()
    return Figures(
        plans=len(plans),
        price_error_max=max(map(price_error, plans)),
        qop_rows=len(rows),
        qop_error_max=max(row.error for row in rows),
        validity=tuple(validity(constants, policy_plans)),
        choice=choose(plans, constants),
        parallel=carried_out(plans),
    )


def price_error(one: RecordedPlan) -> float:
    """How far the price of a plan, recomputed from times and memory, lies from the recorded one, as a share of it."""
    recomputed = sum(one.prices, Decimal(0))
    if one.price == 0:
        return 0.0 if recomputed == 0 else float("inf")
    return float(abs(recomputed - one.price) / one.price)

"""What a run of a tool costs in OpenCATP's price units: time × memory, as functions in a cloud are billed (Table B.2).

The units are not dollars: the paper multiplies rates that cloud providers give for a whole size of memory by the
memory once more. They compare tools; the setting `[plan] resource_price` says what one is worth in dollars.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from ecoshell.messages import Footprint

Tiers = tuple[tuple[int, Decimal], ...]
"""Up to so many MB, and the price of a MB and millisecond there; in rising order."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """The rates of a run: a fee, and per MB and millisecond those of constant and of instant memory."""

    run: Decimal
    cpu: Tiers
    gpu: Tiers
    cpu_instant: Decimal
    gpu_instant: Decimal

    def price(self, milliseconds: float, footprint: Footprint) -> Decimal:
        """The price of a run; memory that is not known counts as none, so that the price is the least it can be.

        Beyond the last tier its rate holds on.
        """
        rate = (
            _held(footprint.cpu_mb, self.cpu)
            + _number(footprint.cpu_instant_mb) * self.cpu_instant
            + _held(footprint.gpu_mb, self.gpu)
            + _number(footprint.gpu_instant_mb) * self.gpu_instant
        )
        return self.run + _number(milliseconds) * rate


def tiers_of(rates: Mapping[int, Decimal]) -> Tiers:
    """Rates by the most MB they hold for, in rising order."""
    return tuple(sorted(rates.items()))


def _held(megabytes: float | None, tiers: Tiers) -> Decimal:
    """What constant memory costs in a millisecond."""
    if megabytes is None:
        return Decimal(0)
    rate = next((rate for most, rate in tiers if megabytes <= most), tiers[-1][1])
    return _number(megabytes) * rate


def _number(figure: float | None) -> Decimal:
    """A measured figure as the decimal it is written with."""
    return Decimal(0) if figure is None else Decimal(repr(figure))


_CPU = {
    128: "2.1e-9",
    512: "8.3e-9",
    1024: "1.67e-8",
    1536: "2.5e-8",
    2048: "3.33e-8",
    3072: "5e-8",
    4096: "6.67e-8",
    5120: "8.33e-8",  # 8.83e-8 in the paper breaks the row of tiers; its code has this (SPEC §3)
    6144: "1e-7",
    7168: "1.167e-7",
    8192: "1.333e-7",
    9216: "1.5e-7",
    10240: "1.667e-7",
}

_GPU_PER_CPU = 3
"""Every rate of Table B.2 for the GPU is this multiple of that for the CPU."""

TABLE_B2 = Tariff(
    run=Decimal("2e-7"),
    cpu=tiers_of({most: Decimal(rate) for most, rate in _CPU.items()}),
    gpu=tiers_of({most: _GPU_PER_CPU * Decimal(rate) for most, rate in _CPU.items()}),
    cpu_instant=Decimal("3.02e-14"),
    gpu_instant=Decimal("9.06e-14"),
)
"""CATP-LLM's Table B.2."""

"""Prices of model calls: rates per token bucket, tiers for long prompts, and the worst case of a call."""

import json
from dataclasses import astuple, dataclass
from decimal import ROUND_CEILING, Context, Decimal

from ecoshell.budget.amounts import NANO, nano_to_usd_text
from ecoshell.messages import Usage

_EXACT = Context(prec=60)
_NANO_PER_RATE = Decimal(NANO) / 1_000_000
"""Price of one token, in nano-dollars, at one dollar per million tokens."""

Part = tuple[str, int, Decimal]
"""Name, token count, and rate in dollars per million tokens of one bucket."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices in dollars per million tokens, by bucket."""

    input: Decimal
    cached_input: Decimal
    cache_write: Decimal
    output: Decimal
    reasoning: Decimal

    @property
    def dearest_input(self) -> Decimal:
        """The highest rate of a prompt token in any bucket."""
        return max(self.input, self.cached_input, self.cache_write)

    @property
    def dearest_output(self) -> Decimal:
        """The highest rate of an output token."""
        return max(self.output, self.reasoning)


@dataclass(frozen=True, slots=True)
class Tier:
    """Rates of the whole call when its prompt has more than `above` tokens."""

    above: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model; `source` names the origin of the figures."""

    rates: Rates
    tiers: tuple[Tier, ...] = ()
    source: str = ""
    request: Decimal = Decimal(0)
    """Fixed price per call, in dollars."""
    cache_writes: bool = True
    """Whether a call may write to the provider's cache; if not, the worst case ignores that rate."""

    def rates_for(self, prompt_tokens: int) -> Rates:
        """Return the rates for a prompt of this size."""
        tiers = [tier for tier in self.tiers if prompt_tokens > tier.above]
        return max(tiers, key=lambda tier: tier.above).rates if tiers else self.rates

    def parts(self, usage: Usage) -> tuple[Part, ...]:
        """Split the usage into disjoint buckets; a contradictory report is never counted low."""
        rates = self.rates_for(usage.input)
        fresh = max(0, usage.input - usage.cached - usage.cache_write)
        text = max(0, usage.output - usage.reasoning)
        return (
            ("fresh input", fresh, rates.input),
            ("cached input", usage.cached, rates.cached_input),
            ("cache write", usage.cache_write, rates.cache_write),
            ("output text", text, rates.output),
            ("reasoning", usage.reasoning, rates.reasoning),
        )

    def worst_parts(self, prompt_tokens: int, output_tokens: int) -> tuple[Part, Part]:
        """Return the buckets of the most expensive call within these counts."""
        reachable = (self.rates, *(tier.rates for tier in self.tiers if prompt_tokens > tier.above))
        inputs = (
            rates.dearest_input if self.cache_writes else max(rates.input, rates.cached_input)
            for rates in reachable
        )
        outputs = (rates.dearest_output for rates in reachable)
        prompt = ("prompt at most", prompt_tokens, max(inputs))
        return prompt, ("output at most", output_tokens, max(outputs))

    def cost(self, usage: Usage) -> int:
        """Return the price of a call in nano-dollars, rounded up once."""
        return self._nano(self.parts(usage))

    def reasoning_cost(self, usage: Usage) -> int:
        """Return the part of the price that the reasoning tokens cost."""
        return self._nano(self.parts(usage)[-1:], fee=False)

    def worst(self, prompt_tokens: int, output_tokens: int) -> int:
        """Return the upper bound in nano-dollars of a call within these counts, however tokens are billed."""
        return self._nano(self.worst_parts(prompt_tokens, output_tokens))

    def affordable_output(self, prompt_tokens: int, nano: int) -> int:
        """Return the largest output whose worst case stays within `nano`; -1 if the prompt alone exceeds it."""
        parts = self.worst_parts(prompt_tokens, 0)
        remaining = _EXACT.subtract(Decimal(nano), self._exact_nano(parts))
        _, _, rate = parts[1]
        if remaining < 0:
            return -1
        if rate == 0:
            return UNBOUNDED
        return int(_EXACT.divide_int(remaining, _EXACT.multiply(rate, _NANO_PER_RATE)))

    def arithmetic(self, parts: tuple[Part, ...]) -> tuple[str, ...]:
        """Return the calculation of the price: one line per bucket, then the total."""
        lines = [
            f"{count:,} {name} × {_usd(rate)}/M = {_usd(_EXACT.multiply(Decimal(count), rate).scaleb(-6))}"
            for name, count, rate in parts
            if count
        ]
        fee = [f"1 request × {_usd(self.request)}"] if self.request else []
        return (*lines, *fee, f"total {_usd(Decimal(nano_to_usd_text(self._nano(parts))))}")

    def summary(self) -> str:
        """Return the base rates, such as `$2.5 in, $1.25 cached, $10 out per million tokens`."""
        rates = self.rates
        if not rates.dearest_input and not rates.dearest_output and not self.request:
            return "free"
        parts = [f"{_usd(rates.input)} in"]
        if rates.cached_input != rates.input:
            parts.append(f"{_usd(rates.cached_input)} cached")
        return f"{', '.join(parts)}, {_usd(rates.output)} out per million tokens"

    def _nano(self, parts: tuple[Part, ...], *, fee: bool = True) -> int:
        return int(self._exact_nano(parts, fee=fee).to_integral_value(rounding=ROUND_CEILING))

    def _exact_nano(self, parts: tuple[Part, ...], *, fee: bool = True) -> Decimal:
        """Return the unrounded price in nano-dollars, with the fixed price per call if `fee`."""
        total = _EXACT.multiply(self.request, Decimal(NANO)) if fee else Decimal(0)
        for _, count, rate in parts:
            nano = _EXACT.multiply(Decimal(count), _EXACT.multiply(rate, _NANO_PER_RATE))
            total = _EXACT.add(total, nano)
        return total


UNBOUNDED = 1 << 62
"""An output limit that no call reaches."""

ZERO_PRICE = Price(Rates(*[Decimal(0)] * 5), source="runs here and costs nothing")
"""The price of a local model."""


def _usd(amount: Decimal) -> str:
    """Format dollars exactly: `$0.30`, `$0.000185`."""
    dollars, point, decimals = plain(amount).partition(".")
    return f"${dollars}.{decimals:0<2}" if point else f"${dollars}"


def plain(number: Decimal) -> str:
    """Format a number without an exponent and trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def price_to_json(price: Price) -> str:
    """Serialize a price for a ledger entry."""
    record: dict[str, object] = {
        "rates": astuple(price.rates),
        "tiers": [[tier.above, *astuple(tier.rates)] for tier in price.tiers],
        "source": price.source,
        "request": price.request,
        "cache_writes": price.cache_writes,
    }
    return json.dumps(record, default=str)


def price_from_json(text: str) -> Price:
    """Parse the price of a ledger entry."""
    record = json.loads(text)
    return Price(
        Rates(*map(Decimal, record["rates"])),
        tuple(Tier(above, Rates(*map(Decimal, rates))) for above, *rates in record["tiers"]),
        record["source"],
        Decimal(record["request"]),
        record.get("cache_writes", True),
    )

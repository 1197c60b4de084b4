"""What a model call costs: rates per million tokens over disjoint buckets, and dearer tiers for long prompts."""

import json
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from ecoshell.budget.money import NANO, nano_to_usd_text
from ecoshell.messages import Usage

_EXACT = Context(prec=60)
_NANO_PER_RATE = Decimal(NANO) / 1_000_000
"""Nano-dollars a token costs at a rate of one dollar per million tokens."""

Part = tuple[str, int, Decimal]
"""A bucket's name, its tokens, and its rate in dollars per million tokens."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars per million tokens of each bucket."""

    input: Decimal
    cached_input: Decimal
    cache_write: Decimal
    output: Decimal
    reasoning: Decimal

    @property
    def dearest_input(self) -> Decimal:
        """The most a token of the prompt can cost, whichever bucket it falls into."""
        return max(self.input, self.cached_input, self.cache_write)

    @property
    def dearest_output(self) -> Decimal:
        """The most a produced token can cost."""
        return max(self.output, self.reasoning)


@dataclass(frozen=True, slots=True)
class Tier:
    """The rates of the whole call once its prompt has more than `above` tokens."""

    above: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs; `source` says where the figures come from."""

    rates: Rates
    tiers: tuple[Tier, ...] = ()
    source: str = ""
    request: Decimal = Decimal(0)
    """Dollars each call costs besides its tokens."""

    def rates_for(self, prompt_tokens: int) -> Rates:
        """The rates of a call whose prompt has this many tokens."""
        reached = [tier for tier in self.tiers if prompt_tokens > tier.above]
        return max(reached, key=lambda tier: tier.above).rates if reached else self.rates

    def cost(self, usage: Usage) -> int:
        """The price of a call in nano-dollars, rounded up once, at the end."""
        return self._nano(_buckets(usage, self.rates_for(usage.input)))

    def worst(self, prompt_tokens: int, output_tokens: int) -> int:
        """The most, in nano-dollars, a call within these counts can cost, whatever the provider caches or reasons."""
        return self._nano(self._worst_parts(prompt_tokens, output_tokens))

    def affordable_output(self, prompt_tokens: int, nano: int) -> int:
        """The most output tokens whose worst case stays within `nano`; -1 when not even the prompt does."""
        left = _EXACT.subtract(Decimal(nano), self._exact_nano(self._worst_parts(prompt_tokens, 0)))
        if left < 0:
            return -1
        rate = max(rates.dearest_output for rates in self._reachable(prompt_tokens))
        if rate == 0:
            return UNBOUNDED
        return int(_EXACT.divide_int(left, _EXACT.multiply(rate, _NANO_PER_RATE)))

    def arithmetic(self, usage: Usage) -> tuple[str, ...]:
        """The sum a person can check by hand: one line for each bucket, then the total."""
        return self._lines(_buckets(usage, self.rates_for(usage.input)))

    def summary(self) -> str:
        """The base rates in a line, such as `$2.5 in, $1.25 cached, $10 out per million tokens`."""
        rates = self.rates
        if not rates.dearest_input and not rates.dearest_output and not self.request:
            return "free"
        parts = [f"{_usd(rates.input)} in"]
        if rates.cached_input != rates.input:
            parts.append(f"{_usd(rates.cached_input)} cached")
        return f"{', '.join(parts)}, {_usd(rates.output)} out per million tokens"

    def worst_arithmetic(self, prompt_tokens: int, output_tokens: int) -> tuple[str, ...]:
        """The sum behind the worst case, line by line."""
        return self._lines(self._worst_parts(prompt_tokens, output_tokens))

    def _reachable(self, prompt_tokens: int) -> tuple[Rates, ...]:
        """The rates a call may fall under whose prompt has at most this many tokens."""
        return (self.rates, *(tier.rates for tier in self.tiers if prompt_tokens > tier.above))

    def _worst_parts(self, prompt_tokens: int, output_tokens: int) -> tuple[Part, ...]:
        reachable = self._reachable(prompt_tokens)
        return (
            ("prompt at most", prompt_tokens, max(rates.dearest_input for rates in reachable)),
            ("output at most", output_tokens, max(rates.dearest_output for rates in reachable)),
        )

    def _nano(self, parts: tuple[Part, ...]) -> int:
        return int(self._exact_nano(parts).to_integral_value(rounding=ROUND_CEILING))

    def _exact_nano(self, parts: tuple[Part, ...]) -> Decimal:
        """The sum in nano-dollars, not rounded."""
        total = _EXACT.multiply(self.request, Decimal(NANO))
        for _, count, rate in parts:
            total = _EXACT.add(total, _EXACT.multiply(Decimal(count), _EXACT.multiply(rate, _NANO_PER_RATE)))
        return total

    def _lines(self, parts: tuple[Part, ...]) -> tuple[str, ...]:
        lines = [
            f"{count:,} {name} × {_usd(rate)}/M = {_usd(_EXACT.multiply(Decimal(count), rate).scaleb(-6))}"
            for name, count, rate in parts
            if count
        ]
        fee = [f"1 request × {_usd(self.request)}"] if self.request else []
        return (*lines, *fee, f"total {_usd(Decimal(nano_to_usd_text(self._nano(parts))))}")


UNBOUNDED = 1 << 62
"""More tokens than any call can have."""

ZERO_PRICE = Price(Rates(*[Decimal(0)] * 5), source="runs here and costs nothing")
"""The price of a local model."""


def _usd(amount: Decimal) -> str:
    """Dollars to the last digit, as sums that are to be checked need them: `$0.30`, `$0.000185`."""
    whole, point, decimals = plain(amount).partition(".")
    return f"${whole}.{decimals:0<2}" if point else f"${whole}"


def plain(number: Decimal) -> str:
    """The number without an exponent and without idle zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def price_to_json(price: Price) -> str:
    """The price as the ledger keeps it beside every entry."""
    record: dict[str, object] = {
        "rates": _rates_to_list(price.rates),
        "tiers": [[tier.above, *_rates_to_list(tier.rates)] for tier in price.tiers],
        "source": price.source,
        "request": str(price.request),
    }
    return json.dumps(record)


def price_from_json(text: str) -> Price:
    """The price an entry was reckoned with."""
    record = json.loads(text)
    return Price(
        Rates(*map(Decimal, record["rates"])),
        tuple(Tier(above, Rates(*map(Decimal, rates))) for above, *rates in record["tiers"]),
        record["source"],
        Decimal(record["request"]),
    )


def _rates_to_list(rates: Rates) -> list[str]:
    return [str(rate) for rate in (rates.input, rates.cached_input, rates.cache_write, rates.output, rates.reasoning)]


def _buckets(usage: Usage, rates: Rates) -> tuple[Part, ...]:
    """The usage as disjoint buckets; a report that contradicts itself is never read as less than it says."""
    fresh = max(0, usage.input - usage.cached - usage.cache_write)
    written = max(0, usage.output - usage.reasoning)
    return (
        ("fresh input", fresh, rates.input),
        ("cached input", usage.cached, rates.cached_input),
        ("cache write", usage.cache_write, rates.cache_write),
        ("output text", written, rates.output),
        ("reasoning", usage.reasoning, rates.reasoning),
    )

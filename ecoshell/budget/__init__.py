"""The budget: amounts, what calls cost, and what passes the gate: asks, holds, settlements, and caps over them."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from decimal import ROUND_CEILING, Context, Decimal, Inexact
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from ecoshell.errors import LimitReached, PriceUnknown, UsageError
from ecoshell.messages import Usage

Unit = Literal["usd", "tokens"]

NANO = 1_000_000_000
"""Nano-dollars in a dollar."""

MOST_USD = 1_000_000
MOST_TOKENS = 1_000_000_000_000

_AMOUNT = re.compile(
    r"(?P<dollar>\$?) ?(?P<number>[0-9][0-9.,]*|[.,][0-9]+) ?(?P<size>[km]?) ?"
    r"(?P<unit>tok(?:ens?)?|c|ct|cents?|¢|\$|usd|dollars?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"[0-9]*\.?[0-9]*", re.ASCII)
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?", re.ASCII)
_TWO_WAYS = re.compile(r"[1-9][0-9]{0,2},[0-9]{3}", re.ASCII)
_SIZES = {"": 1, "k": 1_000, "m": 1_000_000}
_NOTHING = re.compile(r"\$?0+(?:[.,]0+)?", re.ASCII)
_LONGEST = 64
_STRICT = Context(prec=90, traps=[Inexact])
"""Exact for every number of so many signs."""
_ALLOWED = "Give dollars, such as 0.50, $2 or 50c, or tokens, such as 20000tok or 20k tok."


def nano_to_usd_text(nano: int) -> str:
    """The amount in dollars as a plain decimal string without an exponent, such as `0.0031`; exact."""
    sign = "-" if nano < 0 else ""
    whole, part = divmod(abs(nano), NANO)
    decimals = f"{part:09d}".rstrip("0")
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"


@dataclass(frozen=True, slots=True)
class Amount:
    """What a cap allows: `value` is nano-dollars or tokens, as `unit` says."""

    value: int
    unit: Unit

    def __str__(self) -> str:
        return amount_text(self.value, self.unit)


def amount_text(value: int, unit: Unit, *, digits: int = 4) -> str:
    """A value as a person reads it: `$0.50`, `$0.003142`, `1 token`, `20,000 tokens`.

    Dollars to the cent, and beyond it to so many significant digits.
    """
    if unit == "tokens":
        return counted(value, "token")
    step = min(10 ** max(0, len(str(abs(value))) - digits), NANO // 100)
    text = nano_to_usd_text((value + step // 2) // step * step)
    sign, (whole, point, decimals) = "-" if text.startswith("-") else "", text.removeprefix("-").partition(".")
    return f"{sign}${int(whole):,}.{decimals:0<2}" if point else f"{sign}${int(whole):,}"


def counted(number: int, noun: str) -> str:
    """A number of things, in words: `1 line`, `1,204 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def about(text: str, *, estimated: bool) -> str:
    """A figure that is marked where it is an estimate, or a part of it is."""
    return f"≈ {text}" if estimated else text


def rounded_up(value: int, digits: int = 2) -> int:
    """The least value of so few significant digits that is no smaller, for an amount that is proposed."""
    step = 10 ** max(0, len(str(value)) - digits)
    return -(-value // step) * step


def parse_amount(text: str) -> Amount:
    """The amount a person typed: `0.50`, `$2`, `1,50`, `50c`, `20000tok`, `20k tok`, `20,000 tokens`.

    A comma before three digits is one of thousands for tokens, and beside a point or another comma; in dollars alone it
    could be either, and is refused. Raises UsageError for that, and what is negative, zero, absurd, or not an amount.
    """
    text = str(text)  # a program may well give a number
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    cleaned = text.strip().lower()
    found = _AMOUNT.fullmatch(cleaned) if len(cleaned) <= _LONGEST else None
    if found is None:
        why = "is negative" if cleaned.startswith(("-", "$-")) else "is not an amount"
        raise UsageError(f"{shown!r} {why}.", fix=_ALLOWED)
    unit, size = found["unit"] or "", _SIZES[found["size"]]
    tokens, cents = unit.startswith("tok"), unit.startswith(("c", "¢")) and not found["dollar"]
    digits = found["number"]
    if _TWO_WAYS.fullmatch(digits) and not (tokens and size == 1):  # tokens have no decimals
        head, _, tail = digits.partition(",")
        fix = f"Write {head}{tail} or {head}.{tail}."
        raise UsageError(f"{shown!r} can be read in two ways.", fix=f"{fix} {_ALLOWED}")
    digits = digits.replace(",", "") if _THOUSANDS.fullmatch(digits) else digits.replace(",", ".")
    if not _NUMBER.fullmatch(digits):
        raise UsageError(f"{shown!r} is not an amount.", fix=_ALLOWED)
    number = _STRICT.multiply(Decimal(digits), size)
    if tokens and (found["dollar"] or number != number.to_integral_value()):
        raise UsageError(f"{shown!r} is not a whole number of tokens.", fix=_ALLOWED)
    if not tokens:
        if size > 1 and not (found["dollar"] or unit):
            fix = f"Say ${cleaned} or {cleaned} tok. {_ALLOWED}"
            raise UsageError(f"{shown!r} could be dollars or tokens.", fix=fix)
        if (found["dollar"] and unit) or (cents and size > 1):
            raise UsageError(f"{shown!r} is not an amount.", fix=_ALLOWED)
        number = _STRICT.multiply(number, NANO // 100 if cents else NANO)
    most, most_text = (MOST_TOKENS, f"{MOST_TOKENS:,} tokens") if tokens else (MOST_USD * NANO, f"${MOST_USD:,}")
    if number == 0:
        raise UsageError(f"{shown!r} would allow nothing.", fix=f"{_ALLOWED} Type `off` to remove a cap.")
    if number > most:
        raise UsageError(f"{shown!r} is more than {most_text}, which is surely a slip.", fix=_ALLOWED)
    try:
        return Amount(int(_STRICT.quantize(number, Decimal(1))), "tokens" if tokens else "usd")
    except Inexact:
        raise UsageError(f"{shown!r} has more than nine decimals.", fix=_ALLOWED) from None


def parse_spent(text: str) -> Amount:
    """What something came to, as a person typed it: an amount, or `0`; raises UsageError."""
    return Amount(0, "usd") if _NOTHING.fullmatch(text.strip()) else parse_amount(text)


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
    def dearest_read(self) -> Decimal:
        """The most a token of a prompt can cost that is not written to a cache."""
        return max(self.input, self.cached_input)

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
    cache_writes: bool = True
    """Whether a call may write to the provider's cache; where not, its worst case leaves that rate out."""

    def rates_for(self, prompt_tokens: int) -> Rates:
        """The rates of a call whose prompt has this many tokens."""
        reached = [tier for tier in self.tiers if prompt_tokens > tier.above]
        return max(reached, key=lambda tier: tier.above).rates if reached else self.rates

    def parts(self, usage: Usage) -> tuple[Part, ...]:
        """The usage as disjoint buckets; a report that contradicts itself is never read as less than it says."""
        rates = self.rates_for(usage.input)
        fresh = max(0, usage.input - usage.cached - usage.cache_write)
        written = max(0, usage.output - usage.reasoning)
        return (
            ("fresh input", fresh, rates.input),
            ("cached input", usage.cached, rates.cached_input),
            ("cache write", usage.cache_write, rates.cache_write),
            ("output text", written, rates.output),
            ("reasoning", usage.reasoning, rates.reasoning),
        )

    def worst_parts(self, prompt_tokens: int, output_tokens: int) -> tuple[Part, Part]:
        """The buckets of the dearest call within these counts, at the highest of the rates it may fall under."""
        reachable = (self.rates, *(tier.rates for tier in self.tiers if prompt_tokens > tier.above))
        inputs = (rates.dearest_input if self.cache_writes else rates.dearest_read for rates in reachable)
        return (
            ("prompt at most", prompt_tokens, max(inputs)),
            ("output at most", output_tokens, max(rates.dearest_output for rates in reachable)),
        )

    def cost(self, usage: Usage) -> int:
        """The price of a call in nano-dollars, rounded up once, at the end."""
        return self._nano(self.parts(usage))

    def reasoning_cost(self, usage: Usage) -> int:
        """What of that is the reasoning tokens'."""
        name, count, rate = self.parts(usage)[-1]
        return int(self._exact_nano(((name, count, rate),), fee=False).to_integral_value(rounding=ROUND_CEILING))

    def worst(self, prompt_tokens: int, output_tokens: int) -> int:
        """The most, in nano-dollars, a call within these counts can cost, whatever the provider caches or reasons."""
        return self._nano(self.worst_parts(prompt_tokens, output_tokens))

    def affordable_output(self, prompt_tokens: int, nano: int) -> int:
        """The most output tokens whose worst case stays within `nano`; -1 when not even the prompt does."""
        parts = self.worst_parts(prompt_tokens, 0)
        left, (_, _, rate) = _EXACT.subtract(Decimal(nano), self._exact_nano(parts)), parts[1]
        if left < 0:
            return -1
        return UNBOUNDED if rate == 0 else int(_EXACT.divide_int(left, _EXACT.multiply(rate, _NANO_PER_RATE)))

    def arithmetic(self, parts: tuple[Part, ...]) -> tuple[str, ...]:
        """The sum a person can check by hand: one line for each bucket, then the total."""
        lines = [
            f"{count:,} {name} × {_usd(rate)}/M = {_usd(_EXACT.multiply(Decimal(count), rate).scaleb(-6))}"
            for name, count, rate in parts
            if count
        ]
        fee = [f"1 request × {_usd(self.request)}"] if self.request else []
        return (*lines, *fee, f"total {_usd(Decimal(nano_to_usd_text(self._nano(parts))))}")

    def summary(self) -> str:
        """The base rates in a line, such as `$2.5 in, $1.25 cached, $10 out per million tokens`."""
        rates = self.rates
        if not rates.dearest_input and not rates.dearest_output and not self.request:
            return "free"
        parts = [f"{_usd(rates.input)} in"]
        if rates.cached_input != rates.input:
            parts.append(f"{_usd(rates.cached_input)} cached")
        return f"{', '.join(parts)}, {_usd(rates.output)} out per million tokens"

    def _nano(self, parts: tuple[Part, ...]) -> int:
        return int(self._exact_nano(parts).to_integral_value(rounding=ROUND_CEILING))

    def _exact_nano(self, parts: tuple[Part, ...], *, fee: bool = True) -> Decimal:
        """The sum in nano-dollars, not rounded, with what a request costs besides its tokens."""
        total = _EXACT.multiply(self.request, Decimal(NANO)) if fee else Decimal(0)
        for _, count, rate in parts:
            total = _EXACT.add(total, _EXACT.multiply(Decimal(count), _EXACT.multiply(rate, _NANO_PER_RATE)))
        return total


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
        "rates": astuple(price.rates),
        "tiers": [[tier.above, *astuple(tier.rates)] for tier in price.tiers],
        "source": price.source,
        "request": price.request,
        "cache_writes": price.cache_writes,
    }
    return json.dumps(record, default=str)


def price_from_json(text: str) -> Price:
    """The price an entry was reckoned with."""
    record = json.loads(text)
    return Price(
        Rates(*map(Decimal, record["rates"])),
        tuple(Tier(above, Rates(*map(Decimal, rates))) for above, *rates in record["tiers"]),
        record["source"],
        Decimal(record["request"]),
        record.get("cache_writes", True),
    )


Scope = Literal["turn", "session", "day", "month"]
SCOPES: tuple[Scope, ...] = ("turn", "session", "day", "month")


@dataclass(frozen=True, slots=True)
class CapState:
    """One cap and what is used of it; amounts are nano-dollars or tokens, as `unit` says.

    `own` is what of `spent` is this person's, under a cap that others spend under, too.
    """

    scope: str
    unit: Unit
    limit: int
    spent: int
    held: int
    own: int | None = None

    @property
    def left(self) -> int:
        """What may still be reserved; never negative."""
        return max(0, self.limit - self.spent - self.held)

    def over(self, model: str) -> bool:
        """Whether it stands over this model's calls: a team's cap of one model does over that one's alone."""
        return not self.scope.startswith("model:") or self.scope.rpartition(" ")[0] == f"model:{model}"


@dataclass(frozen=True, slots=True)
class Account:
    """On whose behalf a call is made."""

    session: str
    turn: int
    role: str
    model: str
    purpose: str
    lease: str = ""
    """What of a team's ledger it is reserved from; empty without one."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that wants to be made: at most `prompt_tokens` in, and at most `max_tokens` out.

    `min_tokens` is the least output the call is of any use with; below it the call is refused rather than clamped.
    None is a quarter of `max_tokens`, from 16 to 256.
    """

    price: Price | None
    prompt_tokens: int
    max_tokens: int
    account: Account
    min_tokens: int | None = None

    @property
    def floor(self) -> int:
        """The least `max_tokens` this call may be lowered to."""
        least = min(256, max(16, self.max_tokens // 4)) if self.min_tokens is None else self.min_tokens
        return min(least, self.max_tokens)


@dataclass(frozen=True, slots=True)
class Hold:
    """The worst case of a call, reserved; `nano` is None when the price is unknown and no cap in dollars stands."""

    entry: int
    nano: int | None
    tokens: int
    max_tokens: int
    clamped: bool
    account: Account
    price: Price | None

    @property
    def prompt_tokens(self) -> int:
        """The prompt's bound."""
        return self.tokens - self.max_tokens


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a call came to; without a report the whole hold, and an overrun where the report says more than was held."""

    entry: int
    spent_nano: int | None
    usage: Usage
    reported: bool
    overrun_nano: int = 0
    overrun_tokens: int = 0
    estimate: Usage | None = None
    """Of a call that reported no usage: what a tokenizer counts in what was sent and received, for people to see."""
    estimate_nano: int | None = None
    """The price of that; None where it is unknown, and where it is no other than what is counted."""

    @property
    def overran(self) -> bool:
        """Whether the provider billed more than the prompt and `max_tokens` allow."""
        return self.overrun_nano > 0 or self.overrun_tokens > 0

    @property
    def overrun_text(self) -> str:
        """By how much, as people read it."""
        return (
            amount_text(self.overrun_nano, "usd") if self.overrun_nano else amount_text(self.overrun_tokens, "tokens")
        )


def fitting_output(ask: Ask, caps: Iterable[CapState]) -> int:
    """The `max_tokens` that every cap leaves room for.

    Raises LimitReached for the tightest cap when not even the floor fits, and PriceUnknown when a cap is in dollars and
    the model has no price.
    """
    allowed, tightest = ask.max_tokens, None
    for cap in caps:
        if not cap.over(ask.account.model):
            continue
        if cap.unit == "tokens":
            room = cap.left - ask.prompt_tokens
        elif ask.price is None:
            raise price_unknown(ask.account.model, cap)
        else:
            room = ask.price.affordable_output(ask.prompt_tokens, cap.left)
        if room < allowed:
            allowed, tightest = room, cap
    if tightest is not None and allowed < ask.floor:
        need = ask.prompt_tokens + ask.floor
        if tightest.unit == "usd" and ask.price is not None:
            need = ask.price.worst(ask.prompt_tokens, ask.floor)
        raise limit_reached(tightest, need)
    return allowed


def exchanged_output(ask: Ask, caps: Iterable[CapState], old: Hold) -> int:
    """The `max_tokens` of a call that takes a hold's place: what the caps leave, or what the hold already covers."""
    try:
        allowed, refusal = fitting_output(ask, caps), None
    except LimitReached as error:
        allowed, refusal = -1, error
    covered = old.tokens - ask.prompt_tokens
    if ask.price is not None:
        covered = min(covered, ask.price.affordable_output(ask.prompt_tokens, old.nano or 0))
    best = min(max(allowed, covered), ask.max_tokens)
    if refusal is not None and best < ask.floor:
        raise refusal
    return best


def price_unknown(model: str, cap: CapState) -> PriceUnknown:
    """The refusal of a call that nobody can price under a cap in dollars."""
    fix = f'Give it in the configuration under [models."{model}".price]'
    if cap.scope in SCOPES:  # a team's are in dollars
        fix += f", or set one in tokens in its place: /budget {cap.scope} off, then /budget {cap.scope} 20000tok"
    return PriceUnknown(
        f"The price of {model} is not known, and a cap of {amount_text(cap.limit, 'usd')} stands for the {cap.scope}.",
        fix=f"{fix}.",
    )


def limit_reached(cap: CapState, need: int) -> LimitReached:
    """The refusal of something that needs more than the cap has left."""
    how = f"/budget {cap.scope} AMOUNT in a chat"
    if cap.scope == "session":
        how = "/budget AMOUNT in a chat, --budget AMOUNT before one"
    elif cap.scope not in SCOPES:
        how = f"an administrator does: ecoshell budget set {cap.scope} AMOUNT"
    return LimitReached(
        f"The next call may need {amount_text(need, cap.unit)}, and the {cap.scope}'s cap of "
        f"{amount_text(cap.limit, cap.unit)} has {amount_text(cap.left, cap.unit)} left.",
        scope=cap.scope,
        need=need,
        left=cap.left,
        unit=cap.unit,
        fix=f"Raise it ({how}), or go on with a cheaper or local model.",
    )


# -- prices by model name

_FILE_NAME = "model_prices_and_context_window_backup.json"
_CHAT_MODES = frozenset({"chat", "completion", "responses"})
_SELF_HOSTED = frozenset({"ollama", "ollama_chat", "lemonade", "lm_studio", "llamafile", "hosted_vllm"})
"""Providers that run on a machine of the user's own and bill nobody."""
_HOSTED_AFTER_ALL = "-cloud"
"""How the names end that an Ollama server passes on to Ollama's own machines."""

_BETWEEN = re.compile(r"[ \n\r\t,:]*")
"""What stands between the names and values of a JSON object."""

_SOURCE = "litellm's price file"

_MARGINS = (b"\n    ", b"\n")
"""What stands before an entry's name: the file is indented by four, and a few entries, by mistake, are not."""
_ABOVE = re.compile(r"input_cost_per_token_above_([0-9]+)k_tokens")
_EFFORTS = ("none", "minimal", "xhigh", "max")
_LONGEST_ENTRY = 20_000
"""Bytes."""

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the price file says of a model besides its price; unknown is None."""

    name: str
    provider: str
    context: int | None
    max_output: int | None
    native_tools: bool
    vision: bool | None = None
    """Whether it accepts images."""
    reasons: bool | None = None
    """Whether it can reason before it answers."""
    adaptive: bool = False
    """Whether it sets its own reasoning budget, within the effort it is given (Claude 4.6 and later)."""
    efforts: frozenset[str] = frozenset()
    """The effort levels it takes besides low, medium and high: none, minimal, xhigh, max."""


ASSUMED_FREE = Price(ZERO_PRICE.rates, source="assumed, as its server is on this machine")


class PriceBook:
    """Prices and facts by litellm's model names; `user` prices win. Nothing is read before a model is looked up.

    An entry of the file is cut out and parsed alone where that can be, since parsing 3 MB would stall a screen.
    """

    def __init__(
        self,
        user: Mapping[str, Price] | None = None,
        file: Path | None = None,
        *,
        here: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`here` says of a model nobody knows whether its server is on this machine, and so taken to cost nothing."""
        self.user = dict(user or {})
        """What the person says that models cost."""
        self._here = here
        self._file = file

    def price(self, model: str) -> Price | None:
        """What the model costs; None when nobody says."""
        if model in self.user:
            return self.user[model]
        found = self._lookup(model)
        if found is None:
            prefix, _, own = model.partition("/")
            if own and prefix in _SELF_HOSTED and not own.endswith(_HOSTED_AFTER_ALL):
                return ZERO_PRICE
            return ASSUMED_FREE if self._here(model) else None
        name, entry = found
        return self.user.get(name) or _price(name, entry)

    def facts(self, model: str) -> ModelFacts | None:
        """Context size, output limit and the like; None for a model the file does not have."""
        found = self._lookup(model)
        return None if found is None else _facts(model, found[1])

    def names(self) -> tuple[str, ...]:
        """Every model one can talk with, sorted: those of the file and those the user gave a price."""
        return tuple(sorted({*self.user, *(name for name, entry in self._everything.items() if _talks(entry))}))

    def of_provider(self, provider: str) -> Iterator[tuple[ModelFacts, Price | None]]:
        """Facts and prices of one provider's models, in the file's order, the provider written before each name."""
        for name, entry in self._entries_of(provider):
            if _talks(entry):
                full = name if name.startswith(f"{provider}/") else f"{provider}/{name}"
                yield _facts(full, entry), self.user.get(full) or self.user.get(name) or _price(name, entry)

    def _lookup(self, model: str) -> tuple[str, Entry] | None:
        """The entry by its exact name, without its provider prefix, or with the one prefix there is.

        `openai/responses/NAME` is NAME, reached through another endpoint.
        """
        model = model.replace("openai/responses/", "openai/", 1)
        entry = self._entry(model)
        if entry is not None:
            return (model, entry) if _talks(entry) else None
        prefix, slash, bare = model.partition("/")
        if slash:  # litellm splits some providers into kinds, such as `vertex_ai-llama_models`
            entry = self._entry(bare)
            owner = str((entry or {}).get("litellm_provider", ""))
            kinds = (f"{prefix}-", f"{prefix}_")
            same = owner in (prefix, f"text-completion-{prefix}") or owner.startswith(kinds)
            return (bare, entry) if entry is not None and _talks(entry) and same else None
        if f'/{model}"'.encode() not in self._raw:
            return None
        owners = [one for one in self._everything.items() if one[0].partition("/")[2] == model and _talks(one[1])]
        return owners[0] if len(owners) == 1 else None

    def _entry(self, name: str) -> Entry | None:
        if not self._apart:
            return self._everything.get(name)
        for margin in _MARGINS:
            key = margin + f"{json.dumps(name)}: {{".encode()
            if (start := self._raw.find(key)) >= 0:
                return self._cut(start + len(key) - 1)
        return None

    def _entries_of(self, provider: str) -> Iterator[tuple[str, Entry]]:
        if not self._apart:
            found = self._everything.items()
            yield from ((name, entry) for name, entry in found if entry.get("litellm_provider") == provider)
            return
        mark, at = f'\n        "litellm_provider": {json.dumps(provider)}'.encode(), 0
        while (at := self._raw.find(mark, at + 1)) >= 0:
            near = max(0, at - _LONGEST_ENTRY)
            start = max(self._raw.rfind(margin + b'"', near, at) + len(margin) for margin in _MARGINS)
            colon = self._raw.index(b": {", start)
            yield json.loads(self._raw[start:colon]), self._cut(colon + len(b": "))

    @cached_property
    def _raw(self) -> bytes:
        file, found = self._file, importlib.util.find_spec("litellm")
        if file is None and found is not None and found.origin:
            packaged = Path(found.origin).parent / _FILE_NAME
            file = packaged if packaged.is_file() else None
        return file.read_bytes() if file is not None else b"{}"

    @property
    def _apart(self) -> bool:
        """Whether entries are parsed one by one: the file is indented as it should be, and not parsed yet."""
        return "_everything" not in vars(self) and self._raw.startswith(b'{\n    "')

    def _cut(self, start: int) -> Entry:
        """The entry whose opening brace is there."""
        return json.loads(self._raw[start : self._raw.index(b"\n    }", start)] + b"}", parse_float=Decimal)

    @cached_property
    def _everything(self) -> dict[str, Entry]:
        """All entries, each parsed alone: one parse of 3 MB would keep all other threads waiting."""
        text, decoder = self._raw.decode(), json.JSONDecoder(parse_float=Decimal)
        found: dict[str, Entry] = {}
        at = _behind(text, text.index("{") + 1)
        while not text.startswith("}", at):
            name, at = decoder.raw_decode(text, at)
            value, at = decoder.raw_decode(text, _behind(text, at))
            if isinstance(value, dict):
                found[name] = cast("Entry", value)
            at = _behind(text, at)
        return found


def _behind(text: str, at: int) -> int:
    """Where the next value begins, behind white space and what separates."""
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _facts(name: str, entry: Entry) -> ModelFacts:
    # Providers run by the user serve any model, so a missing flag says nothing about it.
    missing = None if entry.get("litellm_provider") in _SELF_HOSTED else False
    return ModelFacts(
        name=name,
        provider=str(entry.get("litellm_provider", "")),
        context=_count(entry, "max_input_tokens", "max_tokens"),
        max_output=_count(entry, "max_output_tokens", "max_tokens"),
        native_tools=entry.get("supports_function_calling") is True,
        vision=entry.get("supports_vision") is True or missing,
        reasons=entry.get("supports_reasoning") is True or missing,
        adaptive=entry.get("supports_adaptive_thinking") is True,
        efforts=frozenset(level for level in _EFFORTS if entry.get(f"supports_{level}_reasoning_effort") is True),
    )


def _price(name: str, entry: Entry) -> Price | None:
    """The price an entry of the file gives; None where it names none, or leaves a part of the bill out.

    Rates of longer prompts are in `tiered_pricing`, or in fields such as `…_above_128k_tokens`.
    """
    if entry.get("litellm_provider") in _SELF_HOSTED:
        return None if name.endswith(_HOSTED_AFTER_ALL) else ZERO_PRICE
    if "citation_cost_per_token" in entry:
        return None  # bills tokens that nobody can count before
    base = _rates(entry, "")
    found = [(0, base)]
    if ranges := entry.get("tiered_pricing"):
        found = [(int(record["range"][0]), _rates(record, "")) for record in ranges]
    elif base is not None:
        sizes = [match[1] for field in entry if (match := _ABOVE.fullmatch(field))]
        found += [(int(size) * 1000, _rates(entry, f"_above_{size}k_tokens", base)) for size in sizes]
    tiers = sorted((Tier(above, rates) for above, rates in found if rates), key=lambda tier: tier.above)
    # A hosted model whose output is free is one whose price the file does not know.
    if not tiers or not tiers[0].rates.output:
        return None
    fee = Decimal(str(entry.get("input_cost_per_request", 0)))
    searches = entry.get("search_context_cost_per_query")
    if searches and (entry.get("litellm_provider") == "perplexity" or "-search-" in name):  # with every call
        fee += max(Decimal(str(cost)) for cost in searches.values())
    return Price(tiers[0].rates, tuple(tiers[1:]), _SOURCE, fee)


def _rates(entry: Entry, suffix: str, base: Rates | None = None) -> Rates | None:
    """The rates under one suffix; what a tier leaves out stays as in `base`, what is nowhere is charged in full."""

    def rate(name: str) -> Decimal | None:
        value = entry.get(name + suffix)
        return None if value is None else Decimal(str(value)).scaleb(6)

    fresh, output = rate("input_cost_per_token"), rate("output_cost_per_token")
    if base is not None:
        fresh, output = fresh or base.input, output or base.output
    if fresh is None or output is None:
        return None
    cached, write, reasoning = (
        rate("cache_read_input_token_cost"),
        rate("cache_creation_input_token_cost"),
        rate("output_cost_per_reasoning_token"),
    )
    if base is not None:
        cached = base.cached_input if cached is None and base.cached_input != base.input else cached
        write = max(base.cache_write, fresh) if write is None else write
        reasoning = max(base.reasoning, output) if reasoning is None else reasoning
    return Rates(
        fresh,
        fresh if cached is None else cached,
        fresh if write is None else write,
        output,
        output if reasoning is None else reasoning,
    )


def _talks(entry: Entry) -> bool:
    return entry.get("mode") in _CHAT_MODES


def _count(entry: Entry, *names: str) -> int | None:
    """The first of these fields that is a count."""
    values = (entry.get(name) for name in names)
    return next((int(value) for value in values if isinstance(value, (int, Decimal)) and value > 0), None)

"""Amounts of dollars, tokens and working time: exact integers, parsed from text and formatted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Literal

from ecoshell.errors import UsageError

Unit = Literal["usd", "tokens", "ms"]
"""The unit of a cap: nano-dollars, tokens, or milliseconds of working time."""

NANO = 1_000_000_000
"""Nano-dollars in a dollar."""

MAX_USD = 1_000_000
MAX_TOKENS = 1_000_000_000_000
MAX_MS = 10_000 * 3_600_000
_LIMITS: Mapping[Unit, int] = {"usd": MAX_USD * NANO, "tokens": MAX_TOKENS, "ms": MAX_MS}

_AMOUNT = re.compile(
    r"(?P<dollar>\$?) ?(?P<number>[0-9][0-9.,]*|[.,][0-9]+) ?(?P<size>[km]?) ?"
    r"(?P<unit>tok(?:ens?)?|c|ct|cents?|¢|\$|usd|dollars?)?",
    re.ASCII,
)
_DURATION = re.compile(
    r"(?:(?P<h>[0-9.,]+) ?h(?:(?:ou)?rs?)? ?)?(?:(?P<min>[0-9.,]+) ?(?P<minute>m(?:in(?:ute)?s?)?) ?)?"
    r"(?:(?P<s>[0-9.,]+) ?s(?:ec(?:ond)?s?)?)?",
    re.ASCII,
)
_MS: Mapping[str, int] = {"h": 3_600_000, "min": 60_000, "s": 1_000}
"""Milliseconds of each part of a duration."""
_NUMBER = re.compile(r"[0-9]*\.?[0-9]*", re.ASCII)
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?", re.ASCII)
_AMBIGUOUS = re.compile(r"[1-9][0-9]{0,2},[0-9]{3}", re.ASCII)
_SIZES = {"": 1, "k": 1_000, "m": 1_000_000}
_ZERO = re.compile(r"\$?0+(?:[.,]0+)?", re.ASCII)
_MAX_CHARS = 64
_EXACT = Context(prec=90, traps=[Inexact])
"""Exact for every number of up to `_MAX_CHARS` characters."""
_EXAMPLES = "Give dollars, such as 0.50 or 50c, tokens, such as 20000tok, or working time, such as 2min or 1h30m."


def nano_to_usd_text(nano: int) -> str:
    """Return the exact amount in dollars without an exponent, such as `0.0031`."""
    sign = "-" if nano < 0 else ""
    dollars, remainder = divmod(abs(nano), NANO)
    decimals = f"{remainder:09d}".rstrip("0")
    return f"{sign}{dollars}.{decimals}" if decimals else f"{sign}{dollars}"


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of nano-dollars, tokens or milliseconds, as `unit` says."""

    value: int
    unit: Unit

    def __str__(self) -> str:
        return amount_text(self.value, self.unit)


def amount_text(value: int, unit: Unit, *, digits: int = 4) -> str:
    """Format a value for display: `$0.50`, `$0.003142`, `1 token`, `20,000 tokens`, `1 min 30 s`.

    Dollars are rounded to the cent, smaller amounts to `digits` significant digits.
    """
    if unit == "tokens":
        return counted(value, "token")
    if unit == "ms":
        return duration_text(value)
    step = min(10 ** max(0, len(str(abs(value))) - digits), NANO // 100)
    text = nano_to_usd_text((value + step // 2) // step * step)
    sign = "-" if text.startswith("-") else ""
    dollars, point, decimals = text.removeprefix("-").partition(".")
    return f"{sign}${int(dollars):,}.{decimals:0<2}" if point else f"{sign}${int(dollars):,}"


def duration_text(ms: int) -> str:
    """Format a duration: `0.4 s`, `12 s`, `1 min 30 s`, `2 h 5 min`; rounded to tenths below ten seconds."""
    if ms < 0:
        return f"-{duration_text(-ms)}"
    if ms < 10_000:
        tenths = (ms + 50) // 100
        return f"{tenths // 10} s" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10} s"
    seconds = (ms + 500) // 1_000
    if seconds >= 3_600:
        minutes = (seconds + 30) // 60
        parts = ((minutes // 60, "h"), (minutes % 60, "min"))
    else:
        parts = ((seconds // 60, "min"), (seconds % 60, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def typed_amount(value: int, unit: Unit) -> str:
    """Return the exact amount as a user types it after `/budget`: `0.5`, `20000tok`, `1min30s`."""
    if unit == "usd":
        return nano_to_usd_text(value)
    if unit == "tokens":
        return f"{value}tok"
    minutes, ms = divmod(value, 60_000)
    seconds = f"{ms / 1_000:g}s" if ms else ""
    return f"{minutes}min{seconds}" if minutes else seconds or "0s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `1,204 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def about(text: str, *, estimated: bool) -> str:
    """Mark a figure with `≈` if it is an estimate or contains one."""
    return f"≈ {text}" if estimated else text


def rounded_up(value: int, digits: int = 2) -> int:
    """Round up to `digits` significant digits, for proposed amounts."""
    step = 10 ** max(0, len(str(value)) - digits)
    return -(-value // step) * step


def parse_amount(text: str) -> Amount:
    """Parse an amount: `0.50`, `$2`, `1,50`, `50c`, `20000tok`, `20k tok`, `20,000 tokens`, `90s`, `1h30m`.

    A comma before three digits separates thousands in token counts and when the number has another separator. In
    dollars it is ambiguous otherwise. Raises UsageError for ambiguous, negative, zero, huge and malformed amounts.
    """
    text = str(text)  # Python programs may pass a number.
    quoted = text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"
    cleaned = text.strip().lower()
    unit: Unit = "ms"
    number = _duration(cleaned, quoted) if len(cleaned) <= _MAX_CHARS else None
    if number is None:
        number, unit = _money_or_tokens(cleaned, quoted)
    if number == 0:
        raise UsageError(f"{quoted!r} would allow nothing.", fix=_EXAMPLES)
    if number > _LIMITS[unit]:
        maximum = amount_text(_LIMITS[unit], unit)
        raise UsageError(f"{quoted!r} is more than the maximum of {maximum}.", fix=_EXAMPLES)
    if unit == "ms" and number < 1:
        raise UsageError(f"{quoted!r} is less than a millisecond.", fix=_EXAMPLES)
    if unit == "usd" and number != number.to_integral_value():
        raise UsageError(f"{quoted!r} has more than nine decimals.", fix=_EXAMPLES)
    return Amount(int(number), unit)


def _money_or_tokens(cleaned: str, quoted: str) -> tuple[Decimal, Unit]:
    """Parse nano-dollars or tokens; raises UsageError."""
    match = _AMOUNT.fullmatch(cleaned) if len(cleaned) <= _MAX_CHARS else None
    if match is None:
        why = "is negative" if cleaned.startswith(("-", "$-")) else "is not an amount"
        raise UsageError(f"{quoted!r} {why}.", fix=_EXAMPLES)
    unit, size = match["unit"] or "", _SIZES[match["size"]]
    tokens, cents = unit.startswith("tok"), unit.startswith(("c", "¢")) and not match["dollar"]
    digits = match["number"]
    if _AMBIGUOUS.fullmatch(digits) and not (tokens and size == 1):  # tokens have no decimals
        head, _, tail = digits.partition(",")
        fix = f"Write {head}{tail} or {head}.{tail}."
        raise UsageError(f"{quoted!r} is ambiguous.", fix=f"{fix} {_EXAMPLES}")
    digits = digits.replace(",", "") if _THOUSANDS.fullmatch(digits) else digits.replace(",", ".")
    if not _NUMBER.fullmatch(digits):
        raise UsageError(f"{quoted!r} is not an amount.", fix=_EXAMPLES)
    number = _EXACT.multiply(Decimal(digits), size)
    if tokens:
        if match["dollar"] or number != number.to_integral_value():
            raise UsageError(f"{quoted!r} is not a whole number of tokens.", fix=_EXAMPLES)
        return number, "tokens"
    if size > 1 and not (match["dollar"] or unit):
        if match["size"] == "m":
            fix = f"Write ${cleaned}, {cleaned} tok or {cleaned}in. {_EXAMPLES}"
            raise UsageError(f"{quoted!r} could be dollars, tokens or minutes.", fix=fix)
        fix = f"Write ${cleaned} or {cleaned} tok. {_EXAMPLES}"
        raise UsageError(f"{quoted!r} could be dollars or tokens.", fix=fix)
    if (match["dollar"] and unit) or (cents and size > 1):
        raise UsageError(f"{quoted!r} is not an amount.", fix=_EXAMPLES)
    return _EXACT.multiply(number, NANO // 100 if cents else NANO), "usd"


def _duration(cleaned: str, quoted: str) -> Decimal | None:
    """Parse a duration in milliseconds; None if the text is none. Raises UsageError."""
    match = _DURATION.fullmatch(cleaned)
    # 2m could be dollars or tokens
    if match is None or (match["minute"] == "m" and not (match["h"] or match["s"])):
        return None
    parts = [(part.replace(",", "."), size) for name, size in _MS.items() if (part := match[name])]
    if not parts:
        return None
    if not all(_NUMBER.fullmatch(number) and number != "." for number, _ in parts):
        raise UsageError(f"{quoted!r} is not an amount.", fix=_EXAMPLES)
    return sum((_EXACT.multiply(Decimal(number), size) for number, size in parts), Decimal(0))


def parse_spent(text: str) -> Amount:
    """Parse an amount that may be `0`; raises UsageError."""
    return Amount(0, "usd") if _ZERO.fullmatch(text.strip()) else parse_amount(text)


def short_tokens(count: int) -> str:
    """A short token count: `812`, `1.9k`, `14k`, `2.1M`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            short = f"{count / size:.1f}" if count < 10 * size else f"{count // size}"
            return f"{short.removesuffix('.0')}{letter}"
    return str(count)

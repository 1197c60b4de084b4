"""Money and amounts: whole nano-dollars inside, `Decimal` at the edges, never a float."""

import re
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Literal

from ecoshell.errors import UsageError

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
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    cleaned = text.strip().lower()
    found = _AMOUNT.fullmatch(cleaned) if len(cleaned) <= _LONGEST else None
    if found is None:
        why = "is negative" if cleaned.startswith(("-", "$-")) else "is not an amount"
        raise UsageError(f"{shown!r} {why}.", fix=_ALLOWED)
    unit, size = found["unit"] or "", _SIZES[found["size"]]
    tokens, cents = unit.startswith("tok"), unit.startswith(("c", "¢")) and not found["dollar"]
    number = _STRICT.multiply(_number(found["number"], shown, whole=tokens and size == 1), size)
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


def _number(text: str, shown: str, *, whole: bool) -> Decimal:
    """A number with a point or a comma; `whole` where it can only be one without decimals."""
    if _TWO_WAYS.fullmatch(text) and not whole:
        head, _, tail = text.partition(",")
        fix = f"Write {head}{tail} or {head}.{tail}."
        raise UsageError(f"{shown!r} can be read in two ways.", fix=f"{fix} {_ALLOWED}")
    plain = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text.replace(",", ".")
    if not _NUMBER.fullmatch(plain):
        raise UsageError(f"{shown!r} is not an amount.", fix=_ALLOWED)
    return Decimal(plain)

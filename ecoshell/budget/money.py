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
    r"(?P<dollar>\$?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<tokens>(?: ?tok(?:ens?)?)?)", re.ASCII
)
_DIGITS = 4
"""Significant digits that a person is shown."""
_LONGEST = 64
_ALLOWED = "Give dollars, such as 0.50 or $2, or tokens, such as 20000tok."


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


def amount_text(value: int, unit: Unit) -> str:
    """A value as a person reads it: `$0.50`, `$0.003142`, `1 token`, `20,000 tokens`.

    Dollars to the cent, and beyond it to four significant digits.
    """
    if unit == "tokens":
        return f"{value:,} token{'' if value == 1 else 's'}"
    step = min(10 ** max(0, len(str(abs(value))) - _DIGITS), NANO // 100)
    text = nano_to_usd_text((value + step // 2) // step * step)
    sign, (whole, point, decimals) = "-" if text.startswith("-") else "", text.removeprefix("-").partition(".")
    return f"{sign}${int(whole):,}.{decimals:0<2}" if point else f"{sign}${int(whole):,}"


def about(text: str, *, estimated: bool) -> str:
    """A figure that is marked where it is an estimate, or a part of it is."""
    return f"≈ {text}" if estimated else text


def rounded_up(value: int, digits: int = 2) -> int:
    """The least value of so few significant digits that is no smaller, for an amount that is proposed."""
    step = 10 ** max(0, len(str(value)) - digits)
    return -(-value // step) * step


def parse_amount(text: str) -> Amount:
    """The amount a person typed; raises UsageError for what is negative, zero, absurd, or not an amount."""
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    cleaned = text.strip().lower()
    found = _AMOUNT.fullmatch(cleaned) if len(cleaned) <= _LONGEST else None
    if found is None:
        why = "is negative" if cleaned.startswith(("-", "$-")) else "is not an amount"
        raise UsageError(f"{shown!r} {why}.", fix=_ALLOWED)
    if found["tokens"]:
        return _tokens(found["dollar"], found["number"], shown)
    return _dollars(found["number"], shown)


def _tokens(dollar: str, number: str, shown: str) -> Amount:
    if dollar or not number.isdigit():
        raise UsageError(f"{shown!r} is not a whole number of tokens.", fix=_ALLOWED)
    value = int(number)
    _refuse_absurd(value, MOST_TOKENS, shown, f"{MOST_TOKENS:,} tokens")
    return Amount(value, "tokens")


def _dollars(number: str, shown: str) -> Amount:
    dollars = Decimal(number)
    _refuse_absurd(dollars, MOST_USD, shown, f"${MOST_USD:,}")
    strict = Context(prec=60, traps=[Inexact])
    try:
        value = strict.quantize(strict.multiply(dollars, Decimal(NANO)), Decimal(1))
    except Inexact:
        raise UsageError(f"{shown!r} has more than nine decimals.", fix=_ALLOWED) from None
    return Amount(int(value), "usd")


def _refuse_absurd(value: Decimal | int, most: int, shown: str, most_text: str) -> None:
    if value == 0:
        raise UsageError(f"{shown!r} would allow nothing.", fix=f"{_ALLOWED} Type `off` to remove a cap.")
    if value > most:
        raise UsageError(f"{shown!r} is more than {most_text}, which is surely a slip.", fix=_ALLOWED)

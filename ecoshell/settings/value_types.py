"""Types of setting values: annotations that check and normalise what the file or a variable holds."""

import re
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from ecoshell.budget import Amount, nano_to_usd_text, parse_amount
from ecoshell.errors import UsageError
from ecoshell.settings.convert import Checked, Parsed

_PLAIN_NUMBER = re.compile(r"[0-9.]+", re.ASCII)
_AMOUNT_DIGITS_LIMIT = 64
"""Digits of a number written without an exponent; larger numbers cannot be amounts."""
_MAX_RATE = 1_000_000


def _amount_text(value: Any) -> str:
    plain = isinstance(value, Decimal) and abs(value.adjusted()) < _AMOUNT_DIGITS_LIMIT
    return f"{value:f}" if plain else str(value).strip()


def _amount(value: Any) -> Amount | None:
    """Parse an amount of dollars, tokens or working time; None if it is not one."""
    try:
        return None if isinstance(value, bool) else parse_amount(_amount_text(value))
    except UsageError:
        return None


def _rate(value: Any) -> Decimal:
    """Convert a number, or a rate typed like an amount, such as `15c`."""
    is_text = isinstance(value, str) and not _PLAIN_NUMBER.fullmatch(value.strip())
    amount = _amount(value) if is_text else None
    text = nano_to_usd_text(amount.value) if amount and amount.unit == "usd" else str(value)
    with suppress(InvalidOperation):
        if not isinstance(value, bool) and 0 <= (rate := Decimal(text)) <= _MAX_RATE:
            return rate
    raise ValueError(f"must be a number from 0 to {_MAX_RATE:,}")


def _whole(minimum: int, maximum: int | None = None, *, word: str = "") -> Parsed:
    """Accept a whole number within bounds, or one word."""
    bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    requirement = f"must be {_quoted_word(word)}a whole number {bounds}"

    def convert(value: Any) -> int | str:
        if word and value == word:
            return word
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and minimum <= value <= (value if maximum is None else maximum):
            return value
        raise ValueError(requirement)

    return Parsed(convert)


def _number(minimum: float, maximum: float, *, word: str = "", above: bool = False) -> Parsed:
    """Accept a number within bounds, `above` the minimum or from it, or one word."""
    bounds = (
        f"above {minimum:g}, up to {maximum:g}" if above else f"from {minimum:g} to {maximum:g}"
    )
    requirement = f"must be {_quoted_word(word)}a number {bounds}"

    def convert(value: Any) -> float | str:
        if word and value == word:
            return word
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
            is_inside = minimum <= number <= maximum and not (above and number == minimum)
            if is_inside and not isinstance(value, bool):
                return number
        raise ValueError(requirement)

    return Parsed(convert)


def _quoted_word(word: str) -> str:
    return f'"{word}" or ' if word else ""


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a name")
    return value.strip()


def _address(value: str) -> str:
    parts = None
    with suppress(ValueError):
        parts = urlsplit(value)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address such as http://localhost:8000/v1")
    if parts.username or parts.password:
        raise ValueError(
            "must not contain a user name or password; keys belong in the environment or the keyring"
        )
    return value


def _not_empty(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _amount_or_refuse(requirement: str, *, units: bool = False, off: bool = False) -> Parsed:
    """Accept dollars and, if allowed, amounts of other `units` or the word `off`; `requirement` is the error."""

    def check(value: Any) -> str:
        if off and str(value).strip().lower() == "off":
            return "off"
        amount = _amount(value)
        if amount is None or (amount.unit != "usd" and not units):
            raise ValueError(requirement)
        return _amount_text(value)

    return Parsed(check)


def _ledger_address(value: str) -> str:
    from ecoshell.budget.address import require_ledger_address

    try:
        return require_ledger_address(value)
    except UsageError as error:
        raise ValueError(f"is not the address of a team ledger. {error}") from None


def _environment_text(value: Any) -> str:
    """Convert a number or boolean to the text an environment variable would hold."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, Decimal, str)):
        return str(value)
    raise ValueError("must be text")


AmountText = Annotated[
    str,
    _amount_or_refuse(
        'must be dollars, such as "0.50", tokens, such as "20000tok", or working time, such as "2min"',
        units=True,
    ),
]
Dollars = Annotated[str, _amount_or_refuse('must be dollars, such as "0.05"')]
DollarsOrOff = Annotated[
    str, _amount_or_refuse('must be dollars, such as "0.05", or "off"', off=True)
]
Rate = Annotated[Decimal, Parsed(_rate)]

Text = Annotated[str, Checked(_not_empty)]
Name = Parsed(_name)
Address = Annotated[str, Checked(_address)]
LedgerAddress = Annotated[str, Checked(_ledger_address)]
EnvironmentText = Annotated[str, Parsed(_environment_text)]

PositiveWhole = Annotated[int, _whole(1)]
ContextTokens = Annotated[int, _whole(512)]
SecondsUpToDay = Annotated[int, _whole(0, 86_400)]
TimeLimit = Annotated[float, _number(0, 86_400, above=True)]
Fraction = Annotated[float, _number(0, 1)]
PositiveFraction = Annotated[float, _number(0, 1, above=True)]

AutoOrWhole = Annotated[int | Literal["auto"], _whole(1, word="auto")]
AutoOrLayers = Annotated[int | Literal["auto"], _whole(-1, word="auto")]
AutoOrTemperature = Annotated[float | Literal["auto"], _number(0, 2, word="auto")]
OffOrContextShare = Annotated[float | Literal["off"], _number(0.3, 0.95, word="off")]

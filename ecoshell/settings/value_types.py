"""Types of setting values: pydantic annotations that validate and normalise what the file or a variable holds."""

import re
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from ecoshell.budget import Amount, nano_to_usd_text, parse_amount
from ecoshell.errors import UsageError

_PLAIN_NUMBER = re.compile(r"[0-9.]+", re.ASCII)
_AMOUNT_DIGITS_LIMIT = 64
"""Digits of a number written without an exponent; larger numbers cannot be amounts."""
_MAX_TEMPERATURE = 2
_MIN_CONTEXT_SHARE, _MAX_CONTEXT_SHARE = 0.3, 0.95


def _reject_boolean(value: Any) -> Any:
    """Reject true and false, which pydantic would take for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _amount_text(value: Any) -> str:
    plain = isinstance(value, Decimal) and abs(value.adjusted()) < _AMOUNT_DIGITS_LIMIT
    return f"{value:f}" if plain else str(value).strip()


def _amount(value: Any) -> Amount | None:
    """Parse an amount of dollars, tokens or working time; None if it is not one."""
    try:
        return None if isinstance(value, bool) else parse_amount(_amount_text(value))
    except UsageError:
        return None


def _rate(value: Any) -> Any:
    """Convert a rate typed like an amount, such as `15c`; return any other value unchanged."""
    is_text = isinstance(value, str) and not _PLAIN_NUMBER.fullmatch(value.strip())
    amount = _amount(value) if is_text else None
    if amount is None or amount.unit != "usd":
        return _reject_boolean(value)
    return Decimal(nano_to_usd_text(amount.value))


def _auto_or_at_least(minimum: int) -> PlainValidator:
    def check(value: Any) -> int | Literal["auto"]:
        if value == "auto":
            return "auto"
        if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
            return value
        raise ValueError(f'must be "auto" or a whole number of at least {minimum}')

    return PlainValidator(check)


def _number_or(word: str, minimum: float, maximum: float) -> PlainValidator:
    """Accept a number within bounds, or one word."""

    def check(value: Any) -> Any:
        if value == word:
            return word
        with suppress(TypeError, ValueError):
            if not isinstance(value, bool) and minimum <= (number := float(value)) <= maximum:
                return number
        raise ValueError(f'must be "{word}" or a number from {minimum:g} to {maximum:g}')

    return PlainValidator(check)


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


def _amount_or_refuse(
    requirement: str, *, units: bool = False, off: bool = False
) -> PlainValidator:
    """Accept dollars and, if allowed, amounts of other `units` or the word `off`; `requirement` is the error."""

    def check(value: Any) -> str:
        if off and str(value).strip().lower() == "off":
            return "off"
        amount = _amount(value)
        if amount is None or (amount.unit != "usd" and not units):
            raise ValueError(requirement)
        return _amount_text(value)

    return PlainValidator(check)


def _ledger_address(value: str) -> str:
    from ecoshell.budget.address import require_ledger_address

    try:
        return require_ledger_address(value)
    except UsageError as error:
        raise ValueError(f"is not the address of a team ledger. {error}") from None


def _environment_text(value: Any) -> Any:
    """Convert a number or boolean to the text an environment variable would hold."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, Decimal)) else value


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
Rate = Annotated[Decimal, BeforeValidator(_rate), Field(ge=0, le=1_000_000, allow_inf_nan=False)]

Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, AfterValidator(_not_empty)]
Name = PlainValidator(_name)
Address = Annotated[str, AfterValidator(_address)]
LedgerAddress = Annotated[str, AfterValidator(_ledger_address)]
EnvironmentText = Annotated[str, BeforeValidator(_environment_text)]

PositiveWhole = Annotated[int, Field(strict=True, ge=1)]
ContextTokens = Annotated[int, Field(strict=True, ge=512)]
SecondsUpToDay = Annotated[int, Field(strict=True, ge=0, le=86_400)]
TimeLimit = Annotated[float, BeforeValidator(_reject_boolean), Field(gt=0, le=86_400)]
Fraction = Annotated[float, BeforeValidator(_reject_boolean), Field(ge=0, le=1)]
PositiveFraction = Annotated[float, BeforeValidator(_reject_boolean), Field(gt=0, le=1)]

AutoOrWhole = Annotated[int | Literal["auto"], _auto_or_at_least(1)]
AutoOrLayers = Annotated[int | Literal["auto"], _auto_or_at_least(-1)]
AutoOrTemperature = Annotated[float | Literal["auto"], _number_or("auto", 0, _MAX_TEMPERATURE)]
OffOrContextShare = Annotated[
    float | Literal["off"], _number_or("off", _MIN_CONTEXT_SHARE, _MAX_CONTEXT_SHARE)
]

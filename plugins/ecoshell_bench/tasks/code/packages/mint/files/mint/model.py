"""What a journal is made of."""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal


class JournalError(Exception):
    """Something in a journal is wrong; `line` says where."""

    def __init__(self, line, message):
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


@dataclass(frozen=True)
class Currency:
    """A currency, the digits after its point, and what one KRO is worth in it."""

    code: str
    name: str
    places: int
    rate: str


@dataclass
class Posting:
    """One account's part in a transaction; `value` is the amount in KRO."""

    account: str
    amount: Decimal
    currency: str
    value: Decimal


@dataclass
class Transaction:
    """Postings that sum to zero."""

    day: date
    cleared: bool
    text: str
    line: int
    comment: str = ""
    postings: list = field(default_factory=list)

"""Reads journals."""

import re
from datetime import date
from decimal import ROUND_HALF_UP, Decimal

from mint.currencies import BY_CODE
from mint.model import JournalError, Posting, Transaction

HEAD = re.compile(r"(\d{4}-\d\d-\d\d)\s+([*!])\s+(.+)")
AMOUNT = re.compile(r"(-?[\d,]*\d(?:\.\d+)?)(?:\s+([A-Z]{3}))?(?:\s+@\s+(\d+(?:\.\d+)?))?")
CENT = Decimal("0.01")


def parse(text):
    """The transactions of a journal in the order of their dates, those of one day in file order."""
    transactions, missing = [], None
    current = None
    for number, line in enumerate(text.splitlines(), 1):
        content, _, comment = line.partition(";")
        if not content.strip():
            continue
        if not line[0].isspace():
            _complete(current, missing)
            current, missing = _transaction(content.strip(), comment.strip(), number), None
            transactions.append(current)
            continue
        if current is None:
            raise JournalError(number, "a posting before the first transaction")
        posting = _posting(content.strip(), number)
        if posting.amount is None:
            if missing is not None:
                raise JournalError(number, "a second posting without an amount")
            missing = posting
        current.postings.append(posting)
    _complete(current, missing)
    return sorted(transactions, key=lambda transaction: transaction.day)


def _transaction(content, comment, number):
    found = HEAD.fullmatch(content)
    if not found:
        raise JournalError(number, "this is not a transaction")
    try:
        day = date.fromisoformat(found[1])
    except ValueError:
        raise JournalError(number, f"{found[1]} is not a date") from None
    return Transaction(day, found[2] == "*", found[3].strip(), number, comment)


def _posting(content, number):
    account, *rest = re.split(r"\s{2,}|\t", content, maxsplit=1)
    if not re.fullmatch(r"[\w-]+( [\w-]+)*(:[\w-]+( [\w-]+)*)*", account):
        raise JournalError(number, f"{account!r} is not an account")
    if not rest:
        return Posting(account, None, "KRO", None)
    found = AMOUNT.fullmatch(rest[0].strip())
    if not found:
        raise JournalError(number, f"{rest[0].strip()!r} is not an amount")
    amount, currency = Decimal(found[1].replace(",", "")), found[2] or "KRO"
    if currency not in BY_CODE:
        raise JournalError(number, f"unknown currency {currency}")
    if found[3]:
        if not Decimal(found[3]):
            raise JournalError(number, "the rate is zero")
        value = amount / Decimal(found[3])
    else:
        value = (amount / Decimal(BY_CODE[currency].rate)).quantize(CENT, ROUND_HALF_UP)
    return Posting(account, amount, currency, value)


def _complete(transaction, missing):
    """Fill in the posting without an amount, and see that a transaction balances."""
    if transaction is None:
        return
    if len(transaction.postings) < 2:
        raise JournalError(transaction.line, "a transaction has at least two postings")
    total = sum((posting.value for posting in transaction.postings if posting is not missing), Decimal(0))
    if missing is not None:
        missing.amount = missing.value = -total
    elif total:
        raise JournalError(transaction.line, f"it does not balance: {total} is left")

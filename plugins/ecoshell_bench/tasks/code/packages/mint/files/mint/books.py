"""Sums over transactions."""

from decimal import Decimal


class Books:
    """Transactions and queries."""

    def __init__(self, transactions):
        self.transactions = list(transactions)

    def accounts(self):
        """All accounts and those above them, sorted so that each follows the one it belongs to."""
        found = set()
        for transaction in self.transactions:
            for posting in transaction.postings:
                parts = posting.account.split(":")
                found |= {tuple(parts[: size + 1]) for size in range(len(parts))}
        return [":".join(parts) for parts in sorted(found)]

    def select(self, start=None, end=None, cleared=False):
        """The books of a time, from `start` and before `end`; only what is cleared, if so wanted."""
        return Books(
            transaction
            for transaction in self.transactions
            if (start is None or transaction.day >= start)
            and (end is None or transaction.day < end)
            and (transaction.cleared or not cleared)
        )

    def postings(self, account=""):
        """Pairs of transaction and posting, of an account and those below it."""
        for transaction in self.transactions:
            for posting in transaction.postings:
                if is_within(posting.account, account):
                    yield transaction, posting

    def balance(self, account=""):
        """The total of an account and those below it, in KRO."""
        return sum((posting.value for _, posting in self.postings(account)), Decimal(0))

    def running(self, account=""):
        """Each posting of an account with the balance after it."""
        total = Decimal(0)
        for transaction, posting in self.postings(account):
            total += posting.value
            yield transaction, posting, total

    def monthly(self, account):
        """The change of an account in each month from the first to the last of the books, also those without any."""
        if not self.transactions:
            return {}
        days = [transaction.day for transaction in self.transactions]
        year, month, last = min(days).year, min(days).month, max(days)
        found = {}
        while (year, month) <= (last.year, last.month):
            found[f"{year}-{month:02}"] = Decimal(0)
            year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        for transaction, posting in self.postings(account):
            found[f"{transaction.day:%Y-%m}"] += posting.value
        return found


def is_within(account, above):
    """Whether an account is another one or below it."""
    return not above or account == above or account.startswith(f"{above}:")

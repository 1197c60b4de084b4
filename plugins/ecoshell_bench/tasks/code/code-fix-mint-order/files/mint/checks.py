"""Looks for what is probably a mistake."""

from decimal import Decimal

from mint.books import is_within

TOP = ("assets", "debts", "income", "expenses", "equity")


def findings(books):
    """Sentences about what looks wrong, in the order of the journal's lines, each once."""
    found = []
    seen = {}
    totals = {}
    for transaction in books.transactions:
        for posting in transaction.postings:
            top = posting.account.split(":")[0]
            if top not in TOP:
                found.append((transaction.line, f"{posting.account} is not in {', '.join(TOP)}"))
            if is_within(posting.account, "assets"):
                before = totals.get(posting.account, Decimal(0))
                totals[posting.account] = before + posting.value
                if before >= 0 > posting.value:
                    found.append((transaction.line, f"{posting.account} falls below zero: {totals[posting.account]}"))
        same = (transaction.line, transaction.text, tuple((p.account, p.value) for p in transaction.postings))
        if same in seen:
            found.append((transaction.line, f"the same as in line {seen[same]}"))
        seen.setdefault(same, transaction.line)
    return [f"line {line}: {text}" for line, text in dict.fromkeys(found)]

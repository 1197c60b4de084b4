"""Prints books."""


def money(value):
    """An amount in KRO: `1,234.50`."""
    return f"{value:,.2f}"


def balance(books, account=""):
    """A line for each account that is not zero, indented below the one it belongs to, and the sum at the end."""
    lines = []
    for name in books.accounts():
        value = books.balance(name)
        if value and (not account or name == account or name.startswith(f"{account}:")):
            depth = name.count(":") - (account.count(":") if account else 0)
            lines.append(f"{money(value):>14}  {'  ' * depth}{name.rpartition(':')[2] if depth else name}")
    return "\n".join([*lines, "-" * 14, f"{money(books.balance(account)):>14}"])


def register(books, account=""):
    """A line for each posting with the balance after it; pending ones have a `!`."""
    return "\n".join(
        f"{transaction.day} {' ' if transaction.cleared else '!'} {transaction.text[:24]:<24} {posting.account:<24} "
        f"{money(posting.value):>12} {money(total):>12}"
        for transaction, posting, total in books.running(account)
    )

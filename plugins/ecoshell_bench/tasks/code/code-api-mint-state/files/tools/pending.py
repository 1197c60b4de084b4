"""List what is pending: python -m tools.pending FILE [SINCE]"""

import sys
from datetime import date
from pathlib import Path

from mint.books import Books
from mint.parsing import parse


def main(path, since=None):
    books = Books(parse(Path(path).read_text(encoding="utf-8"))).select(since and date.fromisoformat(since))
    for transaction in books.transactions:
        if not transaction.cleared:
            print(transaction.day, transaction.text)


if __name__ == "__main__":
    main(*sys.argv[1:])

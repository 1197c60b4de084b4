"""The command line."""

import sys
from pathlib import Path

from mint import reports
from mint.books import Books
from mint.checks import findings
from mint.model import JournalError
from mint.parsing import parse


def main(arguments):
    if len(arguments) not in (2, 3) or arguments[1] not in ("balance", "register", "check"):
        print("usage: python -m mint FILE balance|register|check [ACCOUNT]", file=sys.stderr)
        return 2
    try:
        books = Books(parse(Path(arguments[0]).read_text(encoding="utf-8")))
    except (OSError, JournalError) as failure:
        print(failure, file=sys.stderr)
        return 2
    if arguments[1] == "check":
        found = findings(books)
        print("\n".join(found) if found else "Nothing was found.")
        return 1 if found else 0
    print(getattr(reports, arguments[1])(books, *arguments[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A process that spends working time under the day cap until it is refused, for tests that may kill it.

It prints `held` when a call runs, waits for a line before the first call ends, and prints the milliseconds that it was
granted in all at the end.
"""

import sys
from pathlib import Path

from ecoshell.budget import Account, Ask
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached
from ecoshell.messages import Usage


def main(path: str, session: str) -> None:
    """Hold calls and tools one after another."""
    ledger = Ledger(Path(path), busy_seconds=60)
    account = Account(session, 1, "single", "m", "step")
    granted = 0
    while True:
        try:
            hold = ledger.hold(Ask(None, 10, 10, account))
        except LimitReached:
            break
        print("held", flush=True)
        ms = (hold.ms or 0) + ledger.extend(hold.entry)
        if not granted:
            sys.stdin.readline()
        ledger.settle(hold, Usage(1, 1), ms=ms)
        granted += ms
        try:
            tool = ledger.start_tool(account, "t", 0)
        except LimitReached:
            break
        granted += tool.ms or 0
        ledger.end_tool(tool, tool.ms or 0)
    ledger.close()
    print(granted)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A shell of a team that makes random calls from leases; the trial kills some of them.

It prints `held`, `refused` or `away` for each call and ends after its calls or three refusals in a row.
"""

import random
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

from spender import PRICE

from ecoshell.budget import Account, Ask
from ecoshell.errors import LimitReached, StoreError
from ecoshell.messages import Usage
from ecoshell_team.ledger import TeamLedger
from ecoshell_team.server import TeamServer


def spend(ledger: TeamLedger, chance: random.Random, session: str, calls: int) -> None:
    made = refused = 0
    while made < calls and refused < 3:
        account = Account(session, made // 10, "single", "m", "step")
        ask = Ask(PRICE, chance.randint(1, 20_000), chance.randint(1, 4_000), account)
        try:
            hold = ledger.hold(ask)
        except LimitReached:
            print("refused", flush=True)
            refused += 1
            continue
        except StoreError:
            print("away", flush=True)
            time.sleep(0.2)  # as a user would try again
            continue
        print("held", flush=True)
        made += 1
        refused = 0
        kind = chance.choice(["settled", "settled", "settled", "unreported", "released"])
        if kind == "released":
            ledger.release(hold)
        else:
            used = Usage(chance.randint(0, hold.prompt_tokens), chance.randint(0, hold.max_tokens))
            ledger.settle(hold, used if kind == "settled" else None)


def main(path: str, address: str, seed: str, calls: str) -> None:
    chance = random.Random(int(seed))
    days = timedelta(days=chance.choice([-1, 0, 1]))  # a clock that is a day off
    ledger = TeamLedger(
        Path(path),
        TeamServer(address),
        clock=lambda: datetime.now().astimezone() + days,
        busy_seconds=60,
    )
    spend(ledger, chance, f"s{seed}", int(calls))
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

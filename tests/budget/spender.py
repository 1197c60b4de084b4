"""A process that makes random calls against a shared ledger, for tests that may kill it.

It prints `held` or `refused` for each call and a JSON object with the counts at the end.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

from ecoshell.budget import Account, Ask, Hold, Price, Rates
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached
from ecoshell.messages import Usage

PRICE = Price(Rates(*map(Decimal, ("3", "0.3", "3.75", "15", "15"))))


async def spend(gate: Gate, chance: random.Random, session: str, calls: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for call in range(calls):
        account = Account(session, call // 10, "single", "m", "step")
        ask = Ask(PRICE, chance.randint(1, 20_000), chance.randint(1, 4_000), account)
        try:
            hold = await reserve(gate, ask, chance)
        except LimitReached:
            print("refused", flush=True)
            counts["refused"] += 1
            continue
        print("held", flush=True)
        counts[await end(gate, hold, chance)] += 1
    return counts


async def reserve(gate: Gate, ask: Ask, chance: random.Random) -> Hold:
    """Reserve a call, sometimes through a reserve for the answer."""
    if chance.random() < 0.2:
        return await gate.hold_final(await gate.set_aside(lambda: ask), lambda: ask)
    return await gate.hold(lambda: ask)


async def end(gate: Gate, hold: Hold, chance: random.Random) -> str:
    """End the reservation in a random way."""
    kind = chance.choice(["settled", "settled", "settled", "unreported", "released"])
    if kind == "released":
        await gate.release(hold)
    elif kind == "unreported":
        await gate.settle(hold, None)
    else:
        used = Usage(chance.randint(0, hold.prompt_tokens), chance.randint(0, hold.max_tokens))
        await gate.settle(hold, used)
    return kind


def main(path: str, seed: str, calls: str) -> None:
    ledger = Ledger(Path(path), busy_seconds=60)
    counts = asyncio.run(spend(Gate(ledger), random.Random(int(seed)), f"s{seed}", int(calls)))
    ledger.close()
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])

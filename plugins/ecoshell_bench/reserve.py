"""How long a reservation and its settlement take, on an empty ledger and on a long one."""

import asyncio
import statistics
import tempfile
import time
from decimal import Decimal
from pathlib import Path

from ecoshell.budget.gate import Gate
from ecoshell.budget.holds import Account, Ask
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.money import NANO, Amount
from ecoshell.budget.price import Price, Rates
from ecoshell.messages import Usage
from ecoshell_bench.measurement import Measurement

_RATES = Rates(Decimal("2.5"), Decimal("1.25"), Decimal("2.5"), Decimal(10), Decimal(10))
_ACCOUNT = Account(session="bench", turn=1, role="single", model="bench", purpose="step")
_ASK = Ask(Price(_RATES), prompt_tokens=2000, max_tokens=500, account=_ACCOUNT)
_USAGE = Usage(input=1500, output=120, cached=1000)


def measure_reserve_settle(rows: int = 10_000, repeat: int = 200) -> Measurement:
    """Median seconds of a hold and its settlement through the gate, under four caps, with `rows` entries before it.

    The baseline is the same on a fresh ledger, so the ratio says what the entries cost.
    """
    with tempfile.TemporaryDirectory() as folder:
        fresh = _median(Path(folder) / "fresh.sqlite", 0, repeat)
        filled = _median(Path(folder) / "filled.sqlite", rows, repeat)
    return Measurement("reserve_settle", filled, "s", fresh, filled / fresh)


def _median(path: Path, rows: int, repeat: int) -> float:
    ledger = Ledger(path)
    try:
        for scope in ("turn", "session", "day", "month"):
            ledger.set_cap(_ACCOUNT.session, scope, Amount(1_000_000 * NANO, "usd"))
        for _ in range(rows):
            ledger.settle(ledger.hold(_ASK), _USAGE)
        return statistics.median(asyncio.run(_times(Gate(ledger), repeat)))
    finally:
        ledger.close()


async def _times(gate: Gate, repeat: int) -> list[float]:
    times: list[float] = []
    for _ in range(repeat):
        started = time.perf_counter()
        await gate.settle(await gate.hold(_ASK), _USAGE)
        times.append(time.perf_counter() - started)
    return times

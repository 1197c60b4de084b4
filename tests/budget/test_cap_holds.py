"""The cap compared with provider bills, including reasoning, images, retries, fallbacks, compaction and kills."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from ledger_totals import wrong_totals

import ecoshell
from ecoshell.budget import NANO, Amount
from ecoshell.budget.ledger import Ledger

SPENDER = Path(__file__).with_name("model_spender.py")
ROOT = Path(ecoshell.__file__).parents[1]
WORKERS = 4
MOODS = ("fine", "reasoning", "silent", "busy", "down", "reset", "cut", "gone")


def start(path: Path, bills: Path, seed: int, calls: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(SPENDER), str(path), str(bills), str(seed), str(calls)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def billed(bills: Path) -> int:
    return sum(map(int, bills.read_text().split()))


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
@pytest.mark.parametrize(
    ("calls", "killed"), [(400, 3), pytest.param(2000, 6, marks=pytest.mark.slow)]
)
def test_no_calls_bill_more_than_the_cap(
    path: Path, tmp_path: Path, calls: int, killed: int
) -> None:
    bills, chance = tmp_path / "bills", random.Random(37)
    bills.touch()
    ledger = Ledger(path, busy_seconds=60)
    ledger.set_cap("observer", "day", Amount(100 * NANO, "usd"))
    killed_calls = 0
    for seed in range(killed):
        worker = start(path, bills, 100 + seed, 1000)
        assert worker.stdout is not None
        for _ in range(chance.randint(5, 40)):
            killed_calls += worker.stdout.readline() == "called\n"
        worker.kill()
        worker.communicate()
    (cap,) = ledger.caps("observer", 1)
    held_by_killed, allowed = cap.held, cap.spent + cap.held + NANO
    ledger.set_cap("observer", "day", Amount(allowed, "usd"))
    workers = [start(path, bills, seed, calls // WORKERS) for seed in range(WORKERS)]
    while any(worker.poll() is None for worker in workers):
        (cap,) = ledger.caps("observer", 1)
        assert cap.spent + cap.held <= cap.limit
        assert billed(bills) <= cap.limit
        if cap.spent + held_by_killed > cap.limit * 0.95:  # keep the cap tight
            allowed += NANO
            ledger.set_cap("observer", "day", Amount(allowed, "usd"))
        time.sleep(0.01)
    counts: Counter[str] = Counter()
    for worker in workers:
        output, _ = worker.communicate()
        assert worker.returncode == 0
        counts.update(json.loads(output.splitlines()[-1]))
    (cap,) = ledger.caps("observer", 1)
    assert killed_calls > 0
    print(f"{dict(counts)}, killed after {killed_calls} calls; {billed(bills):,} billed, {cap}")
    assert sum(counts[mood] for mood in MOODS) >= calls
    assert min(counts["refused"], counts["compacted"], counts["images"]) > 0
    assert min(counts[mood] for mood in MOODS) >= calls // 40
    assert billed(bills) <= cap.spent + cap.held <= cap.limit
    assert ledger.barred() == {}
    assert wrong_totals(ledger) == ()
    ledger.close()

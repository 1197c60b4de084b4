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
from ecoshell.budget import NANO, Amount, CapState
from ecoshell.budget.ledger import Ledger
from ecoshell.messages import Usage

SPENDER = Path(__file__).with_name("spender.py")
ROOT = Path(ecoshell.__file__).parents[1]


def start(path: Path, seed: int, calls: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(SPENDER), str(path), str(seed), str(calls)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def day_cap(ledger: Ledger) -> CapState:
    (cap,) = ledger.caps("observer", 1)
    return cap


def test_a_thousand_calls_from_four_processes_never_exceed_the_day_cap(path: Path) -> None:
    ledger = Ledger(path, busy_seconds=60)
    ledger.set_cap("observer", "day", Amount(8 * NANO, "usd"))
    workers = [start(path, seed, 250) for seed in range(4)]
    checks = 0
    while any(worker.poll() is None for worker in workers):
        cap = day_cap(ledger)
        assert cap.spent + cap.held <= cap.limit
        checks += 1
        time.sleep(0.005)
    counts: Counter[str] = Counter()
    for worker in workers:
        output, _ = worker.communicate()
        assert worker.returncode == 0
        counts.update(json.loads(output.splitlines()[-1]))
    assert checks > 10
    assert counts.total() == 1000
    assert counts["refused"] > 0
    cap = day_cap(ledger)
    assert cap.spent <= cap.limit
    assert cap.held == 0
    assert cap.spent > cap.limit * 0.9
    assert wrong_totals(ledger) == ()
    ledger.close()


def test_processes_that_open_a_new_ledger_at_the_same_time_share_it(path: Path) -> None:
    workers = [start(path, seed, 3) for seed in range(4)]
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    ledger = Ledger(path)
    assert {row.key for row in ledger.rows("session")} <= {"s0", "s1", "s2", "s3"}
    assert wrong_totals(ledger) == ()
    ledger.close()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
def test_killed_processes_leave_a_valid_ledger_within_the_cap(path: Path) -> None:
    chance = random.Random(7)
    for round_ in range(4):
        ledger = Ledger(path, busy_seconds=60)
        ledger.set_cap("observer", "day", Amount(3 * (round_ + 1) * NANO, "usd"))
        workers = [start(path, 10 * round_ + number, 1_000_000) for number in range(3)]
        for worker in workers:
            assert worker.stdout is not None
            for _ in range(chance.randint(1, 40)):
                worker.stdout.readline()
            worker.kill()
        for worker in workers:
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
        ledger.close()
        ledger = Ledger(path)
        cap = day_cap(ledger)
        assert wrong_totals(ledger) == ()
        assert cap.spent + cap.held <= cap.limit
        assert cap.held == 0
        assert all(entry.spent_nano == entry.held_nano for entry in ledger.unreconciled())
        ledger.close()


def test_the_call_of_a_killed_process_counts_until_reconciled_and_its_reserve_is_released(
    path: Path,
) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]); import spender;"
        "from ecoshell.budget.ledger import Ledger; from ecoshell.budget import Account, Ask;"
        "account = Account('s', 1, 'single', 'm', 'step'); ledger = Ledger(Path(sys.argv[1]));"
        "ledger.set_aside(Ask(spender.PRICE, 1000, 100, account)); ledger.hold(Ask(spender.PRICE, 500, 100, account));"
        "os._exit(9)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", code, str(path), str(SPENDER.parent)], check=False, env=env
    )
    ledger = Ledger(path)
    (entry,) = ledger.unreconciled()
    assert (entry.state, entry.held_input) == ("unreported", 500)
    (row,) = ledger.rows("session")
    assert (row.spent_nano, row.held_nano) == (entry.held_nano, 0)
    ledger.reconcile(entry.id, Usage(100, 10))
    assert ledger.rows("session")[0].spent_nano == entry.price.cost(Usage(100, 10))
    assert wrong_totals(ledger) == ()
    ledger.close()

"""Many shells under one cap while shells, server and connections fail: the cap holds and every nano-dollar is counted.

`TEAM_TRIAL=full` runs the full size of 64 shells and 20,000 calls and prints its measurements.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_network import BadNetwork
from ledger_totals import wrong_totals
from postgres import Postgres

import ecoshell
from ecoshell.budget import Amount
from ecoshell_team.ledger import TeamLedger
from ecoshell_team.server import TeamServer

SPENDER = Path(__file__).with_name("team_spender.py")
ROOT = Path(ecoshell.__file__).parents[1]
FULL = os.environ.get("TEAM_TRIAL") == "full"
SHELLS, CALLS, KILLS, STOPS = (64, 20_000, 24, 3) if FULL else (4, 160, 2, 1)
CAP = CALLS * 30_000_000
"""Less than the calls need; a call reserves at most $0.135 and costs $0.05 on average."""
LIMIT_S = 3_000 if FULL else 600


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
def test_many_failing_shells_never_exceed_the_cap_and_every_nano_dollar_is_counted(
    team_ledger: Callable[..., str], postgres: Postgres, tmp_path: Path
) -> None:
    chance, network = random.Random(3), BadNetwork(postgres.port)
    admin = TeamServer(team_ledger("postgres"))
    admin.set_cap("team:search", "month", CAP)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{SPENDER.parents[1]}"}
    started = 0

    def start(home: int) -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        address = team_ledger(("ann", "bob")[home % 2], network.port)
        values = (str(home_of(home)), address, str(started), str(CALLS // SHELLS))
        with (tmp_path / f"output{started}").open("wb") as output:
            return subprocess.Popen([sys.executable, str(SPENDER), *values], env=env, stdout=output)

    def home_of(home: int) -> Path:
        return tmp_path / f"home{home}" / "ledger.sqlite"

    start_time = time.monotonic()
    shells = {home: start(home) for home in range(SHELLS)}
    kills, stops, checks, peak, idle = KILLS, STOPS, 0, 0, 0
    while any(shell.poll() is None for shell in shells.values()):
        assert time.monotonic() - start_time < LIMIT_S
        (cap,) = admin.caps()
        used = cap.spent + cap.held + cap.leased
        assert used <= cap.limit == CAP
        checks, peak = checks + 1, max(peak, used)
        if cap.limit - used < 135_000_000:  # some calls no longer fit
            idle = max(idle, cap.leased)
        if kills and used > CAP * (KILLS - kills + 1) // (KILLS + 3):
            kills -= 1
            home = chance.choice([home for home, shell in shells.items() if shell.poll() is None])
            shells[home].kill()
            shells[home].wait()
            shells[home] = start(home)
        if stops and used > CAP * (STOPS - stops + 1) // (STOPS + 2):
            stops -= 1
            postgres.stop("immediate")
            time.sleep(0.5)
            postgres.start()
        time.sleep(0.02)
    seconds = time.monotonic() - start_time
    network.close()
    assert (kills, stops) == (0, 0)
    if not FULL:
        assert all(shell.returncode == 0 for shell in shells.values())

    spent = orphaned = 0
    for home in range(SHELLS):
        ledger = TeamLedger(home_of(home), TeamServer(team_ledger(("ann", "bob")[home % 2])))
        ledger.end_dead_leases()
        for entry in ledger.unreconciled():
            orphaned += 1
            ledger.reconcile(entry.id, Amount((entry.held_nano or 0) // 2, "usd"))
        spent += sum(row.spent_nano or 0 for row in ledger.rows("session"))
        assert sum(row.held_nano for row in ledger.rows("session")) == 0
        assert wrong_totals(ledger) == ()
        ledger.close()
    (cap,) = admin.caps()
    assert (cap.spent, cap.held, cap.leased) == (spent, 0, 0)
    database = admin.address.rpartition("/")[2]
    assert postgres.sql(database, "SELECT sum(spent) FROM ecoshell.entries") == [(spent,)]
    assert idle <= CAP // 20
    words = "".join(file.read_text() for file in tmp_path.glob("output*")).split()
    counts = {word: words.count(word) for word in ("held", "refused", "away")}
    assert counts["refused"] > 0
    print(
        f"{SHELLS} shells, {counts}, {KILLS} killed, server stopped {STOPS} times, {network.cut} connections cut; "
        f"{checks} checks, at most {peak / CAP:.2%} used, {idle / CAP:.3%} leased when it ran out, "
        f"{cap.spent / CAP:.2%} spent, {orphaned} orphaned calls; {seconds:.0f} s"
    )
    admin.close()

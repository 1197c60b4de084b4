"""Many shells under one cap while nearly everything fails: never more than the cap, and in the end every nano-dollar.

`TEAM_TRIAL=full` makes it as large as it is meant to be: 64 shells, 20,000 calls; it prints what it has measured.
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
"""Less than the calls would take; one holds at most $0.135, and takes $0.05 on average."""
LONGEST = 3_000 if FULL else 600


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
def test_many_shells_never_pass_the_cap_whatever_fails_and_every_nano_dollar_is_found_again(  # noqa: PLR0915 - a story
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
        with (tmp_path / f"said{started}").open("wb") as said:
            return subprocess.Popen([sys.executable, str(SPENDER), *values], env=env, stdout=said)

    def home_of(home: int) -> Path:
        return tmp_path / f"home{home}" / "ledger.sqlite"

    def said() -> str:
        return "".join(file.read_text() for file in tmp_path.glob("said*"))

    begun = time.monotonic()
    shells = {home: start(home) for home in range(SHELLS)}
    kills, stops, looks, most, idle = KILLS, STOPS, 0, 0, 0
    while any(shell.poll() is None for shell in shells.values()):
        assert time.monotonic() - begun < LONGEST
        (cap,) = admin.caps()
        used = cap.spent + cap.held + cap.leased
        assert used <= cap.limit == CAP
        looks, most = looks + 1, max(most, used)
        if cap.limit - used < 135_000_000:  # not every call fits any more
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
    took = time.monotonic() - begun
    network.close()
    assert (kills, stops) == (0, 0)
    if not FULL:
        assert all(shell.returncode == 0 for shell in shells.values())

    spent = left_behind = 0
    for home in range(SHELLS):
        ledger = TeamLedger(home_of(home), TeamServer(team_ledger(("ann", "bob")[home % 2])))
        ledger.end_dead_leases()
        for entry in ledger.unreconciled():
            if entry.state == "held":
                left_behind += 1
                ledger.reconcile(entry.id, Amount((entry.held_nano or 0) // 2, "usd"))
        spent += sum(row.spent_nano or 0 for row in ledger.rows("session"))
        assert sum(row.held_nano for row in ledger.rows("session")) == 0
        assert ledger.verify() == ()
        ledger.close()
    (cap,) = admin.caps()
    assert (cap.spent, cap.held, cap.leased) == (spent, 0, 0)
    database = admin.address.rpartition("/")[2]
    assert postgres.sql(database, "SELECT sum(spent) FROM ecoshell.entries") == [(spent,)]
    assert idle <= CAP // 20
    words = said().split()
    counts = {word: words.count(word) for word in ("held", "refused", "away")}
    assert counts["refused"] > 0
    print(
        f"{SHELLS} shells, {counts}, {KILLS} killed, server stopped {STOPS} times, {network.cut} connections cut; "
        f"{looks} looks, at most {most / CAP:.2%} used, {idle / CAP:.3%} leased when it ran out, "
        f"{cap.spent / CAP:.2%} spent, {left_behind} calls left behind; {took:.0f} s"
    )
    admin.close()

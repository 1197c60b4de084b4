import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_totals import wrong_totals

from ecoshell.budget import Ask
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import StoreError
from ecoshell.messages import Usage

MakeAsk = Callable[..., Ask]


def test_a_locked_ledger_refuses_a_reservation(path: Path, ask: MakeAsk) -> None:
    ledger = Ledger(path, busy_seconds=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another process") as failed:
        ledger.hold(ask())
    assert failed.value.kept == "Nothing was reserved and nothing was sent."
    assert failed.value.fix
    other.execute("ROLLBACK")
    other.close()
    assert ledger.hold(ask()).max_tokens == 50
    ledger.close()


def test_a_failed_settlement_leaves_the_reservation(path: Path, ask: MakeAsk) -> None:
    ledger = Ledger(path, busy_seconds=0.05)
    hold = ledger.hold(ask())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="counts in full"):
        ledger.settle(hold, Usage(1, 1))
    other.execute("ROLLBACK")
    other.close()
    assert ledger.rows("session")[0].held_nano == hold.nano
    ledger.settle(hold, Usage(1, 1))
    assert ledger.rows("session")[0].held_nano == 0
    ledger.close()


FILL = """
import resource, sys
from decimal import Decimal
from pathlib import Path
from ecoshell.budget import Account, Ask
from ecoshell.budget.ledger import Ledger
from ecoshell.budget import Price, Rates
from ecoshell.errors import StoreError

ledger = Ledger(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
ask = Ask(Price(Rates(*[Decimal(1)] * 5)), 10, 10, Account("s", 1, "single", "m", "step"))
placed = 0
try:
    while placed < 10_000:
        ledger.hold(ask)
        placed += 1
except StoreError as error:
    print(placed, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files as only POSIX can")
def test_a_full_disk_refuses_the_next_reservation_and_loses_no_earlier_one(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True
    )
    placed, _, message = done.stdout.partition(" ")
    assert "the disk is full" in message
    assert "Nothing was reserved and nothing was sent." in message
    ledger = Ledger(path)
    assert ledger.rows("session")[0].calls == int(placed) > 0
    assert wrong_totals(ledger) == ()
    ledger.close()


def test_a_file_that_is_not_a_ledger_is_refused_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    file.write_bytes(b"this was never a database" * 100)
    with pytest.raises(StoreError, match="damaged") as failed:
        Ledger(file)
    assert str(file) in failed.value.message
    assert "recover" in failed.value.fix
    assert file.read_bytes().startswith(b"this was never")


def test_a_damaged_page_is_reported_as_damage(path: Path, ask: MakeAsk) -> None:
    ledger = Ledger(path)
    ledger.hold(ask())
    ledger.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError, match="damaged"):
        Ledger(path).hold(ask())


def test_a_folder_that_cannot_be_created_is_reported_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="cannot be written") as failed:
        Ledger(tmp_path / "data" / "ledger.sqlite")
    assert "ECOSHELL_HOME" in failed.value.fix


def test_a_path_that_is_a_folder_is_reported_as_unwritable(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        Ledger(tmp_path)


def test_a_ledger_of_a_newer_version_is_refused(path: Path) -> None:
    Ledger(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer ecoshell"):
        Ledger(path)

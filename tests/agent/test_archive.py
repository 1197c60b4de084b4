"""The archive of sessions and their costs, over a real store and ledger."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from ecoshell.agent.archive import Archive
from ecoshell.budget import Account, Ask, Price, Rates
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import UsageError
from ecoshell.events import TurnStarted
from ecoshell.messages import Usage
from ecoshell.sessions import SessionStore
from ecoshell.tools.undo_log import UndoLog

DOLLAR = Price(Rates(*[Decimal(1)] * 5))


class Shelf:
    def __init__(self, folder: Path) -> None:
        self.store = SessionStore(folder / "sessions.sqlite")
        self.ledger = Ledger(folder / "ledger.sqlite")
        self.here = self.talk("count words")
        self.archive = Archive(
            self.store,
            self.ledger,
            forget=(UndoLog(folder / "undo").forget,),
            current=lambda: self.here,
        )

    def talk(self, question: str) -> str:
        session = self.store.create(workspace="/project", model="embedded")
        self.store.append(session, [TurnStarted(1, question, "embedded", "single", "react")])
        return session

    def spend(self, session: str, price: Price | None) -> None:
        hold = self.ledger.hold(Ask(price, 1000, 500, Account(session, 1, "single", "x", "step")))
        self.ledger.settle(hold, Usage(1000, 500))


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.store.close()
    shelf.ledger.close()


async def test_each_session_is_listed_with_its_cost(shelf):
    dear, unknown = shelf.talk("dear"), shelf.talk("unknown")
    shelf.spend(dear, DOLLAR)
    shelf.spend(dear, DOLLAR)
    shelf.spend(unknown, None)
    rows = {row.info.id: row for row in await shelf.archive.rows()}
    assert (rows[dear].spent_nano, rows[dear].calls, rows[dear].current) == (3_000_000, 2, False)
    assert (rows[unknown].spent_nano, rows[unknown].calls) == (None, 1)
    assert (rows[shelf.here].spent_nano, rows[shelf.here].calls, rows[shelf.here].current) == (
        0,
        0,
        True,
    )


async def test_the_list_of_sessions_has_a_limit(shelf):
    shelf.talk("another")
    assert len(await shelf.archive.rows(limit=1)) == 1


async def test_a_session_is_renamed(shelf):
    await shelf.archive.rename(shelf.here, "words")
    assert shelf.store.title(shelf.here) == "words"


async def test_deleting_another_session_keeps_its_cost_in_the_ledger(shelf):
    other = shelf.talk("dear")
    shelf.spend(other, DOLLAR)
    await shelf.archive.delete(other)
    assert [row.info.id for row in await shelf.archive.rows()] == [shelf.here]
    assert shelf.ledger.session_row(other).spent_nano == 1_500_000


async def test_the_current_session_cannot_be_deleted(shelf):
    with pytest.raises(UsageError, match="This session is open"):
        await shelf.archive.delete(shelf.here)
    assert len(await shelf.archive.rows()) == 1


async def test_the_suffix_of_the_file_chooses_the_export_format_and_no_file_is_overwritten(
    shelf, tmp_path
):
    await shelf.archive.export(shelf.here, tmp_path / "a.json")
    await shelf.archive.export(shelf.here, tmp_path / "a.md")
    assert json.loads((tmp_path / "a.json").read_text())["events"][0]["question"] == "count words"
    assert (tmp_path / "a.md").read_text().startswith("# count words")
    with pytest.raises(UsageError, match="exists already"):
        await shelf.archive.export(shelf.here, tmp_path / "a.md")

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from ecoshell.budget import Account, Ask, Price, Rates
from ecoshell.budget.ledger import Ledger
from ecoshell_team.ledger import TeamLedger
from ecoshell_team.server import TeamServer

MakeAsk = Callable[..., Ask]

# A dollar per thousand tokens, in and out: one token is a million nano-dollars.
THOUSAND = Price(Rates(*[Decimal(1000)] * 5), source="test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "ledger.sqlite"


@pytest.fixture(params=["alone", "in a team"])
def ledger(request: pytest.FixtureRequest, path: Path) -> Iterator[Ledger]:
    """A ledger of one user, or of a team without caps; both must behave the same."""
    if request.param == "alone":
        ledger = Ledger(path)
    else:
        ledger = TeamLedger(path, TeamServer(request.getfixturevalue("team_ledger")()))
    yield ledger
    ledger.close()


@pytest.fixture
def account() -> Account:
    return Account(session="s1", turn=1, role="single", model="m", purpose="step")


@pytest.fixture
def ask(account: Account) -> MakeAsk:
    """Makes a request from token counts; a token costs a million nano-dollars by default."""

    def make(
        prompt: int = 100,
        output: int = 50,
        *,
        price: Price | None = THOUSAND,
        account: Account = account,
    ) -> Ask:
        return Ask(price, prompt, output, account)

    return make

"""`ecoshell cost --live`: a session's spending while it runs."""

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ecoshell.budget import Account, Amount, Ask, Price, Rates
from ecoshell.budget.ledger import Ledger
from ecoshell.cli import main
from ecoshell.messages import Usage
from ecoshell.paths import Paths


@pytest.fixture
def price() -> Price:
    from decimal import Decimal

    return Price(Rates(*map(Decimal, ("1", "0.1", "1", "2", "2"))))


def call(ledger: Ledger, session: str, model: str, price: Price, usage: Usage | None) -> None:
    hold = ledger.hold(Ask(price, 1000, 100, Account(session, 1, "gateway", model, "request")))
    if usage is not None:
        ledger.settle(hold, usage)


def test_it_shows_models_caps_and_the_rate_of_the_latest_session(
    tmp_path: Path,
    price: Price,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["cost", "--live"]) == 0
    assert capsys.readouterr().out.strip() == "No call yet."
    with closing(Ledger(Paths.under(tmp_path).ledger_file)) as ledger:
        ledger.set_cap("two", "session", Amount(10_000_000, "usd"))
        call(ledger, "one", "old", price, Usage(10, 1))
        call(ledger, "two", "small", price, Usage(1000, 100, cached=250))
        call(ledger, "two", "large", price, None)
    assert main(["cost", "--live"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert lines[1] == ["small", "$0.000975", "$0", "1,000", "25%", "100", "1"]
    assert lines[2] == ["large", "$0", "$0.0012", "0", "–", "0", "1"]
    assert "2 calls in the last minute, session two" in shown
    assert "session: $0.007825 of $0.01 left" in shown
    assert "old" not in shown
    assert main(["cost", "--live", "--session", "one"]) == 0
    assert "old" in capsys.readouterr().out


def test_the_rate_counts_sent_calls_of_the_last_minute_only(tmp_path: Path, price: Price):
    now = datetime(2026, 1, 2, 3, 4, 5)
    with closing(Ledger(tmp_path / "ledger.sqlite", clock=lambda: now)) as ledger:
        for _ in range(3):
            call(ledger, "one", "m", price, Usage(10, 1))
            now += timedelta(seconds=40)
        answer = Ask(price, 10, 10, Account("one", 1, "single", "m", "answer"))
        ledger.release(ledger.set_aside(answer))
        assert ledger.calls_within("one", 60) == 1

"""`ecoshell cost --by plan`: a row for each tool graph, from the sessions and the ledger."""

import json
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ecoshell.budget import Account, Ask, Price, Rates
from ecoshell.budget.ledger import Ledger
from ecoshell.cli import main
from ecoshell.events import Event, GraphNode, GraphPlanned, PlanScored, TextArrived, TurnFinished, TurnStarted
from ecoshell.messages import Usage
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore

Shell = Callable[..., str]
PRICE = Price(Rates(*[Decimal(1)] * 5))
PLANNED = GraphPlanned((GraphNode("a", "a", ("<task>",)), GraphNode("b", "b", ("a",))), '["a", ["<task>"], "b", ["a"]]')
QUESTION = "How many words are in a.txt, and what is the time\x1b[2J there and here?"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a command in this process and returns what it printed."""
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))

    def run(*argv: str) -> str:
        got = main(list(argv))
        told = capsys.readouterr()
        assert got == 0, told.err
        return told.out

    return run


def scored(turn: int = 1, **changes: Any) -> PlanScored:
    known: dict[str, Any] = {"performance": 0.5, "judged_by": "rules", "cost_nano": 1_200_000, "most_nano": 50_000_000}
    return PlanScored(turn, **(known | {"alpha": 0.5, "quality": 0.238} | changes))


def kept(*events: Event, turn: int = 1, question: str = QUESTION) -> str:
    """A session with a turn in which this happened."""
    with closing(SessionStore(user_paths().sessions_file)) as store:
        session = store.create(workspace="/project", model="embedded")
        started = TurnStarted(turn, question, "embedded", "single", "graph")
        store.append(session, [started, TextArrived("Hm", "thought", "single"), *events])
    return session


def finished(turn: int = 1) -> TurnFinished:
    return TurnFinished(turn, "answered", "12", 0, Usage(), 2, (), 3.25)


def spent(
    session: str, usage: Usage | None, *, turn: int = 1, price: Price | None = PRICE, role: str = "single"
) -> int:
    with closing(Ledger(user_paths().ledger_file)) as ledger:
        hold = ledger.hold(Ask(price, 1000, 500, Account(session, turn, role, "openai/x", "step")))
        ledger.settle(hold, usage)
    return hold.entry


def rows(shell: Shell, *argv: str) -> list[dict[str, Any]]:
    return json.loads(shell("cost", "--by", "plan", "--json", *argv))["rows"]


def test_a_plan_has_its_cost_from_the_ledger_and_its_score_from_the_session(shell: Shell) -> None:
    session = kept(PLANNED, scored(), finished())
    spent(session, Usage(input=1000, output=200))
    spent(session, Usage(input=900), turn=2)
    spent(session, Usage(input=800), role="compact")
    (row,) = rows(shell)
    assert (row["key"], row["session"], row["turn"], row["question"]) == (f"{session}/1", session, 1, QUESTION)
    assert (row["spent_usd"], row["cost_usd"], row["most_usd"]) == ("0.0012", "0.0012", "0.05")
    assert (row["input"], row["output"], row["calls"], row["held_usd"], row["unpriced"]) == (1000, 200, 1, "0", 0)
    assert (row["nodes"], row["seconds"], row["performance"], row["judged_by"]) == (2, 3.25, 0.5, "rules")
    assert row["qop"] == pytest.approx(0.5 * 0.5 - 0.5 * 0.0012 / 0.05)
    head, line = shell("cost", "--by", "plan").splitlines()[:2]
    assert head.split() == ["plan", "question", "nodes", "spent", "seconds", "P", "QoP"]
    assert line.startswith(f"{session}/1  How many words are in a.txt")
    assert line.split()[-5:] == ["2", "$0.0012", "3.2", "0.50", "0.24"]
    assert "\x1b" not in line
    assert "…" in line


def test_what_is_reconciled_changes_the_worth(shell: Shell) -> None:
    session = kept(PLANNED, scored(), finished())
    entry = spent(session, None)
    before = rows(shell)[0]
    after = rows(shell, "--reconcile", f"{entry}=0.0004")[0]
    assert (before["spent_usd"], after["spent_usd"]) == ("0.0015", "0.0004")
    assert after["qop"] == pytest.approx(0.25 - 0.5 * 0.0004 / 0.05)


def test_time_and_memory_count_beside_what_was_paid(shell: Shell) -> None:
    session = kept(PLANNED, scored(resources_nano=1_000_000), finished())
    spent(session, Usage(input=1000))
    (row,) = rows(shell)
    assert (row["spent_usd"], row["cost_usd"]) == ("0.001", "0.002")


def test_the_last_score_and_the_last_plan_of_a_turn_count(shell: Shell) -> None:
    kept(PLANNED, GraphPlanned(PLANNED.nodes[:1], "[]", repaired=True), scored(), finished(), scored(performance=1.0))
    (row,) = rows(shell)
    assert (row["nodes"], row["performance"]) == (1, 1.0)


def test_what_is_not_known_is_null_and_never_zero(shell: Shell) -> None:
    unpriced = kept(PLANNED, scored(cost_nano=None, quality=None), finished())
    spent(unpriced, Usage(input=10), price=None)
    kept(PLANNED)
    first, stopped = rows(shell)
    assert (first["spent_usd"], first["cost_usd"], first["performance"], first["qop"]) == (None, None, 0.5, None)
    unknown = ("spent_usd", "input", "calls", "seconds", "performance", "cost_usd", "most_usd", "qop")
    assert [stopped[name] for name in unknown] == [None] * len(unknown)
    told = shell("cost", "--by", "plan").splitlines()
    assert told[1].split()[-4:] == ["unknown", "3.2", "0.50", "-"]
    assert told[2].split()[-5:] == ["2", "-", "-", "-", "-"]


def test_plans_stand_in_the_order_in_which_they_were_made(shell: Shell) -> None:
    one, two = kept(PLANNED, finished(), question="one?"), kept(PLANNED, finished(), question="two?")
    kept(finished(), question="without a plan")
    assert [row["key"] for row in rows(shell)] == [f"{one}/1", f"{two}/1"]


def test_where_no_plan_was_made_it_says_so_and_caps_are_told_all_the_same(shell: Shell) -> None:
    kept(finished())
    told = shell("cost", "--by", "plan")
    assert "No tool graph was made yet" in told
    assert "No cap is set" in told
    assert rows(shell) == []

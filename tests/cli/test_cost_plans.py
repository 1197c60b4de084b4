"""`ecoshell cost --by plan`: one row per tool graph, from the sessions and the ledger."""

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
from ecoshell.events import (
    Event,
    GraphNode,
    GraphPlanned,
    PlanScored,
    TextArrived,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore

Shell = Callable[..., str]
PRICE = Price(Rates(*[Decimal(1)] * 5))
PLANNED = GraphPlanned(
    (GraphNode("a", "a", ("<task>",)), GraphNode("b", "b", ("a",))), '["a", ["<task>"], "b", ["a"]]'
)
QUESTION = "How many words are in a.txt, and what is the time\x1b[2J there and here?"


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """Run a command in this process and return its output."""
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))

    def run(*argv: str) -> str:
        got = main(list(argv))
        output = capsys.readouterr()
        assert got == 0, output.err
        return output.out

    return run


def scored(turn: int = 1, **changes: Any) -> PlanScored:
    defaults: dict[str, Any] = {
        "performance": 0.5,
        "judged_by": "rules",
        "cost_nano": 1_200_000,
        "most_nano": 50_000_000,
    }
    return PlanScored(turn, **(defaults | {"alpha": 0.5, "quality": 0.238} | changes))


def stored_turn(*events: Event, turn: int = 1, question: str = QUESTION) -> str:
    """Store a session with a turn of these events."""
    with closing(SessionStore(user_paths().sessions_file)) as store:
        session = store.create(workspace="/project", model="embedded")
        started = TurnStarted(turn, question, "embedded", "single", "graph")
        store.append(session, [started, TextArrived("Hm", "thought", "single"), *events])
    return session


def finished(turn: int = 1) -> TurnFinished:
    return TurnFinished(turn, "answered", "12", 0, Usage(), 2, (), 3.25)


def spent(
    session: str,
    usage: Usage | None,
    *,
    turn: int = 1,
    price: Price | None = PRICE,
    role: str = "single",
) -> int:
    with closing(Ledger(user_paths().ledger_file)) as ledger:
        hold = ledger.hold(Ask(price, 1000, 500, Account(session, turn, role, "openai/x", "step")))
        ledger.settle(hold, usage)
    return hold.entry


def rows(shell: Shell, *argv: str) -> list[dict[str, Any]]:
    return json.loads(shell("cost", "--by", "plan", "--json", *argv))["rows"]


def test_row_has_its_cost_from_the_ledger_and_its_score_from_the_session(shell: Shell) -> None:
    session = stored_turn(PLANNED, scored(), finished())
    spent(session, Usage(input=1000, output=200))
    spent(session, Usage(input=900), turn=2)
    spent(session, Usage(input=800), role="compact")
    (row,) = rows(shell)
    assert (row["key"], row["session"], row["turn"], row["question"]) == (
        f"{session}/1",
        session,
        1,
        QUESTION,
    )
    assert (row["spent_usd"], row["cost_usd"], row["most_usd"]) == ("0.0012", "0.0012", "0.05")
    assert (row["input"], row["output"], row["calls"], row["held_usd"], row["unpriced"]) == (
        1000,
        200,
        1,
        "0",
        0,
    )
    assert (row["nodes"], row["seconds"], row["performance"], row["judged_by"]) == (
        2,
        3.25,
        0.5,
        "rules",
    )
    assert row["qop"] == pytest.approx(0.5 * 0.5 - 0.5 * 0.0012 / 0.05)
    head, line = shell("cost", "--by", "plan").splitlines()[:2]
    assert head.split() == ["plan", "question", "nodes", "spent", "seconds", "P", "QoP"]
    assert line.startswith(f"{session}/1  How many words are in a.txt")
    assert line.split()[-5:] == ["2", "$0.0012", "3.2", "0.50", "0.24"]
    assert "\x1b" not in line
    assert "…" in line


def test_reconciled_cost_changes_the_score(shell: Shell) -> None:
    session = stored_turn(PLANNED, scored(), finished())
    entry = spent(session, None)
    estimated = rows(shell)[0]
    reconciled = rows(shell, "--reconcile", f"{entry}=0.0004")[0]
    assert (estimated["spent_usd"], reconciled["spent_usd"]) == ("0.0015", "0.0004")
    assert reconciled["qop"] == pytest.approx(0.25 - 0.5 * 0.0004 / 0.05)


def test_cost_includes_the_price_of_time_and_memory(shell: Shell) -> None:
    session = stored_turn(PLANNED, scored(resources_nano=1_000_000), finished())
    spent(session, Usage(input=1000))
    (row,) = rows(shell)
    assert (row["spent_usd"], row["cost_usd"]) == ("0.001", "0.002")


def test_latest_score_and_plan_of_a_turn_count(shell: Shell) -> None:
    stored_turn(
        PLANNED,
        GraphPlanned(PLANNED.nodes[:1], "[]", repaired=True),
        scored(),
        finished(),
        scored(performance=1.0),
    )
    (row,) = rows(shell)
    assert (row["nodes"], row["performance"]) == (1, 1.0)


def test_unknown_values_are_null_and_never_zero(shell: Shell) -> None:
    unpriced = stored_turn(PLANNED, scored(cost_nano=None, quality=None), finished())
    spent(unpriced, Usage(input=10), price=None)
    stored_turn(PLANNED)
    first, stopped = rows(shell)
    assert (first["spent_usd"], first["cost_usd"], first["performance"], first["qop"]) == (
        None,
        None,
        0.5,
        None,
    )
    unknown = (
        "spent_usd",
        "input",
        "calls",
        "seconds",
        "performance",
        "cost_usd",
        "most_usd",
        "qop",
    )
    assert [stopped[name] for name in unknown] == [None] * len(unknown)
    lines = shell("cost", "--by", "plan").splitlines()
    assert lines[1].split()[-4:] == ["unknown", "3.2", "0.50", "-"]
    assert lines[2].split()[-5:] == ["2", "-", "-", "-", "-"]


def test_rows_are_in_order_of_creation(shell: Shell) -> None:
    first, second = (
        stored_turn(PLANNED, finished(), question="one?"),
        stored_turn(PLANNED, finished(), question="two?"),
    )
    stored_turn(finished(), question="without a plan")
    assert [row["key"] for row in rows(shell)] == [f"{first}/1", f"{second}/1"]


def test_message_without_tool_graphs_is_followed_by_the_caps(shell: Shell) -> None:
    stored_turn(finished())
    output = shell("cost", "--by", "plan")
    assert "No tool graphs yet" in output
    assert "No cap is set" in output
    assert rows(shell) == []

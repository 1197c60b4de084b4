"""`ecoshell experience`: list, show, forget."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from ecoshell.cli import main
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import ExperienceStore, Use

USE = Use(
    query="How many lines has notes.txt?",
    tool="count_text",
    document_hash="d1",
    arguments='{"path": "notes.txt"}',
    result="3 lines \x1b[31m",
    result_hash="r1",
    ok=True,
    helpful=True,
    judged_by="rules",
    model="embedded",
    price_nano=1_000_000,
    step_nano=2_000_000,
    step_tokens=120,
    seconds=0.5,
    size_level=0,
    session="abcd-ef",
    turn=1,
    call="c1",
    at="2026-11-20T10:00:00+00:00",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def shell(capsys):
    def run(*argv, status=0):
        got = main(["experience", *argv])
        output = capsys.readouterr()
        assert got == status, output.err
        return output.err if status else output.out

    return run


@pytest.fixture
def stored_uses(home):
    user_paths().data.mkdir(parents=True, exist_ok=True)
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        store.add([USE, replace(USE, tool="read_file", call="c2", helpful=False, step_nano=None)])


def test_empty_experience_has_a_message(shell):
    assert "No experience is recorded yet." in shell()
    assert json.loads(shell("list", "--json")) == {"rows": []}


def test_latest_uses_come_first_with_judge_and_cost(shell, stored_uses):
    first, second = shell().splitlines()[1:]
    assert first.split()[:1] == ["2"]
    assert "× unhelpful" in first
    assert "unknown" in first
    assert "√ helpful" in second
    assert "$0.003 " in second
    assert "How many lines has notes.txt?" in second


def test_uses_are_filtered(shell, stored_uses):
    rows = json.loads(shell("list", "--tool", "read_file", "--json"))["rows"]
    assert [row["id"] for row in rows] == [2]
    assert "No use matches." in shell("list", "--query", "weather")
    assert "is not positive" in shell("list", "--limit", "0", status=2)


def test_one_use_is_shown_completely_and_as_text(shell, stored_uses):
    output = shell("show", "1")
    assert "3 lines" in output
    assert "\x1b" not in output
    assert json.loads(shell("show", "1", "--json"))["result"] == USE.result
    assert "no use 9" in shell("show", "9", status=2)


def test_uses_are_forgotten_by_number_tool_and_date(shell, stored_uses):
    assert "1 use forgotten." in shell("forget", "1")
    assert "0 uses forgotten." in shell("forget", "--before", "2026-11-01")
    report = json.loads(shell("forget", "--tool", "read_file", "--json"))
    assert report == {"forgotten": 1, "erased": True}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["forget"], "Nothing was selected"),
        (["forget", "--all"], "This would forget everything"),
        (["forget", "1", "--all", "--yes"], "--all excludes other selections"),
        (["forget", "77"], "no use 77"),
        (["forget", "1", "9" * 20], "no use 999"),
        (["forget", "--before", "0001-01-01T00:00:00+14:00"], "is not a date"),
        (["forget", "--before", "soon"], "is not a date"),
    ],
)
def test_forgetting_needs_a_selection(shell, stored_uses, argv, why):
    assert why in shell(*argv, status=2)
    assert len(json.loads(shell("list", "--json"))["rows"]) == 2


def test_everything_is_forgotten_only_with_all_and_yes(shell, stored_uses):
    assert "2 uses forgotten." in shell("forget", "--all", "--yes")
    assert "No experience is recorded yet." in shell()
    assert b"notes.txt" not in user_paths().experience_file.read_bytes()


def test_broken_file_is_reported_and_unchanged(shell, home):
    user_paths().data.mkdir(parents=True, exist_ok=True)
    user_paths().experience_file.write_text("no database at all " * 300)
    assert "damaged" in shell(status=1)
    assert user_paths().experience_file.read_text().startswith("no database")


def test_text_that_another_shell_still_holds_is_reported(stored_uses, home, capsys):
    with closing(sqlite3.connect(user_paths().experience_file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM uses").fetchall()
        status = main(["experience", "forget", "1"])
    output = capsys.readouterr()
    assert (status, output.out) == (0, "1 use forgotten.\n")
    assert "at the next forget" in output.err


def test_invalid_time_is_listed_unchanged(shell, stored_uses):
    with closing(sqlite3.connect(user_paths().experience_file)) as db, db:
        db.execute("UPDATE uses SET at = 'gar\x1bbage'")
    assert "\x1b" not in shell()
    assert "bage" in shell()

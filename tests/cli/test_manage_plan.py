"""`ecoshell plan` for unpriced models and without readable experience."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from command_play import CALCULATE, Command

from ecoshell.budget.ledger import Ledger
from ecoshell.cli import main
from ecoshell.paths import user_paths


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run(capsys):
    """Run `ecoshell plan` in this process; return its status and both output streams."""

    def run(*argv):
        status = main(["plan", "How many lines has notes.txt?", *argv])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_model_of_unknown_price_is_refused_under_a_cap_in_dollars(run, options):
    status, out, err = run("--model", "openai/unknown-xyz", "--budget", "0.05", *options)
    assert (status, out) == (1, "")
    assert "The price of openai/unknown-xyz is unknown, and the" in err
    assert '[models."openai/unknown-xyz".price]' in err


@pytest.mark.parametrize("cap", [("--budget", "20000tok"), ()])
def test_model_of_unknown_price_is_planned_without_a_cap_in_dollars(run, cap):
    status, out, err = run("--model", "openai/unknown-xyz", *cap)
    assert (status, err) == (0, "")
    assert "read_file" in out


def test_unreadable_experience_is_reported_with_the_plan(run):
    file = user_paths().experience_file
    file.parent.mkdir(parents=True)
    file.write_text("this is not a database " * 300)
    status, out, err = run("--model", "embedded", "--budget", "60000tok", "--json")
    record = json.loads(out)
    assert status == 0
    assert record["rows"]
    assert record["fault"].startswith("This turn is planned without experience. ")
    assert err == f"{record['fault']}\n"
    assert file.read_text().startswith("this is not a database")


def test_readable_experience_has_no_report(run):
    status, out, err = run("--model", "embedded", "--budget", "60000tok", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["fault"] is None


def test_plan_continues_the_latest_session_with_its_model_and_what_is_left_of_its_cap(
    command: Command, tmp_path: Path
) -> None:
    script = tmp_path / "replies.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in CALCULATE), encoding="utf-8")
    model = ("--model", f"script:{script}", "--price", "3,15")
    assert command("ask", "what is 17 * 23?", *model, "--budget", "0.10").returncode == 0
    with closing(Ledger(tmp_path / "home" / "data" / "ledger.sqlite")) as ledger:
        (row,) = ledger.rows("session")
    assert row.spent_nano
    done = command("plan", "what is 3 * 4?", "--continue", "--price", "3,15", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert (record["unit"], record["cap"]) == ("nano_usd", 100_000_000 - row.spent_nano)
    done = command("plan", "what is 3 * 4?", "--continue", "--budget", "30000tok", "--json")
    record = json.loads(done.stdout)
    assert (record["unit"], record["cap"]) == ("tokens", 30_000 - row.usage.total)

"""`ecoshell plan`: what is said of a plan that no turn could follow, or that was made without experience."""

import json

import pytest

from ecoshell.cli import main
from ecoshell.paths import user_paths


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def told(capsys):
    """Runs `ecoshell plan` in this process: its status, and what it printed on both streams."""

    def run(*argv):
        status = main(["plan", "How many lines has notes.txt?", *argv])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.mark.parametrize("wanted", [(), ("--json",)])
def test_a_model_of_unknown_price_is_refused_under_a_cap_in_dollars_as_a_turn_would_be(told, wanted):
    status, out, err = told("--model", "openai/unknown-xyz", "--budget", "0.05", *wanted)
    assert (status, out) == (1, "")
    assert "The price of openai/unknown-xyz is unknown, and the" in err
    assert '[models."openai/unknown-xyz".price]' in err


@pytest.mark.parametrize("cap", [("--budget", "20000tok"), ()])
def test_a_model_of_unknown_price_is_planned_for_where_no_cap_is_in_dollars(told, cap):
    status, out, err = told("--model", "openai/unknown-xyz", *cap)
    assert (status, err) == (0, "")
    assert "read_file" in out


def test_an_experience_that_cannot_be_read_is_told_beside_the_plan(told):
    file = user_paths().experience_file
    file.parent.mkdir(parents=True)
    file.write_text("this is no database " * 300)
    status, out, err = told("--model", "embedded", "--budget", "60000tok", "--json")
    record = json.loads(out)
    assert status == 0
    assert record["rows"]
    assert record["fault"].startswith("This turn is planned without experience. ")
    assert err == f"{record['fault']}\n"
    assert file.read_text().startswith("this is no database")


def test_where_experience_can_be_read_nothing_is_said_of_it(told):
    status, out, err = told("--model", "embedded", "--budget", "60000tok", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["fault"] is None

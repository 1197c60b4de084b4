"""`ecoshell experience`: list, show, export, import, forget."""

import io
import json
import sqlite3
import stat
from contextlib import closing
from dataclasses import asdict, replace

import pytest

from ecoshell.cli import main
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import Attempt, ExperienceStore, Use
from ecoshell.planning.btp.interchange import to_line

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
    assert shell("export") == ""


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


def test_exported_uses_are_imported_elsewhere_once(shell, stored_uses, home, monkeypatch):
    shell("export", str(home / "uses.jsonl"))
    assert "exists" in shell("export", str(home / "uses.jsonl"), status=2)
    monkeypatch.setenv("ECOSHELL_HOME", str(home / "other"))
    assert "2 uses imported." in shell("import", str(home / "uses.jsonl"))
    assert "0 of 2 uses imported; 2 already existed." in shell("import", str(home / "uses.jsonl"))
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        assert [use.tool for use in store.uses()] == ["count_text", "read_file"]
        assert next(store.uses()) == USE


def test_uses_can_be_imported_from_standard_input(shell, stored_uses, monkeypatch):
    text = shell("export").replace("abcd-ef", "other-se")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert json.loads(shell("import", "-", "--json")) == {"imported": 2, "known": 0}


def test_imported_uses_are_redacted_and_shortened_like_recorded_ones(shell, home, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    use = replace(USE, query="Is correct-horse good?", arguments="x" * 9_000, result='{"password": "hunter2"}')
    (home / "uses.jsonl").write_text(to_line(use))
    shell("import", str(home / "uses.jsonl"))
    record = json.loads(shell("show", "1", "--json"))
    assert (record["query"], record["result"]) == ("Is [redacted] good?", '{"password": "[redacted]"}')
    assert len(record["arguments"]) == 2_000


def test_export_is_ascii(shell, home):
    (home / "uses.jsonl").write_text(to_line(replace(USE, query="Größe? 🌍")))
    shell("import", str(home / "uses.jsonl"))
    assert json.loads(shell("export").encode("ascii"))["query"] == "Größe? 🌍"


@pytest.mark.parametrize("line", ["garbage", '{"format": "other/1"}', "[]"])
def test_file_with_an_invalid_line_is_not_imported(shell, stored_uses, home, line):
    good = shell("export").replace("abcd-ef", "other-se")
    (home / "bad.jsonl").write_text(f"{good}{line}\n")
    output = shell("import", str(home / "bad.jsonl"), status=2)
    assert "bad.jsonl:3 is not a use of a tool" in output
    assert "Nothing was imported." in output
    assert len(json.loads(shell("list", "--json"))["rows"]) == 2


def test_unreadable_file_is_a_usage_error(shell, home):
    assert "cannot be read" in shell("import", str(home / "none.jsonl"), status=2)
    (home / "raw.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "raw.jsonl:1 is not a use of a tool: it is not JSON" in shell("import", str(home / "raw.jsonl"), status=2)


def test_uses_are_forgotten_by_number_tool_and_date(shell, stored_uses):
    assert "1 use forgotten." in shell("forget", "1")
    assert "0 uses forgotten." in shell("forget", "--before", "2026-11-01")
    report = json.loads(shell("forget", "--tool", "read_file", "--json"))
    assert report == {"forgotten": 1, "attempts": 0, "erased": True}


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


ATTEMPT = Attempt(
    query="How many lines has notes.txt?",
    mode="umi",
    models="openai/large+embedded\x1b[31m+embedded",
    strategy="react",
    outcome="gave_up",
    price_nano=None,
    tokens=1_200,
    seconds=2.5,
    session="abcd-ef",
    turn=1,
    at="2026-11-20T10:00:00+00:00",
)


@pytest.fixture
def stored_attempts(stored_uses):
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        store.add([ATTEMPT, replace(ATTEMPT, turn=2, mode="single", outcome="answered", price_nano=2_000_000)])


def test_attempts_are_listed_with_mode_models_and_consumption(shell, stored_attempts):
    head, first, second = shell("list", "--attempts").splitlines()
    assert head.split() == ["attempt", "when", "mode", "outcome", "models", "price", "tokens", "seconds", "question"]
    assert first.split()[0] == "a2"
    assert "single" in first
    assert "√ answered" in first
    assert "$0.002 " in first
    assert "× gave up" in second
    assert "unknown" in second
    assert "\x1b" not in second
    rows = json.loads(shell("list", "--attempts", "--json"))["rows"]
    assert [(row["id"], row["mode"]) for row in rows] == [("a2", "single"), ("a1", "umi")]
    assert "No attempt matches." in shell("list", "--attempts", "--query", "weather")


def test_one_attempt_is_shown_completely(shell, stored_attempts):
    assert json.loads(shell("show", "a1", "--json")) == {"id": "a1", **asdict(ATTEMPT)}
    assert "no attempt a9" in shell("show", "a9", status=2)
    assert "'b1' is not a number such as 12, or a3" in shell("show", "b1", status=2)


def test_attempts_are_exported_with_uses_and_imported_once(shell, stored_attempts, home, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "notes.txt")
    shell("export", str(home / "all.jsonl"))
    kinds = [json.loads(line)["kind"] for line in (home / "all.jsonl").read_text().splitlines()]
    assert kinds == ["use", "use", "attempt", "attempt"]
    monkeypatch.setenv("ECOSHELL_HOME", str(home / "other"))
    assert "2 uses and 2 attempts imported." in shell("import", str(home / "all.jsonl"))
    assert json.loads(shell("import", str(home / "all.jsonl"), "--json")) == {"imported": 0, "known": 4}
    assert json.loads(shell("show", "a1", "--json"))["query"] == "How many lines has [redacted]?"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": "dream"}, "is not a use of a tool: its `kind` is neither use nor attempt"),
        ({"outcome": "perhaps"}, "is not an attempt at a question: `outcome` must be one of answered, gave_up, limit"),
        ({"tokens": -1}, "`tokens` must be at least 0"),
        ({"tokens": True}, "`tokens` must be a whole number"),
        ({"seconds": "long"}, "`seconds` must be a number"),
        ({"price_nano": 0.5}, "`price_nano` must be a whole number"),
        ({"models": " "}, "`models` must not be empty"),
        ({"mode": None}, "`mode` must be a text"),
        ({"at": "soon"}, "`at` must be a time"),
    ],
)
def test_invalid_attempt_is_not_imported(shell, home, changed, why):
    line = json.loads(to_line(ATTEMPT)) | changed
    (home / "bad.jsonl").write_text(f"{to_line(USE)}\n{json.dumps(line)}\n")
    output = shell("import", str(home / "bad.jsonl"), status=2)
    assert "bad.jsonl:2" in output
    assert why in output
    assert json.loads(shell("list", "--json")) == {"rows": []}


def test_attempts_are_forgotten_by_number_date_and_question(shell, stored_attempts):
    assert "1 attempt forgotten." in shell("forget", "a1")
    assert "no attempt a1" in shell("forget", "a1", status=2)
    assert "1 use forgotten." in shell("forget", "1")
    assert len(json.loads(shell("list", "--attempts", "--json"))["rows"]) == 1
    report = json.loads(shell("forget", "--tool", "read_file", "--json"))
    assert report == {"forgotten": 1, "attempts": 1, "erased": True}


def test_forgetting_everything_includes_attempts(shell, stored_attempts):
    assert "2 uses and 2 attempts forgotten." in shell("forget", "--all", "--yes")
    with closing(sqlite3.connect(user_paths().experience_file)) as db:
        assert db.execute("SELECT COUNT(*) FROM queries").fetchone() == (0,)
    assert b"notes.txt" not in user_paths().experience_file.read_bytes()


def test_dash_exports_to_standard_output(shell, stored_uses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exported = shell("export", "-")
    assert exported == shell("export")
    assert len(exported.splitlines()) > 0
    assert not (tmp_path / "-").exists()


def test_export_to_a_file_with_json_reports_the_counts(shell, stored_uses, tmp_path):
    report = json.loads(shell("export", str(tmp_path / "uses.jsonl"), "--json"))
    lines = (tmp_path / "uses.jsonl").read_text().splitlines()
    assert report == {"exported": len(lines), "attempts": 0, "file": str(tmp_path / "uses.jsonl")}


def test_exported_file_is_private(shell, stored_uses, tmp_path):
    shell("export", str(tmp_path / "uses.jsonl"))
    assert stat.S_IMODE((tmp_path / "uses.jsonl").stat().st_mode) == 0o600


def test_import_reports_the_number_of_duplicates(shell, stored_uses, tmp_path):
    lines = shell("export").splitlines(keepends=True)
    (tmp_path / "one.jsonl").write_text(lines[0])
    (tmp_path / "all.jsonl").write_text("".join(lines))
    assert "; 1 already existed." in shell("import", str(tmp_path / "one.jsonl"))
    assert f"; {len(lines)} already existed." in shell("import", str(tmp_path / "all.jsonl"))


def test_file_with_a_byte_order_mark_is_imported(shell, stored_uses, tmp_path):
    exported = shell("export")
    shell("forget", "--all", "--yes")
    (tmp_path / "marked.jsonl").write_text(exported, encoding="utf-8-sig")
    assert "imported" in shell("import", str(tmp_path / "marked.jsonl"))
    assert shell("export") == exported

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
        told = capsys.readouterr()
        assert got == status, told.err
        return told.err if status else told.out

    return run


@pytest.fixture
def kept(home):
    user_paths().data.mkdir(parents=True, exist_ok=True)
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        store.add([USE, replace(USE, tool="read_file", call="c2", helpful=False, step_nano=None)])


def test_without_experience_it_says_how_to_get_some(shell):
    assert "Nothing was experienced yet." in shell()
    assert json.loads(shell("list", "--json")) == {"rows": []}
    assert shell("export") == ""


def test_the_latest_uses_come_first_with_who_judged_them_and_what_they_cost(shell, kept):
    first, second = shell().splitlines()[1:]
    assert first.split()[:1] == ["2"]
    assert "× unhelpful" in first
    assert "unknown" in first
    assert "√ helpful" in second
    assert "$0.003 " in second
    assert "How many lines has notes.txt?" in second


def test_uses_can_be_narrowed_down(shell, kept):
    rows = json.loads(shell("list", "--tool", "read_file", "--json"))["rows"]
    assert [row["id"] for row in rows] == [2]
    assert "No use is like that." in shell("list", "--query", "weather")
    assert "lists nothing" in shell("list", "--limit", "0", status=2)


def test_one_use_is_shown_whole_and_nothing_in_it_is_obeyed(shell, kept):
    told = shell("show", "1")
    assert "3 lines" in told
    assert "\x1b" not in told
    assert json.loads(shell("show", "1", "--json"))["result"] == USE.result
    assert "no use 9" in shell("show", "9", status=2)


def test_what_is_exported_can_be_imported_elsewhere_and_only_once(shell, kept, home, monkeypatch):
    shell("export", str(home / "uses.jsonl"))
    assert "exists" in shell("export", str(home / "uses.jsonl"), status=2)
    monkeypatch.setenv("ECOSHELL_HOME", str(home / "other"))
    assert "2 uses imported." in shell("import", str(home / "uses.jsonl"))
    assert "0 of 2 uses imported; 2 were there already." in shell("import", str(home / "uses.jsonl"))
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        assert [use.tool for use in store.uses()] == ["count_text", "read_file"]
        assert next(store.uses()) == USE


def test_uses_can_be_imported_from_standard_input(shell, kept, monkeypatch):
    text = shell("export").replace("abcd-ef", "other-se")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert json.loads(shell("import", "-", "--json")) == {"imported": 2, "known": 0}


def test_what_is_imported_is_redacted_and_shortened_as_what_is_recorded(shell, home, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    use = replace(USE, query="Is correct-horse good?", arguments="x" * 9_000, result='{"password": "hunter2"}')
    (home / "uses.jsonl").write_text(to_line(use))
    shell("import", str(home / "uses.jsonl"))
    kept = json.loads(shell("show", "1", "--json"))
    assert (kept["query"], kept["result"]) == ("Is [redacted] good?", '{"password": "[redacted]"}')
    assert len(kept["arguments"]) == 2_000


def test_what_is_exported_is_ascii_so_that_every_terminal_can_carry_it(shell, home):
    (home / "uses.jsonl").write_text(to_line(replace(USE, query="Größe? 🌍")))
    shell("import", str(home / "uses.jsonl"))
    assert json.loads(shell("export").encode("ascii"))["query"] == "Größe? 🌍"


@pytest.mark.parametrize("line", ["garbage", '{"format": "other/1"}', "[]"])
def test_a_file_with_one_bad_line_is_named_and_nothing_of_it_is_imported(shell, kept, home, line):
    good = shell("export").replace("abcd-ef", "other-se")
    (home / "bad.jsonl").write_text(f"{good}{line}\n")
    told = shell("import", str(home / "bad.jsonl"), status=2)
    assert "bad.jsonl:3 is not a use of a tool" in told
    assert "Nothing was imported." in told
    assert len(json.loads(shell("list", "--json"))["rows"]) == 2


def test_a_file_that_cannot_be_read_is_an_error_of_use(shell, home):
    assert "cannot be read" in shell("import", str(home / "none.jsonl"), status=2)
    (home / "raw.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "raw.jsonl:1 is not a use of a tool: it is not JSON" in shell("import", str(home / "raw.jsonl"), status=2)


def test_uses_are_forgotten_by_number_tool_and_date(shell, kept):
    assert "1 use forgotten." in shell("forget", "1")
    assert "0 uses forgotten." in shell("forget", "--before", "2026-11-01")
    told = json.loads(shell("forget", "--tool", "read_file", "--json"))
    assert told == {"forgotten": 1, "attempts": 0, "erased": True}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["forget"], "Nothing is named"),
        (["forget", "--all"], "This would forget everything"),
        (["forget", "1", "--all", "--yes"], "--all stands alone"),
        (["forget", "77"], "no use 77"),
        (["forget", "1", "9" * 20], "no use 999"),
        (["forget", "--before", "0001-01-01T00:00:00+14:00"], "is no date"),
        (["forget", "--before", "soon"], "is no date"),
    ],
)
def test_forgetting_asks_for_what_exactly(shell, kept, argv, why):
    assert why in shell(*argv, status=2)
    assert len(json.loads(shell("list", "--json"))["rows"]) == 2


def test_everything_is_forgotten_only_when_it_is_said_twice(shell, kept):
    assert "2 uses forgotten." in shell("forget", "--all", "--yes")
    assert "Nothing was experienced yet." in shell()


def test_a_broken_file_is_told_and_not_touched(shell, home):
    user_paths().data.mkdir(parents=True, exist_ok=True)
    user_paths().experience_file.write_text("no database at all " * 300)
    assert "damaged" in shell(status=1)
    assert user_paths().experience_file.read_text().startswith("no database")


def test_what_another_shell_keeps_in_the_log_is_told_beside_the_answer(kept, home, capsys):
    with closing(sqlite3.connect(user_paths().experience_file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM uses").fetchall()
        status = main(["experience", "forget", "1"])
    told = capsys.readouterr()
    assert (status, told.out) == (0, "1 use forgotten.\n")
    assert "at the next forget" in told.err


def test_a_time_that_is_none_is_listed_as_it_is(shell, kept):
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
def tried(kept):
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        store.add([ATTEMPT, replace(ATTEMPT, turn=2, mode="single", outcome="answered", price_nano=2_000_000)])


def test_attempts_are_listed_apart_with_their_mode_models_and_what_they_took(shell, tried):
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
    assert "No attempt is like that." in shell("list", "--attempts", "--query", "weather")


def test_one_attempt_is_shown_whole_by_its_number(shell, tried):
    assert json.loads(shell("show", "a1", "--json")) == {"id": "a1", **asdict(ATTEMPT)}
    assert "no attempt a9" in shell("show", "a9", status=2)
    assert "'b1' is no number, such as 12, or a3" in shell("show", "b1", status=2)


def test_attempts_are_exported_beside_uses_and_imported_redacted_and_only_once(shell, tried, home, monkeypatch):
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
def test_a_line_that_is_no_attempt_is_named_and_nothing_is_imported(shell, home, changed, why):
    line = json.loads(to_line(ATTEMPT)) | changed
    (home / "bad.jsonl").write_text(f"{to_line(USE)}\n{json.dumps(line)}\n")
    told = shell("import", str(home / "bad.jsonl"), status=2)
    assert "bad.jsonl:2" in told
    assert why in told
    assert json.loads(shell("list", "--json")) == {"rows": []}


def test_attempts_are_forgotten_by_number_and_date_and_with_the_last_use_of_their_question(shell, tried):
    assert "1 attempt forgotten." in shell("forget", "a1")
    assert "no attempt a1" in shell("forget", "a1", status=2)
    assert "1 use forgotten." in shell("forget", "1")
    assert len(json.loads(shell("list", "--attempts", "--json"))["rows"]) == 1
    told = json.loads(shell("forget", "--tool", "read_file", "--json"))
    assert told == {"forgotten": 1, "attempts": 1, "erased": True}


def test_everything_is_forgotten_with_its_attempts(shell, tried):
    assert "2 uses and 2 attempts forgotten." in shell("forget", "--all", "--yes")
    with closing(sqlite3.connect(user_paths().experience_file)) as db:
        assert db.execute("SELECT COUNT(*) FROM queries").fetchone() == (0,)
    assert b"notes.txt" not in user_paths().experience_file.read_bytes()


def test_a_dash_exports_to_standard_output_and_makes_no_file(shell, kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exported = shell("export", "-")
    assert exported == shell("export")
    assert len(exported.splitlines()) > 0
    assert not (tmp_path / "-").exists()


def test_an_export_into_a_file_tells_programs_what_is_in_it(shell, kept, tmp_path):
    told = json.loads(shell("export", str(tmp_path / "uses.jsonl"), "--json"))
    lines = (tmp_path / "uses.jsonl").read_text().splitlines()
    assert told == {"exported": len(lines), "attempts": 0, "file": str(tmp_path / "uses.jsonl")}


def test_an_export_is_for_its_owner_alone(shell, kept, tmp_path):
    shell("export", str(tmp_path / "uses.jsonl"))
    assert stat.S_IMODE((tmp_path / "uses.jsonl").stat().st_mode) == 0o600


def test_one_use_that_is_known_was_there_and_several_were(shell, kept, tmp_path):
    lines = shell("export").splitlines(keepends=True)
    (tmp_path / "one.jsonl").write_text(lines[0])
    (tmp_path / "all.jsonl").write_text("".join(lines))
    assert "; 1 was there already." in shell("import", str(tmp_path / "one.jsonl"))
    assert f"; {len(lines)} were there already." in shell("import", str(tmp_path / "all.jsonl"))


def test_a_file_that_begins_with_a_byte_order_mark_is_imported(shell, kept, tmp_path):
    exported = shell("export")
    shell("forget", "--all", "--yes")
    (tmp_path / "marked.jsonl").write_text(exported, encoding="utf-8-sig")
    assert "imported" in shell("import", str(tmp_path / "marked.jsonl"))
    assert shell("export") == exported

"""What a user's own sessions teach: only what went well, without secrets, and as the local model would be asked it."""

import asyncio
import json
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ecoshell.api import Agent
from ecoshell.cli import main
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell.sessions import SessionStore
from ecoshell_train.sessions import taken

pytestmark = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the extra `local` is not installed")
KEY = "sk-live-abcdefghij0123456789"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def model() -> LocalModel:
    return LocalModel(embedded_path())


def reads(file: str, why: str = "") -> dict[str, Any]:
    return {"text": why, "call": {"name": "read_file", "arguments": {"path": file}}}


def talk(home: Path, turns: dict[str, list[dict[str, Any]]], **files: str) -> str:
    """A session in which a remote model said this to these questions."""
    script, workspace = home.parent / "script.jsonl", home.parent / "project"
    workspace.mkdir(exist_ok=True)
    for name, text in files.items():
        (workspace / f"{name}.txt").write_text(text)
    script.write_text("".join(f"{json.dumps(reply)}\n" for replies in turns.values() for reply in replies))

    async def talked() -> str:
        async with Agent(f"script:{script}", home=home, options=Options(workspace=workspace)) as agent:
            for question in turns:
                async for _ in agent.stream(question):
                    pass
            return agent.session

    return asyncio.run(talked())


def texts(model: LocalModel, found) -> list[tuple[str, str]]:
    vocabulary = model._runtime.vocabulary()

    def text(tokens) -> str:
        return b"".join(vocabulary.piece(token, special=True) for token in tokens).decode()

    return [(text(one.prompt), text(one.reply)) for one in found]


def test_a_turn_teaches_what_was_called_and_answered_and_no_tool_runs_again(home, model) -> None:
    talk(home, {"who has the boat?": [reads("boat", "I look it up."), {"text": "Ada has it."}]}, boat="")
    (home.parent / "project" / "boat.txt").write_text("Ada has the boat.\n")
    talk(home, {"who has the boat now?": [reads("boat.txt", "I look it up."), {"text": "Ada has it."}]})
    (home.parent / "project" / "boat.txt").unlink()
    found = taken(model, (Options(mode="single"),))
    assert found.turns == 1  # the first read a file that was not there
    assert found.left_out == {"a call failed, or was refused": 1}
    (asked, called), (then, answered) = texts(model, found.examples)
    assert asked.endswith("who has the boat now?<|im_end|>\n<|im_start|>assistant\n")
    assert called == 'I look it up.\n{"name": "read_file", "arguments": {"path": "boat.txt"}}<|im_end|>'
    assert "Ada has the boat." in then
    assert answered == "Ada has it.<|im_end|>"


def test_a_later_turn_is_asked_as_the_first_as_a_small_model_is_in_use(home, model) -> None:
    told = {
        "what is in a?": [reads("a.txt"), {"text": "One line."}],
        "and in b?": [reads("b.txt"), {"text": "Another line."}],
    }
    talk(home, told, a="a line of a\n", b="a line of b\n")
    found = taken(model, (Options(mode="single"), Options(mode="umi")))
    assert found.turns == 2
    assert [one.role for one in found.examples[6:8]] == ["single", "single"]
    assert {one.role for one in found.examples} == {"single", "planner", "caller", "summarizer"}
    asked, called = texts(model, found.examples)[6]
    assert "and in b?" in asked
    assert "what is in a?" not in asked
    assert '"b.txt"' in called


def test_secrets_are_marked_where_they_are_read_and_not_learned_where_they_are_said(home, model) -> None:
    talk(
        home,
        {
            f"my key is {KEY}; what is in a?": [reads("a.txt"), {"text": "A line."}],
            "tell me the key": [reads("a.txt"), {"text": f"It is {KEY}."}],
            "look once more": [reads("a.txt"), {"text": "Still a line."}],
        },
        a=f"token={KEY}\n",
    )
    keep = home.parent / "run" / "sessions.jsonl"
    found = taken(model, (Options(mode="single"),), keep)
    assert found.left_out == {"a secret stood in a call or the answer": 1}
    said = texts(model, found.examples)
    assert len(said) == 4
    assert all(KEY not in text for pair in said for text in pair)
    assert "my key is [redacted]" in said[0][0]
    assert taken(model, (Options(mode="single"),), keep).examples == found.examples


@pytest.mark.parametrize("name", ["local:", "hf:", "embedded+"])
def test_what_was_not_called_not_remote_or_undone_is_left_out(home, model, name: str) -> None:
    session = talk(home, {"hello": [{"text": "Hello."}], "read a": [reads("a.txt"), {"text": "Read."}]}, a="a\n")
    database = home / "data" / "sessions.sqlite"
    with closing(sqlite3.connect(database)) as db, db:
        undone = json.dumps({"type": "turn_undone", "turn": 2}, separators=(",", ":"))
        db.execute("INSERT INTO events VALUES (?, 9999, 0, ?)", (session, undone))
    assert taken(model, (Options(mode="single"),)).left_out == {"no tool was called": 1, "it was undone": 1}
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("DELETE FROM events WHERE seq = 9999")
        db.execute("UPDATE events SET json = replace(json, 'script:', ?) WHERE json LIKE '%turn_started%'", (name,))
    assert taken(model, (Options(mode="single"),)).left_out == {"a model of this machine answered it": 2}


def test_a_turn_in_which_a_model_of_this_machine_took_part_is_left_out(home, model) -> None:
    talk(home, {"read a": [reads("a.txt"), {"text": "Read."}]}, a="a\n")
    database = home / "data" / "sessions.sqlite"
    made = 'json LIKE \'{"type":"budget_settled"%\''

    def paid(role: str, name: str) -> None:  # the first call, which is of a tool
        with closing(sqlite3.connect(database)) as db, db:
            first = f"seq = (SELECT MIN(seq) FROM events WHERE {made})"
            swapped = "json_set(json, '$.role', ?, '$.model', ?)"
            db.execute(f"UPDATE events SET json = {swapped} WHERE {first}", (role, name))

    paid("judge", "embedded")
    assert taken(model, (Options(mode="single"),)).turns == 1
    paid("caller", "embedded")
    assert taken(model, (Options(mode="single"),)).left_out == {"a model of this machine answered it": 1}


def test_a_session_with_a_broken_event_is_named_and_left_out(home, model) -> None:
    broken = talk(home, {"read a": [reads("a.txt"), {"text": "Read."}]}, a="a\n")
    talk(home, {"read a again": [reads("a.txt"), {"text": "Read again."}]})
    with closing(sqlite3.connect(home / "data" / "sessions.sqlite")) as db, db:
        db.execute("UPDATE events SET json = substr(json, 1, 20) WHERE session = ? AND seq = 3", (broken,))
    with closing(SessionStore(Paths.under(home).sessions_file)) as store:
        assert store.damaged(broken) == (3,)
    found = taken(model, (Options(mode="single"),))
    assert found.turns == 1
    assert found.told().endswith(f"Session {broken} is left out: its event 3 cannot be read.")


def test_a_dry_run_says_how_many_turns_would_be_taken(home, capsys) -> None:
    talk(home, {"hello": [{"text": "Hello."}], "read a": [reads("a.txt"), {"text": "Read."}]}, a="a\n")
    command = ["train", "umi", "--from-sessions", "--tasks", "0", "--only", "single", "--steps", "1", "--batch", "1"]
    assert main([*command, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["note"] == "1 turn of sessions taken, 1 left out: no tool was called (1)."
    assert told["tokens"] > 0


def test_with_no_task_and_no_turn_there_is_nothing_to_learn(home, capsys) -> None:
    assert main(["train", "umi", "--from-sessions", "--tasks", "0", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "nothing to learn from" in said
    assert "0 turns of sessions taken" in said

"""Training examples from the user's sessions."""

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
from ecoshell_train.sessions import session_examples

pytestmark = pytest.mark.skipif(
    find_spec("llama_cpp") is None, reason="the extra `local` is not installed"
)
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
    """Record a session with these questions and replies of a remote model; returns its ID."""
    script, workspace = home.parent / "script.jsonl", home.parent / "project"
    workspace.mkdir(exist_ok=True)
    for name, text in files.items():
        (workspace / f"{name}.txt").write_text(text)
    script.write_text(
        "".join(f"{json.dumps(reply)}\n" for replies in turns.values() for reply in replies)
    )

    async def record() -> str:
        async with Agent(
            f"script:{script}", home=home, options=Options(workspace=workspace)
        ) as agent:
            for question in turns:
                async for _ in agent.stream(question):
                    pass
            return agent.session

    return asyncio.run(record())


def texts(model: LocalModel, examples) -> list[tuple[str, str]]:
    vocabulary = model._runtime.vocabulary()

    def text(tokens) -> str:
        return b"".join(vocabulary.piece(token, special=True) for token in tokens).decode()

    return [(text(example.prompt), text(example.reply)) for example in examples]


def test_turn_is_learned_without_running_its_tools(home, model) -> None:
    talk(
        home,
        {"who has the boat?": [reads("boat", "I look it up."), {"text": "Ada has it."}]},
        boat="",
    )
    (home.parent / "project" / "boat.txt").write_text("Ada has the boat.\n")
    talk(
        home,
        {"who has the boat now?": [reads("boat.txt", "I look it up."), {"text": "Ada has it."}]},
    )
    (home.parent / "project" / "boat.txt").unlink()
    collected = session_examples(model, (Options(mode="single"),))
    assert collected.turns == 1  # In the first, the file was missing.
    assert collected.skipped == {"a call failed or was refused": 1}
    (first_prompt, call), (second_prompt, answer) = texts(model, collected.examples)
    assert first_prompt.endswith("who has the boat now?<|im_end|>\n<|im_start|>assistant\n")
    assert (
        call == 'I look it up.\n{"name": "read_file", "arguments": {"path": "boat.txt"}}<|im_end|>'
    )
    assert "Ada has the boat." in second_prompt
    assert answer == "Ada has it.<|im_end|>"


def test_later_turn_has_no_history_like_a_small_model_in_use(home, model) -> None:
    turns = {
        "what is in a?": [reads("a.txt"), {"text": "One line."}],
        "and in b?": [reads("b.txt"), {"text": "Another line."}],
    }
    talk(home, turns, a="a line of a\n", b="a line of b\n")
    collected = session_examples(model, (Options(mode="single"), Options(mode="umi")))
    assert collected.turns == 2
    assert [example.role for example in collected.examples[6:8]] == ["single", "single"]
    assert {example.role for example in collected.examples} == {
        "single",
        "planner",
        "caller",
        "summarizer",
    }
    prompt, call = texts(model, collected.examples)[6]
    assert "and in b?" in prompt
    assert "what is in a?" not in prompt
    assert '"b.txt"' in call


def test_secrets_are_masked_in_results_and_exclude_turns_that_repeat_them(home, model) -> None:
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
    collected = session_examples(model, (Options(mode="single"),), keep)
    assert collected.skipped == {"a call or the answer contained a secret": 1}
    pairs = texts(model, collected.examples)
    assert len(pairs) == 4
    assert all(KEY not in text for pair in pairs for text in pair)
    assert "my key is [redacted]" in pairs[0][0]
    assert session_examples(model, (Options(mode="single"),), keep).examples == collected.examples


@pytest.mark.parametrize("name", ["local:", "hf:", "embedded+"])
def test_undone_local_and_tool_free_turns_are_skipped(home, model, name: str) -> None:
    session = talk(
        home,
        {"hello": [{"text": "Hello."}], "read a": [reads("a.txt"), {"text": "Read."}]},
        a="a\n",
    )
    database = home / "data" / "sessions.sqlite"
    with closing(sqlite3.connect(database)) as db, db:
        undone = json.dumps({"type": "turn_undone", "turn": 2}, separators=(",", ":"))
        db.execute("INSERT INTO events VALUES (?, 9999, 0, ?)", (session, undone))
    assert session_examples(model, (Options(mode="single"),)).skipped == {
        "no tool was called": 1,
        "it was undone": 1,
    }
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("DELETE FROM events WHERE seq = 9999")
        db.execute(
            "UPDATE events SET json = replace(json, 'script:', ?) WHERE json LIKE '%turn_started%'",
            (name,),
        )
    assert session_examples(model, (Options(mode="single"),)).skipped == {
        "a local model answered it": 2
    }


def test_turn_with_a_call_of_a_local_model_is_skipped(home, model) -> None:
    talk(home, {"read a": [reads("a.txt"), {"text": "Read."}]}, a="a\n")
    database = home / "data" / "sessions.sqlite"
    is_settled = 'json LIKE \'{"type":"budget_settled"%\''

    def set_first_call(role: str, name: str) -> None:
        with closing(sqlite3.connect(database)) as db, db:
            first = f"seq = (SELECT MIN(seq) FROM events WHERE {is_settled})"
            swapped = "json_set(json, '$.role', ?, '$.model', ?)"
            db.execute(f"UPDATE events SET json = {swapped} WHERE {first}", (role, name))

    set_first_call("judge", "embedded")
    assert session_examples(model, (Options(mode="single"),)).turns == 1
    set_first_call("caller", "embedded")
    assert session_examples(model, (Options(mode="single"),)).skipped == {
        "a local model answered it": 1
    }


def test_session_with_a_damaged_event_is_skipped(home, model) -> None:
    broken = talk(home, {"read a": [reads("a.txt"), {"text": "Read."}]}, a="a\n")
    talk(home, {"read a again": [reads("a.txt"), {"text": "Read again."}]})
    with closing(sqlite3.connect(home / "data" / "sessions.sqlite")) as db, db:
        db.execute(
            "UPDATE events SET json = substr(json, 1, 20) WHERE session = ? AND seq = 3", (broken,)
        )
    with closing(SessionStore(Paths.under(home).sessions_file)) as store:
        assert store.damaged_events(broken) == (3,)
    collected = session_examples(model, (Options(mode="single"),))
    assert collected.turns == 1
    assert collected.summary().endswith(
        f"Session {broken} was skipped: its event 3 cannot be read."
    )


def test_dry_run_reports_the_number_of_turns(home, capsys) -> None:
    talk(
        home,
        {"hello": [{"text": "Hello."}], "read a": [reads("a.txt"), {"text": "Read."}]},
        a="a\n",
    )
    command = [
        "train",
        "umi",
        "--from-sessions",
        "--tasks",
        "0",
        "--only",
        "single",
        "--steps",
        "1",
        "--batch",
        "1",
    ]
    assert main([*command, "--dry-run", "--json"]) == 0
    estimate = json.loads(capsys.readouterr().out)
    assert estimate["note"] == "1 turn of sessions taken, 1 skipped: no tool was called (1)."
    assert estimate["tokens"] > 0


def test_training_without_examples_is_refused(home, capsys) -> None:
    assert main(["train", "umi", "--from-sessions", "--tasks", "0", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert "No training examples." in error
    assert "0 turns of sessions taken" in error

"""Resuming a session: what it restores, the notes, and the options that override it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_play import Command, Ended


def script(tmp_path: Path, name: str, *answers: str) -> str:
    """Return the name of a model with these answers."""
    file = tmp_path / name
    file.write_text("".join(json.dumps({"text": answer}) + "\n" for answer in answers))
    return f"script:{file}"


def started(ended: Ended) -> dict[str, object]:
    """Return the first event of the turn from `ask --json`."""
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    return next(event for event in events if event["type"] == "turn_started")


def session_of(ended: Ended) -> str:
    return json.loads(ended.stdout.splitlines()[-1])["session"]


def notes(ended: Ended) -> str:
    return " ".join(
        json.loads(line)["text"] for line in ended.stdout.splitlines() if '"type": "notice"' in line
    )


def test_resumed_session_has_its_model_mode_roles_and_folder(
    command: Command, tmp_path: Path
) -> None:
    one, two = (
        script(tmp_path, "one.jsonl", "One."),
        script(tmp_path, "two.jsonl", "Two.", "Three."),
    )
    first = command(
        "ask",
        "--json",
        "Hello",
        "--model",
        one,
        "--mode",
        "umi",
        "--role",
        f"caller={two}",
        folder="here",
    )
    again = command("ask", "--json", "And?", "--resume", session_of(first), folder="elsewhere")
    began = started(again)
    assert (began["model"], began["mode"], began["session_model"]) == (one, "umi", one)
    assert began["roles"] == [None, two, None]
    assert (tmp_path / "here").as_posix() in notes(again)
    for word in (one, two, "umi", "--model", "--mode", "--role", "--workspace"):
        assert word in notes(again)


def test_command_line_overrides_the_resumed_session(command: Command, tmp_path: Path) -> None:
    one, two = script(tmp_path, "one.jsonl", "One."), script(tmp_path, "two.jsonl", "Two.")
    first = command("ask", "--json", "Hello", "--model", one, "--mode", "umi", folder="here")
    again = command(
        *("ask", "--json", "And?", "--resume", session_of(first)),
        *("--model", two, "--mode", "single", "--workspace", "."),
        folder="elsewhere",
    )
    began = started(again)
    assert (began["model"], began["mode"]) == (two, "single")
    assert str(tmp_path / "here") not in notes(again)
    assert str(tmp_path / "elsewhere") in notes(again)


def test_resumed_session_reasons_with_its_effort(command: Command, tmp_path: Path) -> None:
    one = script(tmp_path, "one.jsonl", "One.")
    first = command("ask", "--json", "Hello", "--model", one, "--effort", "medium")
    resumed = ("--resume", session_of(first))
    assert (
        "effort medium" in command("line", "--model", one, typed=f"/resume {resumed[1]}\n").stdout
    )
    again = command("ask", "--json", "And?", *resumed)
    assert started(again)["effort"] == "medium"
    assert "effort medium" in notes(again)
    assert (
        started(command("ask", "--json", "And?", *resumed, "--effort", "high"))["effort"] == "high"
    )
    assert "effort high" in command("line", *resumed, typed="/effort\n").stdout


def test_session_whose_model_is_missing_uses_the_settings_model_with_a_note(
    command: Command, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    first = command(
        "ask", "--json", "Hello", "--model", script(tmp_path, "one.jsonl", "One."), folder="here"
    )
    (tmp_path / "one.jsonl").unlink()
    two = script(tmp_path, "two.jsonl", "Two.")
    assert command("config", "set", "model", two).returncode == 0
    again = command("ask", "--json", "And?", "--resume", session_of(first), folder="elsewhere")
    assert started(again)["model"] == two
    assert "one.jsonl is unavailable" in notes(again)
    assert str(here) in notes(again)


def test_session_whose_folder_is_missing_continues_in_the_current_folder(
    command: Command, tmp_path: Path
) -> None:
    model = script(tmp_path, "one.jsonl", "One.")
    first = command("ask", "--json", "Hello", "--model", model, folder="here")
    (tmp_path / "here").rmdir()
    again = command("ask", "--json", "And?", "--resume", session_of(first), folder="elsewhere")
    assert again.returncode == 0
    assert str(tmp_path / "elsewhere") in notes(again)


def test_continue_resumes_the_latest_session_of_this_folder(
    command: Command, tmp_path: Path
) -> None:
    model = script(tmp_path, "one.jsonl", "One.")
    first = command("ask", "--json", "Hello", "--model", model, folder="here")
    command("ask", "--json", "Hello", "--model", model, folder="elsewhere")
    assert session_of(command("ask", "--json", "And?", "--continue", folder="here")) == session_of(
        first
    )
    none = command("ask", "And?", "--continue", folder="third")
    assert none.returncode == 2
    assert "No session was started in" in none.stderr
    assert "--continue" in none.stderr


@pytest.mark.parametrize("folder_name", ["../here", "../link"])
def test_continue_finds_the_folder_under_any_name(
    command: Command, tmp_path: Path, folder_name: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    model = script(tmp_path, "one.jsonl", "One.")
    first = command(
        "ask", "--json", "Hello", "--model", model, "--workspace", folder_name, folder="elsewhere"
    )
    for again in (("--continue",), ("--continue", "--workspace", folder_name)):
        assert session_of(command("ask", "--json", "And?", *again, folder="here")) == session_of(
            first
        )


def test_resume_in_the_line_shell_changes_the_model_and_names_the_folder(
    command: Command, tmp_path: Path
) -> None:
    one, two = script(tmp_path, "one.jsonl", "One."), script(tmp_path, "two.jsonl", "Two.")
    session = session_of(command("ask", "--json", "Hello", "--model", one, folder="here"))
    output = command(
        "line", "--model", two, folder="elsewhere", typed=f"/resume {session}\n/model\n"
    )
    assert f"resumed with {one} in mode single, in {tmp_path / 'elsewhere'}" in output.stdout
    assert (
        f"Its workspace was {tmp_path / 'here'}; return to it with: ecoshell --resume {session}."
        in output.stdout
    )
    assert "Change them with /model, /mode, /role and /effort." in output.stdout


def test_resumed_session_names_what_killed_calls_count(command: Command, tmp_path: Path) -> None:
    model = script(tmp_path, "one.jsonl", "One.")
    session = session_of(command("ask", "--json", "Hello", "--model", model, folder="here"))
    file = next(tmp_path.rglob("ledger.sqlite"))
    kill_during_call = """
import os, sys
from decimal import Decimal
from pathlib import Path
from ecoshell.budget import Account, Ask, Price, Rates
from ecoshell.budget.ledger import Ledger
price = Price(Rates(*map(Decimal, "22222")))
Ledger(Path(sys.argv[1])).hold(Ask(price, 900, 100, Account(sys.argv[2], 2, "single", "m", "step")))
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", kill_during_call, file, session], check=False)
    again = command("ask", "--json", "And?", "--resume", session, folder="here")
    text = "Calls of unknown cost count with all they reserved, $0.002; /cost reconcile sets"
    assert text in notes(again)


def test_export_without_a_name_writes_a_new_file_each_time(
    command: Command, tmp_path: Path
) -> None:
    model = script(tmp_path, "one.jsonl", "One.")
    output = command("line", "--model", model, folder="here", typed="Hello\n/export\n/export\n")
    first, second = sorted((tmp_path / "here").glob("*.md"), key=lambda file: len(file.name))
    assert second.stem == f"{first.stem}-2"
    assert "One." in first.read_text()
    assert f"Exported to {first}" in output.stdout
    assert f"Exported to {second}" in output.stdout

"""With any content of ecoshell's own files, each command ends with an answer or a message, never with a traceback."""

import gc
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from command_play import Command

from ecoshell.cli import main
from ecoshell.paths import user_paths

DAMAGED = int(os.environ.get("DAMAGED", "40"))
"""Damaged files of each kind."""
ODD = (
    None,
    "",
    "x",
    b"\xff\0",
    -1,
    2**62,
    1.5,
    float("inf"),
    "[[",
    "{}",
    '{"type": 5}',
    "9" * 5000,
    "[" * 3000,
)
COMMANDS = (
    ["sessions"],
    ["sessions", "show", "SESSION"],
    ["cost"],
    ["experience"],
    ["ask", "--resume", "SESSION", "Go"],
)
SCRIPT = """{"call": {"name": "read_file", "arguments": {"path": "notes.txt"}}}
{"text": "It says tea."}
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one session, next to its workspace."""
    place = tmp_path_factory.mktemp("used")
    (place / "project").mkdir()
    (place / "project/notes.txt").write_text("tea\n")
    (place / "script.jsonl").write_text(SCRIPT)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ecoshell",
            "ask",
            "--model",
            f"script:{place / 'script.jsonl'}",
            "What is in notes.txt?",
        ],
        env={**os.environ, "ECOSHELL_HOME": str(place / "home")},
        cwd=place / "project",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("file", ["sessions.sqlite", "ledger.sqlite", "experience.sqlite"])
def test_damaged_database_is_reported(
    used: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: str,
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(used / "project")
    shutil.copytree(used / "home", tmp_path / "home")
    database, sound = (
        user_paths().sessions_file.with_name(file),
        (used / "home/data" / file).read_bytes(),
    )
    with sqlite3.connect(user_paths().sessions_file) as connection:
        session = connection.execute("SELECT id FROM sessions").fetchone()[0]
    connection.close()
    chance, refused = random.Random(file), 0
    for number in range(DAMAGED):
        for log in database.parent.glob(f"{file}-*"):
            log.unlink()
        database.write_bytes(sound)
        damage = (
            _change_bytes(database, chance) if number % 4 == 0 else _change_cell(database, chance)
        )
        command = [
            session if word == "SESSION" else word for word in COMMANDS[number % len(COMMANDS)]
        ]
        if command[0] == "ask":
            (tmp_path / "script.jsonl").write_text(SCRIPT)
            command += ["--model", f"script:{tmp_path / 'script.jsonl'}"]
        try:
            status = main(command)
        except BaseException as failure:
            raise AssertionError(f"{damage}: {' '.join(command)}") from failure
        refused += status != 0
        if status != 0:
            gc.collect()  # SQLite keeps a file open, and its log, for as long as a traceback holds one of its cursors
        output = capsys.readouterr().err
        in_a_turn = ".recover` may save" in output
        assert status == 0 or "ecoshell: " in output or in_a_turn, (damage, command, status, output)
    assert refused > 0


def _change_bytes(file: Path, chance: random.Random) -> str:
    raw = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 5, 200])):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    file.write_bytes(raw)
    return f"bytes of {file.name}"


def _change_cell(file: Path, chance: random.Random) -> str:
    """Write an unexpected value into up to three rows of one column."""
    connection = sqlite3.connect(file)
    tables = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    for table in chance.sample(tables, len(tables)):
        column = chance.choice(
            [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        )
        value = chance.choice(ODD)
        rows = f"SELECT {column} FROM {table} ORDER BY random() LIMIT 3"
        query = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {column} IN ({rows})"
        try:
            changed = connection.execute(query, (value,)).rowcount
        except sqlite3.Error:
            continue
        if changed:
            connection.commit()
            connection.close()
            return f"{table}.{column} = {str(value)[:20]!r}"
    connection.close()
    return "nothing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a = " + b"[" * 3000 + b"]" * 3000, "nested too deeply"),
        (b"[agent]\nmax_steps = " + b"9" * 5000, "a number in it is too long"),
        (b"[agent]\ntemperature = 1e" + b"9" * 30, "a number in it is too long"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (None, "it cannot be read (it is not a file)"),
    ],
)
def test_unreadable_settings_are_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: bytes | None,
    message: str,
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    file = user_paths().settings_file
    file.parent.mkdir(parents=True)
    if text is None:
        os.mkfifo(file)
    else:
        file.write_bytes(text)
    assert main(["tools"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"[" * 100_000,
        b"\xff\xfe",
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in (b'{"a":' * 5_000, b"9" * 5_000, b"null", b"[1]")
        ),
    ],
)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("data/approvals.json", ["ask", "hi"]),
        ("cache/mcp/one.json", ["mcp", "list"]),
        ("config/plugins/own.py", ["plugins", "list"]),
        ("config/AGENTS.md", ["ask", "hi"]),
        ("data/judge.json", ["ask", "hi"]),
    ],
)
def test_other_unreadable_files_are_reported_or_ignored(
    used: Path, tmp_path: Path, command: Command, text: bytes | None, name: str, words: list[str]
) -> None:
    home, script = tmp_path / "home", tmp_path / "script.jsonl"
    for folder in ("data", "cache/mcp", "config/plugins"):
        (home / folder).mkdir(parents=True)
    (home / "config/config.toml").write_text(
        '[mcp.servers.one]\ncommand = "none"\n[plan]\njudge = "classifier"\n'
    )
    script.write_text('{"text": "Well."}\n')
    words = ["--model", f"script:{script}", *words]
    if text is None:  # reading a pipe would block
        os.mkfifo(home / name)
        done = subprocess.run(
            [sys.executable, "-m", "ecoshell", *words],
            env={**os.environ, "ECOSHELL_HOME": str(home)},
            cwd=used / "project",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    else:
        (home / name).write_bytes(text)
        done = command(*words, folder=str(used / "project"))
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "ecoshell: " in done.stderr


def test_missing_or_invalid_workspace_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in (["tools"], ["ask", "hi"]):
        assert main(command) == 2
        assert "The current folder no longer exists." in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main(["ask", "--workspace", "a" * 5000, "hi"]) == 2
    assert "cannot be used: File name too long." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["mcp", "import", "~unknown user/mcp.json"], "cannot be read"),
        (["ask", "--model", "script:~unknown user/a.jsonl", "hi"], "~unknown user/a.jsonl"),
        (["ask", "--model", "local:~unknown user/a.gguf", "hi"], "~unknown user/a.gguf"),
        (["plugins", "new", "words", "w" * 300], "File name too long"),
    ],
)
def test_impossible_path_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    assert main(command) in (1, 2)
    assert message in capsys.readouterr().err


def test_session_limit_may_exceed_every_integer_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    assert main(["sessions", "list", "--limit", "9" * 30]) == 0
    assert "No sessions yet." in capsys.readouterr().out

"""On a full disk, losses are reported, and a turn never acts before its events are stored."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from full_disk import fill, limit_files, tiny_disk

from ecoshell.events import CallStarted, TurnFinished
from ecoshell.sessions import SessionStore

KB = 1024
WRITES = tuple(
    {"call": {"name": "write_file", "arguments": {"path": f"{n}.txt", "content": "x"}}}
    for n in range(3)
)
ANSWER = {"text": "All three are written."}
LONG = {"text": "A long answer. " * 8_000}
ALL_IS_KEPT = 4_000 * KB
Ended = subprocess.CompletedProcess[str]


class Place:
    """The program with a temporary home and workspace."""

    def __init__(self, folder: Path) -> None:
        self.home, self.workspace, self.script = (
            folder / "home",
            folder / "workspace",
            folder / "script.jsonl",
        )
        self.workspace.mkdir()

    def run(self, *arguments: str, typed: str = "", no_file_over: int | None = None) -> Ended:
        return subprocess.run(
            [sys.executable, "-m", "ecoshell", *arguments],
            input=typed,
            env={
                **os.environ,
                "ECOSHELL_HOME": str(self.home),
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            cwd=self.workspace,
            capture_output=True,
            text=True,
            timeout=600,
            preexec_fn=None if no_file_over is None else lambda: limit_files(no_file_over),
            check=False,
        )

    def play(
        self,
        command: str,
        *arguments: str,
        replies: Sequence[object],
        typed: str = "",
        no_file_over: int | None = None,
    ) -> Ended:
        self.script.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        shared = ("--model", f"script:{self.script}", "--registration", "all", "--yes")
        return self.run(command, *shared, *arguments, typed=typed, no_file_over=no_file_over)

    def logged(self) -> list[object]:
        """Return every stored event."""
        file = self.home / "data" / "sessions.sqlite"
        if not file.exists():
            return []
        store = SessionStore(file)
        events = [event for info in store.list() for _, event in store.events(info.id)]
        store.close()
        return events

    @property
    def written(self) -> set[str]:
        return {file.name for file in self.workspace.iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def require_honesty(place: Place, ended: Ended) -> bool:
    """Check that each write is in the log and that failures are reported; return whether the turn was answered."""
    events = place.logged()
    started = [event.arguments["path"] for event in events if isinstance(event, CallStarted)]
    assert place.written <= set(started), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "is written with the next event" not in ended.stderr, "no event follows"
    if ended.returncode == 0:
        assert isinstance(events[-1], TurnFinished)
        return True
    assert ended.stderr.startswith("ecoshell: ") or "\necoshell: " in ended.stderr
    assert "cannot grow: the disk is full" in ended.stderr
    assert "Free some space" in ended.stderr
    assert ended.stdout == ""
    return False


@pytest.mark.parametrize("size", [0, 120 * KB, ALL_IS_KEPT])
def test_question_on_a_full_disk_ends_with_a_message(place: Place, size: int) -> None:
    ended = place.play("ask", "Write!", replies=(*WRITES, ANSWER), no_file_over=size)
    assert require_honesty(place, ended) == (size == ALL_IS_KEPT)


def test_question_on_a_tiny_disk_ends_with_a_message(place: Place, tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", 2_000 * KB) as disk:
        place.home = disk / "home"
        assert require_honesty(place, place.play("ask", "Write!", replies=(*WRITES, ANSWER)))
        stopped = 0
        for free in (0, 40 * KB, 300 * KB):
            for file in place.workspace.iterdir():
                file.unlink()
            place.home = disk / f"home-{free}"
            fill(disk, free)
            stopped += not require_honesty(
                place, place.play("ask", "Write!", replies=(*WRITES, ANSWER))
            )
            (disk / "filler").unlink()
        assert stopped >= 2


def test_lost_events_of_a_chat_are_reported(place: Place) -> None:
    assert place.play("ask", "Write!", replies=(ANSWER,)).returncode == 0
    ended = place.play(
        "line", replies=(LONG, ANSWER), typed="Write!\n/new\n/quit\n", no_file_over=80 * KB
    )
    assert ended.returncode == 1
    assert "Later events are in memory only" in ended.stdout
    assert "The previous session is kept" not in ended.stdout
    assert "Resume it with" not in ended.stdout
    assert "The last events could not be written and are lost" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_export_that_does_not_fit_leaves_no_file(place: Place) -> None:
    large = {"call": {"name": "count_text", "arguments": {"text": "tea " * 40_000}}}
    assert place.play("ask", "Go", replies=(large, ANSWER)).returncode == 0
    session = json.loads(place.run("sessions", "list", "--json").stdout)["rows"][0]["id"]
    for name in ("whole.md", "whole.json"):
        ended = place.run("sessions", "export", session, name, no_file_over=50 * KB)
        assert ended.returncode == 1
        assert f"{name} cannot be written" in ended.stderr
        assert "The session is kept.\nFree some space and try again." in ended.stderr
    assert place.written == set()


def test_settings_that_do_not_fit_are_unchanged(place: Place) -> None:
    assert place.run("config", "set", "agent.max_steps", "7").returncode == 0
    content = (place.home / "config" / "config.toml").read_bytes()
    ended = place.run("config", "set", "agent.max_steps", "8", no_file_over=4)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[1:] == [
        "The file is unchanged.",
        "Free some space and try again.",
    ]
    assert {file.name: file.read_bytes() for file in (place.home / "config").iterdir()} == {
        "config.toml": content
    }


def test_edit_that_does_not_fit_leaves_the_file_and_is_reported_to_the_model(place: Place) -> None:
    text = "tea\n" + "x" * 3_000 * KB
    (place.workspace / "big.txt").write_text(text)
    edit = {
        "call": {
            "name": "edit_file",
            "arguments": {"path": "big.txt", "old": "tea", "new": "coffee"},
        }
    }
    ended = place.play("ask", "--json", "Edit!", replies=(edit, ANSWER), no_file_over=2_000 * KB)
    assert ended.returncode == 0, ended.stderr
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    (call,) = [event for event in events if event["type"] == "call_finished"]
    assert not call["ok"]
    assert call["observation"] == "big.txt: the file would become too large for the disk."
    notices = [event["text"] for event in events if event["type"] == "notice"]
    assert any(
        text.startswith("/undo will not restore big.txt: no copy could be made") for text in notices
    )
    assert place.written == {"big.txt"}
    assert (place.workspace / "big.txt").read_text() == text

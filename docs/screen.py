"""Generates the pictures of the README and the tour: sessions with the embedded model, and an approval."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ecoshell.api import Agent
from ecoshell.options import Options

NOTES = {"notes.txt": "Buy milk.\nCall Ada.\n"}
WIDE, NARROW = (120, 36), (80, 24)
COUNT_QUESTIONS = ("How many words are in notes.txt?", "What is 17 * 23?")
GRAPH_QUESTIONS = ("count the words in a.txt and b.txt",)
EDIT_REQUEST = "Move the call before the milk in notes.txt"
_EDIT = {"path": "notes.txt", "old": "Buy milk.\nCall Ada.", "new": "Call Ada.\nBuy milk."}
# The approval shows how long it has waited after the first second; the picture is taken then.
_WAITING = "s&#160;·&#160;esc"
REPLIES = (
    {"text": "I edit the file.", "call": {"name": "tool_register", "arguments": {"tool_name": "edit_file"}}},
    {"text": "Ada comes first.", "call": {"name": "edit_file", "arguments": _EDIT}},
)


def make(folder: Path) -> None:
    """Write every picture; takes about a minute."""
    folder = folder.absolute()
    for name in ("NO_COLOR", "COLORTERM", "OPENAI_BASE_URL"):
        os.environ.pop(name, None)
    sizes = {folder / "screen.svg": WIDE, folder / "narrow.svg": NARROW}
    _picture_session(COUNT_QUESTIONS, Options(budget="0.50"), NOTES, sizes)
    files = {"a.txt": "one two three\n", "b.txt": "four five\n"}
    _picture_session(GRAPH_QUESTIONS, Options(strategy="graph"), files, {folder / "branches.svg": WIDE})
    _picture_approval(folder / "approval.svg")


def _picture_session(
    questions: Iterable[str], options: Options, files: Mapping[str, str], pictures: Mapping[Path, tuple[int, int]]
) -> None:
    """Ask the embedded model and take pictures with `ecoshell screenshot`."""
    with TemporaryDirectory() as place:
        os.environ["ECOSHELL_HOME"] = str(Path(place, "home"))
        workspace = _workspace(Path(place), files)
        session = asyncio.run(_play(questions, replace(options, model="embedded", workspace=workspace)))
        environment = {**os.environ, "PYTHONUTF8": "1", "TERM": "xterm-256color"}
        for picture, (width, height) in pictures.items():
            picture.unlink(missing_ok=True)
            arguments = [picture, "--size", f"{width}x{height}", "--session", session]
            command = [sys.executable, "-m", "ecoshell", "screenshot", *arguments]
            subprocess.run(command, cwd=workspace, env=environment, check=True, capture_output=True)


async def _play(questions: Iterable[str], options: Options) -> str:
    async with Agent(options=options) as agent:
        for question in questions:
            await agent.ask(question)
        return agent.session


def _picture_approval(picture: Path) -> None:
    """Take a picture while a scripted model waits for the approval of an edit."""
    with TemporaryDirectory() as place:
        os.environ["ECOSHELL_HOME"] = str(Path(place, "home"))
        workspace, script = _workspace(Path(place), NOTES), Path(place, "demo.jsonl")
        script.write_text("".join(json.dumps(reply) + "\n" for reply in REPLIES))
        with contextlib.chdir(place):  # The picture shows the script's name.
            screenshot = asyncio.run(_approval_screenshot("script:demo.jsonl", workspace))
        picture.write_text(screenshot, encoding="utf-8")


async def _approval_screenshot(model: str, workspace: Path) -> str:
    from textual.widgets import TextArea

    from ecoshell.tui.app import ChatApp
    from ecoshell.tui.questions import Question

    app = ChatApp(Options(model=model, workspace=workspace, registration="names"))
    async with asyncio.timeout(600), app.run_test(size=WIDE) as pilot:
        for area in app.chat.query(TextArea):
            area.cursor_blink = False
        await app.opened.wait()
        await pilot.press(*EDIT_REQUEST, "enter")
        previous, current = "", " "
        while not app.chat.query(Question) or current != previous or _WAITING not in current:
            await pilot.pause(0.1)
            previous, current = current, app.export_screenshot()
        app.exit()
        return current


def _workspace(place: Path, files: Mapping[str, str]) -> Path:
    workspace = place / "project"
    workspace.mkdir()
    for name, text in files.items():
        (workspace / name).write_text(text)
    return workspace


if __name__ == "__main__":
    make(Path(sys.argv[1]))

"""Makes the pictures of the README and of the tour: sessions with the embedded model, and a question to the person."""

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
COUNTED = ("How many words are in notes.txt?", "What is 17 * 23?")
BRANCHED = ("count the words in a.txt and b.txt",)
WRITTEN = "Move the call before the milk in notes.txt"
_CHANGE = {"path": "notes.txt", "old": "Buy milk.\nCall Ada.", "new": "Call Ada.\nBuy milk."}
_SECONDS = "s&#160;·&#160;esc"
"""Of how long the question has waited, which is told after the first second."""
REPLIES = (
    {"text": "I edit the file.", "call": {"name": "tool_register", "arguments": {"tool_name": "edit_file"}}},
    {"text": "Ada comes first.", "call": {"name": "edit_file", "arguments": _CHANGE}},
)


def make(folder: Path) -> None:
    """Make every picture; takes about a minute."""
    folder = folder.absolute()
    for name in ("NO_COLOR", "COLORTERM", "OPENAI_BASE_URL"):
        os.environ.pop(name, None)
    sizes = {folder / "screen.svg": WIDE, folder / "narrow.svg": NARROW}
    _of_session(COUNTED, Options(budget="0.50"), NOTES, sizes)
    files = {"a.txt": "one two three\n", "b.txt": "four five\n"}
    _of_session(BRANCHED, Options(strategy="graph"), files, {folder / "branches.svg": WIDE})
    _of_question(folder / "approval.svg")


def _of_session(
    questions: Iterable[str], options: Options, files: Mapping[str, str], pictures: Mapping[Path, tuple[int, int]]
) -> None:
    """Ask the embedded model, and take pictures as `ecoshell screenshot` does."""
    with TemporaryDirectory() as place:
        os.environ["ECOSHELL_HOME"] = str(Path(place, "home"))
        workspace = _workspace(Path(place), files)
        session = asyncio.run(_told(questions, replace(options, model="embedded", workspace=workspace)))
        environment = {**os.environ, "PYTHONUTF8": "1", "TERM": "xterm-256color"}
        for picture, (width, height) in pictures.items():
            picture.unlink(missing_ok=True)
            shown = [picture, "--size", f"{width}x{height}", "--session", session]
            command = [sys.executable, "-m", "ecoshell", "screenshot", *shown]
            subprocess.run(command, cwd=workspace, env=environment, check=True, capture_output=True)


async def _told(questions: Iterable[str], options: Options) -> str:
    async with Agent(options=options) as agent:
        for question in questions:
            await agent.ask(question)
        return agent.session


def _of_question(picture: Path) -> None:
    """Have a script want to change a file, and take a picture of what the person is asked."""
    with TemporaryDirectory() as place:
        os.environ["ECOSHELL_HOME"] = str(Path(place, "home"))
        workspace, script = _workspace(Path(place), NOTES), Path(place, "demo.jsonl")
        script.write_text("".join(json.dumps(reply) + "\n" for reply in REPLIES))
        with contextlib.chdir(place):  # the picture names the script
            shown = asyncio.run(_asked("script:demo.jsonl", workspace))
        picture.write_text(shown, encoding="utf-8")


async def _asked(model: str, workspace: Path) -> str:
    from textual.widgets import TextArea

    from ecoshell.tui.app import ChatApp
    from ecoshell.tui.questions import Question

    app = ChatApp(Options(model=model, workspace=workspace, registration="names"))
    async with asyncio.timeout(600), app.run_test(size=WIDE) as pilot:
        for area in app.chat.query(TextArea):
            area.cursor_blink = False
        await app.opened.wait()
        await pilot.press(*WRITTEN, "enter")
        before, now = "", " "
        while not app.chat.query(Question) or now != before or _SECONDS not in now:
            await pilot.pause(0.1)
            before, now = now, app.export_screenshot()
        app.exit()
        return now


def _workspace(place: Path, files: Mapping[str, str]) -> Path:
    workspace = place / "project"
    workspace.mkdir()
    for name, text in files.items():
        (workspace / name).write_text(text)
    return workspace


if __name__ == "__main__":
    make(Path(sys.argv[1]))

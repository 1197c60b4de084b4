"""Generates the pictures of the README and the tour: sessions with the embedded model, and an approval."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from ecoshell.api import Agent
from ecoshell.options import Options

sys.path.insert(0, str(Path(__file__).parent))
from animation import animated

NOTES = {"notes.txt": "Buy milk.\nCall Ada.\n"}
WIDE, NARROW = (120, 36), (80, 24)
COUNT_QUESTIONS = ("How many words are in notes.txt?", "What is 17 * 23?")
GRAPH_QUESTIONS = ("count the words in a.txt and b.txt",)
EDIT_REQUEST = "Move the call before the milk in notes.txt"
_EDIT = {"path": "notes.txt", "old": "Buy milk.\nCall Ada.", "new": "Call Ada.\nBuy milk."}
# The approval shows how long it has waited after the first second; the picture is taken then.
_WAITING = "s&#160;·&#160;esc"
REPLIES = (
    {
        "text": "I edit the file.",
        "call": {"name": "tool_register", "arguments": {"tool_name": "edit_file"}},
    },
    {"text": "Ada comes first.", "call": {"name": "edit_file", "arguments": _EDIT}},
)
SESSION_PRICE = (Decimal(3), Decimal(15))
_USAGE = {"input": 2400, "output": 60}
_COMMIT_DATES = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-11-02T09:00:00Z")
SESSION_REPLIES = (
    {"text": "The log tells.", "call": {"name": "git_log", "arguments": {}}, "usage": _USAGE},
    {"text": "The last commit added the notes.", "usage": _USAGE},
    {
        "text": "I count them.",
        "call": {"name": "count_text", "arguments": {"path": "notes.txt"}},
        "usage": _USAGE,
    },
    {"text": "notes.txt has 4 words.", "usage": _USAGE},
)
SESSION_LINES = (
    ("/budget 0.20", 1.0, 2.5),
    ("What did the last commit change?", 1.5, 2.0),
    ("How many words are in notes.txt?", 1.5, 4.5),
    ("/plan why count_text", 1.0, 4.5),
)
"""What is typed, and the seconds for which it and the screen before it are shown."""


def make(folder: Path, *names: str) -> None:
    """Write the named pictures, or all, which takes some minutes."""
    folder = folder.absolute()
    for name in ("NO_COLOR", "COLORTERM", "OPENAI_BASE_URL"):
        os.environ.pop(name, None)
    for pictures, draw in DRAWINGS.items():
        if not names or set(names) & set(pictures):
            draw(*(folder / picture for picture in pictures))


def _picture_counting(wide: Path, narrow: Path) -> None:
    sizes = {wide: WIDE, narrow: NARROW}
    _picture_session(COUNT_QUESTIONS, Options(budget="0.50"), NOTES, sizes)


def _picture_graph(picture: Path) -> None:
    files = {"a.txt": "one two three\n", "b.txt": "four five\n"}
    _picture_session(GRAPH_QUESTIONS, Options(strategy="graph"), files, {picture: WIDE})


def _picture_session(
    questions: Iterable[str],
    options: Options,
    files: Mapping[str, str],
    pictures: Mapping[Path, tuple[int, int]],
) -> None:
    """Ask the embedded model and take pictures with `ecoshell screenshot`."""
    with TemporaryDirectory() as place:
        os.environ["ECOSHELL_HOME"] = str(Path(place, "home"))
        workspace = _workspace(Path(place), files)
        session = asyncio.run(
            _play(questions, replace(options, model="embedded", workspace=workspace))
        )
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


def _animate_session(picture: Path) -> None:
    """Record a session with a priced scripted model: a cap, tools registered by name, the plan, and the price."""
    with TemporaryDirectory() as place:
        os.environ["ECOSHELL_HOME"] = str(Path(place, "home"))
        workspace, script = _workspace(Path(place), NOTES), Path(place, "demo.jsonl")
        script.write_text("".join(json.dumps(reply) + "\n" for reply in SESSION_REPLIES))
        git = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        for arguments in (
            ("init", "-q", "-b", "main"),
            ("add", "."),
            ("commit", "-q", "-m", "Add the notes"),
        ):
            subprocess.run(
                [*git, *arguments], cwd=workspace, check=True, env={**os.environ, **_COMMIT_DATES}
            )
        with contextlib.chdir(place):  # The picture shows the script's name.
            frames = asyncio.run(_session_frames("script:demo.jsonl", workspace))
        picture.write_text(animated(frames), encoding="utf-8")


async def _session_frames(model: str, workspace: Path) -> list[tuple[str, float]]:
    """Return a screenshot and its seconds for each step of the session."""
    from textual.widgets import TextArea

    from ecoshell.tui.app import ChatApp

    app, frames = (
        ChatApp(Options(model=model, workspace=workspace, price=SESSION_PRICE)),
        list[tuple[str, float]](),
    )
    async with asyncio.timeout(600), app.run_test(size=WIDE) as pilot:
        for area in app.chat.query(TextArea):
            area.cursor_blink = False
        await app.opened.wait()

        async def settled() -> str:
            previous, current = "", " "
            while (
                app.chat.controller is None or app.chat.controller.stoppable or current != previous
            ):
                await pilot.pause(1.2)  # longer than changed rows of the plan are highlighted
                previous, current = current, app.export_screenshot()
            return current

        for line, typing, reading in SESSION_LINES:
            frames.append((await settled(), reading))
            await pilot.press(*line)
            frames.append((await settled(), typing))
            await pilot.press("enter")
        frames.append((await settled(), 6.0))
        app.exit()
        return frames


def _workspace(place: Path, files: Mapping[str, str]) -> Path:
    workspace = place / "project"
    workspace.mkdir()
    for name, text in files.items():
        (workspace / name).write_text(text)
    return workspace


DRAWINGS: dict[tuple[str, ...], Callable[..., None]] = {
    ("screen.svg", "narrow.svg"): _picture_counting,
    ("branches.svg",): _picture_graph,
    ("approval.svg",): _picture_approval,
    ("session.svg",): _animate_session,
}

if __name__ == "__main__":
    make(Path(sys.argv[1]), *sys.argv[2:])

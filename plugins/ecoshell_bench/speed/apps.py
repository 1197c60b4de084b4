"""The programs that are measured: the real chat in a home of its own, and the least Textual application beside it."""

import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

SIZE = (120, 36)
"""Columns and lines of every terminal that is measured on."""
MINIMAL = """
import asyncio, json, os, sys, time
from textual.app import App
from textual.widgets import Input, RichLog

class Minimal(App):
    def compose(self):
        yield RichLog()
        yield Input()

    def on_mount(self):
        self.query_one(Input).focus()
        if "ECOSHELL_STARTED" in os.environ:
            self.call_after_refresh(self.seen)

    def seen(self):
        print(json.dumps({"seconds": time.monotonic() - float(os.environ["ECOSHELL_STARTED"])}))
        self.exit()

asyncio.run(Minimal().run_async(headless=not sys.__stderr__.isatty()))
"""
"""The least Textual application with a log and an input; with ECOSHELL_STARTED, it is over after its first frame."""
MINIMAL_COMMAND = (sys.executable, "-c", MINIMAL)
TAKES_OVER = "\x1b[?1049h"
"""What a program writes when it takes the whole screen."""
READY = "step by step"
"""What the chat shows once the shell is open: the strategy, in its title."""
_SETTINGS = """
[agent]
max_output_tokens = 100000
"""
_UNWANTED = ("ECOSHELL_", "TEXTUAL", "NO_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM")


@dataclass(frozen=True, slots=True)
class Home:
    """An empty home for the chat; nothing of the person's own is read, and nothing is left behind."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a program that lives there."""
        columns, lines = SIZE
        own = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED)}
        terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(columns), "LINES": str(lines)}
        return {**own, **terminal, "ECOSHELL_HOME": str(self.folder)}

    def script(self, *texts: str) -> str:
        """The name of a model that answers with these texts."""
        file = self.folder / f"script-{len(list(self.folder.glob('script-*')))}.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        return f"script:{file}"

    def chat(self, *options: str) -> Sequence[str]:
        """The command that opens the chat there."""
        return (sys.executable, "-m", "ecoshell", "--workspace", str(self.folder), *options)


@contextmanager
def new_home() -> Generator[Home]:
    """A home in a temporary folder."""
    with TemporaryDirectory(prefix="ecoshell-speed-") as folder:
        home = Home(Path(folder))
        settings = home.folder / "config" / "config.toml"
        settings.parent.mkdir()
        settings.write_text(_SETTINGS, encoding="utf-8")
        yield home

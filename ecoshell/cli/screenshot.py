"""`ecoshell screenshot`: what the chat's screen shows, as an SVG file, drawn without a terminal."""

import argparse
import asyncio
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ecoshell.agent import UserInterface
from ecoshell.assembly.viewing import assemble_view
from ecoshell.cli.parser import options_from
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.options import Options
from ecoshell.paths import expanded, user_paths
from ecoshell.sessions.export import write_new
from ecoshell.tui.app import ChatApp
from ecoshell.tui.prompt.prompt import Prompt

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell

_SIZE = re.compile(r"([0-9]{1,4})[xX×]([0-9]{1,4})")
_LEAST = (20, 8)
_MOST = (500, 200)
"""Columns and lines: no terminal is larger, and the picture of one would take minutes."""
_LOOKS = 100
_BETWEEN_LOOKS = 0.05
"""Seconds: what is painted a little later is painted by then."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE.svg", help="a new file")
    parser.add_argument("--size", default="120x36", metavar="CxL", help="columns and lines (default: 120x36)")
    parser.add_argument("--session", dest="resume", metavar="ID", help="the session to show (default: a new one)")


def run(args: argparse.Namespace) -> int:
    """Take the picture; raises UsageError for a file that cannot be one or is there, and StoreError."""
    found, file = _SIZE.fullmatch(args.size.strip()), expanded(args.file)
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(least <= given <= most for least, given, most in zip(_LEAST, size, _MOST, strict=True)):
        raise UsageError(
            f"--size {args.size!r} is not a screen of {_LEAST[0]}x{_LEAST[1]} to {_MOST[0]}x{_MOST[1]}.",
            fix="Give columns and lines, such as 120x36.",
        )
    if file.suffix.lower() != ".svg":
        raise UsageError(f"{file} is not the name of an SVG file.", fix="Give a name that ends in .svg.")
    try:
        there, placed = file.exists(), file.parent.is_dir()
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.", fix="Name another file.") from error
    if there:  # said before the work; the file is never overwritten in any case
        raise UsageError(f"{file} exists already.", fix="Name a file that does not.")
    if not placed:
        raise UsageError(f"There is no folder {file.parent}.", fix="Make it, or name a file elsewhere.")
    write_new(file, asyncio.run(_picture(options_from(args), size)))
    return 0


async def _picture(options: Options, size: tuple[int, int]) -> str:
    """The screen of so many columns and lines once it stays the same; asks no model, raises EcoshellError."""
    shell = await assemble_view(options)

    async def build(_: Options, person: UserInterface) -> "Shell":
        return shell  # it asks nobody anything

    paths = user_paths()
    try:
        with TemporaryDirectory() as folder:
            paths.draft_file = Path(folder) / "draft.txt"  # what was not sent yet is not for a picture
            app = ChatApp(options, build=build, paths=paths)
            async with app.run_test(size=size) as pilot:
                app.chat.query_one(Prompt).cursor_blink = False  # a picture does not depend on the moment it is taken
                before = ""
                for _ in range(_LOOKS):
                    await pilot.pause(_BETWEEN_LOOKS)
                    now = app.export_screenshot()
                    if app.opened.is_set() and now == before:
                        return now
                    before = now
    finally:
        await shell.aclose()
    raise EcoshellError("The screen did not come to rest.", fix="Try once more, with a smaller --size.")

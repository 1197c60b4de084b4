"""`ecoshell screenshot`: the chat's screen as an SVG file, drawn without a terminal."""

import argparse
import asyncio
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ecoshell.agent import UserInterface
from ecoshell.assembly.viewing import assemble_view
from ecoshell.cli.run_options import options_from
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.options import Options
from ecoshell.paths import expanded, user_paths
from ecoshell.sessions.export import write_new
from ecoshell.tui.app import ChatApp
from ecoshell.tui.prompt.prompt import Prompt

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell

_SIZE = re.compile(r"([0-9]{1,4})[xX×]([0-9]{1,4})")
_MIN_SIZE = (20, 8)
_MAX_SIZE = (500, 200)
"""Columns and lines; a larger picture would take minutes."""
_ATTEMPTS = 100
_PAUSE_SECONDS = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", type=Path, metavar="FILE.svg", help="a new file")
    parser.add_argument(
        "--size", default="120x36", metavar="CxL", help="columns and lines (default: 120x36)"
    )
    parser.add_argument(
        "--session", dest="resume", metavar="ID", help="session to show (default: a new one)"
    )


def run(args: argparse.Namespace) -> int:
    """Save the picture; raises UsageError for an invalid or existing file, and StoreError."""
    size, file = _parse_size(args.size), expanded(args.file)
    if file.suffix.lower() != ".svg":
        raise UsageError(
            f"{file} is not the name of an SVG file.", fix="Give a name that ends in .svg."
        )
    try:
        exists, has_folder = file.exists(), file.parent.is_dir()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}.", fix="Name another file."
        ) from error
    if exists:  # checked before the work; `write_new` never overwrites
        raise UsageError(f"{file} already exists.", fix="Name a new file.")
    if not has_folder:
        raise UsageError(
            f"The folder {file.parent} does not exist.", fix="Create it, or name another folder."
        )
    write_new(file, asyncio.run(_picture(options_from(args), size)))
    return 0


def _parse_size(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text.strip())
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(
        low <= value <= high for low, value, high in zip(_MIN_SIZE, size, _MAX_SIZE, strict=True)
    ):
        raise UsageError(
            f"--size {text!r} is not between {_MIN_SIZE[0]}x{_MIN_SIZE[1]} and {_MAX_SIZE[0]}x{_MAX_SIZE[1]}.",
            fix="Give columns and lines, such as 120x36.",
        )
    return size


async def _picture(options: Options, size: tuple[int, int]) -> str:
    """Return the screen once it no longer changes; calls no model. Raises EcoshellError."""
    shell = await assemble_view(options)

    async def build(_: Options, user: UserInterface) -> "Shell":
        return shell  # it never asks the user

    paths = user_paths()
    try:
        with TemporaryDirectory() as folder:
            # keeps the user's unsent draft out of the picture
            paths.draft_file = Path(folder) / "draft.txt"
            app = ChatApp(options, build=build, paths=paths)
            async with app.run_test(size=size) as pilot:
                app.chat.query_one(Prompt).cursor_blink = False
                previous = ""
                for _ in range(_ATTEMPTS):
                    await pilot.pause(_PAUSE_SECONDS)
                    picture = app.export_screenshot()
                    if app.opened.is_set() and picture == previous:
                        return picture
                    previous = picture
    finally:
        await shell.aclose()
    raise EcoshellError("The screen keeps changing.", fix="Try again with a smaller --size.")

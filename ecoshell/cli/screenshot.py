"""`ecoshell screenshot`: what the chat's screen shows, as an SVG file."""

import argparse
import re
from pathlib import Path

from ecoshell.cli.arguments import options_from
from ecoshell.errors import UsageError

_SIZE = re.compile(r"([0-9]{1,4})[xX×]([0-9]{1,4})")
_LEAST = (20, 8)
_MOST = (500, 200)
"""Columns and lines: no terminal is larger, and the picture of one would take minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE.svg", help="a new file")
    parser.add_argument("--size", default="120x36", metavar="CxL", help="columns and lines (default: 120x36)")
    parser.add_argument("--session", dest="resume", metavar="ID", help="the session to show (default: a new one)")


def run(args: argparse.Namespace) -> int:
    """Take the picture; raises UsageError for a file that cannot be one or is there, and StoreError."""
    size, file = _size(args.size), args.file.expanduser()
    if file.suffix.lower() != ".svg":
        raise UsageError(f"{file} is not the name of an SVG file.", fix="Give a name that ends in .svg.")
    if file.exists():  # said before the work; the file is never overwritten in any case
        raise UsageError(f"{file} exists already.", fix="Name a file that does not.")
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder {file.parent}.", fix="Make it, or name a file elsewhere.")
    from ecoshell.sessions.export import write_new
    from ecoshell.tui.screenshot import take

    write_new(file, take(options_from(args), size))
    return 0


def _size(text: str) -> tuple[int, int]:
    """Columns and lines as typed, such as `120x36`; raises UsageError."""
    found = _SIZE.fullmatch(text.strip())
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(least <= given <= most for least, given, most in zip(_LEAST, size, _MOST, strict=True)):
        raise UsageError(
            f"--size {text!r} is not a screen of {_LEAST[0]}x{_LEAST[1]} to {_MOST[0]}x{_MOST[1]}.",
            fix="Give columns and lines, such as 120x36.",
        )
    return size

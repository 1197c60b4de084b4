"""`ecoshell`: the chat on the whole screen."""

import argparse
import gc
import os
import sys

from ecoshell.cli.parser import add_shared_options, options_to_run
from ecoshell.errors import UsageError

add_arguments = add_shared_options


def run(args: argparse.Namespace) -> int:
    """Open the chat; raises UsageError where there is no terminal to draw on."""
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual draws on the last of them
    if not all(stream.isatty() for stream in streams) or os.environ.get("TERM") == "dumb":
        raise UsageError(
            "The chat needs a terminal it can draw on.",
            fix='`ecoshell line` works on any terminal and in pipes; `ecoshell ask "…"` asks one question.',
        )
    gc.disable()  # until the first frame: nothing that starting makes is garbage
    from ecoshell.tui.app import run as chat

    return chat(options_to_run(args))

"""`ecoshell`: the full-screen chat."""

import argparse
import gc
import os
import sys

from ecoshell.cli.run_options import add_run_options, prepared_options
from ecoshell.errors import UsageError

add_arguments = add_run_options


def run(args: argparse.Namespace) -> int:
    """Open the chat; raises UsageError without a full terminal."""
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual draws on standard error
    if not all(stream.isatty() for stream in streams) or os.environ.get("TERM") == "dumb":
        raise UsageError(
            "The chat needs a terminal it can draw on.",
            fix='`ecoshell line` works on any terminal and in pipes; `ecoshell ask "…"` asks one question.',
        )
    gc.disable()  # until the first frame, because startup creates no garbage
    from ecoshell.tui.app import run as chat

    return chat(prepared_options(args))

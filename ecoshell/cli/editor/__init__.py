"""`ecoshell acp`: the agent in an editor, which starts this program and talks with it (Agent Client Protocol v1)."""

import argparse
import asyncio
import sys

from ecoshell.cli.parser import add_shared_options, hangups_interrupt, options_from
from ecoshell.errors import UsageError

add_arguments = add_shared_options


def run(args: argparse.Namespace) -> int:
    """Speak the protocol on standard input and output until the input ends; raises UsageError at a terminal."""
    options = options_from(args)
    if sys.stdin.isatty():
        raise UsageError(
            "`ecoshell acp` is started by an editor, which talks with it through pipes.",
            fix="docs/python.md says how to set one up; `ecoshell` and `ecoshell line` are for people.",
        )
    from ecoshell.cli.editor.agent import serve  # the protocol's models, which no other command needs

    with hangups_interrupt():
        asyncio.run(serve(options))
    return 0

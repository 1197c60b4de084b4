"""`ecoshell acp`: serve an editor that starts this program and talks to it through pipes."""

import argparse
import asyncio
import sys
from importlib.util import find_spec

from ecoshell.cli.run_options import add_run_options, options_from
from ecoshell.cli.signals import hangups_interrupt
from ecoshell.errors import UsageError

add_arguments = add_run_options


def run(args: argparse.Namespace) -> int:
    """Serve the protocol on standard input and output until the input ends; raises UsageError at a terminal."""
    options = options_from(args)
    if sys.stdin.isatty():
        raise UsageError(
            "`ecoshell acp` is started by an editor, which talks with it through pipes.",
            fix="docs/python.md explains the setup; use `ecoshell` or `ecoshell line` in a terminal.",
        )
    if find_spec("acp") is None:
        raise UsageError(
            "`ecoshell acp` needs agent-client-protocol, which is not installed.",
            fix="pip install 'ecoshell[acp]'",
        )
    from ecoshell_acp.agent import serve

    with hangups_interrupt():
        asyncio.run(serve(options))
    return 0

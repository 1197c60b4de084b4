"""From words to a command: the parser, and which module carries out what; a command imports only what it needs."""

import argparse
import errno
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell import __version__
from ecoshell.cli.arguments import COMMAND, Parser, UnknownCommand, add_shared_options, options_from
from ecoshell.cli.manage.arguments import add_management
from ecoshell.errors import EcoshellError
from ecoshell.files import NO_ROOM
from ecoshell.options import ROLES, Options

if TYPE_CHECKING:
    from ecoshell.plugins import Command

_DESCRIPTION = "A chat shell for a tool-using agent that never spends more than it was given."
_EPILOG = "Without a command, the chat opens. Everything is explained in the README."


def run(argv: Sequence[str]) -> int:
    """Carry out one command line and return its exit status; raises EcoshellError."""
    args = build_parser().parse_args(argv)
    status: int = args.run(args)
    return status


class CommandLine(Parser):
    """The parser of the whole command line; plugins are looked for when their commands are wanted, and for the help."""

    commands: "argparse._SubParsersAction[Any]"  # pyright: ignore[reportPrivateUsage] - argparse gives it no other name
    _has_plugins = False

    def format_help(self) -> str:
        self._add_plugins(())
        return super().format_help()

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - as its base
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse once more, with the commands of plugins, what names a command that is not there."""
        try:
            return super().parse_known_args(args, namespace)
        except UnknownCommand:
            self._add_plugins(args or ())
            return super().parse_known_args(args, namespace)

    def _add_plugins(self, words: Sequence[str]) -> None:
        """Add the commands of plugins, and the arguments of those that are among the words."""
        from ecoshell.plugins import Plugins

        if self._has_plugins:
            return
        self._has_plugins = True
        for name, (plugin, command) in Plugins(_warn).commands(self.commands.choices).items():
            parser = self.commands.add_parser(name, help=command.about)
            parser.set_defaults(run=partial(_run_of_plugin, plugin, command))
            if name in words:
                with _in_plugin(plugin):
                    command.add_arguments(parser)


def build_parser() -> CommandLine:
    """The parser."""
    shared = Parser(add_help=False)
    add_shared_options(shared)
    parser = CommandLine(
        prog="ecoshell", description=_DESCRIPTION, epilog=_EPILOG, parents=[shared], allow_abbrev=False
    )
    parser.add_argument("-V", "--version", action="version", version=f"ecoshell {__version__}")
    parser.set_defaults(run=_chat)
    commands = parser.add_subparsers(dest="command", metavar=COMMAND, title="commands", parser_class=Parser)
    parser.commands = commands

    chat = commands.add_parser("chat", parents=[shared], allow_abbrev=False, help="the chat on the full screen")
    chat.set_defaults(run=_chat)
    line = commands.add_parser("line", parents=[shared], allow_abbrev=False, help="the chat line by line")
    line.set_defaults(run=_line)
    ask = commands.add_parser("ask", parents=[shared], allow_abbrev=False, help="one question, one answer")
    asked = "the question, with which standard input goes along, or - to read it from there"
    ask.add_argument("question", nargs="+", help=asked)
    ask.add_argument("--json", action="store_true", help="print every event, and the result, as JSON lines")
    ask.add_argument("--force", action="store_true", help="with --yes: also write less over a file than it held")
    ask.set_defaults(run=_ask)
    plan = commands.add_parser(
        "plan", parents=[shared], allow_abbrev=False, help="what the budget would allow of each tool for a question"
    )
    plan.add_argument("question", nargs="+", help="the question; it is not asked")
    plan.add_argument("--json", action="store_true", help="print JSON")
    plan.set_defaults(run=_plan)
    picture = commands.add_parser("screenshot", allow_abbrev=False, help="what the chat's screen shows, as an SVG file")
    picture.add_argument("file", type=Path, metavar="FILE.svg", help="a new file")
    picture.add_argument("--size", default="120x36", metavar="CxL", help="columns and lines (default: 120x36)")
    picture.add_argument("--session", dest="resume", metavar="ID", help="the session to show (default: a new one)")
    picture.set_defaults(run=_screenshot)
    add_management(commands)
    return parser


def _warn(message: str) -> None:
    from ecoshell.cli.fence import told

    print(told(EcoshellError(message)), file=sys.stderr)


def _run_of_plugin(plugin: str, command: "Command", args: argparse.Namespace) -> int:
    with _in_plugin(plugin):
        return command.run(args)


@contextmanager
def _in_plugin(plugin: str) -> Generator[None]:
    """A stranger's code at work: a fault in it is told with its place and the plugin's name, and not as one of ours."""
    try:
        yield
    except EcoshellError:
        raise
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno in {*NO_ROOM, errno.EIO, errno.EPIPE}:
            raise
        import traceback

        place = traceback.extract_tb(fault.__traceback__)[-1]
        raise EcoshellError(
            f"The plugin {plugin} failed: {type(fault).__name__}: {fault} ({place.filename}, line {place.lineno}).",
            fix="It is a fault of the plugin; whoever made it should be told.",
        ) from fault


def _chat(args: argparse.Namespace) -> int:
    from ecoshell.cli.chat import run as chat

    return chat(_options(args))


def _line(args: argparse.Namespace) -> int:
    from ecoshell.cli.line import run as line

    return line(_options(args))


def _plan(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.plan import run as plan

    return plan(args)


def _screenshot(args: argparse.Namespace) -> int:
    from ecoshell.cli.screenshot import run as screenshot
    from ecoshell.cli.screenshot import size_of

    return screenshot(options_from(args), size=size_of(args.size), file=args.file.expanduser())


def _ask(args: argparse.Namespace) -> int:
    from ecoshell.cli.ask import run as ask

    return ask(_options(args), args.question, json=args.json)


def _options(args: argparse.Namespace) -> Options:
    """What the command line says, once the models of a hub that it names are here, or nobody wants to pull them."""
    options = options_from(args)
    if any(name and name.startswith("hf:") for name in (options.model, *map(options.roles.of, ROLES))):
        from ecoshell.cli.manage.pull import pull_wanted

        pull_wanted(options)
    return options

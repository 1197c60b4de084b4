"""From words to a command: the parser, and which module carries out what; a command imports only what it needs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ecoshell import __version__
from ecoshell.cli.arguments import Parser, add_shared_options, options_from
from ecoshell.cli.manage.arguments import add_management
from ecoshell.options import ROLES, Options

_DESCRIPTION = "A chat shell for a tool-using agent that never spends more than it was given."
_EPILOG = "Without a command, the chat opens. Everything is explained in the README."


def run(argv: Sequence[str]) -> int:
    """Carry out one command line and return its exit status; raises EcoshellError."""
    args = build_parser(argv).parse_args(argv)
    if args.command == "bench":
        from ecoshell.evaluation.commands import run as bench

        return bench(args)
    status: int = args.run(args)
    return status


def build_parser(argv: Sequence[str] = ()) -> Parser:
    """The parser; the benchmarks' own arguments are there only for a command line that names them."""
    shared = Parser(add_help=False)
    add_shared_options(shared)
    parser = Parser(prog="ecoshell", description=_DESCRIPTION, epilog=_EPILOG, parents=[shared], allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"ecoshell {__version__}")
    parser.set_defaults(run=_chat)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

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
    if "bench" in argv:
        from ecoshell.evaluation.commands import add_parser

        add_parser(commands)
    else:
        commands.add_parser("bench", help="measure savings, a model's skill, and the shell's speed")
    return parser


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

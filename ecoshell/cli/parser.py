"""From words to a command. Each command is a module: its arguments, and what it loads, come when it is named."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from ecoshell import __version__
from ecoshell.cli.arguments import add_shared_options
from ecoshell.errors import EcoshellError, UsageError, likely

_DESCRIPTION = "A chat shell for a tool-using agent that never spends more than it was given."
_EPILOG = "Without a command, the chat opens. Everything is explained in the README."
COMMANDS: Mapping[str, tuple[str, str]] = {
    "chat": ("ecoshell.cli.chat", "the chat on the full screen"),
    "line": ("ecoshell.cli.line", "the chat line by line"),
    "ask": ("ecoshell.cli.ask", "one question, one answer"),
    "acp": ("ecoshell.cli.editor", "the agent in an editor (Agent Client Protocol)"),
    "plan": ("ecoshell.cli.manage.plan", "what the budget would allow of each tool for a question"),
    "screenshot": ("ecoshell.cli.screenshot", "what the chat's screen shows, as an SVG file"),
    "tools": ("ecoshell.cli.manage.tools", "the tools, their effects and what their schemas cost"),
    "mcp": ("ecoshell.cli.manage.mcp", "servers (MCP) whose tools the agent may use"),
    "plugins": ("ecoshell.cli.manage.plugins", "what other packages add; `plugins new` writes one"),
    "profile": ("ecoshell.cli.manage.profile", "the time and memory a tool takes on growing inputs"),
    "sessions": ("ecoshell.cli.manage.sessions", "list, show, export sessions"),
    "experience": ("ecoshell.cli.manage.experience", "what was learned from uses of tools, and of modes"),
    "cost": ("ecoshell.cli.manage.cost", "what was spent, and the caps"),
    "budget": ("ecoshell.cli.manage.budget", "a team's caps: make its ledger, set them, show them"),
    "config": ("ecoshell.cli.manage.config", "show, check, change settings"),
    "events": ("ecoshell.cli.manage.events", "what `ask --json` prints, and its JSON schema"),
    "doctor": ("ecoshell.cli.manage.doctor", "what is installed, what is missing, what to do"),
    "completion": ("ecoshell.cli.completion", "what makes Tab work in your shell"),
    "train": ("ecoshell.cli.manage.train", "train the models of this machine for what the shell asks of them"),
    "models": ("ecoshell.cli.manage.models", "what can be talked with, and prices; `models pull` brings more"),
}
"""Each command's module, and what the command does. A module has `add_arguments(parser)` and `run(args)`, as the
commands of plugins have.
"""
_COMMAND = "COMMAND"
"""Stands for the name of a command in the help."""
_OPTION = re.compile(r"--[\w-]+")
_UNKNOWN = "unrecognized arguments: "
_CHOICES = re.compile(
    r"argument (?P<what>\S+): invalid choice: '?(?P<typed>.*?)'? \(choose from (?P<choices>.*)\)", re.DOTALL
)


def run(argv: Sequence[str]) -> int:
    """Carry out one command line and return its exit status; raises EcoshellError."""
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how its line could go on
        from ecoshell.cli.completion import complete

        complete(parser)
    args = parser.parse_args(argv)
    status: int = args.run(args)
    return status


class UnknownCommand(UsageError):
    """There is no such command."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, with the nearest right word, instead of printing and exiting."""

    fill: Callable[["Parser"], object] | None = None
    """Adds the arguments, once they are wanted."""
    _typed: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        wrong, options = _CHOICES.fullmatch(message), _OPTION.findall(self.format_usage())
        stranger = message.removeprefix(_UNKNOWN).partition(" ")[0] if message.startswith(_UNKNOWN) else None
        if wrong and wrong["typed"] in self._typed:  # the word may have been meant for a mistyped option before it
            before = self._typed[: self._typed.index(wrong["typed"])]
            strangers = (one for one in before if one.startswith("--") and one.partition("=")[0] not in options)
            stranger = next(strangers, None)
        if stranger:
            named = stranger.partition("=")[0]
            raise UsageError(f"There is no option {named}.", fix=likely(named, options))
        if wrong:
            what, typed = wrong["what"], wrong["typed"]
            told = f"{what} cannot be {typed!r}." if what.startswith("-") else f"There is no {what.lower()} {typed!r}."
            kind = UnknownCommand if what == _COMMAND else UsageError
            raise kind(told, fix=likely(typed, re.findall(r"[\w-]+", wrong["choices"])))
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", fix=f"`{self.prog} --help` shows what there is.")

    def load(self) -> None:
        """Add the arguments, if they are not there yet."""
        if self.fill is not None:
            self.fill, fill = None, self.fill
            fill(self)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - a namespace of another class is never given
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown arguments here, where the right ones are known, and not in the parser above."""
        self.load()
        self._typed = tuple(args or ())
        found, unknown = super().parse_known_args(args, namespace or argparse.Namespace())
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return found, unknown


class CommandLine(Parser):
    """The parser of the whole command line; plugins are looked for when their commands are wanted, and for the help."""

    commands: "argparse._SubParsersAction[Any]"  # pyright: ignore[reportPrivateUsage] - argparse gives it no other name
    _has_plugins = False

    def format_help(self) -> str:
        self.add_plugins()
        return super().format_help()

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - as its base
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse once more, with the commands of plugins, what names a command that is not there."""
        try:
            return super().parse_known_args(args, namespace)
        except UnknownCommand:
            self.add_plugins()
            return super().parse_known_args(args, namespace)

    def add_plugins(self) -> None:
        """Add the commands of plugins, once."""
        if self._has_plugins:
            return
        self._has_plugins = True
        from ecoshell.paths import user_paths
        from ecoshell.plugin_host import Plugins, blaming, find_for

        for name, (plugin, command) in Plugins(find_for(user_paths()), warn).commands(self.commands.choices).items():
            parser = self.commands.add_parser(name, help=command.about)
            parser.set_defaults(run=blaming(plugin)(command.run))
            parser.fill = blaming(plugin)(command.add_arguments)


def build_parser() -> CommandLine:
    """The parser."""
    parser = CommandLine(prog="ecoshell", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False)
    add_shared_options(parser)
    parser.add_argument("-V", "--version", action="version", version=f"ecoshell {__version__}")
    parser.set_defaults(run=_chat)
    parser.commands = parser.add_subparsers(dest="command", metavar=_COMMAND, title="commands", parser_class=Parser)
    for name, (module, about) in COMMANDS.items():
        command = parser.commands.add_parser(name, allow_abbrev=False, help=about)
        command.fill = partial(_fill, module)
    return parser


def _fill(module: str, parser: Parser) -> None:
    """Load a command of ours, and give its parser what it takes."""
    command = import_module(module)
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _chat(args: argparse.Namespace) -> int:
    return import_module(COMMANDS["chat"][0]).run(args)


def warn(message: str) -> None:
    """Tell something on standard error that keeps no command from going on."""
    from ecoshell.cli.fence import told

    print(told(EcoshellError(message)), file=sys.stderr)

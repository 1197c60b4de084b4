"""The command line: every command, loaded when it is named, and a parser whose errors suggest the right word."""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from ecoshell import __version__
from ecoshell.cli.fence import warn
from ecoshell.cli.run_options import add_run_options
from ecoshell.errors import UsageError, suggestion

if TYPE_CHECKING:
    from ecoshell.plugins import Command

_DESCRIPTION = "A chat shell for a tool-using agent that never exceeds its budget."
_EPILOG = "Without a command, the chat opens. The README explains everything."
COMMANDS: Mapping[str, tuple[str, str]] = {
    "chat": ("ecoshell.cli.chat", "full-screen chat"),
    "line": ("ecoshell.cli.line", "line-by-line chat"),
    "ask": ("ecoshell.cli.ask", "ask one question and print the answer"),
    "plan": (
        "ecoshell.cli.manage.plan",
        "show which uses of tools the budget allows for a question",
    ),
    "screenshot": ("ecoshell.cli.screenshot", "save the chat's screen as an SVG file"),
    "tools": (
        "ecoshell.cli.manage.tools",
        "list tools, their effects and the size of their schemas",
    ),
    "mcp": ("ecoshell.cli.manage.mcp", "manage MCP servers"),
    "plugins": ("ecoshell.cli.manage.plugins", "list plugins, or create one"),
    "sessions": ("ecoshell.cli.manage.sessions", "list, show, export, rename and delete sessions"),
    "experience": (
        "ecoshell.cli.manage.experience",
        "list, export and delete recorded uses of tools and modes",
    ),
    "cost": ("ecoshell.cli.manage.cost", "show spending and caps"),
    "config": ("ecoshell.cli.manage.config", "show, check and change settings"),
    "events": (
        "ecoshell.cli.manage.events",
        "describe the output of `ask --json`, also as JSON schema",
    ),
    "doctor": ("ecoshell.cli.manage.doctor", "check the installation"),
    "completion": (
        "ecoshell.cli.completion",
        "print the script that makes Tab complete commands in your shell",
    ),
    "models": ("ecoshell.cli.manage.models", "list models and prices; `models pull` downloads one"),
}
"""The module and the help of each command; a module has `add_arguments(parser)` and `run(args)`, like plugins'
commands."""
_ACTION = "ACTION"
_COMMAND = "COMMAND"
_OPTION = re.compile(r"--[\w-]+")
_UNRECOGNIZED = "unrecognized arguments: "
_INVALID_CHOICE = re.compile(
    r"argument (?P<argument>\S+): invalid choice: '?(?P<typed>.*?)'? \(choose from (?P<choices>.*)\)",
    re.DOTALL,
)


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status; raises EcoshellError."""
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:  # the user's shell asks for completions
        from ecoshell.cli.completion import complete

        complete(parser)
    args = parser.parse_args(argv)
    status: int = args.run(args)
    return status


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json` to a command."""
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(json=False)


def add_actions(
    parser: argparse.ArgumentParser,
    default: str,
    parser_class: type[argparse.ArgumentParser] | None = None,
) -> Callable[[str, str], argparse.ArgumentParser]:
    """Let a command take actions, such as `list`; return a function that adds one by name and help."""
    add_json(parser)
    parser.set_defaults(action=default)
    actions = parser.add_subparsers(
        metavar=_ACTION, title="actions", parser_class=parser_class or type(parser)
    )

    def add(name: str, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, allow_abbrev=False, help=text)
        action.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON"
        )
        action.set_defaults(action=name)
        return action

    if isinstance(parser, Parser):
        parser.add_action = add
    return add


class UnknownCommand(UsageError):
    """No command or action has this name."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError with a suggestion instead of printing and exiting."""

    add_own_arguments: Callable[["Parser"], object] | None = None
    """Adds the command's arguments when they are first needed."""
    add_action: Callable[[str, str], argparse.ArgumentParser] | None = None
    """Adds an action, once the arguments are loaded; None for a command without actions."""
    add_plugins_to_root: Callable[[], object] | None = None
    """Adds the commands and actions of plugins."""
    extensions: tuple[Callable[["Parser"], object], ...] = ()
    """Add the actions of plugins after the command's own arguments."""
    _typed: tuple[str, ...] = ()

    def format_help(self) -> str:
        """Load the arguments and the actions of plugins first."""
        self.load()
        if self.add_action is not None and self.add_plugins_to_root is not None:
            self.add_plugins_to_root()
            self.load()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for what argparse rejected."""
        invalid, options = _INVALID_CHOICE.fullmatch(message), _OPTION.findall(self.format_usage())
        unknown = self._unknown_argument(message, invalid, options)
        usage = f"`{self.prog} --help` shows the usage."
        if unknown:
            name = unknown.partition("=")[0]
            if not name.startswith("-"):
                raise UsageError(f"Unexpected argument {unknown!r}.", fix=usage)
            raise UsageError(f"Unknown option {name}.", fix=suggestion(name, options))
        if invalid:
            argument, typed = invalid["argument"], invalid["typed"]
            text = f"Unknown {argument.lower()} {typed!r}."
            if argument.startswith("-"):
                text = f"{argument} cannot be {typed!r}."
            kind = UnknownCommand if argument in {_COMMAND, _ACTION} else UsageError
            raise kind(text, fix=suggestion(typed, re.findall(r"[\w-]+", invalid["choices"])))
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", fix=usage)

    def _unknown_argument(
        self, message: str, invalid: re.Match[str] | None, options: Sequence[str]
    ) -> str | None:
        """Return the argument that does not exist, if that is the mistake.

        An invalid command may be the value of a misspelt option before it: `--modl embedded`.
        """
        if message.startswith(_UNRECOGNIZED):
            return message.removeprefix(_UNRECOGNIZED).partition(" ")[0]
        if invalid and invalid["typed"] in self._typed:
            preceding = self._typed[: self._typed.index(invalid["typed"])]
            typed_options = (word for word in preceding if word.startswith("--"))
            unknown = (word for word in typed_options if word.partition("=")[0] not in options)
            return next(unknown, None)
        return None

    def load(self) -> None:
        """Add the arguments that are not yet loaded."""
        if self.add_own_arguments is not None:
            self.add_own_arguments, add_arguments = None, self.add_own_arguments
            add_arguments(self)
        self.extensions, extensions = (), self.extensions
        for add in extensions:
            add(self)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - the namespace always has this class
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Reject unknown arguments here, where the valid ones are known, instead of in the parent parser."""
        self.load()
        self._typed = tuple(args or ())
        parsed, unknown = super().parse_known_args(args, namespace or argparse.Namespace())
        if unknown:
            self.error(f"{_UNRECOGNIZED}{' '.join(unknown)}")
        return parsed, unknown


class CommandLine(Parser):
    """The root parser; it loads plugins only for their commands and for the help."""

    commands: "argparse._SubParsersAction[Any]"  # pyright: ignore[reportPrivateUsage] - argparse has no public name
    _has_plugins = False

    def format_help(self) -> str:
        self.add_plugins()
        return super().format_help()

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - as in the base class
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse again with the commands of plugins if a command is unknown."""
        try:
            return super().parse_known_args(args, namespace)
        except UnknownCommand:
            self.add_plugins()
            return super().parse_known_args(args, namespace)

    def add_plugins(self) -> None:
        """Add the commands and actions of plugins, once."""
        if self._has_plugins:
            return
        self._has_plugins = True
        from ecoshell.paths import user_paths
        from ecoshell.plugin_discovery import find_user_plugins
        from ecoshell.plugin_host import Plugins, attribute_faults
        from ecoshell.plugins import Command

        plugins = Plugins(find_user_plugins(user_paths()), warn)
        commands = plugins.commands(self.commands.choices).items()
        for name, (plugin, command) in sorted(commands, key=lambda item: " " in item[0]):
            add_arguments = attribute_faults(plugin)(command.add_arguments)
            run = attribute_faults(plugin)(command.run)
            group, _, action = name.rpartition(" ")
            if not group:
                parser = self.commands.add_parser(name, help=command.about.replace("%", "%%"))
                parser.set_defaults(run=run)
                parser.add_own_arguments = add_arguments
            elif (parser := self.commands.choices.get(group)) is not None:
                attributed = Command(action, command.about, add_arguments, run)
                parser.extensions += (partial(_add_plugin_action, plugin, attributed),)
            else:
                warn(f"Plugin {plugin} adds an action to {group}, which is not a command.")


def build_parser() -> CommandLine:
    """Build the root parser; the arguments of commands are loaded later."""
    parser = CommandLine(
        prog="ecoshell", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False
    )
    add_run_options(parser)
    parser.add_argument("-V", "--version", action="version", version=f"ecoshell {__version__}")
    parser.set_defaults(run=_chat)
    parser.commands = parser.add_subparsers(
        dest="command", metavar=_COMMAND, title="commands", parser_class=Parser
    )
    for name, (module, text) in COMMANDS.items():
        command = parser.commands.add_parser(name, allow_abbrev=False, help=text)
        command.add_own_arguments = partial(_load_command, module)
        command.add_plugins_to_root = parser.add_plugins
    return parser


def _add_plugin_action(plugin: str, command: "Command", parser: Parser) -> None:
    if parser.add_action is None:
        warn(f"Plugin {plugin} adds the action {command.name} to a command without actions.")
        return
    action = parser.add_action(command.name, command.about.replace("%", "%%"))
    command.add_arguments(action)
    action.set_defaults(run=command.run)


def _load_command(module: str, parser: Parser) -> None:
    """Import a command's module and add its arguments."""
    command = import_module(module)
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _chat(args: argparse.Namespace) -> int:
    return import_module(COMMANDS["chat"][0]).run(args)

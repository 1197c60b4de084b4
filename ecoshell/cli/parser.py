"""From words to a command: the options that commands share, commands that are loaded when they are named, and the fence
around all: signals, what may end a command, how that is told, and with which exit status."""

import argparse
import contextlib
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal, InvalidOperation
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from ecoshell import __version__
from ecoshell.errors import EcoshellError, UsageError, suggestion
from ecoshell.messages import visible
from ecoshell.options import EFFORTS, LATEST_SESSION, ROLES, Options, RoleModels, role_named
from ecoshell.paths import NO_ROOM
from ecoshell.secrecy import mask_secrets

if TYPE_CHECKING:
    from ecoshell.plugins import Command

_ROLE = "role_"
"""Begins the name under which a role's model is kept while the command line is read."""
_DEAREST = 1_000_000
"""Dollars per million tokens that no model costs."""


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run; one that is not given leaves no trace, so that it cannot hide one given before."""

    def add(*names: str, **settings: object) -> None:
        parser.add_argument(*names, default=argparse.SUPPRESS, **settings)  # pyright: ignore[reportArgumentType]

    add("--model", metavar="NAME", type=_named, help="embedded, local:PATH.gguf, script:FILE.jsonl or any litellm name")
    add("--budget", metavar="AMOUNT", type=_amount, help="the session's cap, such as 0.50 (dollars) or 20000tok")
    add("--registration", choices=("auto", "names", "all", "all_text"), help="which tools are registered at first")
    add("--presentation", choices=("auto", "grow", "stable"), help="how registered tools are shown to the model")
    add("--max-steps", metavar="N", type=_steps, help="model calls that a turn may take")
    add("--workspace", metavar="DIR", type=Path, help="the folder that tools work in (default: this one)")
    add("--yes", action="store_true", help="allow without asking what no rule forbids")
    add("--trust-project", action="store_true", help="follow the workspace's AGENTS.md without asking first")
    add("--read-only", action="store_true", help="refuse every tool that writes or runs something")
    add("--resume", metavar="ID", help="go on with a session; the beginning of its id is enough")
    add(
        "--continue",
        dest="resume",
        action="store_const",
        const=LATEST_SESSION,
        help="go on with this folder's last session",
    )
    add("--price", metavar="IN,OUT", type=_price, help="the model's price in dollars per million tokens")
    modes = ("single", "umi", "auto")
    add("--mode", choices=modes, help="agent mode: one model; planner, caller and summarizer; or as experience says")
    add("--role", metavar="ROLE=MODEL", action=_GiveRole, help="a role's model in the mode umi; repeatable")
    add("--effort", choices=tuple(EFFORTS), help="how much the model reasons before it answers")
    how = "react (one path), dfsdt, tot (they backtrack), graph (a tool graph), or a plugin's"
    add("--strategy", metavar="NAME", help=how)


def options_from(args: argparse.Namespace) -> Options:
    """What the command line says about the run."""
    given = {name: value for name, value in vars(args).items() if name in Options.__dataclass_fields__}
    roles = RoleModels(**{role: getattr(args, f"{_ROLE}{role}", None) for role in ROLES})
    return Options(**given, roles=roles)


def options_to_run(args: argparse.Namespace) -> Options:
    """The same, once the models of a hub that it names are here, or nobody wants to pull them."""
    options = options_from(args)
    of_hub = [name for name in (options.model, *map(options.roles.of, ROLES)) if name and name.startswith("hf:")]
    if of_hub:
        from ecoshell.cli.manage.models import pull_wanted

        pull_wanted(of_hub)
    return options


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json` to a command, or to an action of one."""
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(json=False)


def add_actions(
    parser: argparse.ArgumentParser, default: str, kind: type[argparse.ArgumentParser] | None = None
) -> Callable[[str, str], argparse.ArgumentParser]:
    """Let a command take actions, such as `list`; gives what adds one, by its name and what it does.

    Each is parsed by a parser of that kind, or of the command's.
    """
    add_json(parser)
    parser.set_defaults(action=default)
    actions = parser.add_subparsers(metavar=_ACTION, title="actions", parser_class=kind or type(parser))

    def add(name: str, about: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, allow_abbrev=False, help=about)
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
        action.set_defaults(action=name)
        return action

    if isinstance(parser, Parser):
        parser.add_action = add
    return add


class _GiveRole(argparse.Action):
    """Keeps each role apart, so that those given before and after a command add up."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        text = str(values)
        name, _, model = (part.strip() for part in text.partition("="))
        if (role := role_named(name)) is None:
            there = f"There are {', '.join(ROLES)}: --role caller=embedded"
            raise UsageError(f"--role {text!r} names no role.", fix=there)
        if not model:
            raise UsageError(f"--role {text!r} names no model.", fix=f"Try --role {role}=embedded.")
        setattr(namespace, f"{_ROLE}{role}", model)


def _named(text: str) -> str:
    if not text.strip():
        raise UsageError("--model is empty.", fix="Try --model embedded.")
    return text.strip()


def _amount(text: str) -> str:
    from ecoshell.budget import parse_amount

    parse_amount(text)
    return text


def _steps(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,7}", text):
        raise UsageError(f"--max-steps {text!r} is not a number of steps.", fix="Give a whole number, such as 24.")
    return int(text)


def _price(text: str) -> tuple[Decimal, Decimal]:
    parts = text.replace("$", "").split(",")
    try:
        rates = [Decimal(part.strip()) for part in parts]
    except InvalidOperation:
        rates = []
    if len(rates) != 2 or not all(rate.is_finite() and 0 <= rate <= _DEAREST for rate in rates):
        raise UsageError(
            f"--price {text!r} is not two prices.",
            fix="Give dollars per million input and output tokens: --price 0.25,2",
        )
    return rates[0], rates[1]


_DESCRIPTION = "A chat shell for a tool-using agent that never spends more than it was given."
_EPILOG = "Without a command, the chat opens. Everything is explained in the README."
COMMANDS: Mapping[str, tuple[str, str]] = {
    "chat": ("ecoshell.cli.chat", "the chat on the full screen"),
    "line": ("ecoshell.cli.line", "the chat line by line"),
    "ask": ("ecoshell.cli.ask", "one question, one answer"),
    "plan": ("ecoshell.cli.manage.plan", "what the budget would allow of each tool for a question"),
    "screenshot": ("ecoshell.cli.screenshot", "what the chat's screen shows, as an SVG file"),
    "tools": ("ecoshell.cli.manage.tools", "the tools, their effects and what their schemas cost"),
    "mcp": ("ecoshell.cli.manage.mcp", "servers (MCP) whose tools the agent may use"),
    "plugins": ("ecoshell.cli.manage.plugins", "what other packages add; `plugins new` writes one"),
    "profile": ("ecoshell.cli.manage.profile", "the time and memory a tool takes on growing inputs"),
    "sessions": ("ecoshell.cli.manage.sessions", "list, show, export sessions"),
    "experience": ("ecoshell.cli.manage.experience", "what was learned from uses of tools, and of modes"),
    "cost": ("ecoshell.cli.manage.cost", "what was spent, and the caps"),
    "config": ("ecoshell.cli.manage.config", "show, check, change settings"),
    "events": ("ecoshell.cli.manage.events", "what `ask --json` prints, and its JSON schema"),
    "doctor": ("ecoshell.cli.manage.doctor", "what is installed, what is missing, what to do"),
    "completion": ("ecoshell.cli.completion", "what makes Tab work in your shell"),
    "models": ("ecoshell.cli.manage.models", "what can be talked with, and prices; `models pull` brings more"),
}
"""Each command's module, and what the command does. A module has `add_arguments(parser)` and `run(args)`, as the
commands of plugins have.
"""
_ACTION = "ACTION"
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
    """There is no such command or action."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, with the nearest right word, instead of printing and exiting."""

    fill: Callable[["Parser"], object] | None = None
    """Adds the arguments, once they are wanted."""
    add_action: Callable[[str, str], argparse.ArgumentParser] | None = None
    """Adds an action, once the arguments are loaded; None for a command without actions."""
    find_plugins: Callable[[], object] | None = None
    """Adds the actions of plugins."""
    more: Sequence[Callable[["Parser"], object]] = ()
    """What plugins add after `fill`."""
    _typed: tuple[str, ...] = ()

    def format_help(self) -> str:
        """Load the arguments and the actions of plugins first."""
        self.load()
        if self.add_action is not None and self.find_plugins is not None:
            self.find_plugins()
            self.load()
        return super().format_help()

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
            if not named.startswith("-"):
                raise UsageError(
                    f"{stranger!r} is one word too many.", fix=f"`{self.prog} --help` shows what there is."
                )
            raise UsageError(f"There is no option {named}.", fix=suggestion(named, options))
        if wrong:
            what, typed = wrong["what"], wrong["typed"]
            told = f"{what} cannot be {typed!r}." if what.startswith("-") else f"There is no {what.lower()} {typed!r}."
            kind = UnknownCommand if what in {_COMMAND, _ACTION} else UsageError
            raise kind(told, fix=suggestion(typed, re.findall(r"[\w-]+", wrong["choices"])))
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", fix=f"`{self.prog} --help` shows what there is.")

    def load(self) -> None:
        """Add the arguments, if they are not there yet."""
        if self.fill is not None:
            self.fill, fill = None, self.fill
            fill(self)
        self.more, more = (), self.more
        for add in more:
            add(self)

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
        from ecoshell.plugin_host import Plugins, attribute_faults, find_user_plugins
        from ecoshell.plugins import Command

        found = Plugins(find_user_plugins(user_paths()), warn).commands(self.commands.choices)
        for name, (plugin, command) in sorted(found.items(), key=lambda item: " " in item[0]):
            guarded = Command(
                name,
                command.about,
                attribute_faults(plugin)(command.add_arguments),
                attribute_faults(plugin)(command.run),
            )
            group, _, action = name.rpartition(" ")
            if not group:
                parser = self.commands.add_parser(name, help=command.about.replace("%", "%%"))
                parser.set_defaults(run=guarded.run)
                parser.fill = guarded.add_arguments
            elif (parser := self.commands.choices.get(group)) is not None:
                parser.more = (*parser.more, partial(_add_action, plugin, action, guarded))
            else:
                warn(f"The plugin {plugin} adds an action to {group}, which is not a command.")


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
        command.find_plugins = parser.add_plugins
    return parser


def _add_action(plugin: str, name: str, command: "Command", parser: Parser) -> None:
    """Add the action of a plugin to a command."""
    if parser.add_action is None:
        warn(f"The plugin {plugin} adds the action {name} to a command that has no actions.")
        return
    action = parser.add_action(name, command.about.replace("%", "%%"))
    command.add_arguments(action)
    action.set_defaults(run=command.run)


def _fill(module: str, parser: Parser) -> None:
    """Load a command of ours, and give its parser what it takes."""
    command = import_module(module)
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _chat(args: argparse.Namespace) -> int:
    return import_module(COMMANDS["chat"][0]).run(args)


def warn(message: str) -> None:
    """Tell something on standard error that keeps no command from going on."""
    from ecoshell.cli.parser import told

    print(told(EcoshellError(message)), file=sys.stderr)


INTERRUPTED = 130
PIPE_CLOSED = 141
"""What a shell reports of a program that SIGPIPE ended."""


def fenced(command: Callable[[], int]) -> int:
    """Run a command; expected errors are told on standard error, and Ctrl-C and a closed pipe become a status."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed before the start: else a database would get its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as it runs
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what was printed before is written now, and may find no room
                stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 still shows everything
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.errno not in NO_ROOM | {errno.EIO}:
            raise
        _drop_output()
        what = error.filename or "The output"
        print(
            told(EcoshellError(f"{what} could not be written: {error.strerror}.", fix="Free some space.")),
            file=sys.stderr,
        )
        return 1
    except EcoshellError as error:
        with contextlib.suppress(BrokenPipeError):
            print(told(error), file=sys.stderr)
        return error.exit_status
    return status


def told(error: EcoshellError) -> str:
    """The error for a person: what happened, what was kept, what to do, each on a line of its own."""
    parts = (f"ecoshell: {error.message}", error.kept, error.fix)
    return visible(mask_secrets("\n".join(part for part in parts if part)))


def _drop_output() -> None:
    """Point standard output at nothing, or the interpreter complains when it flushes on its way out."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


HANGUPS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What ends a program from outside; a closed terminal sends SIGHUP."""

Handler = Callable[[int, FrameType | None], object]
_PATIENCE = 3
"""So many interrupts end the program even when it does not stop by itself."""


class Interrupted(Exception):
    """Ctrl-C was typed where a line was expected.

    A KeyboardInterrupt would end the event loop before anybody could catch it.
    """


def hangups_interrupt() -> AbstractContextManager[None]:
    """While it lasts, termination and a closed terminal do what Ctrl-C does: an event loop ends what was begun."""
    return handling(dict.fromkeys(HANGUPS, _like_ctrl_c))


@contextmanager
def stopping(stop: Callable[[], object]) -> Generator[None]:
    """While it lasts, the first Ctrl-C or hang-up calls `stop` in the loop, the third raises KeyboardInterrupt."""
    import asyncio  # not before a command needs it

    loop = asyncio.get_running_loop()
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count == 1:
            loop.call_soon_threadsafe(stop)
        elif count >= _PATIENCE:
            interrupt(number, frame)

    with handling(dict.fromkeys((signal.SIGINT, *HANGUPS), handle)):
        yield


def _like_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Leave it to the handler of Ctrl-C: asyncio's cancels what runs, where an exception would hit any line."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else interrupt)(number, frame)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """The handler that does what Ctrl-C does by default."""
    raise KeyboardInterrupt


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Generator[None]:
    """Install signal handlers for a while, save for signals that are ignored on purpose (nohup, a background job)."""
    known = {number: signal.getsignal(number) for number in handlers}
    before = {number: handler for number, handler in known.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

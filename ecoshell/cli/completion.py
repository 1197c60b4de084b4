"""`ecoshell completion`: Tab completes commands, options and names, by argcomplete."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ecoshell.errors import EcoshellError, UsageError
from ecoshell.paths import user_paths

if TYPE_CHECKING:
    from ecoshell.cli.parser import CommandLine
    from ecoshell.plugin_host import Plugins

Candidates = Callable[[str, list[str]], Iterable[str]]
"""Takes the start of a word and the preceding words of the same argument."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help="the shell whose script is printed"
    )


def run(args: argparse.Namespace) -> int:
    """Print the script a shell reads to complete commands; raises UsageError without argcomplete."""
    if find_spec("argcomplete") is None:
        message = "Completion needs argcomplete, which is not installed."
        raise UsageError(message, fix="pip install 'ecoshell[completion]'")
    from argcomplete.shell_integration import shellcode

    print(shellcode(["ecoshell"], shell=args.shell))
    return 0


def complete(parser: "CommandLine") -> None:
    """Answer the shell's request for completions, and exit."""
    import argcomplete

    parser.add_plugins()
    for name in parser.commands.choices.keys() & {*os.environ.get("COMP_LINE", "").split()}:
        parser.commands.choices[name].load()
    for names, action in _arguments(parser, ""):
        candidates = next((function for keys, function in _CANDIDATES if names & keys), None)
        if candidates is not None:
            setattr(action, "completer", partial(_completions, candidates))  # noqa: B010 - read by argcomplete
    argcomplete.autocomplete(parser, always_complete_options=False)


def _arguments(
    parser: argparse.ArgumentParser, command: str
) -> Iterator[tuple[set[str], argparse.Action]]:
    """Yield every argument, including those of commands, with its options or, if positional, `COMMAND NAME`."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage] - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            subparsers: dict[str, argparse.ArgumentParser] = action.choices  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            for name, subparser in subparsers.items():
                yield from _arguments(subparser, command or name)
        else:
            yield {*action.option_strings, f"{command} {action.dest}"}, action


def _completions(
    candidates: Candidates,
    prefix: str,
    action: argparse.Action,
    parsed_args: argparse.Namespace,
    **_: Any,
) -> list[str]:
    value: object = getattr(parsed_args, action.dest, None)
    preceding = [str(word) for word in value] if isinstance(value, list) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    with suppress(EcoshellError):  # the command itself reports it
        return sorted({word for word in candidates(prefix, preceding) if word.startswith(prefix)})
    return []


def _sessions(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.assembly import open_store

    if not user_paths().sessions_file.exists():
        return []
    with closing(open_store(user_paths())) as store:
        return [info.id for info in store.list(100)]


def _models(prefix: str, preceding: list[str]) -> Iterable[str]:
    """Return models on this machine and in the settings and, once a name is started, all known models."""
    from ecoshell.assembly import load_settings, price_book
    from ecoshell.assembly.inventory import Inventory

    settings = load_settings(user_paths())
    rows = Inventory(settings, user_paths().models_folder, barred={}).local_rows()
    listed = price_book(settings).names() if prefix else ()
    return [*(row.name for row in rows), *settings.models.named, *listed]


def _roles(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.options import ROLES

    role, equals, model = prefix.partition("=")
    if not equals:
        return [f"{role}=" for role in ROLES]
    return [f"{role}={name}" for name in _models(model, preceding)]


def _tools(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.assembly import load_settings, sources_of
    from ecoshell.tools.workspace import Workspace, workspace_folder

    workspace, paths = Workspace(workspace_folder()), user_paths()
    sources = sources_of(load_settings(paths), paths, workspace, lambda _: None)
    return [tool.schema.name for _, tool in sources]


def _servers(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.assembly import load_settings

    return load_settings(user_paths()).mcp.servers


def _plugins(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.plugin_discovery import find_user_plugins

    return [plugin.name for plugin in find_user_plugins(user_paths())]


def _enabled_plugins() -> "Plugins":
    from ecoshell.assembly import load_settings, plugins_of

    return plugins_of(load_settings(user_paths()), user_paths(), lambda _: None)


def _strategies(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.assembly.strategies import STRATEGIES

    return [*STRATEGIES, *_enabled_plugins().strategies(STRATEGIES)]


def _judges(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.agent.judge import JUDGES

    return [*JUDGES, *_enabled_plugins().judges(JUDGES)]


def _themes(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.tui.themes import load_themes

    return [theme.name for theme in load_themes(user_paths()).all]


def _keys(prefix: str, preceding: list[str]) -> Iterable[str]:
    from ecoshell.settings import NAMED, descriptions

    return [setting.key for setting in descriptions().values() if NAMED not in setting.path]


def _keys_and_values(prefix: str, preceding: list[str]) -> Iterable[str]:
    """Return keys or, after a key, its choices."""
    from ecoshell.settings import descriptions, parse_key

    if len(preceding) % 2 == 0:
        return _keys(prefix, preceding)
    key = preceding[-1]
    if key in _VALUES:
        return _VALUES[key](prefix, preceding)
    setting = descriptions().get(parse_key(key))
    return () if setting is None else setting.choices


_VALUES: dict[str, Candidates] = {
    "tui.theme": _themes,
    "agent.strategy": _strategies,
    "plan.judge": _judges,
}
"""Settings whose values plugins and files may add to."""
_CANDIDATES: tuple[tuple[set[str], Candidates], ...] = (
    ({"--model"}, _models),
    ({"--role"}, _roles),
    ({"--strategy"}, _strategies),
    ({"--resume", "--session", "sessions id"}, _sessions),
    ({"tools name", "profile tool", "--tool"}, _tools),
    ({"mcp name"}, _servers),
    ({"plugins name"}, _plugins),
    ({"config pairs"}, _keys_and_values),
    ({"config keys"}, _keys),
    ({"models filter"}, lambda prefix, preceding: ("pull", "host")),
)
"""Completions of arguments whose choices the parser does not know."""

"""`ecoshell completion`: Tab completes commands, options, and the names of what there is, by argcomplete."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ecoshell.errors import EcoshellError
from ecoshell.paths import user_paths

if TYPE_CHECKING:
    from ecoshell.cli.parser import CommandLine

Candidates = Callable[[str, list[str]], Iterable[str]]
"""Takes the beginning of a word and those before it that the same argument takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="prints what it has to read")


def run(args: argparse.Namespace) -> int:
    """Print what a shell has to read so that it completes."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["ecoshell"], shell=args.shell))
    return 0


def complete(parser: "CommandLine") -> None:
    """Tell the shell that has asked how its line could go on, and end."""
    import argcomplete

    parser.add_plugins()
    for name in parser.commands.choices.keys() & {*os.environ.get("COMP_LINE", "").split()}:
        parser.commands.choices[name].load()
    for named, action in _actions(parser, ""):
        for names, found in _CANDIDATES:
            if named & names:
                setattr(action, "completer", partial(_offered, found))  # noqa: B010 - where argcomplete looks for it
                break
    argcomplete.autocomplete(parser, always_complete_options=False)


def _actions(parser: argparse.ArgumentParser, command: str) -> Iterator[tuple[set[str], argparse.Action]]:
    """Every argument, also of commands, with its options or, for a positional one, `COMMAND NAME`."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage] - argparse tells its arguments nowhere else
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            below: dict[str, argparse.ArgumentParser] = action.choices  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            for name, one in below.items():
                yield from _actions(one, command or name)
        else:
            yield {*action.option_strings, f"{command} {action.dest}"}, action


def _offered(
    candidates: Candidates, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
) -> list[str]:
    before: object = getattr(parsed_args, action.dest, None)
    words = [str(one) for one in before] if isinstance(before, list) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    with suppress(EcoshellError):  # whoever carries out a command says what is wrong
        return sorted({one for one in candidates(prefix, words) if one.startswith(prefix)})
    return []


def _sessions(prefix: str, before: list[str]) -> Iterable[str]:
    from ecoshell.assembly import open_store

    if not user_paths().sessions_file.exists():
        return []
    with closing(open_store(user_paths())) as store:
        return [info.id for info in store.list(100)]


def _models(prefix: str, before: list[str]) -> Iterable[str]:
    """Those of this machine and of the settings; all there are, once a name is begun."""
    from ecoshell.assembly import load_settings, price_book
    from ecoshell.assembly.inventory import Inventory

    settings = load_settings(user_paths())
    here = Inventory(settings, user_paths().models_folder, barred={}).here()
    return [*(row.name for row in here), *settings.models.named, *(price_book(settings).names() if prefix else ())]


def _roles(prefix: str, before: list[str]) -> Iterable[str]:
    from ecoshell.options import ROLES

    role, equals, model = prefix.partition("=")
    return [f"{role}={name}" for name in _models(model, before)] if equals else [f"{role}=" for role in ROLES]


def _tools(prefix: str, before: list[str]) -> Iterable[str]:
    from ecoshell.assembly import load_settings, sources_of
    from ecoshell.tools.workspace import Workspace, workspace_folder

    ground, paths = Workspace(workspace_folder()), user_paths()
    return [tool.schema.name for _, tool in sources_of(load_settings(paths), paths, ground, lambda _: None)]


def _servers(prefix: str, before: list[str]) -> Iterable[str]:
    from ecoshell.assembly import load_settings

    return load_settings(user_paths()).mcp.servers


def _plugins(prefix: str, before: list[str]) -> Iterable[str]:
    from ecoshell.plugin_host import find_user_plugins

    return [plugin.name for plugin in find_user_plugins(user_paths())]


def _thinkers(*, judges: bool) -> Iterable[str]:
    """Strategies, or judges, ours and those of plugins."""
    from ecoshell.agent.judge import JUDGES
    from ecoshell.assembly import load_settings, plugins_of
    from ecoshell.assembly.shell import STRATEGIES

    plugins = plugins_of(load_settings(user_paths()), user_paths(), lambda _: None)
    return [*JUDGES, *plugins.judges(JUDGES)] if judges else [*STRATEGIES, *plugins.strategies(STRATEGIES)]


def _settings(prefix: str, before: list[str]) -> Iterable[str]:
    """A key, or, after one, what it may be given."""
    from ecoshell.settings import parted
    from ecoshell.settings.schema import NAMED, descriptions

    if len(before) % 2 == 0:
        return [one.key for one in descriptions().values() if NAMED not in one.path]
    match before[-1]:
        case "tui.theme":
            from ecoshell.tui.themes import load_themes

            return [theme.name for theme in load_themes(user_paths()).all]
        case "agent.strategy" | "plan.judge":
            return _thinkers(judges=before[-1] == "plan.judge")
        case _:
            pass
    one = descriptions().get(parted(before[-1]))
    return () if one is None else ("true", "false") if one.kind == "switch" else one.choices


_CANDIDATES: tuple[tuple[set[str], Candidates], ...] = (
    ({"--model"}, _models),
    ({"--role"}, _roles),
    ({"--strategy"}, lambda prefix, before: _thinkers(judges=False)),
    ({"--resume", "--session", "sessions id"}, _sessions),
    ({"tools name", "profile tool", "--tool"}, _tools),
    ({"mcp name"}, _servers),
    ({"plugins name"}, _plugins),
    ({"config pairs"}, _settings),
    ({"config keys"}, lambda prefix, before: _settings(prefix, [])),
    ({"models filter"}, lambda prefix, before: ("pull",)),
)
"""What completes an argument whose choices the parser does not know."""

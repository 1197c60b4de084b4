"""`ecoshell config`: the settings that hold, where each comes from, and ways to change them.

API keys are no settings and never shown.
"""

import argparse
import fnmatch
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions, told, warn
from ecoshell.errors import SettingsError, UsageError, closest_word, suggestion
from ecoshell.paths import user_paths
from ecoshell.settings import (
    DEFAULT,
    PREFIX,
    Source,
    dotted,
    load_settings,
    parted,
    read_bytes,
    read_settings,
    variables,
)
from ecoshell.settings.edit import REMOVED, Changes, changed, write_settings
from ecoshell.settings.schema import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and what they take."""
    add = add_actions(parser, default="show")
    add("show", "every setting and where it comes from (default)")
    add("path", "where the file is")
    add("check", "everything that is wrong with the settings")
    change = add("set", "write settings into the file, whose comments stay")
    change.add_argument("pairs", nargs="+", metavar="KEY VALUE", help="such as budget.session 0.50")
    unset = add("unset", "take settings out of the file")
    unset.add_argument("keys", nargs="+", metavar="KEY", help="such as tui.theme")


def run(args: argparse.Namespace) -> int:
    """Show the settings, their file's path or what is wrong with them, or change them.

    Raises SettingsError for what cannot be shown or written, and UsageError for what is no key.
    """
    file = user_paths().settings_file
    match args.action:
        case "path":
            print_json({"file": str(file)}) if args.json else print(file)
            return 0
        case "check":
            return _check(as_json=args.json)
        case "set":
            words: Sequence[str] = args.pairs
            if len(words) % 2:
                raise UsageError(f"{words[-1]} has no value.", fix="Say ecoshell config set KEY VALUE.")
            changes = {_path(key): typed for key, typed in zip(words[::2], words[1::2], strict=True)}
            return _write(changes, as_json=args.json)
        case "unset":
            return _write({_path(key): REMOVED for key in args.keys}, as_json=args.json)
        case _:
            pass
    names = {path: name for name, path in variables().items()}
    rows = list(load_settings(file, os.environ).rows())
    if args.json:
        records = [
            {"key": dotted(path), "value": _plain(value), "from": origin, "variable": names.get(path)}
            for path, value, origin in rows
        ]
        print_json({"file": str(file), "rows": records})
        return 0
    print_table(("setting", "value", "from"), [(dotted(path), _shown(value), origin) for path, value, origin in rows])
    state = "" if file.exists() else " (it does not exist; every setting has a default)"
    print(f"\nThe file is {file}{state}.")
    print("Any setting can be given as a variable too: ECOSHELL_AGENT_MAX_STEPS=12 for agent.max_steps.")
    return 0


def _write(changes: Changes, *, as_json: bool) -> int:
    """Write the changes, and say which of them the environment hides."""
    file = user_paths().settings_file
    if any(path[:2] in _NAMED for path in changes):
        _, settings = changed(file, read_bytes(file), changes)
        for key, error in _unknown(settings):
            if key in changes:
                raise SettingsError(f"{dotted(key)} {error.message}", kept="Nothing was written.", fix=error.fix)
    before = Source(file, read_bytes(file)).origins()
    write_settings(file, changes)
    source = Source(file, read_bytes(file))
    source.add_environment(os.environ)
    hidden = {dotted(path): place for path in changes if (place := source.place(path)).startswith(PREFIX)}
    if as_json:
        print_json({"file": str(file), "keys": [dotted(path) for path in changes], "hidden": hidden})
        return 0
    for path, typed in changes.items():
        said = "has its default again" if path in before else "was not in the file"
        print(f"{dotted(path)} = {typed}" if typed is not None else f"{dotted(path)} {said}")
    for key, name in hidden.items():
        print(f"{name} is set and wins over the file for {key}.", file=sys.stderr)
    loaded, _ = read_settings(file, os.environ)
    for note in loaded.without_effect if loaded else ():
        print(note, file=sys.stderr)
    return 0


_RULES = ("allow", "ask", "deny")
_NAMED = frozenset(
    {("agent", "strategy"), ("plan", "judge"), ("tui", "theme"), ("tools", "prices"), ("plugins", "enabled")}
    | {("approval", decision) for decision in _RULES}
)
"""Settings that may name what a plugin, a server or a file brings."""


def _unknown(settings: Settings) -> Iterator[tuple[tuple[str, ...], SettingsError]]:
    """What is wrong that only shows beside the plugins, tools and themes there are, by its key."""
    from ecoshell.agent.judge import JUDGES
    from ecoshell.assembly import plugins_of, sources_of
    from ecoshell.assembly.shell import STRATEGIES
    from ecoshell.plugin_host import find_user_plugins
    from ecoshell.tools.function import FunctionTool
    from ecoshell.tools.workspace import Workspace, workspace_folder

    plugins = plugins_of(settings, user_paths(), warn)
    for key, name, ours, more in (
        (("agent", "strategy"), settings.agent.strategy, STRATEGIES, plugins.strategies),
        (("plan", "judge"), settings.plan.judge, JUDGES, plugins.judges),
    ):
        if name not in ours and name not in (known := [*ours, *more(ours)]):
            yield key, SettingsError(f"is {name!r}, and there is no such {key[1]}.", fix=suggestion(name, known))
    there = [plugin.name for plugin in find_user_plugins(user_paths())]
    for name in settings.plugins.enabled:
        if name not in there:
            error = SettingsError(f"names {name!r}, and there is no such plugin.", fix=suggestion(name, there))
            yield ("plugins", "enabled"), error
    if theme := settings.tui.theme:
        from ecoshell.tui.themes import load_themes

        if theme not in (looks := sorted(look.name for look in load_themes(user_paths()).all)):
            yield (
                ("tui", "theme"),
                SettingsError(f"is {theme!r}, and there is no such theme.", fix=suggestion(theme, looks)),
            )
    rules = [(decision, rule) for decision in _RULES for rule in getattr(settings.approval, decision)]
    if not rules and not settings.tools.prices:
        return
    ground = Workspace(workspace_folder())
    tools = {tool.schema.name: tool for _, tool in sources_of(settings, user_paths(), ground, lambda _: None)}
    for name in settings.tools.prices:
        if not isinstance(tools.get(name), FunctionTool):
            fix = f"Did you mean {near}?" if (near := closest_word(name, tools)) else "`ecoshell tools` lists them all."
            yield ("tools", "prices", name), SettingsError("is the price of no tool that can have one.", fix=fix)
    for decision, rule in rules:
        name = rule.partition(":")[0]  # one that is like none may be of a server that was never asked
        if not fnmatch.filter(tools, name) and (near := closest_word(name, tools)):
            error = SettingsError(f"names {name!r}, and there is no such tool.", fix=f"Did you mean {near}?")
            yield ("approval", decision), error


def _path(key: str) -> tuple[str, ...]:
    try:
        return parted(key)
    except ValueError as error:
        raise UsageError(
            f"{error}.", fix="Keys are written as in budget.session or 'models.\"openai/x\".context'."
        ) from error


def _check(*, as_json: bool) -> int:
    file = user_paths().settings_file
    loaded, problems = read_settings(file, os.environ)
    notes = loaded.without_effect if loaded else ()
    if loaded:
        for key, error in _unknown(loaded.settings):
            place = loaded.origins.get(key, DEFAULT)
            problems = (*problems, SettingsError(f"{place}: {dotted(key)} {error.message}", fix=error.fix))
    if as_json:
        found = [{"message": one.message, "fix": one.fix} for one in problems]
        print_json({"file": str(file), "problems": found, "notes": notes})
    elif not problems:
        print(f"{file}: nothing is wrong.")
    for said in () if as_json else (*map(told, problems), *notes):
        print(said, file=sys.stderr)
    return problems[0].exit_status if problems else 0


def _plain(value: Any) -> Any:
    """The value as JSON has it; amounts and rates as decimal strings."""
    if isinstance(value, tuple):
        return [str(item) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(_plain(value)) or "-" if isinstance(value, tuple) else str(value)

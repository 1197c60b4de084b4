"""`ecoshell config`: show, check and change settings. API keys are not settings and are never shown."""

import argparse
import fnmatch
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ecoshell.cli.fence import error_text
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions
from ecoshell.errors import SettingsError, UsageError, closest_word, suggestion
from ecoshell.paths import user_paths
from ecoshell.settings import (
    DEFAULT,
    PREFIX,
    KeyPath,
    Source,
    dotted,
    load_settings,
    parse_key,
    read_bytes,
    read_settings,
    variables,
)
from ecoshell.settings.edit import REMOVED, Changes, edited, write_settings
from ecoshell.settings.schema import Settings

if TYPE_CHECKING:
    from ecoshell.plugin_discovery import Plugin
    from ecoshell.plugin_host import Plugins
    from ecoshell.tools import Tool

_DECISIONS = ("allow", "ask", "deny")
_EFFECTS = ("execute", "network", "write", "read")
"""Effects that rules may name, the one that says most about a tool first."""
_MAX_NAMED = 4
"""Maximum number of tools named in a note."""
_NAME_SETTINGS = frozenset(
    {
        ("agent", "strategy"),
        ("plan", "judge"),
        ("tui", "theme"),
        ("tools", "prices"),
    }
    | {("approval", decision) for decision in _DECISIONS}
)
"""Settings whose names plugins, servers or files provide."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    add = add_actions(parser, default="show")
    add("show", "list every setting and its origin (default)")
    add("path", "print the path of the settings file")
    add("check", "list all problems of the settings")
    change = add("set", "write settings into the file; comments stay")
    change.add_argument("pairs", nargs="+", metavar="KEY VALUE", help="such as budget.session 0.50")
    unset = add("unset", "remove settings from the file")
    unset.add_argument("keys", nargs="+", metavar="KEY", help="such as tui.theme")


def run(args: argparse.Namespace) -> int:
    """Run one action; raises SettingsError, and UsageError for an invalid key."""
    match args.action:
        case "path":
            file = user_paths().settings_file
            print_json({"file": str(file)}) if args.json else print(file)
            return 0
        case "check":
            return _check(as_json=args.json)
        case "set":
            words: Sequence[str] = args.pairs
            if len(words) % 2:
                fix = "Use ecoshell config set KEY VALUE."
                raise UsageError(f"{words[-1]} has no value.", fix=fix)
            pairs = zip(words[::2], words[1::2], strict=True)
            return _write({_parse_key(key): typed for key, typed in pairs}, as_json=args.json)
        case "unset":
            return _write({_parse_key(key): REMOVED for key in args.keys}, as_json=args.json)
        case _:
            return _show(as_json=args.json)


def _show(*, as_json: bool) -> int:
    file = user_paths().settings_file
    rows = list(load_settings(file, os.environ).rows())
    if as_json:
        names = {path: name for name, path in variables().items()}
        records = [
            {
                "key": dotted(path),
                "value": _json_value(value),
                "from": origin,
                "variable": names.get(path),
            }
            for path, value, origin in rows
        ]
        print_json({"file": str(file), "rows": records})
        return 0
    cells = [(dotted(path), _text(value), origin) for path, value, origin in rows]
    print_table(("setting", "value", "from"), cells)
    state = "" if file.exists() else " (it does not exist; every setting has a default)"
    print(f"\nThe file is {file}{state}.")
    print("Environment variables override it: ECOSHELL_AGENT_MAX_STEPS=12 for agent.max_steps.")
    return 0


def _check(*, as_json: bool) -> int:
    file = user_paths().settings_file
    loaded, problems = read_settings(file, os.environ)
    notes: tuple[str, ...] = ()
    if loaded:
        plugins = _loaded_plugins(loaded.settings)
        for key, error in _unknown_names(loaded.settings, plugins):
            message = f"{loaded.origins.get(key, DEFAULT)}: {dotted(key)} {error.message}"
            problems += (SettingsError(message, fix=error.fix),)
        problems += tuple(SettingsError(fault) for fault in plugins.reported)
        notes = tuple(_narrow_rules(loaded.settings))
    if as_json:
        records = [{"message": problem.message, "fix": problem.fix} for problem in problems]
        print_json({"file": str(file), "problems": records, "notes": notes})
    else:
        if not problems:
            print(f"{file}: no problems.")
        for line in (*map(error_text, problems), *notes):
            print(line, file=sys.stderr)
    return problems[0].exit_status if problems else 0


def _write(changes: Changes, *, as_json: bool) -> int:
    """Write the changes, and report those that the environment overrides."""
    file = user_paths().settings_file
    if any(path[0] == "plugins" or path[:2] in _NAME_SETTINGS for path in changes):
        _, settings = edited(file, read_bytes(file), changes)
        plugins = _loaded_plugins(settings)
        for key, error in _unknown_names(settings, plugins):
            if key in changes:
                message = f"{dotted(key)} {error.message}"
                raise SettingsError(message, kept="Nothing was written.", fix=error.fix)
        given = {
            path[1]
            for path, typed in changes.items()
            if path[0] == "plugins" and typed is not REMOVED
        }
        for plugin in plugins.found:
            if plugin.name in given and plugin.incomplete:
                raise SettingsError(plugin.fault, kept="Nothing was written.")
    previous_keys = Source(file, read_bytes(file)).origins()
    write_settings(file, changes)
    source = Source(file, read_bytes(file))
    source.add_environment(os.environ)
    overridden = {
        dotted(path): place for path in changes if (place := source.place(path)).startswith(PREFIX)
    }
    if as_json:
        keys = [dotted(path) for path in changes]
        print_json({"file": str(file), "keys": keys, "hidden": overridden})
        return 0
    for path, typed in changes.items():
        outcome = "has its default again" if path in previous_keys else "was not in the file"
        print(f"{dotted(path)} {outcome if typed is None else f'= {typed}'}")
    for key, name in overridden.items():
        print(f"{name} is set and overrides the file for {key}.", file=sys.stderr)
    return 0


@dataclass(frozen=True, slots=True)
class _LoadedPlugins:
    """The plugins under some settings, after the hooks that take settings were called."""

    found: "Sequence[Plugin]"
    host: "Plugins"
    reported: Sequence[str]
    """What a session says about plugins that fail."""


def _loaded_plugins(settings: Settings) -> _LoadedPlugins:
    from ecoshell.assembly import selected_plugins, tool_options, tools_of
    from ecoshell.plugin_host import Plugins
    from ecoshell.tools.workspace import Workspace, workspace_folder

    found, reported = selected_plugins(settings, user_paths()), list[str]()
    host, workspace = Plugins(found, reported.append), Workspace(workspace_folder())
    names = [tool.schema.name for tool in tools_of(settings, workspace)]
    host.tools(workspace, tool_options(settings, workspace), names)
    host.reply_observers(user_paths())
    return _LoadedPlugins(found, host, reported)


def _unknown_names(
    settings: Settings, plugins: _LoadedPlugins
) -> Iterator[tuple[KeyPath, SettingsError]]:
    """Yield the keys that name a strategy, judge, plugin, theme or tool that does not exist."""
    yield from _unknown_strategy_or_judge(settings, plugins.host)
    yield from _unknown_plugins(settings, plugins.found)
    if theme := settings.tui.theme:
        from ecoshell.tui.themes import load_themes

        themes = sorted(theme.name for theme in load_themes(user_paths()).all)
        if theme not in themes:
            yield ("tui", "theme"), _unknown("theme", theme, themes)
    rules = (getattr(settings.approval, decision) for decision in _DECISIONS)
    if settings.tools.prices or any(rules):
        yield from _unknown_tools(settings, _tools_of(settings))


def _tools_of(settings: Settings) -> "dict[str, Tool]":
    from ecoshell.assembly import sources_of
    from ecoshell.tools.workspace import Workspace, workspace_folder

    sources = sources_of(settings, user_paths(), Workspace(workspace_folder()), lambda _: None)
    return {tool.schema.name: tool for _, tool in sources}


def _narrow_rules(settings: Settings) -> Iterator[str]:
    """Yield a note for each rule about one tool whose pattern other tools can reach."""
    from ecoshell.agent.rules import EFFECT_SUBJECTS, full_rule
    from ecoshell.tools import subjects_of

    decisions = {"deny": settings.approval.deny, "ask": settings.approval.ask}
    if not any(":" in rule for rules in decisions.values() for rule in rules):
        return
    tools = _tools_of(settings)
    for decision, short_rules in decisions.items():
        rules = [full_rule(rule, tools) for rule in short_rules]
        for rule in rules:
            name, _, pattern = rule.partition(":")
            tool = tools.get(name) if pattern else None
            if tool is None:
                continue
            kinds = frozenset(subjects_of(tool).values())
            effects = [effect for effect in _EFFECTS if effect in tool.effects]
            reached = [
                effect for effect in effects if not kinds.isdisjoint(EFFECT_SUBJECTS[effect])
            ]
            if not reached or f"{reached[0]}:{pattern}" in rules:
                continue
            others = [
                other
                for other in tools
                if reached[0] in tools[other].effects and f"{other}:{pattern}" not in rules
            ]
            if others:
                more = " and others" if len(others) > _MAX_NAMED else ""
                names = f"{', '.join(others[:_MAX_NAMED])}{more}"
                yield f"approval.{decision}: {rule} does not hold for {names}; {reached[0]}:{pattern} does."


def _unknown_plugins(
    settings: Settings, plugins: "Sequence[Plugin]"
) -> Iterator[tuple[KeyPath, SettingsError]]:
    """Yield the keys that name an unknown plugin, and the settings of plugins that have none."""
    by_name = {plugin.name: plugin for plugin in plugins}
    for name in settings.plugins.enabled:
        if name not in by_name:
            yield ("plugins", "enabled"), _unknown("plugin", name, [*by_name])
    for name in settings.plugins.disabled:
        # a name without a similar one may be that of a plugin that was removed
        if name not in by_name and closest_word(name, by_name):
            yield ("plugins", "disabled"), _unknown("plugin", name, [*by_name])
    for name, table in settings.plugins.named.items():
        for key in table:
            if (plugin := by_name.get(name)) is None:
                yield ("plugins", name, key), _unknown("plugin", name, [*by_name])
            elif plugin.state != "off" and not plugin.fault and not plugin.has_settings():
                message = f"is not a setting: the plugin {name} has none."
                yield ("plugins", name, key), SettingsError(message, fix="Remove it.")


def _unknown_strategy_or_judge(
    settings: Settings, plugins: "Plugins"
) -> Iterator[tuple[KeyPath, SettingsError]]:
    """Load plugins only for a name that is not built in."""
    from ecoshell.agent.judge import JUDGES
    from ecoshell.assembly.strategies import STRATEGIES

    for key, name, builtin, from_plugins in (
        (("agent", "strategy"), settings.agent.strategy, STRATEGIES, plugins.strategies),
        (("plan", "judge"), settings.plan.judge, JUDGES, plugins.judges),
    ):
        if name in builtin:
            continue
        names = [*builtin, *from_plugins(builtin)]
        if name not in names:
            yield key, _unknown(key[1], name, names)


def _unknown_tools(
    settings: Settings, tools: "Mapping[str, Tool]"
) -> Iterator[tuple[KeyPath, SettingsError]]:
    from ecoshell.assembly import similar_tool
    from ecoshell.tools.function import FunctionTool

    for name in settings.tools.prices:
        if not isinstance(tools.get(name), FunctionTool):
            message = "does not name a tool that can have a price."
            error = SettingsError(message, fix=similar_tool(name, tools))
            yield ("tools", "prices", name), error
    for decision in _DECISIONS:
        for rule in getattr(settings.approval, decision):
            name = rule.partition(":")[0]
            if name in _EFFECTS:
                continue
            words = [*tools, *_EFFECTS]
            # a name without a similar one may belong to a server that has never been reached
            if not fnmatch.filter(tools, name) and (match := closest_word(name, words)):
                message = f"names an unknown tool or effect, {name!r}."
                yield ("approval", decision), SettingsError(message, fix=f"Did you mean {match}?")


def _unknown(noun: str, name: str, names: Sequence[str]) -> SettingsError:
    return SettingsError(f"names an unknown {noun}, {name!r}.", fix=suggestion(name, names))


def _parse_key(key: str) -> KeyPath:
    try:
        return parse_key(key)
    except ValueError as error:
        fix = "Write keys like budget.session or 'models.\"openai/x\".context'."
        raise UsageError(f"{error}.", fix=fix) from error


def _json_value(value: Any) -> Any:
    """Convert a value to JSON; amounts and rates become decimal strings."""
    if isinstance(value, tuple):
        return [str(item) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(_json_value(value)) or "-" if isinstance(value, tuple) else str(value)

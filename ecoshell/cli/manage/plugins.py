"""`ecoshell plugins`: list plugins and what they add, or create one from a template."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError, suggestion
from ecoshell.messages import visible_line
from ecoshell.paths import user_paths
from ecoshell.plugin_discovery import HOOKS, Plugin, find_user_plugins
from ecoshell.plugin_host import Plugins
from ecoshell.tools import ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace, workspace_folder

_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
_PROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "ecoshell-NAME"
version = "0.1.0"
description = "A plugin for ecoshell."
requires-python = ">=3.11"
dependencies = ["ecoshell"]

[project.entry-points.ecoshell]
NAME = "ecoshell_NAME"

[tool.hatch.build.targets.wheel]
packages = ["ecoshell_NAME"]
"""
_MODULE = '''\
"""An ecoshell plugin with the tool NAME_count."""

from typing import Annotated

from ecoshell import tool
from ecoshell.plugins import hookimpl


@tool
def NAME_count(text: Annotated[str, "Any text."]) -> int:
    """Count the words in a text."""
    return len(text.split())


@hookimpl
def tools():
    return [NAME_count]
'''
_TEST = """\
from ecoshell_NAME import NAME_count


def test_words_are_counted():
    assert NAME_count("one two  three") == 3
"""
_FILES = {
    "pyproject.toml": _PROJECT,
    "ecoshell_NAME/__init__.py": _MODULE,
    "test_NAME.py": _TEST,
}
"""Files of a new plugin; NAME is replaced by its name."""
_STATES = {"on": "on", "commands": "commands only", "off": "off"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    add = add_actions(parser, "list")
    add("list", "list the plugins and what they add (default)")
    add("info", "show one plugin").add_argument("name", help="the plugin")
    new = add("new", "create a small plugin with a tool and a test")
    new.add_argument("name", help="lower-case letters, digits and _; the package is ecoshell_NAME")
    new.add_argument("folder", nargs="?", type=Path, help="new folder (default: ecoshell_NAME)")


def run(args: argparse.Namespace) -> int:
    """Run one action; raises UsageError."""
    if args.action == "new":
        return _new(args.name, args.folder or Path(f"ecoshell_{args.name}"), as_json=args.json)
    plugins = find_user_plugins(user_paths())
    if args.action == "info":
        names = [plugin.name for plugin in plugins]
        if args.name not in names:
            raise UsageError(f"Unknown plugin {args.name!r}.", fix=suggestion(args.name, names))
        plugin = next(plugin for plugin in plugins if plugin.name == args.name)
        _print_info(_record(plugin), as_json=args.json)
    else:
        _print_list([_record(plugin) for plugin in plugins], as_json=args.json)
    return 0


def _print_info(record: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    print(visible_line(f"{record['name']} {record['version'] or ''}: {_state(record)}"))
    print(f"  from {visible_line(record['source'])}")
    for hook, noun in HOOKS.items():
        for name in record["brings"].get(hook, ()):
            print(f"  {noun} {visible_line(name)}")
    if record["state"] == "commands":
        enable = f"`ecoshell config set plugins.enabled {record['name']}`"
        print(f"It is part of ecoshell; only its commands are enabled. {enable} enables the rest.")


def _print_list(records: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"rows": records})
        return
    if not records:
        print("No plugins. `ecoshell plugins new NAME` creates one; see plugins/README.md.")
        return
    cells: list[tuple[str, ...]] = []
    for record in records:
        hooks = record["brings"].items()
        added = "; ".join(f"{hook.replace('_', ' ')} {', '.join(names)}" for hook, names in hooks)
        head = (record["name"], record["version"] or "", _state(record))
        cells.append((*head, added or "-", record["source"]))
    print_table(("plugin", "version", "", "adds", "from"), cells)


def _record(plugin: Plugin) -> dict[str, Any]:
    """Return a plugin as JSON; unless it is disabled, it is loaded and asked what it adds."""
    state = "on" if plugin.state == "optional" else plugin.state
    additions: dict[str, list[str]] = {}
    if state != "off":
        plugin.state = "on"
        additions = {hook: names for hook, names in _additions(plugin).items() if names}
    if plugin.fault:
        state = "incomplete" if plugin.incomplete else "failed"
    package = plugin.package
    return {
        "name": plugin.name,
        "version": package.version if package else None,
        "source": f"{package.name}: {plugin.place}" if package else str(plugin.place),
        "state": state,
        "brings": additions,
        "error": plugin.fault or None,
    }


def _additions(plugin: Plugin) -> dict[str, list[str]]:
    """Return the names a plugin adds, by hook."""
    from ecoshell.agent.judge import JUDGES
    from ecoshell.agent.slash_commands import COMMANDS as SLASH_COMMANDS
    from ecoshell.assembly.strategies import STRATEGIES
    from ecoshell.cli.parser import COMMANDS

    workspace, plugins = Workspace(workspace_folder()), Plugins([plugin], lambda _: None)
    builtin = [tool.schema.name for tool in builtin_tools(workspace)]
    tools, providers = plugins.tools(workspace, ToolOptions(), builtin)
    themes = [file.stem for folder in plugins.theme_folders() for file in folder.glob("*.toml")]
    return {
        "tools": [*tools, *(provider.name for provider in providers)],
        "strategies": [*plugins.strategies(STRATEGIES)],
        "models": [*plugins.models()],
        "prices": [*plugins.prices()],
        "judges": [*plugins.judges(JUDGES)],
        "slash_commands": [command.name for command in plugins.slash_commands(SLASH_COMMANDS)],
        "cli_commands": [*plugins.commands(COMMANDS)],
        "themes": sorted(themes),
    }


def _state(record: dict[str, Any]) -> str:
    state: str = record["state"]
    error = record["error"] if state == "incomplete" else f"failed: {record['error']}"
    return _STATES.get(state) or error


def _new(name: str, folder: Path, *, as_json: bool) -> int:
    if not _NAME.fullmatch(name):
        fix = "Use lower-case letters, digits and _, such as words."
        raise UsageError(f"{name!r} is not a valid name for a plugin.", fix=fix)
    if name in (plugin.name for plugin in find_user_plugins(user_paths())):
        raise UsageError(f"The plugin {name} already exists.", fix="Choose another name.")
    files = {
        folder / file.replace("NAME", name): text.replace("NAME", name)
        for file, text in _FILES.items()
    }
    try:
        if folder.exists():
            fix = "Give a new folder after the plugin's name."
            raise UsageError(f"{folder} already exists.", fix=fix)
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written ({error.strerror}).", fix="Name another folder."
        ) from error
    if as_json:
        print_json({"name": name, "files": [str(file) for file in files]})
        return 0
    user_plugins = user_paths().plugins_folder
    print(f"Created {folder}: a plugin with the tool {name}_count, and a test.", end=" ")
    print("To use it, install it:\n")
    print(f"  pip install -e {folder}\n\nor copy its package to the folder of your plugins:\n")
    print(f"  mkdir -p {user_plugins} && cp -r {folder / f'ecoshell_{name}'} {user_plugins}\n")
    print(f"`ecoshell plugins info {name}` then shows what it adds.")
    return 0

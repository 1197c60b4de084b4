"""`ecoshell plugins`: what other packages and the user's own files add to ecoshell, and a plugin to begin with."""

import argparse
import re
from pathlib import Path
from typing import Any

from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError, suggestion
from ecoshell.messages import visible_line
from ecoshell.paths import user_paths
from ecoshell.plugin_host import HOOKS, Plugin, Plugins, find_user_plugins
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
"""What this package adds to ecoshell: the tool NAME_count."""

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
"""What `plugins new` writes; NAME stands for the plugin's."""
_STATES = {"on": "on", "optional": "on by default", "commands": "commands only", "off": "off"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and what they take."""
    add = add_actions(parser, "list")
    add("list", "every plugin, where it comes from and what it brings (default)")
    add("info", "all that is known of one plugin").add_argument("name", help="the plugin")
    new = add("new", "write a small plugin with a tool and a test, to begin with")
    new.add_argument("name", help="small letters, digits and _; its package is called ecoshell_NAME")
    new.add_argument("folder", nargs="?", type=Path, help="where to (default: ecoshell_NAME in this folder)")


def run(args: argparse.Namespace) -> int:
    """List plugins, tell of one, or write one; raises UsageError."""
    if args.action == "new":
        return _new(args.name, args.folder or Path(f"ecoshell_{args.name}"), as_json=args.json)
    found = find_user_plugins(user_paths())
    if args.action == "info":
        known = [plugin.name for plugin in found]
        if args.name not in known:
            raise UsageError(f"There is no plugin {args.name!r}.", fix=suggestion(args.name, known))
        found = [plugin for plugin in found if plugin.name == args.name]
    records = [_record(plugin) for plugin in found]
    if args.json:
        print_json(records[0] if args.action == "info" else {"rows": records})
    elif args.action == "info":
        one = records[0]
        print(visible_line(f"{one['name']} {one['version'] or ''}: {_state(one)}"))
        print(f"  from {visible_line(one['source'])}")
        for hook, what in HOOKS.items():
            for name in one["brings"].get(hook, ()):
                print(f"  {what} {visible_line(name)}")
        if one["state"] == "commands":
            print(f"It comes with ecoshell. `ecoshell config set plugins.enabled {one['name']}` switches on the rest.")
    elif not records:
        print("There is no plugin. `ecoshell plugins new NAME` writes one; plugins/README.md says more.")
    else:
        cells: list[tuple[str, ...]] = []
        for one in records:
            brings = "; ".join(f"{hook.replace('_', ' ')} {', '.join(names)}" for hook, names in one["brings"].items())
            cells.append((one["name"], one["version"] or "", _state(one), brings or "-", one["source"]))
        print_table(("plugin", "version", "", "brings", "from"), cells)
    return 0


def _record(plugin: Plugin) -> dict[str, Any]:
    """What is known of a plugin; one that is not switched off is loaded, and asked for what it brings."""
    from ecoshell.agent.command_list import COMMANDS
    from ecoshell.agent.judge import JUDGES
    from ecoshell.assembly.shell import STRATEGIES
    from ecoshell.cli.parser import COMMANDS as OURS

    state, brings = plugin.state, dict[str, list[str]]()
    if state != "off":
        plugin.state = "on"
        workspace, plugins = Workspace(workspace_folder()), Plugins([plugin], lambda _: None)
        taken = [tool.schema.name for tool in builtin_tools(workspace)]
        tools, providers = plugins.tools(workspace, ToolOptions(), taken)
        given = {
            "tools": [*tools, *(provider.name for provider in providers)],
            "strategies": [*plugins.strategies(STRATEGIES)],
            "models": [*plugins.models()],
            "prices": [*plugins.prices()],
            "judges": [*plugins.judges(JUDGES)],
            "slash_commands": [command.name for command in plugins.slash_commands(COMMANDS.keys())],
            "cli_commands": [*plugins.commands(OURS)],
            "themes": [file.stem for folder in plugins.theme_folders() for file in sorted(folder.glob("*.toml"))],
        }
        brings = {hook: names for hook, names in given.items() if names}
    version = plugin.package.version if plugin.package else None
    return {
        "name": plugin.name,
        "version": version,
        "source": str(plugin.place) if plugin.package is None else f"{plugin.package.name}: {plugin.place}",
        "state": "incomplete" if plugin.incomplete else "failed" if plugin.fault else state,
        "brings": brings,
        "error": plugin.fault or None,
    }


def _state(record: dict[str, Any]) -> str:
    state: str = record["state"]
    return _STATES.get(state) or (record["error"] if state == "incomplete" else f"failed: {record['error']}")


def _new(name: str, folder: Path, *, as_json: bool) -> int:
    if not _NAME.fullmatch(name):
        raise UsageError(f"A plugin cannot be called {name!r}.", fix="Give small letters, digits and _, such as words.")
    if name in (plugin.name for plugin in find_user_plugins(user_paths())):
        raise UsageError(f"There is a plugin {name} already.", fix="Give another name.")
    files = {folder / file.replace("NAME", name): text.replace("NAME", name) for file, text in _FILES.items()}
    try:
        if folder.exists():
            raise UsageError(f"{folder} is there already.", fix="Name another folder after the plugin's name.")
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}).", fix="Name another folder.") from error
    if as_json:
        print_json({"name": name, "files": [str(file) for file in files]})
        return 0
    kept = user_paths().plugins_folder
    print(f"{folder} has a plugin with the tool {name}_count, and a test. To have it in ecoshell, install it:\n")
    print(f"  pip install -e {folder}\n\nor put its package into the folder of your own plugins:\n")
    print(f"  mkdir -p {kept} && cp -r {folder / f'ecoshell_{name}'} {kept}\n")
    print(f"`ecoshell plugins info {name}` says then what it brings.")
    return 0

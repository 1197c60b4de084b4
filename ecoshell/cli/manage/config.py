"""`ecoshell config`: the settings that hold, and where each comes from. API keys are no settings and never shown."""

import os
import sys
from typing import Any

from ecoshell.cli.fence import told
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.paths import user_paths
from ecoshell.settings.keys import dotted
from ecoshell.settings.load import load_settings, read_settings
from ecoshell.settings.source import variables


def run(action: str, *, as_json: bool) -> int:
    """Show the settings, their file's path, or everything that is wrong with them; raises SettingsError for `show`."""
    if action == "path":
        file = str(user_paths().settings_file)
        print_json({"file": file}) if as_json else print(file)
        return 0
    return _check(as_json=as_json) if action == "check" else _show(as_json=as_json)


def _show(*, as_json: bool) -> int:
    file = user_paths().settings_file
    names = {path: name for name, path in variables().items()}
    rows = list(load_settings(file, os.environ).rows())
    if as_json:
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


def _check(*, as_json: bool) -> int:
    file = user_paths().settings_file
    _, problems = read_settings(file, os.environ)
    if as_json:
        print_json({"file": str(file), "problems": [{"message": one.message, "fix": one.fix} for one in problems]})
    elif not problems:
        print(f"{file}: nothing is wrong.")
    for problem in () if as_json else problems:
        print(told(problem), file=sys.stderr)
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

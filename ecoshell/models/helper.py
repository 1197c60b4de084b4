"""How helper processes are started: this interpreter, this package, and nothing from the folder the user is in."""

import os
import sys
from pathlib import Path

import ecoshell


def helper_command(module: str) -> list[str]:
    """The command that runs a module of this package; `-P` keeps the current folder off the import path."""
    return [sys.executable, "-P", "-m", module]


def helper_environ() -> dict[str, str]:
    """This process's environment, with this package on the import path."""
    root = str(Path(ecoshell.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}

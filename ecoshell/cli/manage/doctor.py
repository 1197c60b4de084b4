"""`ecoshell doctor`: what is installed, what is missing, and what to do; whether the shell can run.

It changes nothing, asks nobody beyond this machine, and of keys tells the names of their variables alone.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from ecoshell import __version__
from ecoshell.assembly import open_ledger, open_store
from ecoshell.assembly.inventory import Inventory
from ecoshell.cli.manage.show import print_json
from ecoshell.cli.parser import add_json
from ecoshell.errors import EcoshellError, ModelMissing
from ecoshell.messages import visible_line
from ecoshell.models import size_text
from ecoshell.models.embedded import embedded_path
from ecoshell.models.host_address import host_address, status
from ecoshell.models.keys import Keys
from ecoshell.models.llama import GET_LLAMA
from ecoshell.models.servers import Servers
from ecoshell.paths import Paths, user_paths
from ecoshell.secrecy import environ
from ecoshell.settings import read_settings
from ecoshell.settings.schema import Settings

_LEAST_FREE = 200_000_000
"""Bytes on a disk below which sessions and copies of files may soon have no room."""
_LLAMA = (
    "import llama_cpp; print(llama_cpp.__version__, 'with a GPU' if llama_cpp.llama_supports_gpu_offload() else 'CPU')"
)
_NVIDIA = """
import pynvml
pynvml.nvmlInit()
for number in range(pynvml.nvmlDeviceGetCount()):
    one = pynvml.nvmlDeviceGetHandleByIndex(number)
    print(f"{pynvml.nvmlDeviceGetName(one)} ({pynvml.nvmlDeviceGetMemoryInfo(one).total / 1e9:.0f} GB)")
"""
_SECONDS = 60
_REQUIRED = re.compile(r"(?P<name>[\w.-]+)[^;]*(?:;.*extra == ['\"](?P<extra>\w+)['\"])?")
_EXTRAS = ("local", "learn", "bench", "data", "plot", "team")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `missing` is what the shell can do without, `wrong` keeps it from running."""

    name: str
    state: Literal["ok", "missing", "wrong"]
    found: str
    fix: str = ""


add_arguments = add_json


def run(args: argparse.Namespace) -> int:
    """Print what was found; the exit status is 0 when the shell can run, else 1."""
    checks = [*checked(user_paths())]
    well = all(check.state != "wrong" for check in checks)
    if args.json:
        print_json({"ok": well, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            print(f"{check.state:<8} {check.name}: {visible_line(check.found)}")
            if check.fix:
                print(f"         → {visible_line(check.fix)}")
        print(f"\nThe shell {'can' if well else 'cannot'} run.")
    return 0 if well else 1


def checked(paths: Paths) -> Iterator[Check]:
    """Everything there is to look at, one after another."""
    yield Check("ecoshell", "ok", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    yield from _packages()
    yield _told_by("llama.cpp", _LLAMA, GET_LLAMA)
    yield _told_by("GPU", _NVIDIA, "Models run on the processor.")
    try:
        path = embedded_path()
        yield Check("embedded model", "ok", f"{path} ({size_text(path.stat().st_size)})")
    except ModelMissing as error:
        yield Check("embedded model", "missing", error.message, error.fix)
    loaded, problems = read_settings(paths.settings_file, os.environ)
    if loaded is None:
        told = "; ".join(one.message for one in problems)
        yield Check("settings", "wrong", told, f"{problems[0].fix} `ecoshell config check` lists all.")
    else:
        there = "" if paths.settings_file.exists() else " (not there: every setting has its default)"
        yield Check("settings", "ok", f"{paths.settings_file}{there}")
    yield from _models(loaded.settings if loaded else None, paths)
    yield _model_host(loaded.settings if loaded else Settings(), paths)
    name, (columns, lines) = os.environ.get("TERM", ""), shutil.get_terminal_size()
    colour = "no colour (NO_COLOR)" if os.environ.get("NO_COLOR") else os.environ.get("COLORTERM") or "colours by TERM"
    told = f"{name or 'none'}, {columns} x {lines}, {sys.stdout.encoding}, {colour}"
    if sys.stdin.isatty() and sys.stderr.isatty() and name not in ("", "dumb"):
        yield Check("terminal", "ok", told)
    else:
        fix = "`ecoshell line` and `ecoshell ask` work here."
        yield Check("terminal", "missing", f"{told}; nothing to draw on", fix)
    for name in ("config", "data", "cache"):
        yield _folder(name, getattr(paths, name))
    known = ((paths.ledger_file, open_ledger), (paths.sessions_file, open_store))
    stores = [opening for file, opening in known if os.access(file, os.F_OK)]
    found = "ledger and sessions can be written" if stores else "none yet: the first chat makes ledger and sessions"
    try:
        for opening in stores:
            with closing(opening(paths)) as opened:
                opened.require_writable("Nothing was changed.")
        yield Check("databases", "ok", found)
    except EcoshellError as error:
        yield Check("databases", "wrong", error.message, error.fix)


def _packages() -> Iterator[Check]:
    """The packages that ecoshell needs, and its extras."""
    needed: dict[str, list[str]] = {name: [] for name in ("", *_EXTRAS)}
    try:
        told = requires("ecoshell") or []
    except PackageNotFoundError:
        yield Check("packages", "missing", "ecoshell runs uninstalled", "Install it with: pip install .")
        return
    for one in filter(None, map(_REQUIRED.fullmatch, told)):
        needed.setdefault(one["extra"] or "", []).append(one["name"])
    for extra in ("", *_EXTRAS):
        there: dict[str, str | None] = dict.fromkeys(needed[extra])
        for name in there:
            with suppress(PackageNotFoundError):
                there[name] = version(name)
        gone = [name for name, found in there.items() if found is None]
        what, wanted = (f"extra {extra}", f"ecoshell[{extra}]") if extra else ("packages", "ecoshell")
        found = f"not installed: {', '.join(gone)}" if gone else ", ".join(f"{name} {at}" for name, at in there.items())
        state = "ok" if not gone else "missing" if extra else "wrong"
        yield Check(what, state, found, f'pip install "{wanted}"' if gone else "")


def _told_by(name: str, program: str, fix: str) -> Check:
    """What a compiled library says of itself in a process of its own, which it may take down."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except subprocess.CalledProcessError as failed:
        why = (failed.stderr.strip().splitlines() or [f"it ended with {failed.returncode}"])[-1]
        return Check(name, "missing", why, fix)
    except (OSError, subprocess.TimeoutExpired) as failed:
        return Check(name, "missing", str(failed), fix)
    return Check(name, "ok", ", ".join(done.stdout.split("\n")).strip(", "))


def _models(settings: Settings | None, paths: Paths) -> Iterator[Check]:
    """The session's model, keys and servers."""
    keys = Keys()
    variables = {one: None for provider in keys.at_hand() for one in keys.variables(provider) if environ.get(one)}
    if settings is not None:
        row = Inventory(settings, paths.models_folder, barred={}, keys=keys).row(settings.model)
        if row.ready is False:
            yield Check("model", "wrong", f"{row.name} cannot be asked", row.missing)
        else:
            yield Check("model", "ok", f"{row.name} ({row.state})" if row.ready else row.name)
    named = ", ".join(variables)
    yield Check("keys", "ok" if named else "missing", named or "none in the environment")
    if settings is None or not settings.local.ask_servers:
        return
    served = defaultdict[str, list[str]](list)
    for model in Servers().models():
        served[model.program].append(model.name)
    told = "; ".join(f"{program}: {', '.join(names)}" for program, names in served.items())
    yield Check("servers", "ok" if told else "missing", told or "none answers on this machine")


def _model_host(settings: Settings, paths: Paths) -> Check:
    """Whether remote models are asked through a process that outlives a command."""
    address, idle = host_address(paths.run_folder), settings.remote.host_idle_seconds
    if running := status(address):
        return Check("model host", "ok", f"process {running.pid}, idle for {running.idle_seconds:.0f} s")
    if not idle:
        return Check("model host", "ok", "off ([remote] host_idle_seconds = 0)")
    try:
        address.require_private()
    except FileNotFoundError:  # the first host makes the folder
        pass
    except OSError as error:
        fix = f"Remote models load with each command. Make {paths.run_folder} a folder that only you can open."
        return Check("model host", "missing", f"{error.filename}: {error.strerror}", fix)
    return Check("model host", "ok", f"not running; starts with the first remote model, ends after {idle} idle seconds")


def _folder(name: str, folder: Path) -> Check:
    """Whether the folder, or the one it would be made in, can be written to, and how much room there is."""
    there = next(one for one in (folder, *folder.parents) if os.access(one, os.F_OK))
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(f"{name} folder", "wrong", f"{folder}: {error.strerror}", "Set ECOSHELL_HOME to another folder.")
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check(
            f"{name} folder",
            "wrong",
            f"{folder} cannot be written to",
            f"Make {there} a folder of yours, or set ECOSHELL_HOME to another one.",
        )
    if free < _LEAST_FREE:
        return Check(f"{name} folder", "missing", f"{folder}: only {size_text(free)} are free", "Free some space.")
    return Check(f"{name} folder", "ok", f"{folder} ({size_text(free)} free)")

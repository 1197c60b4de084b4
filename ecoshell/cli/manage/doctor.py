"""`ecoshell doctor`: what is installed, what is missing, what to do, and whether the shell can run.

It changes nothing and contacts nothing beyond this machine; of keys it shows only the variables' names.
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
from importlib.util import find_spec
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
from ecoshell.models.llama import GET_LLAMA, LLAMA
from ecoshell.models.local_build import current_build
from ecoshell.models.servers import Servers
from ecoshell.paths import Paths, user_paths
from ecoshell.secrecy import environ
from ecoshell.settings import read_settings
from ecoshell.settings.schema import Settings
from ecoshell.tools.gpu import query
from ecoshell.tools.sandbox import backend
from ecoshell.tools.workspace import workspace_folder

_MIN_FREE_BYTES = 200_000_000
_LLAMA_PROGRAM = """
import llama_cpp
print(llama_cpp.__version__, "with a GPU" if llama_cpp.llama_supports_gpu_offload() else "CPU")
"""
_PROGRAM_SECONDS = 60
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)[^;]*(?:;.*extra == ['\"](?P<extra>\w+)['\"])?")
_EXTRAS = ("local", "gateway", "completion", "learn", "bench", "data", "plot", "team")

State = Literal["ok", "missing", "wrong"]
"""`missing` is optional, `wrong` keeps the shell from running."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    state: State
    found: str
    fix: str = ""


add_arguments = add_json


def run(args: argparse.Namespace) -> int:
    """Print the checks; the exit status is 0 if the shell can run, else 1."""
    checks = [*run_checks(user_paths())]
    can_run = all(check.state != "wrong" for check in checks)
    if args.json:
        print_json({"ok": can_run, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            print(f"{check.state:<8} {check.name}: {visible_line(check.found)}")
            if check.fix:
                print(f"         → {visible_line(check.fix)}")
        print(f"\nThe shell {'can' if can_run else 'cannot'} run.")
    return 0 if can_run else 1


def run_checks(paths: Paths) -> Iterator[Check]:
    """Yield the result of every check."""
    system = f"Python {platform.python_version()}, {platform.platform()}"
    yield Check("ecoshell", "ok", f"{__version__}, {system}")
    yield from _packages()
    yield _llama()
    if (build := current_build()) is not None and find_spec(LLAMA) is None:
        state = "ok" if build.running else "missing"
        yield Check("llama.cpp build", state, build.words, build.fix)
    yield _gpu()
    try:
        path = embedded_path()
        yield Check("embedded model", "ok", f"{path} ({size_text(path.stat().st_size)})")
    except ModelMissing as error:
        yield Check("embedded model", "missing", error.message, error.fix)
    loaded, problems = read_settings(paths.settings_file, os.environ)
    if loaded is None:
        messages = "; ".join(problem.message for problem in problems)
        fix = f"{problems[0].fix} `ecoshell config check` lists all."
        yield Check("settings", "wrong", messages, fix)
    else:
        file = paths.settings_file
        absence = "" if file.exists() else " (does not exist; every setting has its default)"
        yield Check("settings", "ok", f"{file}{absence}")
    settings = loaded.settings if loaded else None
    yield from _models(settings, paths)
    yield _model_host(settings or Settings(), paths)
    yield _sandbox(settings or Settings())
    yield _terminal()
    for name in ("config", "data", "cache"):
        yield _folder(name, getattr(paths, name))
    yield _databases(paths)


def _packages() -> Iterator[Check]:
    """Check the required packages and those of each extra."""
    try:
        requirements = requires("ecoshell") or []
    except PackageNotFoundError:
        text = "ecoshell runs without being installed"
        yield Check("packages", "missing", text, "Install it with: pip install .")
        return
    packages = defaultdict[str, list[str]](list)
    for requirement in filter(None, map(_REQUIREMENT.fullmatch, requirements)):
        packages[requirement["extra"] or ""].append(requirement["name"])
    for extra in ("", *_EXTRAS):
        title, package = f"extra {extra}", f"ecoshell[{extra}]"
        if not extra:
            title, package = "packages", "ecoshell"
        installed: list[str] = []
        missing: list[str] = []
        for name in packages[extra]:
            try:
                installed.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                missing.append(name)
        if missing:
            text, state = f"not installed: {', '.join(missing)}", "missing" if extra else "wrong"
            yield Check(title, state, text, f'pip install "{package}"')
        else:
            yield Check(title, "ok", ", ".join(installed))


def _llama() -> Check:
    """Ask the compiled library in a separate process, which it may crash."""
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-c", _LLAMA_PROGRAM],
            capture_output=True,
            text=True,
            timeout=_PROGRAM_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"it ended with status {error.returncode}"]
        return Check("llama.cpp", "missing", lines[-1], GET_LLAMA)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("llama.cpp", "missing", str(error), GET_LLAMA)
    return Check("llama.cpp", "ok", process.stdout.strip())


def _gpu() -> Check:
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        memory = query("gpu", "name", "memory.total")
        if gpus := [f"{name} ({float(mb) / 1024:.0f} GB)" for name, mb in memory]:
            return Check("GPU", "ok", ", ".join(gpus))
    return Check("GPU", "missing", "nvidia-smi reports none", "Models run on the processor.")


def _models(settings: Settings | None, paths: Paths) -> Iterator[Check]:
    """Check the session's model, the API keys and the servers on this machine."""
    keys = Keys()
    variables = [name for provider in keys.at_hand() for name in keys.variables(provider)]
    if settings is not None:
        row = Inventory(settings, paths.models_folder, barred={}, keys=keys).row(settings.model)
        if row.ready is False:
            yield Check("model", "wrong", f"{row.name} is unavailable", row.missing)
        else:
            yield Check("model", "ok", f"{row.name} ({row.state})" if row.ready else row.name)
    names = ", ".join(dict.fromkeys(name for name in variables if environ.get(name)))
    yield Check("keys", "ok" if names else "missing", names or "none in the environment")
    if settings is None or not settings.local.ask_servers:
        return
    models_by_program = defaultdict[str, list[str]](list)
    servers = Servers()
    for model in servers.models():
        models_by_program[model.program].append(model.name)
    listed = [f"{program}: {', '.join(models)}" for program, models in models_by_program.items()]
    empty = [f"{program} has no models" for program, _ in servers.empty()]
    text = "; ".join(listed + empty) or "none answers on this machine"
    fixes = "; ".join(fix for _, fix in servers.empty() if fix)
    yield Check("servers", "ok" if listed else "missing", text, fixes)


def _model_host(settings: Settings, paths: Paths) -> Check:
    """Check the process that keeps litellm loaded between commands."""
    address, idle_seconds = host_address(paths.run_folder), settings.remote.host_idle_seconds
    if host := status(address):
        return Check("model host", "ok", f"process {host.pid}, idle for {host.idle_seconds:.0f} s")
    if not idle_seconds:
        return Check("model host", "ok", "off ([remote] host_idle_seconds = 0)")
    try:
        address.require_private()
    except FileNotFoundError:  # the first host creates the folder
        pass
    except OSError as error:
        fix = f"Remote models load with each command. Make {paths.run_folder} a folder that only you can open."
        return Check("model host", "missing", f"{error.filename}: {error.strerror}", fix)
    text = f"starts with the first remote model, ends after {idle_seconds} idle seconds"
    return Check("model host", "ok", f"not running; {text}")


def _sandbox(settings: Settings) -> Check:
    """Check what holds the sandbox of commands."""
    if settings.sandbox.mode == "off":
        text = "off ([sandbox] mode = off); commands can do whatever you can"
        return Check("sandbox", "ok", text)
    working = backend(workspace_folder())
    if not working.problem:
        is_linux = sys.platform == "linux"
        coverage = "files, network and processes" if is_linux else "files and network"
        return Check("sandbox", "ok", f"{working.name} holds {coverage}")
    if settings.sandbox.mode == "strict":
        return Check("sandbox", "wrong", working.problem, "Commands are refused.")
    fix = "Commands run without a sandbox, after approval."
    return Check("sandbox", "missing", working.problem, fix)


def _terminal() -> Check:
    name, (columns, lines) = os.environ.get("TERM", ""), shutil.get_terminal_size()
    colour = os.environ.get("COLORTERM") or "colours by TERM"
    if os.environ.get("NO_COLOR"):
        colour = "no colour (NO_COLOR)"
    text = f"{name or 'none'}, {columns} x {lines}, {sys.stdout.encoding}, {colour}"
    if sys.stdin.isatty() and sys.stderr.isatty() and name not in ("", "dumb"):
        return Check("terminal", "ok", text)
    fix = "`ecoshell line` and `ecoshell ask` work here."
    return Check("terminal", "missing", f"{text}; the chat cannot draw here", fix)


def _folder(name: str, folder: Path) -> Check:
    """Check that the folder, or its nearest existing parent, is writable and has free space."""
    existing = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    title = f"{name} folder"
    try:
        free_bytes = shutil.disk_usage(existing).free
    except OSError as error:
        fix = "Set ECOSHELL_HOME to another folder."
        return Check(title, "wrong", f"{folder}: {error.strerror}", fix)
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        fix = f"Make {existing} a folder that you can write, or set ECOSHELL_HOME to another one."
        return Check(title, "wrong", f"{folder} cannot be written to", fix)
    if free_bytes < _MIN_FREE_BYTES:
        text = f"{folder}: only {size_text(free_bytes)} are free"
        return Check(title, "missing", text, "Free some space.")
    return Check(title, "ok", f"{folder} ({size_text(free_bytes)} free)")


def _databases(paths: Paths) -> Check:
    """Check that the ledger and the session store can be written."""
    databases = ((paths.ledger_file, open_ledger), (paths.sessions_file, open_store))
    openers = [opener for file, opener in databases if os.access(file, os.F_OK)]
    try:
        for opener in openers:
            with closing(opener(paths)) as database:
                database.require_writable("Nothing was changed.")
    except EcoshellError as error:
        return Check("databases", "wrong", error.message, error.fix)
    if not openers:
        return Check("databases", "ok", "none yet; the first chat creates ledger and sessions")
    return Check("databases", "ok", "ledger and sessions are writable")

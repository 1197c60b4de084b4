"""`ecoshell models`: what there is and what it costs, a model pulled from the hub, and the model host."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from ecoshell.assembly import load_settings, open_ledger
from ecoshell.assembly.inventory import Inventory
from ecoshell.budget import plain
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json
from ecoshell.errors import ModelMissing, UsageError
from ecoshell.messages import visible_line
from ecoshell.models import ModelRow, size_text
from ecoshell.models.gguf import hub_name
from ecoshell.models.host_address import host_address, status, stop_all
from ecoshell.models.hub import RECOMMENDED, Hub, HubFile, Pull
from ecoshell.models.llama import GET_LLAMA, LLAMA
from ecoshell.models.local_models import hub_file
from ecoshell.models.servers import PROVIDERS, Servers
from ecoshell.paths import user_paths

_BUCKETS = ("input", "cached_input", "output")
_STEP = 10
"""Percent between two lines of progress where there is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_json(parser)
    parser.usage = "ecoshell models [--json] [FILTER]\n       ecoshell models pull [--json] OWNER/REPO[:QUANT]"
    parser.usage += "\n       ecoshell models host [--json] [status|stop]"
    parser.add_argument("filter", nargs="?", default="", help="a part of the name; searches all known models")
    repo = "after pull: a repository with GGUF files, and which of them, such as Q4_K_M; after host: status or stop"
    parser.add_argument("repo", nargs="?", default="", help=repo)
    parser.add_argument("--unbar", metavar="NAME", help="allow a model again that billed more than it may")


def run(args: argparse.Namespace) -> int:
    """Print the models, after unbarring one if asked to, or pull one.

    Raises UsageError, SettingsError and StoreError, and for a pull ModelMissing, ModelUnavailable and ModelBroken.
    """
    if args.filter == "pull":
        return _pull(args.repo, as_json=args.json)
    if args.filter == "host":
        return _host(args.repo or "status", as_json=args.json)
    if args.repo:
        raise UsageError(
            f"There is no `models {args.filter}`.",
            fix="There is `models [FILTER]`, `models pull REPO` and `models host`.",
        )
    paths = user_paths()
    settings = load_settings(paths)
    with closing(open_ledger(paths)) as ledger:
        barred = ledger.barred()
        if args.unbar is not None:
            if args.unbar not in barred:
                raise UsageError(f"{args.unbar} is not blocked.", fix=f"Blocked: {', '.join(barred) or 'none'}.")
            ledger.unbar(args.unbar)
            del barred[args.unbar]
    servers = Servers() if settings.local.ask_servers else None
    everything = Inventory(settings, paths.models_folder, barred=barred, servers=servers).rows()
    part = args.filter.lower()
    rows = [row for row in everything if (part in f"{row.name} {row.place}".lower() if part else row.at_hand)]
    if args.json:
        print_json({"rows": [_record(row) for row in rows]})
        return 0
    _print_rows([row for row in rows if row.kind != "hub"], nothing=bool(part))
    known = {str(one.name): one for one in RECOMMENDED}
    if pulled := [known[row.name] for row in rows if row.kind == "hub"]:
        print("\nWorth pulling, with `ecoshell models pull NAME` (sizes are about right):")
        cells = [
            (one.name.short, f"{one.download:g} GB", f"{one.memory} GB", one.licence, str(one.bfcl or ""))
            for one in pulled
        ]
        print_table(("name", "size", "memory", "licence", "BFCL"), cells, right=("size", "memory"))
    if not part:
        print(f"\n{len(everything):,} models are known: `ecoshell models PART` searches their names.")
    return 0


def _record(row: ModelRow) -> dict[str, object]:
    """A row as programs read it; what is not known is left out, and what cannot be asked now says why."""
    ready, why = bool(row.ready) and not row.blocked, row.missing
    if row.blocked:
        why = f"blocked: {row.blocked}"
    elif row.provider in PROVIDERS:
        why = "no server that has it answers on this machine"
    unknown = f"whether you are signed in to {row.provider or 'its provider'} is not known here"
    known = {
        "name": row.name,
        "kind": row.kind,
        "provider": row.provider or None,
        "path": str(row.path) if row.path else None,
        "place": row.place or None,
        "address": row.address or None,
        "size_bytes": row.size_bytes,
        "context": row.context,
        "price": {name: plain(getattr(row.price.rates, name)) for name in _BUCKETS} if row.price else None,
        "price_source": (row.price.source if row.price else None) or None,
        "ready": ready,
        "why": None if ready else why or unknown,
        "barred": row.blocked or None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _print_rows(rows: list[ModelRow], *, nothing: bool) -> None:
    if not rows:
        if nothing:
            print("No model has that in its name.")
        return
    money = ("in $/M", "cached $/M", "out $/M")
    cells = [
        (
            row.name,
            f"blocked: {row.blocked}" if row.blocked else row.state,
            row.place or (row.provider if row.kind == "server" else ""),
            size_text(row.size_bytes),
            f"{row.context:,}" if row.context else "?",
            *(plain(getattr(row.price.rates, name)) if row.price else "?" for name in _BUCKETS),
        )
        for row in rows
    ]
    print_table(("model", "state", "place", "size", "context", *money), cells, right=("size", "context", *money))
    for row in rows:
        if row.kind in ("embedded", "file") and row.missing:
            print(f"{row.name}: {row.missing}")


def _host(action: str, *, as_json: bool) -> int:
    """Print the state of the model host, or stop it; raises UsageError."""
    folder = user_paths().run_folder
    if action not in ("status", "stop"):
        raise UsageError(f"There is no `models host {action}`.", fix="Use `models host status` or `models host stop`.")
    stopped = stop_all(folder) if action == "stop" else 0
    found = status(host_address(folder))
    record = {
        "running": found is not None,
        "pid": found.pid if found else None,
        "idle_seconds": found.idle_seconds if found else None,
    }
    if as_json:
        print_json(record | ({"stopped": stopped} if action == "stop" else {}))
    elif found:
        print(f"The model host is running: process {found.pid}, idle for {found.idle_seconds:.0f} s.")
    else:
        print("The model host was stopped." if stopped else "The model host is not running.")
    return 0


def _pull(repo: str, *, as_json: bool) -> int:
    """Pull a model and print what to call it; raises UsageError, ModelMissing, ModelUnavailable and ModelBroken."""
    if not repo:
        known = "\n".join(f"  {one.name.short:<48} {one.summary}" for one in RECOMMENDED)
        raise UsageError("Nothing is named to pull.", fix=f"Give OWNER/REPO or OWNER/REPO:QUANT, such as\n{known}")
    hub = Hub(user_paths().models_folder)
    found = hub.find(hub_name(repo))
    path = _bring(hub, found)
    if as_json:
        record = {"name": str(found.name), "path": str(path), "size_bytes": found.size_bytes, "licence": found.licence}
        print_json(record)
    else:
        print(f"It is {path}\nTalk with it: ecoshell --model {found.name}")
        if not find_spec(LLAMA):
            print(f"Local models need llama-cpp-python. {GET_LLAMA}")
    return 0


def pull_wanted(names: Sequence[str]) -> None:
    """Before a run: bring the models of the hub that it names and that are not here, where the person agrees.

    Nobody is asked where standard input or error is no terminal; the run then says how to pull them.
    """
    wanted, hub = dict.fromkeys(map(hub_name, names)), Hub(user_paths().models_folder)
    for name in wanted if sys.stdin.isatty() and sys.stderr.isatty() else ():
        try:
            hub_file(name, user_paths().models_folder)
        except ModelMissing:
            found = hub.find(name)
            print(f"{name} is not on this machine: {_described(found)}.", file=sys.stderr)
            print("Pull it? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise ModelMissing(f"{name} was not pulled.", fix="Choose another --model.", billed=False) from None
            _bring(hub, found)


def _bring(hub: Hub, found: Pull) -> Path:
    """Pull it; a bar on a terminal tells how far it is, and elsewhere a line for every tenth."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    print(f"{found.name.short}: {_described(found)}", file=sys.stderr)
    live, whole, told = sys.stderr.isatty(), found.size_bytes, 0
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=Console(stderr=True), disable=not live)

    def tell(file: HubFile, have: int) -> None:
        nonlocal told
        done = sum(one.size_bytes for one in found.files[: found.files.index(file)]) + have
        if not bars.tasks:  # what was there before is no part of the speed
            bars.add_task("", total=whole, completed=done)
        bars.update(bars.task_ids[0], completed=done)
        if not live and (100 * done // whole >= told + _STEP or done == whole):
            told = 100 * done // whole
            print(f"{size_text(done)} of {size_text(whole)}", file=sys.stderr)

    try:
        with bars:
            return hub.pull(found, tell)
    except KeyboardInterrupt:
        print("Stopped. What came so far is kept: pull it again, which goes on from there.", file=sys.stderr)
        raise


def _described(found: Pull) -> str:
    """The files, their size and the licence."""
    files = found.files[0].name if len(found.files) == 1 else f"{len(found.files)} parts, {found.files[0].name} …"
    return visible_line(f"{files} · {size_text(found.size_bytes)} · licence {found.licence or 'not named'}")

"""`ecoshell models`: list models and prices, pull a model from Hugging Face, and manage the model host."""

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
from ecoshell.models.host_address import host_address, status, stop_all
from ecoshell.models.hub import Hub, HubFile, Pull
from ecoshell.models.hub_names import hub_name
from ecoshell.models.llama import GET_LLAMA, LLAMA
from ecoshell.models.local_models import hub_file
from ecoshell.models.recommended import RECOMMENDED
from ecoshell.models.servers import PROVIDERS, Servers
from ecoshell.paths import user_paths

_RATES = ("input", "cached_input", "output")
_PROGRESS_PERCENT = 10
"""Percent between two lines of progress without a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)
    parser.usage = (
        "ecoshell models [--json] [FILTER]\n"
        "       ecoshell models pull [--json] OWNER/REPO[:QUANT]\n"
        "       ecoshell models host [--json] [status|stop]"
    )
    filter_help = "part of a name; searches all known models"
    parser.add_argument("filter", nargs="?", default="", help=filter_help)
    repo_help = "pull: a repository with GGUF files and a quantization, such as Q4_K_M; host: status or stop"
    parser.add_argument("repo", nargs="?", default="", help=repo_help)
    unbar = "allow a model again that billed more than allowed"
    parser.add_argument("--unbar", metavar="NAME", help=unbar)


def run(args: argparse.Namespace) -> int:
    """List the models, pull one, or manage the model host.

    Raises UsageError, SettingsError and StoreError; a pull also ModelMissing, ModelUnavailable and ModelBroken.
    """
    if args.filter == "pull":
        return _pull(args.repo, as_json=args.json)
    if args.filter == "host":
        return _host(args.repo or "status", as_json=args.json)
    if args.repo:
        fix = "Use `models [FILTER]`, `models pull REPO` or `models host`."
        raise UsageError(f"Unknown action `models {args.filter}`.", fix=fix)
    return _list(args.filter.lower(), args.unbar, as_json=args.json)


def _list(part: str, unbar: str | None, *, as_json: bool) -> int:
    """List the models whose name contains `part`, or else those that can be used here."""
    paths = user_paths()
    settings = load_settings(paths)
    with closing(open_ledger(paths)) as ledger:
        barred = ledger.barred()
        if unbar is not None:
            if unbar not in barred:
                fix = f"Blocked: {', '.join(barred) or 'none'}."
                raise UsageError(f"{unbar} is not blocked.", fix=fix)
            ledger.unbar(unbar)
            del barred[unbar]
    servers = Servers() if settings.local.ask_servers else None
    all_rows = Inventory(settings, paths.models_folder, barred=barred, servers=servers).rows()
    rows = [row for row in all_rows if row.at_hand]
    if part:
        rows = [row for row in all_rows if part in f"{row.name} {row.place}".lower()]
    if as_json:
        print_json({"rows": [_record(row) for row in rows]})
        return 0
    available = [row for row in rows if row.kind != "hub"]
    if available:
        _print_rows(available)
    elif part:
        print("No model has that in its name.")
    _print_recommended([row.name for row in rows if row.kind == "hub"])
    if not part:
        print(f"\n{len(all_rows):,} models are known: `ecoshell models PART` searches their names.")
    return 0


def _record(row: ModelRow) -> dict[str, object]:
    """Return a row as JSON without unknown values; `why` says why the model is unavailable."""
    is_ready, reason = bool(row.ready) and not row.blocked, row.missing
    if row.blocked:
        reason = f"blocked: {row.blocked}"
    elif row.provider in PROVIDERS:
        reason = "no server on this machine offers it"
    fallback_reason = f"it is unknown whether you are signed in to {row.provider or 'its provider'}"
    price = {name: plain(getattr(row.price.rates, name)) for name in _RATES} if row.price else None
    record = {
        "name": row.name,
        "kind": row.kind,
        "provider": row.provider or None,
        "path": str(row.path) if row.path else None,
        "place": row.place or None,
        "address": row.address or None,
        "size_bytes": row.size_bytes,
        "context": row.context,
        "price": price,
        "price_source": (row.price.source if row.price else None) or None,
        "ready": is_ready,
        "why": None if is_ready else reason or fallback_reason,
        "barred": row.blocked or None,
    }
    return {key: value for key, value in record.items() if value is not None}


def _print_rows(rows: Sequence[ModelRow]) -> None:
    prices = ("in $/M", "cached $/M", "out $/M")
    cells = [
        (
            row.name,
            f"blocked: {row.blocked}" if row.blocked else row.state,
            row.place or (row.provider if row.kind == "server" else ""),
            size_text(row.size_bytes),
            f"{row.context:,}" if row.context else "?",
            *(plain(getattr(row.price.rates, name)) if row.price else "?" for name in _RATES),
        )
        for row in rows
    ]
    print_table(
        ("model", "state", "place", "size", "context", *prices),
        cells,
        right=("size", "context", *prices),
    )
    for row in rows:
        if row.kind in ("embedded", "file") and row.missing:
            print(f"{row.name}: {row.missing}")


def _print_recommended(names: Sequence[str]) -> None:
    if not names:
        return
    recommended = {str(model.name): model for model in RECOMMENDED}
    cells: list[tuple[str, ...]] = []
    for model in (recommended[name] for name in names):
        sizes = (f"{model.download:g} GB", f"{model.memory} GB")
        cells.append((model.name.short, *sizes, model.licence, str(model.bfcl or "")))
    print("\nRecommended; `ecoshell models pull NAME` downloads one (sizes are approximate):")
    print_table(("name", "size", "memory", "licence", "BFCL"), cells, right=("size", "memory"))


def _host(action: str, *, as_json: bool) -> int:
    """Print the state of the model host, or stop it; raises UsageError."""
    folder = user_paths().run_folder
    if action not in ("status", "stop"):
        fix = "Use `models host status` or `models host stop`."
        raise UsageError(f"Unknown action `models host {action}`.", fix=fix)
    stopped = stop_all(folder) if action == "stop" else 0
    host = status(host_address(folder))
    if as_json:
        record = {
            "running": host is not None,
            "pid": host.pid if host else None,
            "idle_seconds": host.idle_seconds if host else None,
        }
        print_json(record | ({"stopped": stopped} if action == "stop" else {}))
    elif host:
        print(f"The model host is running: process {host.pid}, idle for {host.idle_seconds:.0f} s.")
    else:
        print("The model host was stopped." if stopped else "The model host is not running.")
    return 0


def _pull(repo: str, *, as_json: bool) -> int:
    """Pull a model and print its name; raises UsageError, ModelMissing, ModelUnavailable and ModelBroken."""
    if not repo:
        examples = "\n".join(f"  {model.name.short:<48} {model.summary}" for model in RECOMMENDED)
        fix = f"Give OWNER/REPO or OWNER/REPO:QUANT, such as\n{examples}"
        raise UsageError("No model is named to pull.", fix=fix)
    hub = Hub(user_paths().models_folder)
    pull = hub.find(hub_name(repo))
    path = _download(hub, pull)
    if as_json:
        record = {"name": str(pull.name), "path": str(path), "size_bytes": pull.size_bytes}
        print_json({**record, "licence": pull.licence})
    else:
        print(f"Saved as {path}\nStart a chat: ecoshell --model {pull.name}")
        if not find_spec(LLAMA):
            print(f"Local models need llama-cpp-python. {GET_LLAMA}")
    return 0


def offer_pull(names: Sequence[str]) -> None:
    """Offer to download missing Hugging Face models before a run.

    Without a terminal nothing is offered; the run's error then says how to pull them.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    hub = Hub(user_paths().models_folder)
    for name in dict.fromkeys(map(hub_name, names)):
        try:
            hub_file(name, user_paths().models_folder)
        except ModelMissing:
            pull = hub.find(name)
            print(f"{name} is not on this machine: {_description(pull)}.", file=sys.stderr)
            print("Pull it? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                text = f"{name} was not pulled."
                raise ModelMissing(text, fix="Choose another --model.") from None
            _download(hub, pull)


def _download(hub: Hub, pull: Pull) -> Path:
    """Download the files with a progress bar or, without a terminal, a line for every tenth."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    print(f"{pull.name.short}: {_description(pull)}", file=sys.stderr)
    has_bar, total, last_percent = sys.stderr.isatty(), pull.size_bytes, 0
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=Console(stderr=True), disable=not has_bar)

    def report(file: HubFile, file_bytes: int) -> None:
        nonlocal last_percent
        earlier = pull.files[: pull.files.index(file)]
        finished = sum(file.size_bytes for file in earlier) + file_bytes
        if not bars.tasks:  # bytes of an earlier, interrupted pull do not count for the speed
            bars.add_task("", total=total, completed=finished)
        bars.update(bars.task_ids[0], completed=finished)
        percent = 100 * finished // total
        if not has_bar and (percent >= last_percent + _PROGRESS_PERCENT or finished == total):
            last_percent = percent
            print(f"{size_text(finished)} of {size_text(total)}", file=sys.stderr)

    def report_retry() -> None:
        bars.console.print("Connection lost, trying again.")

    try:
        with bars:
            return hub.pull(pull, report, report_retry)
    except KeyboardInterrupt:
        print("Stopped. The downloaded part is kept; pull again to continue.", file=sys.stderr)
        raise


def _description(pull: Pull) -> str:
    """Return the files, their size and the licence."""
    files = pull.files[0].name
    if len(pull.files) > 1:
        files = f"{len(pull.files)} parts, {files} …"
    licence = f"licence {pull.licence or 'not named'}"
    return visible_line(f"{files} · {size_text(pull.size_bytes)} · {licence}")

"""`ecoshell models`: what is on this machine, what has a key, what it costs, what is barred, and what to pull."""

import argparse
from contextlib import closing

from ecoshell.assembly.inventory import Inventory
from ecoshell.assembly.parts import load_settings, open_ledger
from ecoshell.budget.price import Price, plain
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.errors import UsageError
from ecoshell.models.base import ModelRow, size
from ecoshell.models.hub import RECOMMENDED
from ecoshell.models.servers import PROVIDERS, Servers
from ecoshell.paths import user_paths

_BUCKETS = ("input", "cached_input", "output")


def run(args: argparse.Namespace) -> int:
    """Print the models, after unbarring one if asked to; raises UsageError, SettingsError and StoreError."""
    if args.repo:
        raise UsageError(
            f"There is no `models {args.filter}`.", fix="There is `models [FILTER]` and `models pull REPO`."
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
    rows = [row for row in everything if (part in _sought(row) if part else row.at_hand)]
    if args.json:
        print_json({"rows": [_record(row) for row in rows]})
        return 0
    _print_rows([row for row in rows if row.kind != "hub"], nothing=bool(part))
    _print_recommended([row for row in rows if row.kind == "hub"])
    if not part:
        print(f"\n{len(everything):,} models are known: `ecoshell models PART` searches their names.")
    return 0


def _sought(row: ModelRow) -> str:
    return f"{row.name} {row.place}".lower()


def _record(row: ModelRow) -> dict[str, object]:
    """A row as programs read it; what is not known is left out."""
    ready = bool(row.ready) and not row.barred
    known = {
        "name": row.name,
        "kind": row.kind,
        "provider": row.provider or None,
        "path": str(row.path) if row.path else None,
        "place": row.place or None,
        "address": row.address or None,
        "size_bytes": row.size_bytes,
        "context": row.context,
        "price": None if row.price is None else dict(zip(_BUCKETS, _rates(row.price), strict=True)),
        "price_source": (row.price.source if row.price else None) or None,
        "ready": ready,
        "why": None if ready else _why(row),
        "barred": row.barred or None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _why(row: ModelRow) -> str:
    """Why a model cannot be asked now."""
    if row.barred:
        return f"blocked: {row.barred}"
    if row.provider in PROVIDERS:
        return "no server that has it answers on this machine"
    return row.missing or f"whether you are signed in to {row.provider or 'its provider'} is not known here"


def _print_rows(rows: list[ModelRow], *, nothing: bool) -> None:
    if not rows:
        if nothing:
            print("No model has that in its name.")
        return
    money = ("in $/M", "cached $/M", "out $/M")
    cells = [
        (
            row.name,
            f"blocked: {row.barred}" if row.barred else row.state,
            row.place or (row.provider if row.kind == "server" else ""),
            size(row.size_bytes),
            f"{row.context:,}" if row.context else "?",
            *(_rates(row.price) if row.price else ("?",) * 3),
        )
        for row in rows
    ]
    print_table(("model", "state", "place", "size", "context", *money), cells, right=("size", "context", *money))
    for row in rows:
        if row.kind in ("embedded", "file") and row.missing:
            print(f"{row.name}: {row.missing}")


def _print_recommended(rows: list[ModelRow]) -> None:
    if not rows:
        return
    known = {str(one.name): one for one in RECOMMENDED}
    cells = [
        (one.name.short, f"{one.download:g} GB", f"{one.memory:g} GB", one.licence)
        for one in (known[row.name] for row in rows)
    ]
    print("\nWorth pulling, with `ecoshell models pull NAME` (sizes are about right):")
    print_table(("name", "size", "memory", "licence"), cells, right=("size", "memory"))


def _rates(price: Price) -> tuple[str, str, str]:
    return (plain(price.rates.input), plain(price.rates.cached_input), plain(price.rates.output))

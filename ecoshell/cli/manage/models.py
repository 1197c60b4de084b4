"""`ecoshell models`: what is installed, what has a key, what it costs, and what is barred."""

import argparse
from contextlib import closing

from ecoshell.assembly.inventory import Inventory
from ecoshell.assembly.parts import load_settings, open_ledger
from ecoshell.budget.price import Price, plain
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.errors import UsageError
from ecoshell.models.listing import ModelRow
from ecoshell.paths import user_paths

_BUCKETS = ("input", "cached_input", "output")


def run(args: argparse.Namespace) -> int:
    """Print the models, after unbarring one if asked to; raises UsageError, SettingsError and StoreError."""
    paths = user_paths()
    settings = load_settings(paths)
    with closing(open_ledger(paths)) as ledger:
        barred = ledger.barred()
        if args.unbar is not None:
            if args.unbar not in barred:
                raise UsageError(f"{args.unbar} is not barred.", fix=f"Barred: {', '.join(barred) or 'none'}.")
            ledger.unbar(args.unbar)
            del barred[args.unbar]
    everything = Inventory(settings, paths.models_folder, barred=barred).rows()
    part = args.filter.lower()
    rows = [row for row in everything if (part in row.name.lower() if part else row.at_hand)]
    if args.json:
        print_json({"rows": [_record(row) for row in rows]})
        return 0
    _print_rows(rows)
    if not part:
        print(f"\n{len(everything):,} models are known: `ecoshell models PART` searches their names.")
    return 0


def _record(row: ModelRow) -> dict[str, object]:
    return {
        "model": row.name,
        "provider": row.provider,
        "ready": row.ready,
        "context": row.context,
        "usd_per_million": None if row.price is None else dict(zip(_BUCKETS, _rates(row.price), strict=True)),
        "price_source": row.price.source if row.price else None,
        "barred": row.barred or None,
    }


def _print_rows(rows: list[ModelRow]) -> None:
    if not rows:
        print("No model has that in its name.")
        return
    money = ("in $/M", "cached $/M", "out $/M")
    cells = [
        (
            row.name,
            f"barred: {row.barred}" if row.barred else row.state,
            f"{row.context:,}" if row.context else "?",
            *(_rates(row.price) if row.price else ("?",) * 3),
        )
        for row in rows
    ]
    print_table(("model", "state", "context", *money), cells, right=("context", *money))


def _rates(price: Price) -> tuple[str, str, str]:
    return (plain(price.rates.input), plain(price.rates.cached_input), plain(price.rates.output))

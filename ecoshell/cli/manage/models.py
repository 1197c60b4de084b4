"""`ecoshell models`: what is installed, what has a key, what it costs, and what is barred."""

import argparse
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.assembly.parts import load_settings, open_ledger, price_book
from ecoshell.budget.price import ZERO_PRICE, Price, plain
from ecoshell.budget.pricebook import PriceBook
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.errors import ModelMissing, UsageError
from ecoshell.models.embedded import CONTEXT, embedded_path
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.keys import Keys
from ecoshell.paths import Paths, user_paths

if TYPE_CHECKING:
    from ecoshell.settings.schema import Settings

_BUCKETS = ("input", "cached_input", "output")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model; unknown is None. `ready` says whether it could be asked now: installed, or with a key."""

    name: str
    provider: str
    ready: bool | None
    context: int | None
    price: Price | None
    barred: str = ""


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
    inventory = Inventory(paths, settings, barred)
    rows = inventory.rows(args.filter)
    if args.json:
        print_json({"rows": [_record(row) for row in rows]})
        return 0
    _print_rows(rows)
    if not args.filter:
        print(f"\n{len(inventory.book.names()):,} models have a price: `ecoshell models PART` searches their names.")
    return 0


class Inventory:
    """Everything that can be talked with."""

    def __init__(self, paths: Paths, settings: "Settings", barred: dict[str, str]) -> None:
        self.book: PriceBook = price_book(settings)
        self._folder = paths.data / "models"
        self._settings = settings
        self._barred = barred
        self._keys = Keys()
        self._has_key: dict[str, bool | None] = {}

    def rows(self, part: str) -> list[ModelRow]:
        """Models with this part in their names; without one, those of this machine, in the settings, or with a key."""
        here = [self._embedded(), *(self._local(file) for file in sorted(self._folder.glob("**/*.gguf")))]
        known = {*self._settings.models, *self._barred, *self.book.names()} - {row.name for row in here}
        if part:
            named = [name for name in known if part.lower() in name.lower()]
            return [row for row in here if part.lower() in row.name.lower()] + [
                self._other(name) for name in sorted(named)
            ]
        chosen = [name for name in known if name in self._settings.models or name in self._barred or self._ready(name)]
        return [*here, *(self._other(name) for name in sorted(chosen))]

    def _embedded(self) -> ModelRow:
        try:
            embedded_path()
        except ModelMissing:
            return self._row(EMBEDDED, "this machine", False, CONTEXT, ZERO_PRICE)
        return self._row(EMBEDDED, "this machine", True, CONTEXT, ZERO_PRICE)

    def _local(self, file: Path) -> ModelRow:
        return self._row(f"local:{file}", "this machine", True, self._settings.local.context, ZERO_PRICE)

    def _other(self, name: str) -> ModelRow:
        facts, given = self.book.facts(name), self._settings.models.get(name)
        context = (given.context if given else None) or (facts.context if facts else None)
        provider = facts.provider if facts else name.partition("/")[0] if "/" in name else ""
        return self._row(name, provider, self._ready(name), context, self.book.price(name))

    def _row(self, name: str, provider: str, ready: bool | None, context: int | None, price: Price | None) -> ModelRow:
        return ModelRow(name, provider, ready, context, price, self._barred.get(name, ""))

    def _ready(self, name: str) -> bool | None:
        """Whether the model's provider has a key; None for providers that sign in otherwise."""
        facts = self.book.facts(name)
        provider = facts.provider if facts else name.partition("/")[0]
        if provider not in self._has_key:
            needs_one = bool(self._keys.variables(provider))
            self._has_key[provider] = self._keys.find(provider) is not None if needs_one else None
        return self._has_key[provider]


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
            _state(row),
            f"{row.context:,}" if row.context else "?",
            *(_rates(row.price) if row.price else ("?",) * 3),
        )
        for row in rows
    ]
    print_table(("model", "state", "context", *money), cells, right=("context", *money))


def _state(row: ModelRow) -> str:
    if row.barred:
        return f"barred: {row.barred}"
    here = row.provider == "this machine"
    words = {True: "installed" if here else "has a key", False: "not installed" if here else "no key", None: "?"}
    return words[row.ready]


def _rates(price: Price) -> tuple[str, str, str]:
    return (plain(price.rates.input), plain(price.rates.cached_input), plain(price.rates.output))

"""The models that the first run offers: found keys, running servers, local files, a download, and the demo."""

import asyncio
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies

from ecoshell.assembly import load_settings, price_book
from ecoshell.assembly.inventory import Inventory, fits_memory, memory_bytes, step_costs
from ecoshell.budget import PriceBook
from ecoshell.models import ModelRow, StartingModel, size_text
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.hub import default_endpoint
from ecoshell.models.keys import Keys
from ecoshell.models.recommended import suggested_download
from ecoshell.models.servers import Servers
from ecoshell.paths import user_paths

_MODELS_PER_SOURCE = 2
_STEP_NANO_LIMIT = 20_000_000
"""The suggested model of a provider costs at most this much for a usual step: 2 cents."""
_CONNECT_SECONDS = 1.5
_PORTS = {"http": 80, "https": 443}


def starting_models(inventory: Inventory, book: PriceBook, keys: Keys) -> tuple[StartingModel, ...]:
    """Return the offers, the best one first; may block for a few seconds.

    A capable model that is already on this machine comes first, the demo last. A download is offered only if the hub
    can be reached.
    """
    rows = inventory.local_rows()
    ready = [row for row in rows if row.ready and not row.blocked]
    offers: list[StartingModel] = []
    for row in _largest(ready, "server"):
        offers.append(StartingModel(row.name, "server", f"running in {row.place or row.provider}"))
    for row in _largest([row for row in ready if fits_memory(row.size_bytes or 0)], "file"):
        words = f"on this machine, {size_text(row.size_bytes)}"
        offers.append(StartingModel(row.name, "file", words))
    for provider in keys.at_hand():
        if (name := suggested_model(book, provider)) is not None:
            price = book.price(name)
            words = [f"your {provider} key", *([price.summary()] if price is not None else [])]
            offers.append(StartingModel(name, "key", ", ".join(words)))
    download = suggested_download(memory_bytes())
    name, words = str(download.name), f"download: {download.summary}"
    present = {row.name.lower() for row in rows if row.kind != "hub"}
    if name.lower() not in present and is_reachable(default_endpoint()):
        offers.append(StartingModel(name, "download", words))
    if any(row.name == EMBEDDED and row.ready for row in rows):
        words = "built-in demo: 135 million parameters, often wrong"
        offers.append(StartingModel(EMBEDDED, "demo", words))
    return tuple(offers)


def models_without_llama() -> tuple[StartingModel, ...]:
    """Return the offers that need no llama.cpp, before a shell is open; may block for a few seconds."""
    inventory, book, keys = _inventory()
    offers = starting_models(inventory, book, keys)
    return tuple(offer for offer in offers if offer.source in ("server", "key"))


class ModelsBeforeStart:
    """All models, before a shell is open."""

    model_name = ""

    async def models(self) -> Sequence[ModelRow]:
        """All available models; raises SettingsError."""
        inventory, _, _ = await asyncio.to_thread(_inventory)
        return await asyncio.to_thread(inventory.rows)

    async def store_key(self, provider: str, key: str) -> None:
        """Store a provider's key in the keyring; raises UsageError and StoreError."""
        await asyncio.to_thread(Keys().keep, provider, key)


def _inventory() -> tuple[Inventory, PriceBook, Keys]:
    """The models, prices and keys of the settings, without a shell; may block."""
    paths = user_paths()
    settings = load_settings(paths)
    book, keys = price_book(settings), Keys()
    servers = Servers() if settings.local.ask_servers else None
    folder = paths.models_folder
    inventory = Inventory(settings, folder, barred={}, keys=keys, book=book, servers=servers)
    return inventory, book, keys


def suggested_model(book: PriceBook, provider: str) -> str | None:
    """Return the provider's most capable model, going by the price, whose usual step costs at most 2 cents."""
    names = (name for cost, name in step_costs(book, provider) if 0 < cost <= _STEP_NANO_LIMIT)
    return next(names, None)


def is_reachable(endpoint: str) -> bool:
    """Return whether the endpoint's host accepts a connection within a second or two, or a proxy leads to it."""
    address = urlsplit(endpoint)
    if address.scheme in getproxies():
        return True
    try:
        port = address.port or _PORTS.get(address.scheme, 443)
        socket.create_connection((address.hostname or "", port), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def _largest(rows: list[ModelRow], kind: str) -> list[ModelRow]:
    chosen = [row for row in rows if row.kind == kind]
    return sorted(chosen, key=lambda row: -(row.size_bytes or 0))[:_MODELS_PER_SOURCE]

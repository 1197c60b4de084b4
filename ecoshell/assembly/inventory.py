"""The models there are: what is on this machine, what has a key, what it costs, what is barred, and what is cheaper."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.assembly import base_url, price_book
from ecoshell.budget import ASSUMED_FREE, ZERO_PRICE, Price, PriceBook
from ecoshell.errors import ModelMissing
from ecoshell.models import HERE, ModelRow
from ecoshell.models.embedded import CONTEXT, embedded_path
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.hub import RECOMMENDED, SUGGESTED
from ecoshell.models.keys import Keys
from ecoshell.models.llama import GET_LLAMA, LLAMA
from ecoshell.models.local_models import local_name, model_files
from ecoshell.models.servers import Servers

if TYPE_CHECKING:
    from ecoshell.settings.schema import Settings

_SHOWN = 2
"""Models that the introduction names."""
_OF_EACH_PROVIDER = 2
_FILES = 4
"""Each is looked into before it is offered, and other programs may keep many."""
_USUAL = (4_000, 500)
"""Tokens in and out of a usual step, by which prices are compared."""
UNUSUAL = re.compile(r"\d{4}-?\d{2}-?\d{2}$|-\d{4}$|audio|search|realtime|preview|latest|[:@]")
"""Names that are a dated copy of another model, or no model for a chat with tools."""


class Inventory:
    """The models there are; its methods read files and the keyring, ask servers on loopback, and may block."""

    def __init__(
        self,
        settings: "Settings",
        folder: Path,
        *,
        barred: Mapping[str, str],
        keys: Keys | None = None,
        book: PriceBook | None = None,
        servers: Servers | None = None,
    ) -> None:
        """`folder` holds the user's own GGUF files; without `servers` none is asked."""
        self._book = book or price_book(settings)
        self._folder = folder
        self._settings = settings
        self._barred = barred
        self._keys = keys or Keys()
        self._servers = servers
        self._has_key: dict[str, bool | None] = {}
        """By provider; None for those that sign in otherwise."""

    def rows(self) -> list[ModelRow]:
        """Every model: first those of this machine and those worth pulling, then the others by name."""
        here = self.here()
        named = {*self._settings.models.named, *self._barred, *self._book.names()} - {row.name for row in here}
        return [*here, *(self._other(name) for name in sorted(named))]

    def here(self) -> list[ModelRow]:
        """The models of this machine, and those worth pulling."""
        local = self._settings.local.context
        context = min(CONTEXT, local)
        try:
            path = embedded_path()
            size = path.stat().st_size
            found = [self._row(EMBEDDED, kind="embedded", context=context, path=path, size_bytes=size)]
        except ModelMissing as error:
            found = [self._row(EMBEDDED, kind="embedded", context=context, missing=error.fix)]
        unable = "" if find_spec(LLAMA) else GET_LLAMA
        for file in model_files(self._folder):
            again = f"ecoshell models pull {file.hub.short}" if file.hub else "download the model again"
            gone = f"{len(file.missing)} of its parts are not there: {again}." if file.missing else ""
            row = self._row(
                local_name(file),
                kind="file",
                context=min(filter(None, (file.context, local))),
                missing=gone or unable,
                path=file.path,
                size_bytes=file.size_bytes,
                place=file.place,
            )
            found.append(row)
        for model in self._servers.models() if self._servers else ():
            given = self._settings.models.named.get(model.name)
            if given is None or given.base_url is None:
                row = self._row(
                    model.name,
                    model.program,
                    kind="server",
                    context=(given.context if given else None) or model.context,
                    price=self._book.price(model.name),
                    address=model.base_url,
                    size_bytes=model.size_bytes,
                )
                found.append(row)
        there = {row.name.lower() for row in found}
        for one in RECOMMENDED:
            if str(one.name).lower() not in there:
                pull = f"ecoshell models pull {one.name.short} brings it: {one.summary}."
                found.append(self._row(str(one.name), "hub", kind="hub", context=None, missing=pull))
        return found

    def row(self, name: str) -> ModelRow:
        """The model of this name, whether anybody knows it or not."""
        return next((row for row in self.here() if row.name == name), None) or self._other(name)

    def _row(
        self, name: str, provider: str = HERE, *, context: int | None, price: Price | None = ZERO_PRICE, **known: Any
    ) -> ModelRow:
        """A model of this machine, or one that could be brought to it: ready unless something is missing."""
        ready, barred = not known.get("missing"), self._barred.get(name, "")
        return ModelRow(name, provider, ready, context, None, price, blocked=barred, **known)

    def _other(self, name: str) -> ModelRow:
        facts, given = self._book.facts(name), self._settings.models.named.get(name)
        provider = facts.provider if facts else name.partition("/")[0] if "/" in name else ""
        address = base_url(self._settings, name, provider) or ""
        if not address and provider not in self._has_key:
            needs_one = bool(self._keys.variables(provider))
            self._has_key[provider] = self._keys.find(provider) is not None if needs_one else None
        ready = True if address else self._has_key[provider]
        return ModelRow(
            name,
            provider,
            ready=ready,
            context=(given.context if given else None) or (facts.context if facts else None),
            max_output=facts.max_output if facts else None,
            price=self._book.price(name),
            blocked=self._barred.get(name, ""),
            missing=self._keys.how_to_give(provider) if ready is False else "",
            address=address,
            at_hand=bool(given or ready or name in self._barred),
        )

    def substitutes(self, present: str) -> tuple[str, ...]:
        """Other models worth offering in a model's place, each once: those of this machine and of the settings, and the
        cheaper ones of providers whose key is at hand; reads files but not the keyring.
        """
        found: list[str] = []
        with suppress(ModelMissing):
            embedded_path()
            found.append(EMBEDDED)
        whole = (local_name(file) for file in model_files(self._folder) if not file.missing)
        found += islice(whole, _FILES)
        served = self._servers.models() if self._servers else ()
        found += (model.name for model in islice(served, _OF_EACH_PROVIDER))
        at_hand = self._keys.at_hand()
        for name, given in self._settings.models.named.items():  # those that can be asked without unlocking the keyring
            facts = self._book.facts(name)
            provider = facts.provider if facts else name.partition("/")[0]
            if given.base_url or not self._keys.variables(provider) or provider in at_hand:
                found.append(name)
        if (price := self._book.price(present)) is not None:
            most = price.worst(*_USUAL) // 2
            for provider in at_hand:  # a few of each: the most capable, going by the price, that cost at most half
                costs = [
                    (cost.worst(*_USUAL), facts.name)
                    for facts, cost in self._book.of_provider(provider)
                    if cost is not None and facts.native_tools and not UNUSUAL.search(facts.name)
                ]
                cheaper = sorted((one for one in costs if one[0] <= most), reverse=True)
                found += (name for _, name in cheaper[:_OF_EACH_PROVIDER])
        return tuple(name for name in dict.fromkeys(found) if name != present)

    def introduction(self, present: str) -> str:
        """Which model answers and, where that is the demonstration, how to get a better one.

        It leaves the keyring alone.
        """
        if present != EMBEDDED:
            told = f"{present} answers. /model shows the others."
            if self._book.price(present) is ASSUMED_FREE:
                told += (
                    " Its server is on this machine, so it is taken to cost nothing; `price` in the settings says else."
                )
            return told
        told = f"{present} is a demo model of 135 million parameters and often wrong."
        ready = [row for row in self.here() if row.ready and not row.blocked]
        better = [row for row in ready if row.kind == "server" or (row.kind == "file" and _fits(row.size_bytes or 0))]
        better.sort(key=lambda row: (row.kind != "server", -(row.size_bytes or 0)))
        if better:
            names = " or ".join(f"/model {row.name}" for row in better[:_SHOWN])
            return f"{told} Better ones are on this machine: {names}."
        keys = [name for name in self._keys.at_hand() if "-" not in name and not name.endswith("_chat")]  # each once
        if keys:
            return f"{told} There is a key for {', '.join(keys[:_SHOWN])}: /model lists its models."
        return f"{told} /model downloads a better one ({SUGGESTED.summary})."


def _fits(size_bytes: int) -> bool:
    """Whether a model fits this machine's memory beside everything else; so it is where nobody says."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return True
    return 4 * size_bytes < 3 * memory

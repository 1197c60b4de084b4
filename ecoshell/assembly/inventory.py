"""All models: local ones and those with a key, their prices, and cheaper substitutes."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from ecoshell.assembly import base_url, price_book
from ecoshell.budget import ASSUMED_FREE, ZERO_PRICE, Price, PriceBook
from ecoshell.errors import ModelMissing
from ecoshell.models import HERE, ModelRow
from ecoshell.models.embedded import CONTEXT, embedded_path
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.keys import Keys
from ecoshell.models.llama import GET_LLAMA, LLAMA, require_llama
from ecoshell.models.local_models import local_name, model_files
from ecoshell.models.recommended import RECOMMENDED, suggested_download
from ecoshell.models.servers import Servers
from ecoshell.settings.schema import Settings

_INTRODUCED_LIMIT = 2
"""Models that the introduction names."""
_PROVIDER_LIMIT = 2
"""Substitutes from one provider."""
_FILE_LIMIT = 4
"""Substitutes from files; each file must be read."""
_TYPICAL_STEP = (4_000, 500)
"""Input and output tokens by which prices are compared."""
_UNUSUAL = re.compile(r"\d{4}-?\d{2}-?\d{2}$|-\d{4}$|audio|search|realtime|preview|latest|[:@]")
"""Names of dated copies, and of models that are not for chats with tools."""


class Inventory:
    """Lists models; its methods read files and the keyring, ask local servers, and may block."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        *,
        barred: Mapping[str, str],
        keys: Keys | None = None,
        book: PriceBook | None = None,
        servers: Servers | None = None,
    ) -> None:
        """`folder` contains the user's GGUF files; `servers` lists the models of local servers."""
        self._book = book or price_book(settings)
        self._folder = folder
        self._settings = settings
        self._barred = barred
        self._keys = keys or Keys()
        self._servers = servers
        self._has_key: dict[str, bool | None] = {}
        """By provider; None if it needs no key."""

    def rows(self) -> list[ModelRow]:
        """All models: first the local and recommended ones, then the others by name."""
        local = self.local_rows()
        names = {*self._settings.models.named, *self._barred, *self._book.names()}
        remote_names = sorted(names - {row.name for row in local})
        return [*local, *map(self._other, remote_names)]

    def local_rows(self) -> list[ModelRow]:
        """The local models, and recommended ones to download."""
        rows = [self._embedded_row(), *self._file_rows(), *self._server_rows()]
        present = {row.name.lower() for row in rows}
        for model in RECOMMENDED:
            name = str(model.name)
            if name.lower() not in present:
                pull = f"ecoshell models pull {model.name.short} brings it: {model.summary}."
                rows.append(self._row(name, "hub", kind="hub", context=None, missing=pull))
        return rows

    def _embedded_row(self) -> ModelRow:
        context = min(CONTEXT, self._settings.local.context)
        try:
            require_llama()
            path = embedded_path()
            size = path.stat().st_size
        except ModelMissing as error:
            return self._row(EMBEDDED, kind="embedded", context=context, missing=error.fix)
        return self._row(EMBEDDED, kind="embedded", context=context, path=path, size_bytes=size)

    def _file_rows(self) -> list[ModelRow]:
        rows: list[ModelRow] = []
        no_library = "" if find_spec(LLAMA) else GET_LLAMA
        for file in model_files(self._folder):
            missing = no_library
            if file.missing:
                pull = f"ecoshell models pull {file.hub.short}" if file.hub else ""
                fix = pull or "download the model again"
                missing = f"{len(file.missing)} of its parts are missing: {fix}."
            row = self._row(
                local_name(file),
                kind="file",
                context=min(filter(None, (file.context, self._settings.local.context))),
                missing=missing,
                path=file.path,
                size_bytes=file.size_bytes,
                place=file.place,
            )
            rows.append(row)
        return rows

    def _server_rows(self) -> list[ModelRow]:
        rows: list[ModelRow] = []
        for model in self._servers.models() if self._servers else ():
            options = self._settings.models.named.get(model.name)
            if options is None or options.base_url is None:
                row = self._row(
                    model.name,
                    model.program,
                    kind="server",
                    context=(options.context if options else None) or model.context,
                    price=self._book.price(model.name),
                    address=model.base_url,
                    size_bytes=model.size_bytes,
                )
                rows.append(row)
        return rows

    def row(self, name: str) -> ModelRow:
        """The model with this name, known or not."""
        local = (row for row in self.local_rows() if row.name == name)
        return next(local, None) or self._other(name)

    def _row(
        self,
        name: str,
        provider: str = HERE,
        *,
        context: int | None,
        price: Price | None = ZERO_PRICE,
        **details: Any,
    ) -> ModelRow:
        """A local model, or one to download; ready unless something is missing."""
        is_ready, reason = not details.get("missing"), self._barred.get(name, "")
        return ModelRow(name, provider, is_ready, context, None, price, blocked=reason, **details)

    def _other(self, name: str) -> ModelRow:
        facts, named = self._book.facts(name), self._settings.models.named.get(name)
        provider = facts.provider if facts else name.partition("/")[0] if "/" in name else ""
        address = base_url(self._settings, name, provider) or ""
        if not address and provider not in self._has_key:
            needs_key = bool(self._keys.variables(provider))
            self._has_key[provider] = self._keys.find(provider) is not None if needs_key else None
        ready = True if address else self._has_key[provider]
        return ModelRow(
            name,
            provider,
            ready=ready,
            context=(named.context if named else None) or (facts.context if facts else None),
            max_output=facts.max_output if facts else None,
            price=self._book.price(name),
            blocked=self._barred.get(name, ""),
            missing=self._keys.how_to_give(provider) if ready is False else "",
            address=address,
            at_hand=bool(named or ready or name in self._barred),
        )

    def substitutes(self, present: str) -> tuple[str, ...]:
        """Substitutes for a model: local ones, those of the settings, and cheaper ones of providers with a key.

        Does not read the keyring.
        """
        names: list[str] = []
        with suppress(ModelMissing):
            require_llama()
            embedded_path()
            names.append(EMBEDDED)
        complete = (file for file in model_files(self._folder) if not file.missing)
        names += map(local_name, islice(complete, _FILE_LIMIT))
        served = self._servers.models() if self._servers else ()
        names += (model.name for model in islice(served, _PROVIDER_LIMIT))
        at_hand = self._keys.at_hand()
        for name, model in self._settings.models.named.items():
            facts = self._book.facts(name)
            provider = facts.provider if facts else name.partition("/")[0]
            if model.base_url or not self._keys.variables(provider) or provider in at_hand:
                names.append(name)
        if (price := self._book.price(present)) is not None:
            for provider in at_hand:
                limit = price.worst(*_TYPICAL_STEP) // 2
                costs = step_costs(self._book, provider)
                names += [name for cost, name in costs if cost <= limit][:_PROVIDER_LIMIT]
        return tuple(name for name in dict.fromkeys(names) if name != present)

    def introduction(self, present: str, *, offers_download: bool = True) -> str:
        """Which model answers and, for the demo model, how to get a better one; does not read the keyring."""
        if present != EMBEDDED:
            text = f"{present} answers. /model lists others."
            if self._book.price(present) is ASSUMED_FREE:
                text += " Its server is local, so it is assumed to be free; set `price` in the settings otherwise."
            return text
        text = f"{present} is a demo model of 135 million parameters and often wrong."
        ready = [row for row in self.local_rows() if row.ready and not row.blocked]
        fitting = [row for row in ready if row.kind == "file" and fits_memory(row.size_bytes or 0)]
        better = [*(row for row in ready if row.kind == "server"), *fitting]
        better.sort(key=lambda row: (row.kind != "server", -(row.size_bytes or 0)))
        if better:
            names = " or ".join(f"/model {row.name}" for row in better[:_INTRODUCED_LIMIT])
            return f"{text} Better ones are on this machine: {names}."
        providers = (name for name in self._keys.at_hand() if "-" not in name)
        keys = [name for name in providers if not name.endswith("_chat")]
        if keys:
            return f"{text} A key for {', '.join(keys[:_INTRODUCED_LIMIT])} is available: /model suggests one."
        empty = ""
        for program, download in self._servers.empty() if self._servers else ():
            empty += f" {program} runs, but has no models{f': {download}' if download else ''}."
        if not offers_download:
            return f"{text} /model lists others.{empty}"
        download = suggested_download(memory_bytes()).summary
        return f"{text} /model downloads a better one ({download}).{empty}"


def step_costs(book: PriceBook, provider: str) -> list[tuple[int, str]]:
    """The nano-dollars of a typical step and the name of a provider's models, the most expensive first.

    A higher price indicates a more capable model.
    """
    costs = [
        (price.worst(*_TYPICAL_STEP), facts.name)
        for facts, price in book.of_provider(provider)
        if price is not None and facts.native_tools and not _UNUSUAL.search(facts.name)
    ]
    return sorted(costs, reverse=True)


def fits_memory(size_bytes: int) -> bool:
    """Whether a model fits into three quarters of the memory; true if that is unknown."""
    memory = memory_bytes()
    return memory is None or 4 * size_bytes < 3 * memory


def memory_bytes() -> int | None:
    """The machine's memory; None if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None

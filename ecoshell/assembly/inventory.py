"""Everything that can be talked with: what is on this machine, what has a key, what it costs, and what is barred."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.assembly.parts import price_book
from ecoshell.budget.price import ZERO_PRICE, Price
from ecoshell.errors import ModelMissing
from ecoshell.models.embedded import CONTEXT, embedded_path
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.gguf_header import model_files
from ecoshell.models.keys import Keys
from ecoshell.models.listing import HERE, ModelRow
from ecoshell.models.local_names import LOCAL

if TYPE_CHECKING:
    from ecoshell.settings.schema import Settings


class Inventory:
    """The models there are; its methods read files and the keyring, and may block."""

    def __init__(
        self,
        settings: "Settings",
        folder: Path,
        *,
        barred: Mapping[str, str],
        keys: Keys | None = None,
        told: Mapping[str, Price] | None = None,
    ) -> None:
        self._book = price_book(settings, told)
        self._folder = folder
        self._settings = settings
        self._barred = barred
        self._keys = keys or Keys()
        self._has_key: dict[str, bool | None] = {}

    def rows(self) -> list[ModelRow]:
        """Every model: first those of this machine, then the others by name."""
        here = [self._embedded(), *self._files()]
        named = {*self._settings.models, *self._barred, *self._book.names()} - {row.name for row in here}
        return [*here, *(self._other(name) for name in sorted(named))]

    def _embedded(self) -> ModelRow:
        context = min(CONTEXT, self._settings.local.context)
        try:
            embedded_path()
        except ModelMissing as error:
            return self._local(EMBEDDED, context, missing=error.fix)
        return self._local(EMBEDDED, context)

    def _files(self) -> Iterator[ModelRow]:
        for file in model_files(self._folder):
            yield self._local(f"{LOCAL}{file}", self._settings.local.context)

    def _local(self, name: str, context: int, *, missing: str = "") -> ModelRow:
        return ModelRow(
            name,
            HERE,
            ready=not missing,
            context=context,
            max_output=None,
            price=ZERO_PRICE,
            barred=self._barred.get(name, ""),
            missing=missing,
        )

    def _other(self, name: str) -> ModelRow:
        facts, given = self._book.facts(name), self._settings.models.get(name)
        provider = facts.provider if facts else name.partition("/")[0] if "/" in name else ""
        address = (given.base_url if given else None) or ""
        ready = True if address else self._ready(provider)
        return ModelRow(
            name,
            provider,
            ready=ready,
            context=(given.context if given else None) or (facts.context if facts else None),
            max_output=facts.max_output if facts else None,
            price=self._book.price(name),
            barred=self._barred.get(name, ""),
            missing=self._keys.how_to_give(provider) if ready is False else "",
            address=address,
            at_hand=bool(given or ready or name in self._barred),
        )

    def _ready(self, provider: str) -> bool | None:
        """Whether the provider has a key; None for those that sign in otherwise."""
        if provider not in self._has_key:
            needs_one = bool(self._keys.variables(provider))
            self._has_key[provider] = self._keys.find(provider) is not None if needs_one else None
        return self._has_key[provider]

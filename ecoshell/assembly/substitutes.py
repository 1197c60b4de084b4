"""Models worth offering in the place of one that has become too dear."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.budget.pricebook import PriceBook
from ecoshell.errors import ModelMissing
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.embedded import embedded_path
from ecoshell.models.keys import Keys
from ecoshell.models.local_models import local_name, model_files
from ecoshell.models.servers import Servers

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

_OF_EACH_PROVIDER = 2
_FILES = 4
"""Each is looked into before it is offered, and other programs may keep many."""
_USUAL = (4_000, 500)
"""Tokens in and out of a usual step, by which prices are compared."""
_UNUSUAL = re.compile(r"\d{4}-?\d{2}-?\d{2}$|-\d{4}$|audio|search|realtime|preview|latest|[:@]")
"""Names that are a dated copy of another model, or no model for a chat with tools."""


class Substitutes:
    """Finds them: on this machine, in the settings, and among the models of providers whose key is at hand."""

    def __init__(
        self, settings: "Settings", folder: Path, *, book: PriceBook, keys: Keys, servers: Servers | None = None
    ) -> None:
        """`folder` holds the user's own GGUF files; without `servers` none is asked."""
        self._settings = settings
        self._folder = folder
        self._book = book
        self._keys = keys
        self._servers = servers

    def names(self, present: str) -> tuple[str, ...]:
        """Other models, each once; reads files but not the keyring, and may block."""
        found = dict.fromkeys((*self._here(), *self._served(), *self._from_settings(), *self._cheaper(present)))
        return tuple(name for name in found if name != present)

    def _here(self) -> Iterator[str]:
        try:
            embedded_path()
            yield EMBEDDED
        except ModelMissing:
            pass
        whole = (local_name(file) for file in model_files(self._folder) if not file.missing)
        yield from islice(whole, _FILES)

    def _served(self) -> Iterator[str]:
        models = self._servers.models() if self._servers else ()
        yield from (model.name for model in islice(models, _OF_EACH_PROVIDER))

    def _from_settings(self) -> Iterator[str]:
        """Those of the settings that can be asked without unlocking the keyring."""
        for name, given in self._settings.models.items():
            facts = self._book.facts(name)
            provider = facts.provider if facts else name.partition("/")[0]
            if given.base_url or not self._keys.variables(provider) or provider in self._keys.at_hand():
                yield name

    def _cheaper(self, present: str) -> Iterator[str]:
        """A few of each provider: the most capable, going by the price, that cost at most half."""
        price = self._book.price(present)
        if price is None:
            return
        for provider in self._keys.at_hand():
            costs = [
                (cost.worst(*_USUAL), facts.name)
                for facts, cost in self._book.of_provider(provider)
                if cost is not None and facts.native_tools and not _UNUSUAL.search(facts.name)
            ]
            clearly = [(cost, name) for cost, name in costs if 2 * cost <= price.worst(*_USUAL)]
            yield from (name for _, name in sorted(clearly, reverse=True)[:_OF_EACH_PROVIDER])

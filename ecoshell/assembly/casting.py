"""From a model's name to a model ready to play."""

from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent.kit import Cast
from ecoshell.agent.purse import Purse
from ecoshell.assembly.parts import price_book
from ecoshell.budget.price import Price, Rates
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import UsageError
from ecoshell.models.base import Model
from ecoshell.models.embedded import CONTEXT, embedded_path
from ecoshell.models.engine import EngineOptions
from ecoshell.models.keys import Keys
from ecoshell.models.local import LocalModel
from ecoshell.models.metered import MeteredModel
from ecoshell.models.remote import RemoteModel
from ecoshell.models.remote_process import RemoteProcess
from ecoshell.models.script import ScriptModel
from ecoshell.modes.single import Single

from ecoshell.modes.stepwise import Stepwise
from ecoshell.options import Options

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

EMBEDDED = "embedded"
LOCAL = "local:"
SCRIPT = "script:"


class Casting:
    """Makes casts: the model a name stands for, behind the gate, in the mode that suits it."""

    def __init__(
        self, settings: "Settings", options: Options, *, catalog: Catalog, ranker: Ranker, purse: Purse
    ) -> None:
        self._settings = settings
        self._options = options
        self._catalog = catalog
        self._ranker = ranker
        self._purse = purse
        self._book = price_book(settings)
        self._keys = Keys()
        self._process = RemoteProcess()

    def cast(self, name: str) -> Cast:
        """The cast of this model; raises ModelMissing and UsageError."""
        model = MeteredModel(self._model(name.strip()), self._purse.gate, self._purse.account)
        agent = self._settings.agent
        if model.traits.small and model.can_score:
            rank, document = self._ranker.rank, self._catalog.document
            return Cast(model, Stepwise(model, rank=rank, document=document, answer_tokens=agent.answer_tokens))
        return Cast(model, Single(model, max_tokens=agent.max_output_tokens, answer_tokens=agent.answer_tokens))

    def _model(self, name: str) -> Model:
        if not name:
            raise UsageError(
                "No model is named.", fix="Give embedded, local:PATH.gguf, script:FILE.jsonl or a litellm name."
            )
        if name == EMBEDDED:
            return self._local(embedded_path(), name, context=min(CONTEXT, self._settings.local.context))
        if name.startswith(LOCAL):
            return self._local(Path(name.removeprefix(LOCAL)).expanduser(), name, context=self._settings.local.context)
        if name.startswith(SCRIPT):
            return ScriptModel(Path(name.removeprefix(SCRIPT)).expanduser(), name=name, price=self._price(name))
        return self._remote(name)

    def _remote(self, name: str) -> RemoteModel:
        given = self._settings.models.get(name)
        return RemoteModel(
            name, book=self._book, keys=self._keys, process=self._process, base_url=given.base_url if given else None
        )

    def _local(self, path: Path, name: str, *, context: int) -> LocalModel:
        given = self._settings.local
        threads = None if given.threads == "auto" else given.threads
        return LocalModel(path, name=name, options=EngineOptions(given.n_gpu_layers, threads, context))

    def _price(self, name: str) -> Price | None:
        """`--price` for the model the command line names, else what the price book says."""
        given = self._options.price
        if given is not None and name == self._options.model:
            return Price(Rates(given[0], given[0], given[0], given[1], given[1]), source="--price")
        return self._book.price(name)

"""From a model's name to a model ready to play; of the kinds of models and modes, only those that play are loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent.kit import Cast
from ecoshell.agent.mode import Mode
from ecoshell.agent.purse import Purse
from ecoshell.assembly.inventory import LOCAL, Inventory
from ecoshell.assembly.parts import price_book
from ecoshell.assembly.substitutes import Substitutes
from ecoshell.budget.price import Price, Rates
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import UsageError
from ecoshell.models.base import Model
from ecoshell.models.embedded import CONTEXT, embedded_path
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.keys import Keys
from ecoshell.models.listing import ModelRow
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.roles import ONE_FOR_ALL, THREE
from ecoshell.options import Options
from ecoshell.paths import user_paths

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.models.remote_process import RemoteProcess
    from ecoshell.settings.schema import Settings

SCRIPT = "script:"


class Casting:
    """Makes casts: the model a name stands for, behind the gate, in the mode that suits it."""

    def __init__(
        self, settings: "Settings", options: Options, *, catalog: Catalog, ranker: Ranker, purse: Purse
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._ranker = ranker
        self._purse = purse
        self._told = _told_price(settings, options)
        self._book = price_book(settings, self._told)
        self._keys = Keys()
        self._process: RemoteProcess | None = None

    def cast(self, name: str, mode: str = "single") -> Cast:
        """The cast of this model in this mode; may block; raises ModelMissing, ModelBroken and UsageError."""
        model = MeteredModel(self._model(name.strip()), self._purse.gate, self._purse.account)
        return Cast(model, self.mode(model, mode))

    def mode(self, model: MeteredModel, name: str) -> Mode:
        """The mode of this name for a model; one too small for a protocol thinks stepwise, its roles named or not."""
        agent = self._settings.agent
        if model.traits.small and model.can_score:
            from ecoshell.modes.stepwise import Stepwise

            return Stepwise(
                model,
                rank=self._ranker.rank,
                document=self._catalog.document,
                answer_tokens=agent.answer_tokens,
                roles=THREE if name == "umi" else ONE_FOR_ALL,
            )
        if name == "umi":
            from ecoshell.modes.umi import Trio, Umi

            trio = Trio.of(model)
            return Umi(trio, max_tokens=agent.max_output_tokens, answer_tokens=agent.answer_tokens)
        from ecoshell.modes.single import Single

        return Single(model, max_tokens=agent.max_output_tokens, answer_tokens=agent.answer_tokens)

    def models(self, barred: Mapping[str, str]) -> list[ModelRow]:
        """Every model that could be cast, its price as told for this run; may block."""
        folder = user_paths().models_folder
        return Inventory(self._settings, folder, barred=barred, keys=self._keys, told=self._told).rows()

    def substitutes(self, present: str) -> tuple[str, ...]:
        """Names of models worth offering in the place of this one; may block, and leaves the keyring alone."""
        folder = user_paths().models_folder
        return Substitutes(self._settings, folder, book=self._book, keys=self._keys).names(present)

    async def aclose(self) -> None:
        """End the helper process for remote models, if one was started."""
        if self._process is not None:
            await self._process.aclose()

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
            from ecoshell.models.script import ScriptModel

            return ScriptModel(Path(name.removeprefix(SCRIPT)).expanduser(), name=name, price=self._book.given(name))
        return self._remote(name)

    def _remote(self, name: str) -> Model:
        from ecoshell.models.remote import RemoteModel, RemoteOptions
        from ecoshell.models.remote_process import RemoteProcess

        self._process = self._process or RemoteProcess()
        given = self._settings.models.get(name)
        options = RemoteOptions(given.base_url, given.native_tools, given.context) if given else RemoteOptions()
        model = RemoteModel(name, book=self._book, keys=self._keys, process=self._process, options=options)
        model.check()
        return model

    def _local(self, path: Path, name: str, *, context: int) -> Model:
        from ecoshell.models.engine import EngineOptions
        from ecoshell.models.local import LocalModel

        given = self._settings.local
        threads = None if given.threads == "auto" else given.threads
        return LocalModel(path, name=name, options=EngineOptions(given.n_gpu_layers, threads, context))


def _told_price(settings: "Settings", options: Options) -> dict[str, Price]:
    """What `--price` says of the model the run begins with."""
    if options.price is None:
        return {}
    given, taken = options.price
    return {options.model or settings.model: Price(Rates(given, given, given, taken, taken), source="--price")}

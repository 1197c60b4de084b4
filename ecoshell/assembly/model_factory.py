"""Makes models and modes from names; imports only the kinds in use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ecoshell.agent.mode import Mode
from ecoshell.agent.model_set import ModelSet
from ecoshell.agent.session_settings import output_limit
from ecoshell.agent.spending import SessionBudget
from ecoshell.assembly import base_url, price_book
from ecoshell.budget import Price, Rates
from ecoshell.errors import EcoshellError, ModelBroken, ModelMissing, UsageError
from ecoshell.models import Model, ModelRow, StartingModel
from ecoshell.models.metered import MeteredModel
from ecoshell.models.retrying import RetryPolicy
from ecoshell.options import NO_ROLE_MODELS, ROLES, Effort, Options, RoleModels, RoleName
from ecoshell.paths import Paths, expanded
from ecoshell.plugin_host import Plugins, attribute_faults
from ecoshell.settings.schema import Settings

if TYPE_CHECKING:  # imported on first use
    from ecoshell.assembly.inventory import Inventory
    from ecoshell.models.keys import Keys
    from ecoshell.models.local_models import LocalFiles
    from ecoshell.models.remote_process import RemoteProcess
    from ecoshell.models.servers import Servers

SCRIPT = "script:"


class ConfiguredModelFactory:
    """Makes model sets: metered models in a mode, by name."""

    def __init__(
        self,
        settings: Settings,
        options: Options,
        *,
        session_budget: SessionBudget,
        paths: Paths,
        plugins: Plugins | None = None,
    ) -> None:
        """`plugins` may add models, prices, and observers of replies."""
        self._settings = settings
        self._session_budget = session_budget
        self._models_folder = paths.models_folder
        self._run_folder = paths.run_folder
        run_prices: dict[str, Price] = {}
        if options.price is not None:  # applies to the first model
            input_price, output_price = options.price
            rates = Rates(input_price, input_price, input_price, output_price, output_price)
            run_prices[options.model or settings.model] = Price(rates, source="--price")
        self._book = price_book(settings, run_prices, plugins.prices() if plugins else {})
        self._makers = plugins.models() if plugins else {}
        self._observers = plugins.reply_observers(paths) if plugins else []
        self._process: RemoteProcess | None = None
        self._offers_download = True
        """Whether the introduction suggests a download, which the first run may find to be impossible."""
        self.effort: Callable[[], Effort] = lambda: settings.agent.effort
        """Returns the present effort; a shell sets its own before it makes models."""
        self.ask_servers = settings.local.ask_servers
        """Whether local servers may be asked for their models."""

    @cached_property
    def _keys(self) -> "Keys":
        from ecoshell.models.keys import Keys

        return Keys()

    @cached_property
    def _servers(self) -> "Servers":
        from ecoshell.models.servers import Servers

        return Servers()

    def make(
        self,
        name: str,
        mode: str = "single",
        *,
        roles: RoleModels = NO_ROLE_MODELS,
        at_hand: Iterable[MeteredModel] = (),
    ) -> ModelSet:
        """Make the model set of a name in a mode; see `ModelFactory`."""
        models = {model.traits.name: model for model in at_hand}
        initial_names = frozenset(models)
        players: dict[RoleName, MeteredModel] = {}
        try:
            if mode != "umi":
                model = self._metered(name.strip(), models)
                return ModelSet(model, self._mode(mode, model, model, model))
            names = {role: (roles.of(role) or name).strip() for role in ROLES}
            for role in ROLES:
                try:
                    players[role] = self._metered(_in_role(names[role], role), models)
                except (ModelMissing, ModelBroken, UsageError) as error:
                    if own := roles.of(role):
                        error.message = f"{own} cannot be the {role}. {error.message}"
                    raise
            return ModelSet(
                players["planner"], self._mode(mode, *(players[role] for role in ROLES)), players
            )
        except EcoshellError:
            for new_name in models.keys() - initial_names:
                models[new_name].discard()
            raise

    def _metered(self, name: str, models: dict[str, MeteredModel]) -> MeteredModel:
        """The model with this name, made and added if it is not in `models`."""
        if name not in models:
            models[name] = model = self._new(name)
            model.effort = self.effort
            model.restore(lambda: self._session_budget.counted)
        return models[name]

    def _new(self, name: str) -> MeteredModel:
        model, budget = self._model(name), self._session_budget
        retry = RetryPolicy(self._settings.models.retry_seconds)
        if not self._observers:
            return MeteredModel(model, budget.gate, budget.account, retry=retry)
        from ecoshell.models.observed import ObservedModel

        observed = ObservedModel(model, budget.gate, budget.account, retry=retry)
        observed.observers = [
            attribute_faults(plugin)(observer.observe) for plugin, observer in self._observers
        ]
        return observed

    def _mode(
        self, mode: str, planner: MeteredModel, caller: MeteredModel, summarizer: MeteredModel
    ) -> Mode:
        """The mode: one model, three roles, or one model that was trained for all roles."""
        agent = self._settings.agent
        # None is the model's default
        temperature = None if agent.temperature == "auto" else agent.temperature
        players = (planner, caller, summarizer)
        max_tokens = min(output_limit(player.traits, agent.max_output_tokens) for player in players)
        from ecoshell.modes.base import ModeLimits

        limits = ModeLimits(max_tokens, agent.answer_tokens, temperature)
        is_one_model = planner is caller is summarizer and planner.traits.trained == "single"
        if mode != "umi" or is_one_model:
            from ecoshell.modes.small import single_mode

            single = single_mode(planner, limits)
            single.name = mode
            return single
        from ecoshell.modes.umi import Umi

        return Umi(*players, limits)

    def models(self, barred: Mapping[str, str]) -> list[ModelRow]:
        """All models with their prices in this run; may block."""
        return self._inventory(barred).rows()

    def introduction(self, present: str) -> str:
        """Which model answers and, for the demo model, how to get a better one; may block."""
        return self._inventory({}).introduction(present, offers_download=self._offers_download)

    def starting_models(self) -> Sequence[StartingModel]:
        """The models that the first run offers, the best one first; may block for a few seconds."""
        from ecoshell.assembly.first_run import starting_models

        offers = starting_models(self._inventory({}), self._book, self._keys)
        self._offers_download = any(offer.source == "download" for offer in offers)
        return offers

    async def pull(self, name: str, tell: Callable[[str], None]) -> str:
        """Download a model from the hub, report progress, and return the name to select it by."""
        from ecoshell.models.hub import Hub
        from ecoshell.models.hub_names import hub_name
        from ecoshell.models.pulling import pull_model

        return str((await pull_model(Hub(self._models_folder), hub_name(name), tell)).name)

    def store_key(self, provider: str, key: str) -> None:
        """Use a provider's key from now on and store it; may block; raises UsageError and StoreError."""
        self._keys.keep(provider, key)

    def _inventory(self, barred: Mapping[str, str]) -> "Inventory":
        from ecoshell.assembly.inventory import Inventory

        return Inventory(
            self._settings,
            self._models_folder,
            barred=barred,
            keys=self._keys,
            book=self._book,
            servers=self._servers if self.ask_servers else None,
        )

    def substitutes(self, present: str) -> tuple[str, ...]:
        """Names of models to offer instead of this one; may block."""
        return self._inventory({}).substitutes(present)

    async def aclose(self) -> None:
        """Close the observers and the helper process for remote models."""
        for _, observer in self._observers:
            await observer.aclose()
        if self._process is not None:
            await self._process.aclose()

    def _model(self, name: str) -> Model:
        if not name:
            raise UsageError(
                "No model is named.",
                fix="Give embedded, local:PATH.gguf, hf:OWNER/REPO, script:FILE.jsonl or a litellm name.",
            )
        if (model := self._plugin_model(name)) is not None:
            return model
        if name.startswith(SCRIPT):
            from ecoshell.models.script import ScriptModel

            return ScriptModel(
                expanded(name.removeprefix(SCRIPT)), name=name, price=self._book.user.get(name)
            )
        from ecoshell.models.local_models import local_files

        files = local_files(name, self._models_folder)
        if files is not None:
            return self._local(files, name)
        from ecoshell.models.remote import RemoteModel, RemoteOptions
        from ecoshell.models.remote_process import HostOptions, RemoteProcess

        if self._process is None:
            idle = self._settings.remote.host_idle_seconds
            self._process = RemoteProcess(
                host=HostOptions(self._run_folder, idle) if idle else None
            )
        named = self._settings.models.named.get(name)
        facts = None if "/" in name else self._book.facts(name)
        options = RemoteOptions(base_url(self._settings, name, facts.provider if facts else ""))
        if named is not None:
            options = replace(
                options,
                native_tools=named.native_tools,
                context=named.context,
                set_context=named.context,
                vision=named.vision,
                tool_search=named.tool_search,
            )
        if options.base_url is None and (
            served := self._servers.served(name, ask=self.ask_servers)
        ):
            native_tools = options.native_tools
            options = replace(
                options,
                base_url=served.base_url,
                native_tools=served.native_tools if native_tools is None else native_tools,
                context=options.context or served.context,
            )
        model = RemoteModel(
            name, book=self._book, keys=self._keys, process=self._process, options=options
        )
        model.check()
        return model

    def _plugin_model(self, name: str) -> Model | None:
        make = next(
            (self._makers[prefix] for prefix in self._makers if name.startswith(prefix)), None
        )
        return None if make is None else make(name, self._book.user.get(name))

    def _local(self, files: "LocalFiles", name: str) -> Model:
        from ecoshell.models.embedded import CONTEXT
        from ecoshell.models.engine import EngineOptions
        from ecoshell.models.llama import require_llama
        from ecoshell.models.local import LocalModel
        from ecoshell.models.local_models import is_embedded

        require_llama()
        settings = self._settings.local
        threads = None if settings.threads == "auto" else settings.threads
        context = min(CONTEXT, settings.context) if is_embedded(name) else settings.context
        options = EngineOptions(settings.n_gpu_layers, threads, context)
        return LocalModel(files.base, name=name, adapter=files.adapter, options=options)


class _SharedModel(MeteredModel):
    """A model that its owner closes."""

    async def aclose(self) -> None: ...

    def discard(self) -> None: ...


def lending(owned: Callable[[str], Model | None]) -> type[ConfiguredModelFactory]:
    """A factory that uses models which their owner closes; `owned` returns None for other names."""

    class Lending(ConfiguredModelFactory):
        def _new(self, name: str) -> MeteredModel:
            model, budget = owned(name), self._session_budget
            if model is None:
                return super()._new(name)
            return _SharedModel(model, budget.gate, budget.account)

    return Lending


def _in_role(name: str, role: RoleName) -> str:
    """The name of a model in a role; the embedded model may have an adapter for it."""
    from ecoshell.models.embedded import NAME, embedded_as

    return embedded_as(role) if name == NAME else name

"""From a model's name to a model ready to play; of the kinds of models and modes, only those that play are loaded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ecoshell.agent.dependencies import SessionBudget
from ecoshell.agent.limits import output_limit
from ecoshell.agent.mode import Mode
from ecoshell.agent.model_set import ModelSet
from ecoshell.assembly import base_url, price_book
from ecoshell.budget import Price, Rates
from ecoshell.errors import EcoshellError, ModelBroken, ModelMissing, UsageError
from ecoshell.models import Model, ModelRow, StartingModel
from ecoshell.models.metered import MeteredModel
from ecoshell.models.retrying import RetryPolicy
from ecoshell.options import NO_ROLE_MODELS, ROLES, Effort, Options, RoleModels, RoleName
from ecoshell.paths import Paths, expanded
from ecoshell.plugin_host import Plugins

if TYPE_CHECKING:  # loaded with the first model, or the first question, that needs it
    from ecoshell.agent.apprentice import Apprentice
    from ecoshell.assembly.inventory import Inventory
    from ecoshell.models.keys import Keys
    from ecoshell.models.local_models import LocalFiles
    from ecoshell.models.remote_process import RemoteProcess
    from ecoshell.models.servers import Servers
    from ecoshell.settings.schema import Settings

SCRIPT = "script:"


class ConfiguredModelFactory:
    """Makes model sets: the model a name stands for, behind the gate, in the mode that suits it."""

    prices: Mapping[str, Price] = MappingProxyType({})
    """Where neither this run nor the settings say what a model costs."""

    def __init__(
        self,
        settings: "Settings",
        options: Options,
        *,
        session_budget: SessionBudget,
        paths: Paths,
    ) -> None:
        self._settings = settings
        self._session_budget = session_budget
        self._models_folder = paths.models_folder
        self._run_folder = paths.run_folder
        self._experience_file = paths.experience_file
        told: dict[str, Price] = {}
        if options.price is not None:  # of the model the run begins with
            given, taken = options.price
            rates = Rates(given, given, given, taken, taken)
            told[options.model or settings.model] = Price(rates, source="--price")
        self._book = price_book(settings, told, self.prices)
        self._process: RemoteProcess | None = None
        self.effort: Callable[[], Effort] = lambda: settings.agent.effort
        """How much models are to reason; a running shell changes it."""
        self.ask_servers = settings.local.ask_servers
        """Whether servers of this machine may be asked for their models."""

    @cached_property
    def _keys(self) -> "Keys":
        from ecoshell.models.keys import Keys

        return Keys()

    @cached_property
    def _servers(self) -> "Servers":
        from ecoshell.models.servers import Servers

        return Servers()

    @cached_property
    def _apprentice(self) -> "Apprentice":
        from ecoshell.agent.apprentice import Apprentice
        from ecoshell.planning.btp.experience import ExperienceStore

        name = self._settings.learn.model
        return Apprentice(name, partial(self._idle, name), partial(ExperienceStore, self._experience_file))

    def _idle(self, name: str) -> Model:
        """The model of this machine that a caller of this name is, for moments in which nobody waits."""
        from ecoshell.models.local_models import local_files

        called = _in_role(name, "caller")
        files = local_files(called, self._models_folder)
        if files is None:
            raise UsageError(f"{name} is no model of this machine.", fix="Set [learn] model to embedded or local:FILE.")
        return self._local(files, called, idle=True)

    def make(
        self,
        name: str,
        mode: str = "single",
        *,
        roles: RoleModels = NO_ROLE_MODELS,
        at_hand: Iterable[MeteredModel] = (),
    ) -> ModelSet:
        """The models of this name in this mode, as `ModelFactory` says."""
        there = {model.traits.name: model for model in at_hand}
        before = frozenset(there)
        players: dict[RoleName, MeteredModel] = {}
        try:
            if mode != "umi":
                model = self._metered(name.strip(), there)
                return ModelSet(model, self._mode(mode, model, model, model))
            names = {role: (name if (own := roles.of(role)) is None else own).strip() for role in ROLES}
            for role in ROLES:
                try:
                    players[role] = self._metered(_in_role(names[role], role), there)
                except (ModelMissing, ModelBroken, UsageError) as error:
                    own = roles.of(role)
                    if own is None:
                        raise
                    told = f"{own} cannot be the {role}. {error.message}"
                    raise type(error)(told, kept=error.kept, fix=error.fix) from error
            return ModelSet(players["planner"], self._mode(mode, *(players[role] for role in ROLES)), players)
        except EcoshellError:
            for made in there.keys() - before:
                there[made].discard()
            raise

    def _metered(self, name: str, there: dict[str, MeteredModel]) -> MeteredModel:
        """The model of this name, made unless it is there."""
        if name not in there:
            model, budget = self._model(name), self._session_budget
            retry = RetryPolicy(self._settings.models.retry_seconds)
            there[name] = MeteredModel(model, budget.gate, budget.account, retry=retry)
            if self._settings.learn.shadow:
                from ecoshell.agent.apprentice import Shadowed, is_paid

                if is_paid(model.traits):
                    there[name] = Shadowed(model, budget.gate, budget.account, apprentice=self._apprentice, retry=retry)
            there[name].effort = self._present_effort
        return there[name]

    def _present_effort(self) -> Effort:
        return self.effort()

    def _mode(self, mode: str, planner: MeteredModel, caller: MeteredModel, summarizer: MeteredModel) -> Mode:
        """Who thinks: one model, three, or one that was trained as one and has all three roles."""
        agent = self._settings.agent
        temperature = None if agent.temperature == "auto" else agent.temperature  # None leaves it to the model
        players = (planner, caller, summarizer)
        most = min(output_limit(player.traits, agent.max_output_tokens) for player in players)
        answer = agent.answer_tokens
        from ecoshell.modes.small import single_mode

        if mode != "umi" or (planner is caller is summarizer and planner.traits.trained == "single"):
            return single_mode(planner, max_tokens=most, answer_tokens=answer, temperature=temperature, name=mode)
        from ecoshell.modes.umi import Umi

        return Umi(planner, caller, summarizer, max_tokens=most, answer_tokens=answer, temperature=temperature)

    def models(self, barred: Mapping[str, str]) -> list[ModelRow]:
        """Every model that could be chosen, its price as told for this run; may block."""
        return self._inventory(barred).rows()

    def introduction(self, present: str) -> str:
        """Which model answers, and how to get a better one; may block, and leaves the keyring alone."""
        return self._inventory({}).introduction(present)

    def starting_models(self) -> Sequence[StartingModel]:
        """The models that the first run offers, the best one first; may block for a few seconds."""
        from ecoshell.assembly.first_run import starting_models

        return starting_models(self._inventory({}), self._book, self._keys)

    async def pull(self, name: str, tell: Callable[[str], None]) -> str:
        """Download a model from the hub, report progress, and return the name to select it by."""
        from ecoshell.models.gguf import hub_name
        from ecoshell.models.hub import Hub
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
        """Names of models worth offering in the place of this one; may block, and leaves the keyring alone."""
        return self._inventory({}).substitutes(present)

    async def aclose(self) -> None:
        """End the helper process for remote models, and let the apprentice go, if there are any."""
        if "_apprentice" in vars(self):
            await self._apprentice.aclose()
        if self._process is not None:
            await self._process.aclose()

    def _model(self, name: str) -> Model:
        if not name:
            raise UsageError(
                "No model is named.",
                fix="Give embedded, local:PATH.gguf, hf:OWNER/REPO, script:FILE.jsonl or a litellm name.",
            )
        if name.startswith(SCRIPT):
            from ecoshell.models.script import ScriptModel

            return ScriptModel(expanded(name.removeprefix(SCRIPT)), name=name, price=self._book.user.get(name))
        from ecoshell.models.local_models import local_files

        files = local_files(name, self._models_folder)
        if files is not None:
            return self._local(files, name)
        from ecoshell.models.remote import RemoteModel, RemoteOptions
        from ecoshell.models.remote_process import HostOptions, RemoteProcess

        if self._process is None:
            idle = self._settings.remote.host_idle_seconds
            self._process = RemoteProcess(host=HostOptions(self._run_folder, idle) if idle else None)
        given = self._settings.models.named.get(name)
        facts = None if "/" in name else self._book.facts(name)
        options = RemoteOptions(base_url(self._settings, name, facts.provider if facts else ""))
        if given is not None:
            options = replace(
                options,
                native_tools=given.native_tools,
                context=given.context,
                vision=given.vision,
                tool_search=given.tool_search,
            )
        if options.base_url is None and (served := self._servers.served(name, ask=self.ask_servers)):
            options = RemoteOptions(
                served.base_url,
                served.native_tools if options.native_tools is None else options.native_tools,
                options.context or served.context,
                options.vision,
                options.tool_search,
            )
        model = RemoteModel(name, book=self._book, keys=self._keys, process=self._process, options=options)
        model.check()
        return model

    def _local(self, files: "LocalFiles", name: str, *, idle: bool = False) -> Model:
        from ecoshell.models.embedded import CONTEXT
        from ecoshell.models.engine import EngineOptions
        from ecoshell.models.local import LocalModel
        from ecoshell.models.local_models import is_embedded

        given = self._settings.local
        threads = 1 if idle else None if given.threads == "auto" else given.threads
        context = min(CONTEXT, given.context) if is_embedded(name) else given.context
        options = EngineOptions(given.n_gpu_layers, threads, context, idle)
        return LocalModel(files.base, name=name, adapter=files.adapter, options=options)


class _Lent(MeteredModel):
    """A model that belongs to somebody else, who closes it."""

    async def aclose(self) -> None:
        """It stays open."""

    def discard(self) -> None:
        """It was not made here."""


def lending(owned: Callable[[str], Model | None]) -> type[ConfiguredModelFactory]:
    """What makes sets of models that somebody owns and closes, by their names; None is any other model."""

    class Lending(ConfiguredModelFactory):
        def _metered(self, name: str, there: dict[str, MeteredModel]) -> MeteredModel:
            if name not in there and (model := owned(name)) is not None:
                there[name] = _Lent(model, self._session_budget.gate, self._session_budget.account)
            return super()._metered(name, there)

    return Lending


def extended(factory: type[ConfiguredModelFactory], plugins: Plugins) -> type[ConfiguredModelFactory]:
    """What makes sets of the models of plugins, too, and knows the prices they bring."""
    makers, more = plugins.models(), plugins.prices()
    if not makers and not more:
        return factory

    class Extended(factory):
        prices = more

        def _model(self, name: str) -> Model:
            make = next((makers[prefix] for prefix in makers if name.startswith(prefix)), None)
            return super()._model(name) if make is None else make(name, self._book.user.get(name))

    return Extended


def _in_role(name: str, role: RoleName) -> str:
    """What a model is called in a role: the embedded one may have an adapter for it."""
    from ecoshell.models.embedded import NAME, embedded_as

    return embedded_as(role) if name == NAME else name

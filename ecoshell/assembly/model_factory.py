"""From a model's name to a model ready to play; of the kinds of models and modes, only those that play are loaded."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ecoshell.agent.approval import is_trusted
from ecoshell.agent.dependencies import SessionBudget
from ecoshell.agent.model_set import Mode, ModelSet
from ecoshell.assembly.parts import base_url, price_book
from ecoshell.budget import Price, Rates
from ecoshell.budget.pricebook import ASSUMED_FREE
from ecoshell.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import EcoshellError, ModelBroken, ModelMissing, UsageError
from ecoshell.models import Model, ModelRow
from ecoshell.models.metered import MeteredModel
from ecoshell.modes import ONE_FOR_ALL, THREE, Roles
from ecoshell.options import ALL_ONE, ROLES, Options, RoleModels, RoleName
from ecoshell.paths import Paths
from ecoshell.plugin_host import Plugins
from ecoshell.tools import LASTING

if TYPE_CHECKING:  # loaded with the first model, or the first question, that needs it
    from ecoshell.agent.apprentice import Apprentice
    from ecoshell.assembly.inventory import Inventory
    from ecoshell.models.keys import Keys
    from ecoshell.models.local_models import LocalFiles
    from ecoshell.models.remote import RemoteProcess
    from ecoshell.models.servers import Servers
    from ecoshell.modes.stepwise import Stepwise
    from ecoshell.modes.umi import Trio
    from ecoshell.settings.schema import AgentSettings, Settings

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
        catalog: Catalog,
        ranker: Ranker,
        session_budget: SessionBudget,
        paths: Paths,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._ranker = ranker
        self._session_budget = session_budget
        self._models_folder = paths.models_folder
        self._experience_file = paths.experience_file
        self._book = price_book(settings, _told_price(settings, options), self.prices)
        self._process: RemoteProcess | None = None
        self._ask_servers = settings.local.ask_servers

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
        self, name: str, mode: str = "single", *, roles: RoleModels = ALL_ONE, at_hand: Iterable[MeteredModel] = ()
    ) -> ModelSet:
        """The models of this name in this mode, as `ModelFactory` says."""
        there = {model.traits.name: model for model in at_hand}
        before = frozenset(there)
        try:
            return self._make(name.strip(), mode, roles, there)
        except EcoshellError:
            for made in there.keys() - before:
                there[made].discard()
            raise

    def _make(self, name: str, mode: str, roles: RoleModels, there: dict[str, MeteredModel]) -> ModelSet:
        """The same; puts the models that it makes to those that are there."""
        if mode != "umi":
            model = self._metered(name, there)
            return ModelSet(model, self._alone(model, mode))
        players: dict[RoleName, MeteredModel] = {
            role: self._player(role, roles.of(role), name, there) for role in ROLES
        }
        planner, caller, summarizer = (players[role] for role in ROLES)
        if planner is caller is summarizer:
            return ModelSet(planner, self._alone(planner, mode), players)
        from ecoshell.modes.umi import Trio

        return ModelSet(planner, self._trio(Trio(planner, caller, summarizer)), players)

    def _player(self, role: RoleName, own: str | None, name: str, there: dict[str, MeteredModel]) -> MeteredModel:
        """The model of a role: its own, or the session's of this name."""
        if own is None:
            return self._metered(_in_role(name, role), there)
        try:
            return self._metered(_in_role(own.strip(), role), there)
        except (ModelMissing, ModelBroken, UsageError) as error:
            told = f"{own} cannot be the {role}. {error.message}"
            raise type(error)(told, kept=error.kept, fix=error.fix) from error

    def _metered(self, name: str, there: dict[str, MeteredModel]) -> MeteredModel:
        """The model of this name, made unless it is there."""
        if name not in there:
            model, budget = self._model(name), self._session_budget
            there[name] = MeteredModel(model, budget.gate, budget.account)
            if self._settings.learn.shadow:
                from ecoshell.agent.apprentice import Shadowed, is_paid

                if is_paid(model.traits):
                    there[name] = Shadowed(model, budget.gate, budget.account, apprentice=self._apprentice)
        return there[name]

    def _alone(self, model: MeteredModel, mode: str) -> Mode:
        """The mode of one model; one too small for a protocol thinks stepwise, its roles named or not."""
        agent = self._settings.agent
        if _asked_stepwise(model):
            return self._stepwise(model, THREE if mode == "umi" else ONE_FOR_ALL)
        if mode == "umi":
            from ecoshell.modes.umi import Trio

            return self._trio(Trio.of(model))
        from ecoshell.modes.single import Single

        return Single(
            model,
            max_tokens=agent.max_output_tokens,
            answer_tokens=agent.answer_tokens,
            temperature=_temperature(agent),
        )

    def _trio(self, trio: "Trio") -> Mode:
        """Three roles; the small models among those that do not lead are asked one small thing at a time."""
        from ecoshell.modes.umi import SmallCaller, SmallRoles, SmallSummarizer, Umi

        agent, caller, summarizer = self._settings.agent, trio.caller, trio.summarizer
        small = SmallRoles(
            caller=SmallCaller(caller, rank=self._ranker.rank, document=self._catalog.document)
            if _asked_stepwise(caller)
            else None,
            summarizer=SmallSummarizer(summarizer, answer_tokens=agent.answer_tokens)
            if _asked_stepwise(summarizer)
            else None,
        )
        return Umi(
            trio,
            max_tokens=agent.max_output_tokens,
            answer_tokens=agent.answer_tokens,
            temperature=_temperature(agent),
            small=small,
        )

    def _stepwise(self, model: MeteredModel, roles: Roles) -> "Stepwise":
        from ecoshell.modes.stepwise import Stepwise

        given = self._settings.models.get(model.traits.name)
        trusted = is_trusted(model.traits, given.trusted if given else None)
        return Stepwise(
            model,
            rank=self._ranker.rank,
            document=self._catalog.document,
            guarded=lambda name: not trusted and bool(self._catalog.tool(name).effects & LASTING),
            answer_tokens=self._settings.agent.answer_tokens,
            roles=roles,
        )

    def models(self, barred: Mapping[str, str]) -> list[ModelRow]:
        """Every model that could be chosen, its price as told for this run; may block."""
        return self._inventory(barred).rows()

    def introduction(self, present: str) -> str:
        """Which model answers, and how to get a better one; may block, and leaves the keyring alone."""
        from ecoshell.assembly.inventory import introduction

        told = introduction(present, self._inventory({}).here(), self._keys.at_hand())
        if self._book.price(present) is ASSUMED_FREE:
            told += " Its server is on this machine, so it is taken to cost nothing; `price` in the settings says else."
        return told

    def keep_key(self, provider: str, key: str) -> None:
        """Use a provider's key from now on and store it; may block; raises UsageError and StoreError."""
        self._keys.keep(provider, key)

    def ask_servers(self, ask: bool) -> None:
        """Say whether servers of this machine may be asked for their models from now on."""
        self._ask_servers = ask

    def _inventory(self, barred: Mapping[str, str]) -> "Inventory":
        from ecoshell.assembly.inventory import Inventory

        return Inventory(
            self._settings,
            self._models_folder,
            barred=barred,
            keys=self._keys,
            book=self._book,
            servers=self._servers if self._ask_servers else None,
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

            return ScriptModel(Path(name.removeprefix(SCRIPT)).expanduser(), name=name, price=self._book.user.get(name))
        from ecoshell.models.local_models import local_files

        files = local_files(name, self._models_folder)
        return self._remote(name) if files is None else self._local(files, name)

    def _remote(self, name: str) -> Model:
        from ecoshell.models.remote import RemoteModel, RemoteOptions, RemoteProcess

        self._process = self._process or RemoteProcess()
        given = self._settings.models.get(name)
        facts = None if "/" in name else self._book.facts(name)
        options = RemoteOptions(base_url(self._settings, name, facts.provider if facts else ""))
        if given is not None:
            options = replace(options, native_tools=given.native_tools, context=given.context)
        if options.base_url is None and (served := self._servers.served(name, ask=self._ask_servers)):
            options = RemoteOptions(
                served.base_url,
                served.native_tools if options.native_tools is None else options.native_tools,
                options.context or served.context,
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
    """What a model is called in a role: the embedded one has adapters for them."""
    from ecoshell.models.embedded import NAME, embedded_as

    return embedded_as(role) if name == NAME else name


def _asked_stepwise(model: MeteredModel) -> bool:
    """Whether the model is too small for a protocol, and is asked one small thing at a time."""
    return model.traits.small and model.can_score


def _temperature(agent: "AgentSettings") -> float | None:
    """The temperature of steps and answers; None leaves it to the model."""
    return None if agent.temperature == "auto" else agent.temperature


def _told_price(settings: "Settings", options: Options) -> dict[str, Price]:
    """What `--price` says of the model the run begins with."""
    if options.price is None:
        return {}
    given, taken = options.price
    return {options.model or settings.model: Price(Rates(given, given, given, taken, taken), source="--price")}

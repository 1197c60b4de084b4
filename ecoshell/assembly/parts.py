"""Settings become parts: prices, rules, tools, the databases, what turns are planned with, and a session's settings."""

import functools
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ecoshell.agent.dependencies import SETTING_KEYS, SessionSettings
from ecoshell.agent.judging import Judge
from ecoshell.agent.model_set import ModelSet
from ecoshell.agent.planning import Planning
from ecoshell.agent.rules import Rules
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.money import parse_amount
from ecoshell.budget.price import Price, Rates
from ecoshell.budget.pricebook import PriceBook
from ecoshell.errors import StoreError
from ecoshell.models.servers import is_loopback
from ecoshell.options import ALL_ONE, Options, RoleModels
from ecoshell.paths import Paths, user_paths
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import Columns, Experienced, ExperienceStore
from ecoshell.planning.btp.similarity import WordEncoder
from ecoshell.planning.catp.costs import ProfileStore, cost_table
from ecoshell.planning.mode_choice import AttemptRow
from ecoshell.sessions.store import SessionStore
from ecoshell.settings.project import ProjectRules
from ecoshell.tools.base import Tool, ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.undo import UndoLog
from ecoshell.tools.workspace import Workspace, workspace_folder

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import PriceSettings, RoleSettings, Settings


T = TypeVar("T")
_PATIENCE = 0.3
"""Seconds a turn waits for a file that another process is writing; what could not be kept is kept with the next use."""


def load_settings(paths: Paths) -> "Settings":
    """The settings of this user; raises SettingsError naming file, line and key."""
    from ecoshell.settings.load import load_settings as load  # pydantic, which no first frame waits for

    return load(paths.settings_file, os.environ).settings


def open_ledger(paths: Paths) -> Ledger:
    """The ledger of this user; raises StoreError."""
    return Ledger(paths.ledger_file)


def open_store(paths: Paths) -> SessionStore:
    """The sessions of this user; raises StoreError."""
    return SessionStore(paths.sessions_file)


def project_rules(paths: Paths) -> ProjectRules:
    """What this user allowed always, by project."""
    return ProjectRules(paths.approvals_file)


def session_settings(settings: "Settings", options: Options) -> SessionSettings:
    """What a person may change in a running shell, as these settings and this run's options give it."""
    given: dict[str, Any] = {}
    for key, name in SETTING_KEYS.items():
        told = getattr(options, name, None)
        given[name] = functools.reduce(getattr, key.split("."), settings) if told is None else told
    above = settings.budget.ask_above
    given["ask_above_nano"] = None if above is None or above == "off" else parse_amount(above).value
    return SessionSettings(**given, presets=presets_of(settings), named_models=tuple(settings.models))


def rules_of(settings: "Settings", options: Options) -> Rules:
    """Who may do what, by the settings and by what this run was told."""
    given = settings.approval
    paths = user_paths()
    return Rules(
        allow=given.allow,
        ask=given.ask,
        deny=given.deny,
        read_only=options.read_only,
        yes=options.yes,
        force=options.force,
        trusted={name: model.trusted for name, model in settings.models.items() if model.trusted is not None},
        workspace=workspace_folder(options.workspace),
        own=(paths.config, paths.data),
    )


def presets_of(settings: "Settings") -> dict[str, RoleModels]:
    """The presets of models for roles, by name."""
    return {name: _role_models(preset).over(ALL_ONE) for name, preset in settings.modes.umi.presets.items()}


def roles_of(settings: "Settings", options: Options) -> RoleModels:
    """The models of roles as a run begins: this run's, else each role's own of the settings, else their preset's."""
    umi = settings.modes.umi
    preset = ALL_ONE if umi.preset is None else presets_of(settings)[umi.preset]
    return options.roles.over(_role_models(umi).over(preset))


def _role_models(given: "RoleSettings") -> RoleModels:
    return RoleModels(given.planner, given.caller, given.summarizer)


def price_book(settings: "Settings", told: Mapping[str, Price] | None = None) -> PriceBook:
    """Prices by model name: those told for this run win over the settings', and the settings' over the packaged."""
    given = {name: price_from(model.price) for name, model in settings.models.items() if model.price is not None}
    return PriceBook(
        {**given, **(told or {})},
        here=lambda name: is_loopback(urlsplit(base_url(settings, name) or "").hostname or ""),
    )


def base_url(settings: "Settings", name: str, provider: str = "") -> str | None:
    """Where a model's server is, by the settings or OPENAI_BASE_URL; None is the provider's own address."""
    given = settings.models.get(name)
    if given is not None and given.base_url is not None:
        return given.base_url
    openai = provider == "openai" or name.startswith("openai/")
    return os.environ.get("OPENAI_BASE_URL", "").strip() or None if openai else None


def price_from(given: "PriceSettings") -> Price:
    """A price from the settings; what is left out costs as much as input or output."""
    rates = Rates(
        input=given.input,
        cached_input=given.input if given.cached_input is None else given.cached_input,
        cache_write=given.input if given.cache_write is None else given.cache_write,
        output=given.output,
        reasoning=given.output if given.reasoning is None else given.reasoning,
    )
    return Price(rates, source="your settings")


def undo_log(paths: Paths) -> UndoLog:
    """What the files of this user's workspaces were before turns changed them; each belongs to the shell that asks."""
    return UndoLog(paths.undo_folder, owner=secrets.token_hex(4))


def tool_options(settings: "Settings") -> ToolOptions:
    """What the settings say of the built-in tools."""
    return ToolOptions(
        command_seconds=settings.tools.command_seconds, allow_private=settings.tools.allow_private_addresses
    )


def tools_of(settings: "Settings", workspace: Workspace) -> list[Tool]:
    """Every tool a session in this workspace knows."""
    return builtin_tools(workspace, options=tool_options(settings))


def planning_of(settings: "Settings", paths: Paths, cast: Callable[[], ModelSet]) -> Planning:
    """How turns are planned by these settings; `cast` gives the model of the moment. Raises UsageError."""
    store = _opened(paths)
    planning = Planning(
        records=store,
        past=Past(store, WordEncoder()),
        judge=Judge(kind=lambda: planning.judged_by, cast=cast, file=paths.judge_file),
    )
    follow_plan(planning, settings)
    unit = settings.plan.resource_price
    planning.standard.unit_nano = 0 if unit == "off" else parse_amount(unit).value
    planning.resources = _resources(settings, paths)
    planning.profiled = functools.cache(lambda: cost_table(_profiled(paths, ProfileStore.runs)))
    return planning


class Unopened:
    """The experience in a file that cannot be opened: whoever needs it is told why, and goes on without."""

    def __init__(self, failure: StoreError) -> None:
        self._failure = failure

    @property
    def generation(self) -> int:
        raise self._failure

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        raise self._failure

    def columns(self, after: int = 0) -> Columns:
        raise self._failure

    def attempts_after(self, after: int = 0) -> list[AttemptRow]:
        raise self._failure

    def vectors(self, encoder: str, after: int = 0) -> list[tuple[int, bytes]]:
        raise self._failure

    def keep_vectors(self, encoder: str, rows: Iterable[tuple[int, bytes]]) -> None:
        raise self._failure

    def add(self, items: Iterable[Experienced]) -> None:
        raise self._failure

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool:
        raise self._failure

    def close(self) -> None:
        """Nothing is open."""


def _opened(paths: Paths) -> ExperienceStore | Unopened:
    try:
        return ExperienceStore(paths.experience_file, busy_seconds=_PATIENCE)
    except StoreError as failure:
        return Unopened(failure)


def follow_plan(planning: Planning, settings: "Settings") -> None:
    """Go by what the settings say of plans from the next turn on."""
    given = settings.plan
    planning.mode = given.mode
    planning.threshold = given.threshold
    planning.strict = given.strict
    planning.earned = given.earned_uses
    planning.judge_kind = given.judge
    planning.hour_nano = 0 if given.time_price == "off" else parse_amount(given.time_price).value
    planning.recording = settings.experience.record
    planning.standard.alpha = settings.graph.alpha
    planning.standard.most_nano = parse_amount(settings.graph.most).value
    planning.standard.checker = settings.graph.checker or ""


def _resources(settings: "Settings", paths: Paths) -> dict[str, int]:
    """What one run of each profiled tool is worth; nothing where the settings give units no price."""
    if settings.plan.resource_price == "off":
        return {}
    unit = parse_amount(settings.plan.resource_price).value
    profiles = _profiled(paths, ProfileStore.profiles)
    return {tool: math.ceil(unit * profile.usual) for tool, profile in profiles.items()}


def _profiled(paths: Paths, read: Callable[[ProfileStore], dict[str, T]]) -> dict[str, T]:
    """What is kept of each profiled tool, nothing where nobody profiled.

    A file that cannot be read counts as none: the plan is made without it, as before the first profile.
    """
    if not paths.profiles_file.is_file():
        return {}
    try:
        with closing(ProfileStore(paths.profiles_file, busy_seconds=_PATIENCE)) as store:
            return read(store)
    except StoreError:
        return {}

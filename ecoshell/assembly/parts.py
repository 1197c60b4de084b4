"""The parts that commands need without a whole shell: settings, prices, tools and the databases."""

import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ecoshell.agent.rules import Rules
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.money import parse_amount
from ecoshell.budget.price import Price, Rates
from ecoshell.budget.pricebook import PriceBook
from ecoshell.models.servers import is_loopback
from ecoshell.options import ALL_ONE, Options, RoleModels
from ecoshell.paths import Paths, user_paths
from ecoshell.sessions.store import SessionStore
from ecoshell.settings.project import ProjectRules
from ecoshell.tools.base import Tool, ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.undo import UndoLog
from ecoshell.tools.workspace import Workspace, workspace_folder

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import PriceSettings, RoleSettings, Settings


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


def ask_above(settings: "Settings") -> int | None:
    """The price in nano-dollars above which a step is asked about first; None is never."""
    given = settings.budget.ask_above
    return None if given is None or given == "off" else parse_amount(given).value


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

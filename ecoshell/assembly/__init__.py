"""Settings become objects, in this room and nowhere else.

Here are the parts that several of its modules and light commands need: prices, rules, tools and the databases.
"""

import difflib
import functools
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from ecoshell.agent.dependencies import Profiles
from ecoshell.agent.experience import Experience
from ecoshell.agent.rules import Rules
from ecoshell.agent.session_settings import SETTING_KEYS, SessionSettings
from ecoshell.budget import SCOPES, Amount, Price, PriceBook, Rates, Scope, parse_amount
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import StoreError, UsageError, closest_word
from ecoshell.options import NO_ROLE_MODELS, Options, RoleModels
from ecoshell.paths import Paths, expanded
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import ExperienceStore
from ecoshell.plugin_host import Plugin, Plugins, find_plugins
from ecoshell.sessions import SessionStore
from ecoshell.tools import Tool, ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import Workspace, workspace_folder

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.planning.catp.costs import CostTable, ProfileStore
    from ecoshell.settings.schema import McpServerSettings, RoleSettings, Settings
    from ecoshell.tools.mcp.provider import McpServer
    from ecoshell.tools.mcp.servers import Server

T = TypeVar("T")
_PATIENCE = 0.3
"""Seconds a turn waits for a file that another process is writing; what could not be kept is kept with the next use."""


def load_settings(paths: Paths) -> "Settings":
    """The settings of this user; raises SettingsError naming file, line and key."""
    from ecoshell.settings import load_settings as load  # pydantic, which no first frame waits for

    return load(paths.settings_file, os.environ).settings


def open_ledger(paths: Paths, settings: "Settings | None" = None, workspace: Path | None = None) -> Ledger:
    """Open the user's ledger, or the shared one of `[budget] ledger`; raises StoreError and UsageError."""
    address = None if settings is None else settings.budget.ledger
    if settings is None or address is None:
        return Ledger(paths.ledger_file)
    failures: list[str] = []
    scheme = address.partition(":")[0].lower()
    opener = Plugins(_find_plugins(settings, paths), failures.append).ledgers().get(scheme)
    if opener is None:
        problem = " ".join((f"No plugin opens a ledger at {scheme}://.", *failures))
        raise UsageError(problem, fix="Enable the plugin `team`, or correct [budget] ledger.")
    project = settings.budget.project or workspace_folder(workspace).name
    return opener(address, paths.ledger_file, project[:200])


def open_store(paths: Paths) -> SessionStore:
    """The sessions of this user; raises StoreError."""
    return SessionStore(paths.sessions_file)


def session_settings(settings: "Settings", options: Options) -> SessionSettings:
    """What a person may change in a running shell, as these settings and this run's options give it."""
    given: dict[str, Any] = {}
    for key, name in SETTING_KEYS.items():
        told = getattr(options, name, None)
        value: Any = functools.reduce(getattr, key.split("."), settings) if told is None else told
        if name.endswith("_nano"):
            value = None if value in (None, "off") else parse_amount(value).value
        given[name] = value
    return SessionSettings(**given, presets=presets_of(settings), named_models=tuple(settings.models.named))


def first_caps(settings: "Settings", options: Options) -> dict[Scope, Amount]:
    """What each session of a run begins with: `--budget`, else the settings' cap, and that of its turns."""
    given = {"turn": settings.budget.turn, "session": options.budget or settings.budget.session}
    return {scope: parse_amount(text) for scope in SCOPES if (text := given.get(scope)) is not None}


def rules_of(settings: "Settings", options: Options, paths: Paths) -> Rules:
    """Who may do what, by the settings and by what this run was told."""
    given = settings.approval
    return Rules(
        allow=given.allow,
        ask=given.ask,
        deny=given.deny,
        read_only=options.read_only,
        yes=options.yes,
        force=options.force,
        trusted={name: model.trusted for name, model in settings.models.named.items() if model.trusted is not None},
        workspace=workspace_folder(options.workspace),
        own=(paths.config, paths.data),
    )


def presets_of(settings: "Settings") -> dict[str, RoleModels]:
    """The presets of models for roles, by name."""
    return {name: _role_models(preset).over(NO_ROLE_MODELS) for name, preset in settings.modes.umi.presets.items()}


def roles_of(settings: "Settings", options: Options) -> RoleModels:
    """The models of roles as a run begins: this run's, else each role's own of the settings, else their preset's."""
    umi = settings.modes.umi
    preset = NO_ROLE_MODELS if umi.preset is None else presets_of(settings)[umi.preset]
    return options.roles.over(_role_models(umi).over(preset))


def _role_models(given: "RoleSettings") -> RoleModels:
    return RoleModels(given.planner, given.caller, given.summarizer)


def price_book(
    settings: "Settings", told: Mapping[str, Price] | None = None, more: Mapping[str, Price] | None = None
) -> PriceBook:
    """Prices by model name: those told for this run win over the settings', which win over more, and the packaged."""
    prices: dict[str, Price] = {}
    for name, model in settings.models.named.items():
        if (given := model.price) is not None:  # what is left out costs as much as input or output
            rates = Rates(
                input=given.input,
                cached_input=given.input if given.cached_input is None else given.cached_input,
                cache_write=given.input if given.cache_write is None else given.cache_write,
                output=given.output,
                reasoning=given.output if given.reasoning is None else given.reasoning,
            )
            prices[name] = Price(rates, source="your settings")

    def here(name: str) -> bool:

        from ecoshell.models.servers import is_loopback

        return is_loopback(urlsplit(base_url(settings, name) or "").hostname or "")

    return PriceBook({**(more or {}), **prices, **(told or {})}, is_local=here)


def base_url(settings: "Settings", name: str, provider: str = "") -> str | None:
    """Where a model's server is, by the settings or OPENAI_BASE_URL; None is the provider's own address."""
    given = settings.models.named.get(name)
    if given is not None and given.base_url is not None:
        return given.base_url
    openai = provider == "openai" or name.startswith("openai/")
    return os.environ.get("OPENAI_BASE_URL", "").strip() or None if openai else None


def undo_log(paths: Paths) -> UndoLog:
    """What the files of this user's workspaces were before turns changed them; each belongs to the shell that asks."""
    return UndoLog(paths.undo_folder, owner=secrets.token_hex(4))


def tool_options(settings: "Settings", workspace: Workspace) -> ToolOptions:
    """The settings of the built-in tools of this workspace."""
    return ToolOptions(
        workspace.result,
        command_seconds=settings.tools.command_seconds,
        allow_private=settings.tools.allow_private_addresses,
    )


def tools_of(settings: "Settings", workspace: Workspace) -> list[Tool]:
    """Every tool a session in this workspace knows."""
    return builtin_tools(workspace, options=tool_options(settings, workspace))


def plugins_of(settings: "Settings", paths: Paths, warn: Callable[[str], None]) -> Plugins:
    """The plugins of this user; `warn` is told of those that fail."""
    return Plugins(_find_plugins(settings, paths), warn)


def _find_plugins(settings: "Settings", paths: Paths) -> list[Plugin]:
    choice = settings.plugins
    return find_plugins(
        paths.plugins_folder,
        enabled=choice.enabled,
        disabled=choice.disabled,
        settings=choice.model_extra or {},
    )


def sources_of(
    settings: "Settings", paths: Paths, workspace: Workspace, warn: Callable[[str], None]
) -> list[tuple[str, Tool]]:
    """Every tool of a session in this workspace, each with where it comes from; those of servers as they were listed
    last, and none is started.
    """
    built_in = {tool.schema.name: tool for tool in tools_of(settings, workspace)}
    added, providers = plugins_of(settings, paths, warn).tools(workspace, tool_options(settings, workspace), built_in)
    found = [
        *(("built-in", tool) for tool in built_in.values()),
        *((f"plugin {plugin}", tool) for plugin, tool in added.values()),
        *((f"plugin {one.name}", tool) for one in providers for tool in one.tools),
        *(
            (f"MCP server {one.name}", tool)
            for one in servers_of(settings, paths, workspace, lambda: paths.files_folder)
            for tool in one.tools
        ),
    ]
    return [*{tool.schema.name: (source, tool) for source, tool in reversed(found)}.values()][::-1]


def tool_named(name: str, tools: Sequence[Tool]) -> Tool:
    """The tool of this name; raises UsageError with the closest ones."""
    by_name = {tool.schema.name: tool for tool in tools}
    if name in by_name:
        return by_name[name]
    near = closest_word(name, by_name)
    raise UsageError(
        f"There is no tool called {name!r}.", fix=f"Did you mean {near}?" if near else "`ecoshell tools` lists them."
    )


def priced(tools: Iterable[Tool], settings: "Settings") -> list[Tool]:
    """The tools, with the prices of the settings; raises UsageError where those name a tool that cannot have one."""
    found = list(tools)
    by_name = {tool.schema.name: tool for tool in found} if settings.tools.prices else {}
    for name, price in settings.tools.prices.items():
        tool = by_name.get(name)
        if not isinstance(tool, FunctionTool):
            near = difflib.get_close_matches(name, by_name, n=1)
            fix = f"Did you mean {near[0]}?" if near else "`ecoshell tools` lists them all."
            raise UsageError(f"[tools.prices] names {name!r}, and no tool of this name can be given a price.", fix=fix)
        tool.price_nano = parse_amount(price).value
    return found


def experience_of(paths: Paths) -> Experience:
    """What was experienced on this machine; may block."""
    try:
        store = ExperienceStore(paths.experience_file, busy_seconds=_PATIENCE)
    except StoreError as failure:
        store = cast("ExperienceStore", _Unopened(failure))
    return Experience(store, Past(store))


def profiles_of(settings: "Settings", paths: Paths) -> Profiles:
    """What is known of profiled tools; they are worth nothing where the settings give price units no price."""

    @functools.cache
    def costs() -> "CostTable":
        from ecoshell.planning.catp.costs import cost_table

        return cost_table(_profiled(paths, lambda store: store.runs()))

    if settings.plan.resource_price == "off":
        return Profiles(0, {}, costs)
    unit = parse_amount(settings.plan.resource_price).value
    profiles = _profiled(paths, lambda store: store.profiles())
    return Profiles(unit, {tool: math.ceil(unit * profile.usual) for tool, profile in profiles.items()}, costs)


def servers_of(
    settings: "Settings", paths: Paths, workspace: Workspace, files: Callable[[], Path]
) -> "list[McpServer]":
    """The servers of the settings that are switched on; they run in the workspace unless the settings say where.

    `files` gives the folder in which images and the like are kept now.
    """
    if not settings.mcp.servers:
        return []
    from ecoshell.tools.mcp.provider import McpServer

    return [
        McpServer(server_of(name, given, workspace.root), folder=paths.mcp_folder, result=workspace.result, files=files)
        for name, given in settings.mcp.servers.items()
        if given.enabled
    ]


def server_of(name: str, given: "McpServerSettings", workspace: Path) -> "Server":
    """A server as its settings have it."""
    from ecoshell.tools.mcp.servers import Server

    return Server(
        name,
        command=(given.command, *given.args) if given.command is not None else (),
        env=given.env,
        cwd=str(workspace / expanded(given.cwd or "")),
        url=given.url or "",
        headers=given.headers,
        trusted=given.trusted,
        seconds=given.seconds,
        sampling=given.sampling,
        workspace=str(workspace),
        oauth=given.oauth,
    )


class _Unopened:
    """The experience in a file that cannot be opened: whoever needs it is told why, and goes on without."""

    def __init__(self, failure: StoreError) -> None:
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        raise self._failure

    def close(self) -> None:
        """Nothing is open."""


def _profiled(paths: Paths, read: "Callable[[ProfileStore], dict[str, T]]") -> dict[str, T]:
    """What is kept of each profiled tool, nothing where nobody profiled.

    A file that cannot be read counts as none: the plan is made without it, as before the first profile.
    """
    if not paths.profiles_file.is_file():
        return {}
    from ecoshell.planning.catp.costs import ProfileStore

    try:
        with closing(ProfileStore(paths.profiles_file, busy_seconds=_PATIENCE)) as store:
            return read(store)
    except StoreError:
        return {}

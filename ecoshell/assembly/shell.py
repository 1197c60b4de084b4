"""A shell from options and settings."""

import asyncio
import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent import NonInteractive, UserInterface
from ecoshell.agent.approval import Approvals
from ecoshell.agent.dependencies import Dependencies, no_such
from ecoshell.agent.environment import Environment
from ecoshell.agent.fallback import first_models
from ecoshell.agent.judge import JUDGES, Judge
from ecoshell.agent.model_set import MODES, ActiveModels
from ecoshell.agent.project_rules import ProjectRules
from ecoshell.agent.project_trust import ProjectTrust
from ecoshell.agent.providers import ProviderFollower
from ecoshell.agent.rules import Rules
from ecoshell.agent.session_settings import SessionSettings
from ecoshell.agent.shell import Shell
from ecoshell.agent.spending import SessionBudget
from ecoshell.agent.workspace import WorkspaceService
from ecoshell.assembly import (
    experience_of,
    first_caps,
    load_settings,
    open_ledger,
    open_store,
    plugins_of,
    priced,
    profiles_of,
    roles_of,
    rules_of,
    servers_of,
    session_settings,
    tool_options,
    tools_of,
    undo_log,
)
from ecoshell.assembly.model_factory import ConfiguredModelFactory, extended
from ecoshell.budget import parse_amount
from ecoshell.budget.gate import Gate, finished
from ecoshell.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import EcoshellError, ModelBroken, ModelMissing, UsageError
from ecoshell.options import (
    LATEST_SESSION,
    NO_ROLE_MODELS,
    ROLES,
    SESSION_MODEL,
    Options,
    RoleModels,
)
from ecoshell.paths import HOOKS_FILE, SKILL_FOLDERS, Paths, user_paths
from ecoshell.plugin_host import Plugins
from ecoshell.secrecy import protect_secrets
from ecoshell.sessions import EventLog
from ecoshell.strategies import StrategySpec
from ecoshell.tools import Tool, ToolProvider
from ecoshell.tools.builtin.task import PROJECT_FOLDERS, describe_agents
from ecoshell.tools.measuring import keep_measuring
from ecoshell.tools.workspace import Workspace, workspace_folder

if TYPE_CHECKING:  # imports pydantic
    from ecoshell.agent.agent_files import AgentFiles
    from ecoshell.agent.command_table import CommandTable
    from ecoshell.agent.custom_commands import CustomCommands
    from ecoshell.agent.hooks import Hooks
    from ecoshell.agent.skill_files import SkillFiles
    from ecoshell.settings.schema import Settings


class Strategies(Mapping[str, StrategySpec]):
    """Strategies by name, each in its module as `module:NAME`, which is imported when the strategy is chosen; after
    them those of plugins.
    """

    def __init__(
        self, places: Mapping[str, str], more: Mapping[str, StrategySpec] | None = None
    ) -> None:
        self._places = places
        self._more = more or {}

    def __getitem__(self, name: str) -> StrategySpec:
        if name in self._more:
            return self._more[name]
        module, _, attribute = self._places[name].partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._places, *self._more))

    def __len__(self) -> int:
        return len(self._places) + len(self._more)

    def including(self, more: Mapping[str, StrategySpec]) -> "Strategies":
        """These and further strategies."""
        return Strategies(self._places, more)


STRATEGIES = Strategies(
    {
        "react": "ecoshell.strategies.react:REACT",
        "dfsdt": "ecoshell.strategies.search:DFSDT",
        "tot": "ecoshell.strategies.search:TOT",
        "graph": "ecoshell.strategies.graph:GRAPH",
    }
)
AT_HAND = (
    "ecoshell.agent.slash_commands",
    "ecoshell.assembly.inventory",
)
"""Modules that interactive shells load in advance, so that no key waits for them."""

ToolsOf = Callable[["Settings", Workspace], Sequence[Tool]]
"""Makes the tools of a session."""


async def assemble(
    options: Options,
    person: UserInterface | None = None,
    *,
    paths: Paths | None = None,
    settings: "Settings | None" = None,
    model_factory: type[ConfiguredModelFactory] = ConfiguredModelFactory,
    tools: ToolsOf = tools_of,
) -> Shell:
    """A shell with an open session; raises SettingsError, StoreError, ModelMissing and UsageError.

    Benches pass their own paths, settings, models and tools; with their own tools, there are no plugins and servers.
    """
    paths = paths or user_paths()
    settings = settings or await asyncio.to_thread(load_settings, paths)
    make = partial(
        build,
        settings=settings,
        paths=paths,
        person=person,
        model_factory=model_factory,
        tools=tools,
    )
    resumed, problem = options, ""
    if options.resume is not None:
        resumed = await asyncio.to_thread(_resumed, options, paths)
    try:
        shell = await asyncio.to_thread(make, resumed)
    except (ModelMissing, ModelBroken, UsageError) as error:
        if resumed.model == options.model:
            raise
        problem = f"Its model {resumed.model} is unavailable: {error}"
        resumed = replace(options, resume=resumed.resume, workspace=resumed.workspace)
        shell = await asyncio.to_thread(make, resumed)
    try:
        shell.first_caps = first_caps(settings, options)
        await shell.open(resumed.resume)
        if resumed.resume is not None:
            shell.announce_resume(
                problem, "Change them with --model, --mode, --role and --workspace."
            )
        if shell.read_only is None:
            await _set_run_caps(shell, options, settings)
    except BaseException:
        await shell.aclose()
        raise
    return shell


def _resumed(options: Options, paths: Paths) -> Options:
    """The options, completed with the last choices of the session to resume."""
    store = open_store(paths)
    try:
        if options.resume == LATEST_SESSION:
            session = store.latest(str(workspace_folder(options.workspace)))
        else:
            session = store.find(options.resume or "")
        last = store.last_choices(session)
    finally:
        store.close()
    workspace = Path(last.workspace) if os.path.isdir(last.workspace) else None  # noqa: PTH112 - may be too long
    roles = (
        RoleModels(**{role: last.roles.of(role) or SESSION_MODEL for role in ROLES})
        if last.mode
        else NO_ROLE_MODELS
    )
    return replace(
        options,
        resume=session,
        model=options.model or last.model,
        mode=options.mode or next((mode for mode in MODES if mode == last.mode), None),
        roles=options.roles.over(roles),
        advisor=options.advisor or last.advisor or None,
        workspace=options.workspace or workspace,
    )


def build(
    options: Options,
    settings: "Settings",
    paths: Paths,
    *,
    person: UserInterface | None = None,
    model_factory: type[ConfiguredModelFactory] = ConfiguredModelFactory,
    tools: ToolsOf = tools_of,
) -> Shell:
    """A shell without an open session; may block. Raises as `assemble` does."""
    _prepare_process(interactive=person is not None)
    workspace = workspace_folder(options.workspace)
    undo = undo_log(paths)
    undo.sweep()
    ground = Workspace(workspace, undo=undo)
    complaints: list[str] = []
    has_default_tools = tools is tools_of
    plugins = (
        plugins_of(settings, paths, complaints.append)
        if has_default_tools
        else Plugins((), complaints.append)
    )
    with ExitStack() as opened:
        ledger = opened.enter_context(closing(open_ledger(paths, settings, workspace)))
        store = opened.enter_context(closing(open_store(paths)))
        log = EventLog(store)
        budget = SessionBudget(Gate(ledger, logged=log.flush))
        files = paths.files_folder
        servers = (
            servers_of(settings, paths, ground, lambda: files / budget.account().session)
            if has_default_tools
            else ()
        )
        projects, user = ProjectRules(paths.approvals_file), person or NonInteractive()
        trust = ProjectTrust(
            ground, projects, "trust" if options.trust_project else settings.agent.instructions
        )
        agents = cache(partial(_agent_files, ground, paths, trust))
        with _explaining(complaints):
            own_tools = tools(settings, ground)
            folders = (*(workspace / folder for folder in PROJECT_FOLDERS), paths.agents_folder)
            if any(folder.is_dir() for folder in folders):
                describe_agents(
                    own_tools, ((agent.name, agent.about) for agent in agents().trusted())
                )
            catalog = _catalog(own_tools, servers, plugins, settings, ground)
        ranker = Ranker(catalog.schemas)
        factory = extended(model_factory, plugins, paths)
        with _explaining(complaints):
            chosen = session_settings(settings, options)
            made = factory(settings, options, session_budget=budget, paths=paths)
            made.effort = lambda: chosen.effort
            models = _active_models(made, settings, options, complaints.append)
            strategies, judges = _strategies(plugins, options.strategy), plugins.judges(JUDGES)
        complaints += _replace_unknown(chosen, strategies, (*JUDGES, *judges))
        deps = Dependencies(
            catalog=catalog,
            ranker=ranker,
            providers=ProviderFollower(catalog, ranker, files, complaints),
            budget=budget,
            log=log,
            approvals=_approvals(
                rules_of(settings, options, paths), user, projects, workspace, chosen
            ),
            strategies=strategies,
            user=user,
            workspace=WorkspaceService(ground, undo=undo, options=tool_options(settings, ground)),
            environment=Environment(
                ground, paths.instructions_file, trust, facts=settings.agent.context == "auto"
            ),
            experience=experience_of(paths),
            judge=Judge(kind=lambda: chosen.judged_by, models=lambda: models.current, more=judges),
            profiles=profiles_of(settings, paths),
            models=models,
            settings=chosen,
            agents=agents,
            hooks=_hooks(settings, ground, trust),
            skills=_skills(paths.skills_folder, plugins, catalog, ground, trust)
            if has_default_tools
            else None,
        )
        opened.pop_all()
        commands = cache(partial(_commands, plugins))
        custom = cache(
            partial(_custom_commands, paths.commands_folder, ground, commands, complaints.append)
        )
        return Shell(
            deps,
            store=store,
            ledger=ledger,
            workspace=str(workspace),
            commands=commands,
            custom_commands=custom,
        )


def _prepare_process(*, interactive: bool) -> None:
    keep_measuring()  # before protect_secrets, which closes a part of /proc
    protect_secrets()
    for module in AT_HAND if interactive else ():
        import_module(module)


def _strategies(plugins: Plugins, chosen: str | None) -> Strategies:
    """All strategies; raises UsageError if the chosen one is unknown."""
    strategies = STRATEGIES.including(plugins.strategies(STRATEGIES))
    if chosen is not None and chosen not in strategies:
        raise no_such("strategy", chosen, strategies)
    return strategies


def _agent_files(workspace: Workspace, paths: Paths, trust: ProjectTrust) -> "AgentFiles":
    from ecoshell.agent.agent_files import AgentFiles  # few sessions delegate

    return AgentFiles(workspace, paths.agents_folder, trust)


def _approvals(
    rules: Rules,
    user: UserInterface,
    projects: ProjectRules,
    workspace: Path,
    chosen: SessionSettings,
) -> Approvals:
    granted = projects.rules(workspace)
    remember = partial(projects.allow, workspace)
    return Approvals(
        rules, user, granted=granted, remember=remember, mode=lambda: chosen.approval_mode
    )


def _active_models(
    factory: ConfiguredModelFactory,
    settings: "Settings",
    options: Options,
    notify: Callable[[str], None],
) -> ActiveModels:
    """Make the first models, or their fallbacks; a model for a role implies a mode with roles."""
    needs_roles = options.roles != NO_ROLE_MODELS and settings.agent.mode == "single"
    mode = options.mode or ("umi" if needs_roles else settings.agent.mode)
    return first_models(
        lambda model, roles: ActiveModels(factory, model, mode=mode, roles=roles),
        options.model or settings.model,
        roles_of(settings, options),
        fallback=settings.models.fallback,
        notify=notify,
    )


def _catalog(
    tools: Sequence[Tool],
    servers: Sequence[ToolProvider],
    plugins: Plugins,
    settings: "Settings",
    workspace: Workspace,
) -> Catalog:
    """The tools of a session with those of plugins."""
    names = {*(tool.schema.name for tool in tools), *(server.name for server in servers)}
    added, providers = plugins.tools(workspace, tool_options(settings, workspace), names)
    all_tools = [*tools, *(tool for _, tool in added.values())]
    return Catalog(priced(all_tools, settings), (*servers, *providers))


def _hooks(settings: "Settings", workspace: Workspace, trust: ProjectTrust) -> "Hooks | None":
    """The hooks of the settings and of the workspace; None if there are none."""
    if not settings.hooks.commands and not (workspace.root / HOOKS_FILE).exists():
        return None
    from ecoshell.agent.hooks import Hook, Hooks

    limit = settings.hooks.seconds
    own = [
        Hook(name, hook.on, hook.command, hook.tools, hook.seconds or limit, "your settings")
        for name, hook in settings.hooks.commands.items()
    ]
    return Hooks(own, workspace, trust, seconds=limit)


def _skills(
    folder: Path, plugins: Plugins, catalog: Catalog, workspace: Workspace, trust: ProjectTrust
) -> "SkillFiles | None":
    """The files of skills, if there is any folder of them; adds those that need no question to the catalog."""
    from_plugins = plugins.skill_folders()
    if not from_plugins and not any(
        path.is_dir() for path in (folder, *map(workspace.root.joinpath, SKILL_FOLDERS))
    ):
        return None
    from ecoshell.agent.skill_files import SkillFiles, skill_folders

    files = SkillFiles(skill_folders(folder, from_plugins, workspace), catalog, workspace, trust)
    files.load()
    return files


@contextmanager
def _explaining(complaints: Sequence[str]) -> Generator[None]:
    """Add the failed plugins to an error, because they may be its cause."""
    try:
        yield
    except EcoshellError as error:
        error.kept = " ".join(filter(None, (error.kept, *complaints)))
        raise


def _replace_unknown(
    chosen: SessionSettings, strategies: Collection[str], judges: Collection[str]
) -> Iterator[str]:
    """Replace settings that name an unknown strategy or judge, such as one of a disabled plugin, with a message."""
    for name, available, default in (("strategy", strategies, "react"), ("judge", judges, "rules")):
        if (value := getattr(chosen, name)) not in available:
            setattr(chosen, name, default)
            yield f"{no_such(name, value, available).message} Using {default}."


def _commands(plugins: Plugins) -> "CommandTable[Shell]":
    """The slash commands, loaded with the first one."""
    from ecoshell.agent.command_table import CommandTable
    from ecoshell.agent.slash_commands import COMMANDS

    more = plugins.slash_commands(COMMANDS.keys())
    return CommandTable({**COMMANDS, **{command.name: command for command in more}})


def _custom_commands(
    folder: Path,
    workspace: Workspace,
    commands: "Callable[[], CommandTable[Shell]]",
    warn: Callable[[str], None],
) -> "CustomCommands":
    """The commands made from files, loaded with the first line that begins with a slash."""
    from ecoshell.agent.command_table import SCREEN_COMMANDS
    from ecoshell.agent.custom_commands import CustomCommands

    return CustomCommands(folder, workspace, lambda: commands().keys() | SCREEN_COMMANDS, warn)


async def _set_run_caps(shell: Shell, options: Options, settings: "Settings") -> None:
    """Set the caps of a run: changed caps of day and month in the settings, and `--budget`."""
    for scope in ("day", "month"):
        text = getattr(settings.budget, scope)
        cap = None if text is None else parse_amount(text)
        await finished(asyncio.to_thread(shell.ledger.adopt_cap, scope, cap))
    if options.budget is not None:
        await shell.set_cap("session", parse_amount(options.budget))

"""A shell from options and settings."""

import asyncio
import os
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent import NonInteractive, UserInterface
from ecoshell.agent.approval import Approvals
from ecoshell.agent.dependencies import Dependencies, OptionalPart, no_such
from ecoshell.agent.environment import Environment
from ecoshell.agent.fallback import first_models
from ecoshell.agent.judge import JUDGES, Judge
from ecoshell.agent.model_set import MODES, ActiveModels
from ecoshell.agent.project_rules import ProjectRules
from ecoshell.agent.project_trust import ProjectTrust
from ecoshell.agent.providers import ProviderFollower
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
from ecoshell.assembly.model_factory import ConfiguredModelFactory
from ecoshell.assembly.strategies import STRATEGIES, Strategies
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
from ecoshell.settings.schema import Settings
from ecoshell.tools import Tool, ToolProvider
from ecoshell.tools.builtin.task import PROJECT_FOLDERS, describe_agents
from ecoshell.tools.measuring import keep_measuring
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import Workspace, workspace_folder

if TYPE_CHECKING:  # imported on first use
    from ecoshell.agent.agent_files import AgentFiles
    from ecoshell.agent.command_table import CommandTable
    from ecoshell.agent.custom_commands import CustomCommands
    from ecoshell.agent.hooks import Hooks
    from ecoshell.agent.skill_files import SkillFiles


AT_HAND = ("ecoshell.agent.slash_commands", "ecoshell.assembly.inventory")
"""Modules that interactive shells load in advance, so that no key waits for them."""

ToolsOf = Callable[[Settings, Workspace], Sequence[Tool]]
"""Makes the tools of a session."""


async def assemble(
    options: Options,
    person: UserInterface | None = None,
    *,
    paths: Paths | None = None,
    settings: Settings | None = None,
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
    shell, resumed, problem = await asyncio.to_thread(build_resumed, options, paths, make)
    try:
        shell.first_caps = first_caps(settings, options)
        await shell.open(resumed.resume)
        if resumed.resume is not None:
            await shell.announce_resume(
                problem, "Change them with --model, --mode, --role, --effort and --workspace."
            )
        if shell.read_only is None:
            await _set_run_caps(shell, options, settings)
    except BaseException:
        await shell.aclose()
        raise
    return shell


def build_resumed(
    options: Options, paths: Paths, make: Callable[[Options], Shell]
) -> tuple[Shell, Options, str]:
    """A shell with the last choices of the session to resume, its options, and why its model is not used, if so.

    May block. Raises as `assemble` does.
    """
    resumed = options if options.resume is None else _resumed(options, paths)
    try:
        return make(resumed), resumed, ""
    except (ModelMissing, ModelBroken, UsageError) as error:
        if resumed.model == options.model:
            raise
        problem = f"Its model {resumed.model} is unavailable: {error}"
        resumed = replace(
            options, resume=resumed.resume, workspace=resumed.workspace, effort=resumed.effort
        )
        return make(resumed), resumed, problem


def _resumed(options: Options, paths: Paths) -> Options:
    """The options, completed with the last choices of the session to resume."""
    with closing(open_store(paths)) as store:
        if options.resume == LATEST_SESSION:
            session = store.latest(str(workspace_folder(options.workspace)))
        else:
            session = store.find(options.resume or "")
        last = store.last_choices(session)
    workspace = Path(last.workspace) if os.path.isdir(last.workspace) else None  # noqa: PTH112 - may be too long
    roles = NO_ROLE_MODELS
    if last.mode:
        roles = RoleModels(**{role: last.roles.of(role) or SESSION_MODEL for role in ROLES})
    return replace(
        options,
        resume=session,
        model=options.model or last.model,
        mode=options.mode or next((mode for mode in MODES if mode == last.mode), None),
        roles=options.roles.over(roles),
        advisor=options.advisor or last.advisor or None,
        effort=options.effort or last.effort,
        workspace=options.workspace or workspace,
    )


def build(
    options: Options,
    settings: Settings,
    paths: Paths,
    *,
    person: UserInterface | None = None,
    model_factory: type[ConfiguredModelFactory] = ConfiguredModelFactory,
    tools: ToolsOf = tools_of,
) -> Shell:
    """A shell without an open session; may block. Raises as `assemble` does."""
    _prepare_process(interactive=person is not None)
    site = _site(options, settings, paths, has_default_tools=tools is tools_of)
    workspace, plugins = site.ground.root, site.plugins
    with ExitStack() as opened:
        ledger = opened.enter_context(closing(open_ledger(paths, settings, workspace)))
        store = opened.enter_context(closing(open_store(paths)))
        log = EventLog(store)
        budget = SessionBudget(Gate(ledger, logged=log.flush))
        user = person or NonInteractive()
        deps = _dependencies(site, budget, log, user, model_factory, tools)
        opened.pop_all()
    commands = cache(partial(_commands, plugins))
    custom = cache(partial(_custom_commands, site, commands))
    return Shell(
        deps,
        store=store,
        ledger=ledger,
        workspace=str(workspace),
        commands=commands,
        custom_commands=custom,
    )


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a shell works and what it is configured with; its parts are made from this."""

    options: Options
    settings: Settings
    paths: Paths
    ground: Workspace
    undo: UndoLog
    trust: ProjectTrust
    projects: ProjectRules
    plugins: Plugins
    complaints: list[str]
    """What could not be loaded, for the user."""
    has_default_tools: bool
    """Whether the tools are those of a shell, which include servers, plugins and skills."""


def _site(options: Options, settings: Settings, paths: Paths, *, has_default_tools: bool) -> _Site:
    undo = undo_log(paths)
    undo.sweep()
    ground = Workspace(workspace_folder(options.workspace), undo=undo)
    projects = ProjectRules(paths.approvals_file)
    instructions = "trust" if options.trust_project else settings.agent.instructions
    complaints: list[str] = []
    plugins = Plugins((), complaints.append)
    if has_default_tools:
        plugins = plugins_of(settings, paths, complaints.append)
    return _Site(
        options=options,
        settings=settings,
        paths=paths,
        ground=ground,
        undo=undo,
        trust=ProjectTrust(ground, projects, instructions),
        projects=projects,
        plugins=plugins,
        complaints=complaints,
        has_default_tools=has_default_tools,
    )


def _dependencies(
    site: _Site,
    budget: SessionBudget,
    log: EventLog,
    user: UserInterface,
    model_factory: type[ConfiguredModelFactory],
    tools: ToolsOf,
) -> Dependencies:
    """The parts of a shell, which know each other only through this."""
    settings, paths, ground, plugins = site.settings, site.paths, site.ground, site.plugins
    agents = cache(partial(_agent_files, site))
    with _explaining(site.complaints):
        catalog = _catalog(site, budget, tools(settings, ground), agents)
        chosen = session_settings(settings, site.options)
        models = _active_models(site, budget, chosen, model_factory)
        _check_other_models(site, chosen, models)
        strategies = _strategies(site)
        judges = plugins.judges(JUDGES)
    site.complaints.extend(_replace_unknown(chosen, strategies, (*JUDGES, *judges)))
    ranker = Ranker(catalog.schemas)
    undo, facts = site.undo, settings.agent.context == "auto"
    return Dependencies(
        catalog=catalog,
        ranker=ranker,
        providers=ProviderFollower(catalog, ranker, paths.files_folder, site.complaints),
        budget=budget,
        log=log,
        approvals=_approvals(site, chosen, user, catalog),
        strategies=strategies,
        user=user,
        workspace=WorkspaceService(ground, undo=undo, options=tool_options(settings, ground)),
        environment=Environment(ground, paths.instructions_file, site.trust, facts=facts),
        experience=experience_of(paths),
        judge=Judge(kind=lambda: chosen.judged_by, models=lambda: models.current, more=judges),
        profiles=profiles_of(settings, paths),
        models=models,
        settings=chosen,
        agents=agents,
        hooks=_hooks(site),
        skills=_skills(site, catalog),
    )


def _prepare_process(*, interactive: bool) -> None:
    keep_measuring()  # before protect_secrets, which closes a part of /proc
    protect_secrets()
    for module in AT_HAND if interactive else ():
        import_module(module)


def _strategies(site: _Site) -> Strategies:
    """All strategies; raises UsageError if the chosen one is unknown."""
    strategies = STRATEGIES.including(site.plugins.strategies(STRATEGIES))
    chosen = site.options.strategy
    if chosen is not None and chosen not in strategies:
        raise no_such("strategy", chosen, strategies)
    return strategies


def _agent_files(site: _Site) -> "AgentFiles":
    from ecoshell.agent.agent_files import AgentFiles  # few sessions delegate

    return AgentFiles(site.ground, site.paths.agents_folder, site.trust)


def _approvals(
    site: _Site, chosen: SessionSettings, user: UserInterface, catalog: Catalog
) -> Approvals:
    workspace, projects = site.ground.root, site.projects
    return Approvals(
        rules_of(site.settings, site.options, site.paths, catalog.names),
        user,
        granted=projects.rules(workspace),
        remember=partial(projects.allow, workspace),
        mode=lambda: chosen.approval_mode,
    )


def _active_models(
    site: _Site,
    budget: SessionBudget,
    chosen: SessionSettings,
    model_factory: type[ConfiguredModelFactory],
) -> ActiveModels:
    """Make the first models, or their fallbacks; a model for a role implies a mode with roles."""
    settings, options = site.settings, site.options
    factory = model_factory(
        settings, options, session_budget=budget, paths=site.paths, plugins=site.plugins
    )
    factory.effort = lambda: chosen.effort
    needs_roles = options.roles != NO_ROLE_MODELS and settings.agent.mode == "single"
    mode = options.mode or ("umi" if needs_roles else settings.agent.mode)
    return first_models(
        lambda model, roles: ActiveModels(factory, model, mode=mode, roles=roles),
        options.model or settings.model,
        roles_of(settings, options),
        fallback=settings.models.fallback,
        notify=site.complaints.append,
    )


def _check_other_models(site: _Site, chosen: SessionSettings, models: ActiveModels) -> None:
    """Report an unavailable advisor, which is not offered then, or model of subagents.

    Raises as `assemble` does if the options of a new session name the advisor.
    """
    options = site.options
    for role, name in (("advisor", chosen.advisor), ("model of subagents", chosen.task_model)):
        try:
            if name:
                models.lend(name)
        except EcoshellError as error:
            error.message = f"{name} cannot be the {role}. {error.message}"
            if role == "advisor":
                if options.advisor and options.resume is None:
                    raise
                chosen.advisor = None
            site.complaints.append(str(error))


def _catalog(
    site: _Site,
    budget: SessionBudget,
    own_tools: Sequence[Tool],
    agents: "Callable[[], AgentFiles]",
) -> Catalog:
    """The tools of a session with those of servers and plugins."""
    settings, ground, files = site.settings, site.ground, site.paths.files_folder
    folders = [site.paths.agents_folder, *map(ground.root.joinpath, PROJECT_FOLDERS)]
    if any(folder.is_dir() for folder in folders):
        rows = ((agent.name, agent.about) for agent in agents().trusted())
        describe_agents(own_tools, rows)
    servers: Sequence[ToolProvider] = ()
    if site.has_default_tools:
        servers = servers_of(settings, site.paths, ground, lambda: files / budget.account().session)
    names = {*(tool.schema.name for tool in own_tools), *(server.name for server in servers)}
    added, providers = site.plugins.tools(ground, tool_options(settings, ground), names)
    all_tools = [*own_tools, *(tool for _, tool in added.values())]
    return Catalog(priced(all_tools, settings), (*servers, *providers))


def _hooks(site: _Site) -> "OptionalPart[Hooks]":
    """The hooks of the settings and of the workspace."""
    settings = site.settings.hooks

    def make() -> "Hooks":
        from ecoshell.agent.hooks import Hook, Hooks

        limit = settings.seconds
        own: list[Hook] = []
        for name, hook in settings.commands.items():
            seconds = hook.seconds or limit
            own.append(Hook(name, hook.on, hook.command, hook.tools, seconds, "your settings"))
        return Hooks(own, site.ground, site.trust, seconds=limit)

    places = (site.ground.root / HOOKS_FILE,)
    return OptionalPart(make, places, is_needed=bool(settings.commands))


def _skills(site: _Site, catalog: Catalog) -> "OptionalPart[SkillFiles]":
    """The files of skills; adds those that need no question to the catalog."""
    folder, ground = site.paths.skills_folder, site.ground
    from_plugins = site.plugins.skill_folders()

    def make() -> "SkillFiles":
        from ecoshell.agent.skill_files import SkillFiles, skill_folders

        files = SkillFiles(skill_folders(folder, from_plugins, ground), catalog, ground, site.trust)
        files.load()
        return files

    if not site.has_default_tools:
        return OptionalPart(make, ())
    skills = OptionalPart(make, (folder, *map(ground.root.joinpath, SKILL_FOLDERS), *from_plugins))
    skills()
    return skills


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
    site: _Site, commands: "Callable[[], CommandTable[Shell]]"
) -> "CustomCommands":
    """The commands made from files, loaded with the first line that begins with a slash."""
    from ecoshell.agent.command_table import SCREEN_COMMANDS
    from ecoshell.agent.custom_commands import CustomCommands

    folder, warn = site.paths.commands_folder, site.complaints.append
    return CustomCommands(folder, site.ground, lambda: commands().keys() | SCREEN_COMMANDS, warn)


async def _set_run_caps(shell: Shell, options: Options, settings: Settings) -> None:
    """Set the caps of a run: changed caps of day and month in the settings, and `--budget`."""
    for scope in ("day", "month"):
        text = getattr(settings.budget, scope)
        cap = None if text is None else parse_amount(text)
        await finished(asyncio.to_thread(shell.ledger.adopt_cap, scope, cap))
    if options.budget is not None:
        await shell.set_cap("session", parse_amount(options.budget))

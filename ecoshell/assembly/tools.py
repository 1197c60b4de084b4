"""The tools of a session: built-in ones, and those of plugins and MCP servers."""

from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.assembly.plugins import plugins_of
from ecoshell.budget import parse_amount
from ecoshell.errors import UsageError, closest_word
from ecoshell.paths import Paths, expanded, user_paths
from ecoshell.settings.schema import McpServerSettings, Settings
from ecoshell.tools import Tool, ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.sandbox import Sandbox
from ecoshell.tools.workspace import Workspace

if TYPE_CHECKING:  # imported on first use
    from ecoshell.agent.definition_files import Definition
    from ecoshell.catalog.catalog import Skill
    from ecoshell.tools.mcp.provider import McpServer
    from ecoshell.tools.mcp.servers import Server


def tool_options(settings: Settings, workspace: Workspace) -> ToolOptions:
    """Return the options of built-in tools in this workspace."""
    own = user_paths()
    return ToolOptions(
        workspace.result,
        command_seconds=settings.tools.command_seconds,
        allow_private=settings.tools.allow_private_addresses,
        background=workspace.background,
        sandbox=Sandbox(settings.sandbox.mode, workspace.root, (own.config, own.data, own.cache)),
    )


def tools_of(settings: Settings, workspace: Workspace) -> list[Tool]:
    """Return the built-in tools for a session in this workspace."""
    return builtin_tools(workspace, options=tool_options(settings, workspace))


def plugin_tools(
    settings: Settings, paths: Paths, workspace: Workspace, warn: Callable[[str], None]
) -> dict[str, Tool]:
    """Return the built-in tools and those of plugins, by name."""
    built_in = {tool.schema.name: tool for tool in tools_of(settings, workspace)}
    options = tool_options(settings, workspace)
    added, _ = plugins_of(settings, paths, warn).tools(workspace, options, built_in)
    return built_in | {name: tool for name, (_, tool) in added.items()}


def sources_of(
    settings: Settings, paths: Paths, workspace: Workspace, warn: Callable[[str], None]
) -> list[tuple[str, Tool]]:
    """Return every tool of a session in this workspace, with its source.

    Tools of MCP servers are those of their last listing; no server is started.
    """
    built_in = {tool.schema.name: tool for tool in tools_of(settings, workspace)}
    plugins, options = plugins_of(settings, paths, warn), tool_options(settings, workspace)
    plugin_tools, providers = plugins.tools(workspace, options, built_in)
    servers = servers_of(settings, paths, workspace, lambda: paths.files_folder)
    sources = [
        *(("built-in", tool) for tool in built_in.values()),
        *((f"plugin {plugin}", tool) for plugin, tool in plugin_tools.values()),
        *((f"plugin {provider.name}", tool) for provider in providers for tool in provider.tools),
        *((f"MCP server {server.name}", tool) for server in servers for tool in server.tools),
    ]
    by_name = {tool.schema.name: (source, tool) for source, tool in reversed(sources)}
    return [*by_name.values()][::-1]


def usable_skills(
    settings: Settings,
    paths: Paths,
    workspace: Workspace,
    tools: Container[str],
    warn: Callable[[str], None],
) -> "Sequence[Skill]":
    """Return every skill that a session with these tools could use, trusted or not; faulty ones are reported."""
    from ecoshell.agent.skill_files import skill_folders, skills_of, unused_text

    folders = skill_folders(
        paths.skills_folder, plugins_of(settings, paths, lambda _: None).skill_folders(), workspace
    )

    def report(definition: "Definition", reason: str) -> None:
        warn(unused_text(definition, reason))

    definitions = [definition for folder in folders for definition in folder.definitions()]
    for definition in definitions:
        if definition.fault:
            report(definition, definition.fault)
    usable = (definition for definition in definitions if not definition.fault)
    return skills_of(usable, workspace, tools, report)


def tool_named(name: str, tools: Sequence[Tool]) -> Tool:
    """Return the tool with this name; raises UsageError with the most similar name."""
    by_name = {tool.schema.name: tool for tool in tools}
    if name in by_name:
        return by_name[name]
    raise UsageError(f"Unknown tool {name!r}.", fix=similar_tool(name, by_name))


def similar_tool(name: str, names: Iterable[str]) -> str:
    """Suggest the tool with the most similar name."""
    closest = closest_word(name, names)
    return f"Did you mean {closest}?" if closest else "`ecoshell tools` lists all tools."


def priced(tools: Iterable[Tool], settings: Settings) -> list[Tool]:
    """Set the prices of the settings; raises UsageError for a tool that cannot have a price."""
    tools = list(tools)
    by_name = {tool.schema.name: tool for tool in tools} if settings.tools.prices else {}
    for name, price in settings.tools.prices.items():
        tool = by_name.get(name)
        if not isinstance(tool, FunctionTool):
            raise UsageError(
                f"[tools.prices] contains {name!r}, but no tool of this name can have a price.",
                fix=similar_tool(name, by_name),
            )
        tool.price_nano = parse_amount(price).value
    return tools


def servers_of(
    settings: Settings, paths: Paths, workspace: Workspace, files: Callable[[], Path]
) -> "list[McpServer]":
    """Return the enabled MCP servers; `files` returns the current folder for binary results."""
    if not settings.mcp.servers:
        return []
    from ecoshell.tools.mcp.provider import McpServer

    return [
        McpServer(
            server_of(name, server, workspace.root),
            folder=paths.mcp_folder,
            result=workspace.result,
            files=files,
        )
        for name, server in settings.mcp.servers.items()
        if server.enabled
    ]


def server_of(name: str, settings: McpServerSettings, workspace: Path) -> "Server":
    """Return a server from its settings; its default working directory is the workspace."""
    from ecoshell.tools.mcp.servers import Server

    return Server(
        name,
        command=(settings.command, *settings.args) if settings.command is not None else (),
        env=settings.env,
        cwd=str(workspace / expanded(settings.cwd or "")),
        url=settings.url or "",
        headers=settings.headers,
        trusted=settings.trusted,
        seconds=settings.seconds,
        sampling=settings.sampling,
        workspace=str(workspace),
        oauth=settings.oauth,
    )

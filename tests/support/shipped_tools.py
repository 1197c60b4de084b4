"""Built-in tools and those of the plugin `web`."""

from ecoshell.tools import Tool, ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace
from ecoshell_web import tools as web_tools


def shipped_tools(workspace: Workspace, options: ToolOptions | None = None) -> dict[str, Tool]:
    """Return the tools by name."""
    options = options or ToolOptions()
    tools = [*builtin_tools(workspace, options=options), *web_tools(options, {})]
    return {tool.schema.name: tool for tool in tools}

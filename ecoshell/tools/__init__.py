"""Tools: the interface of every tool, built-in tools, functions as tools, and MCP servers."""

from ecoshell.tools.tool import (
    LASTING,
    UNSTATED,
    Caller,
    Delegation,
    Limits,
    Previewing,
    ResultSize,
    Sample,
    Subject,
    Tool,
    ToolOptions,
    ToolProvider,
    Warming,
    caller,
    limits_of,
    subjects_of,
)

__all__ = [
    "LASTING",
    "UNSTATED",
    "Caller",
    "Delegation",
    "Limits",
    "Previewing",
    "ResultSize",
    "Sample",
    "Subject",
    "Tool",
    "ToolOptions",
    "ToolProvider",
    "Warming",
    "caller",
    "limits_of",
    "subjects_of",
]

"""A server of the SDK's for tests: over standard input and output, or over HTTP with a port as its argument."""

import asyncio
import os
import subprocess
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("tried")


class Sum(BaseModel):
    """What `add` gives."""

    total: int


@server.tool()
def add(first: int, second: int) -> Sum:
    """Add two numbers."""
    return Sum(total=first + second)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(name: str) -> str:
    """Look a variable of the environment up."""
    return os.environ.get(name, "nothing")


@server.tool()
async def wait(seconds: float, file: str) -> str:
    """Wait, and write down in a file how that ended."""
    with open(file, "w") as opened:  # noqa: ASYNC230, PTH123 - a line
        opened.write("begun")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        with open(file, "w") as opened:  # noqa: ASYNC230, PTH123 - a line
            opened.write("called off")
        raise
    return "waited"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Have a tool more."""

    def more() -> str:
        return name

    server.add_tool(more, name=name, description="One more.")
    await ctx.session.send_tool_list_changed()  # to clients of earlier versions of the protocol
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
def die() -> str:
    """End at once."""
    os._exit(3)


@server.tool()
def leave_behind() -> str:
    """Start a process in a session of its own, and give its number."""
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    return f"{left.pid} {os.getpid()}"


@server.tool()
def long() -> str:
    """Say a lot."""
    return "x" * 1_000_000


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()

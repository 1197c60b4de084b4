"""The client under test by the public conformance suite: connects to an address and calls the server's tools.

The suite gives the scenario and its context in the environment. The simulated user agrees to everything.
"""

import asyncio
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import keyring
from keyring.backends import null

from ecoshell.tools import ResultSize, Sample, caller
from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.mcp.servers import Server

CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
SIGNS_IN = os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith("auth/")
VALUES = {"string": "text", "number": 5, "integer": 5, "boolean": True, "array": [], "object": {}}


class Agrees:
    """A user who submits forms unchanged and opens every address, and a model that answers hello."""

    def progress(self, text):
        print(text)

    async def form(self, server, message, schema):
        return {
            name: field["default"]
            for name, field in schema["properties"].items()
            if "default" in field
        }

    async def visit(self, server, message, address):
        asyncio.get_running_loop().run_in_executor(None, browse, address)
        return True

    async def sample(self, server, messages, max_tokens, *, allowed):
        return Sample("Hello.", "model", cut=False)


def browse(address):
    """Open an address as a browser would, and follow its redirect to the local listener."""
    with suppress(OSError), urlopen(address, timeout=20):
        pass


def oauth():
    """How this client identifies itself to an authorization server."""
    credentials = {
        name: CONTEXT[name] for name in ("client_id", "client_secret") if name in CONTEXT
    }
    return credentials or {"metadata_url": "https://conformance-test.local/client-metadata.json"}


def arguments(tool):
    """A value for each required argument of a tool."""
    parameters = tool.schema.parameters
    needed = parameters.get("required", ())
    return {
        name: VALUES.get(parameters["properties"].get(name, {}).get("type"), "text")
        for name in needed
    }


async def main(address: str) -> int:
    keyring.set_keyring(null.Keyring())
    caller.set(Agrees())
    with tempfile.TemporaryDirectory() as folder:
        declared = Server("tried", url=address, oauth=oauth() if SIGNS_IN else {})
        server = McpServer(
            declared, folder=Path(folder), result=ResultSize(8_000), connect_seconds=100.0
        )
        try:
            await (server.sign_in() if SIGNS_IN else server.connect())
            tools = {tool.listed.name: tool for tool in server.tools}
            requested = [(call["name"], call["arguments"]) for call in CONTEXT.get("toolCalls", ())]
            calls = requested or [(name, arguments(tool)) for name, tool in tools.items()]
            runs = [
                tools[name].run(call_arguments) for name, call_arguments in calls if name in tools
            ]
            for result in await asyncio.gather(*runs):
                print(result.ok, result.text)
        finally:
            await server.aclose()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))

"""The client that the public conformance suite tries: connects to an address, and calls the tools that are there.

The suite says in the environment which scenario it is, and with what. A person is played who agrees to everything.
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
    """A person who leaves forms as they are and opens every address, and a model that says hello."""

    def progress(self, text):
        print(text)

    async def form(self, server, message, schema):
        return {name: one["default"] for name, one in schema["properties"].items() if "default" in one}

    async def visit(self, server, message, address):
        asyncio.get_running_loop().run_in_executor(None, browse, address)
        return True

    async def sample(self, server, messages, max_tokens, *, allowed):
        return Sample("Hello.", "model", cut=False)


def browse(address):
    """Go where a browser would be sent, and back to whoever listens here."""
    with suppress(OSError), urlopen(address, timeout=20):
        pass


def oauth():
    """What an authorization server knows this client by."""
    known = {name: CONTEXT[name] for name in ("client_id", "client_secret") if name in CONTEXT}
    return known or {"metadata_url": "https://conformance-test.local/client-metadata.json"}


def arguments(tool):
    """Something for each argument that a tool needs."""
    parameters = tool.schema.parameters
    needed = parameters.get("required", ())
    return {name: VALUES.get(parameters["properties"].get(name, {}).get("type"), "text") for name in needed}


async def main(address: str) -> int:
    keyring.set_keyring(null.Keyring())
    caller.set(Agrees())
    with tempfile.TemporaryDirectory() as folder:
        known = Server("tried", url=address, oauth=oauth() if SIGNS_IN else {})
        server = McpServer(known, folder=Path(folder), result=ResultSize(8_000), connect_seconds=100.0)
        try:
            await (server.sign_in() if SIGNS_IN else server.connect())
            tools = {tool.listed.name: tool for tool in server.tools}
            told = [(one["name"], one["arguments"]) for one in CONTEXT.get("toolCalls", ())]
            calls = told or [(name, arguments(tool)) for name, tool in tools.items()]
            for seen in await asyncio.gather(*(tools[name].run(given) for name, given in calls if name in tools)):
                print(seen.ok, seen.text)
        finally:
            await server.aclose()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))

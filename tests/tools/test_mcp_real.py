"""Third-party servers from PyPI and npm, installed in temporary environments.

Runs with `ECOSHELL_REAL_SERVERS=1` only, because other tests do not access the network.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress

import pytest

from ecoshell.tools import ResultSize
from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.mcp.servers import Server

pytest.importorskip("mcp")
pytestmark = pytest.mark.skipif(
    not os.environ.get("ECOSHELL_REAL_SERVERS"),
    reason="set ECOSHELL_REAL_SERVERS=1 to download and run servers",
)


@pytest.fixture
def opened(tmp_path):
    """A context manager that connects to a server and closes it."""

    @asynccontextmanager
    async def connected(*command, **options):
        server = McpServer(
            Server("real", command=command, cwd=str(tmp_path), **options),
            folder=tmp_path / "cache",
            result=ResultSize(8_000),
            files=lambda: tmp_path / "files",
            connect_seconds=240.0,
        )
        try:
            await server.connect()
            yield {tool.listed.name: tool for tool in server.tools}
        finally:
            await server.aclose()

    return connected


@asynccontextmanager
async def over_http(opened, *command):
    """Start a server that reads its port from `PORT`, and connect to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "PORT": str(port)},
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(600):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.1)
        async with opened(url=f"http://127.0.0.1:{port}/mcp") as tools:
            yield tools
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.fixture
def from_pypi(tmp_path):
    """A function that installs a package in a temporary environment and returns its program of the same name."""

    def install(package: str) -> str:
        folder = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [folder / "bin" / "pip", "install", "--quiet", package]
        if subprocess.run(pip, check=False, capture_output=True).returncode:
            pytest.skip(f"{package} cannot be installed")
        return str(folder / "bin" / package)

    return install


@pytest.fixture
def npx() -> str:
    return shutil.which("npx") or pytest.skip("npx is not installed")


async def test_the_time_server_returns_the_time(opened, from_pypi):
    async with opened(from_pypi("mcp-server-time")) as tools:
        assert {"get_current_time", "convert_time"} <= set(tools)
        assert (
            "Europe/Berlin"
            in (await tools["get_current_time"].run({"timezone": "Europe/Berlin"})).text
        )
        assert not (await tools["get_current_time"].run({"timezone": "Nowhere/At_all"})).ok


async def test_the_git_server_reads_a_repository(opened, from_pypi, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)  # noqa: ASYNC221 - nothing waits for it
    (tmp_path / "repo" / "new.txt").write_text("new")
    async with opened(from_pypi("mcp-server-git")) as tools:
        assert (
            "new.txt" in (await tools["git_status"].run({"repo_path": str(tmp_path / "repo")})).text
        )


async def test_the_filesystem_server_stays_in_its_folder(opened, npx, tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    folder = str(tmp_path / "inside")
    async with opened(npx, "-y", "@modelcontextprotocol/server-filesystem", folder) as tools:
        read = tools["read_text_file"]
        assert "inside" in (await read.run({"path": str(tmp_path / "inside" / "a.txt")})).text
        assert not (await read.run({"path": str(tmp_path / "b.txt")})).ok


async def test_the_memory_server_stores_entities(opened, npx, tmp_path):
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes bread"]}
    async with opened(npx, "-y", "@modelcontextprotocol/server-memory", env=env) as tools:
        assert (await tools["create_entities"].run({"entities": [entity]})).ok
        assert "likes bread" in (await tools["search_nodes"].run({"query": "Ada"})).text
    assert "likes bread" in (tmp_path / "memory.jsonl").read_text()


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp"])
async def test_the_server_everything_works(opened, npx, transport):
    command = (npx, "-y", "@modelcontextprotocol/server-everything")
    async with (
        over_http(opened, *command, transport)
        if transport != "stdio"
        else opened(*command) as tools
    ):
        assert "hello" in (await tools["echo"].run({"message": "hello"})).text
        total = next(tool for name, tool in tools.items() if "sum" in name or name == "add")
        assert "5" in (await total.run({"a": 2, "b": 3})).text
        image = next((tool for name, tool in tools.items() if "image" in name.lower()), None)
        if image is not None:
            assert "saved as" in (await image.run({})).text

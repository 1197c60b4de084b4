"""Servers that nobody here wrote, from PyPI and npm, in environments of their own; skipped where those cannot be had.

`ECOSHELL_REAL_SERVERS=1` runs them: they download, and tests are otherwise kept from the network.
"""

import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.mcp.servers import Server

pytest.importorskip("mcp")
pytestmark = pytest.mark.skipif(
    not os.environ.get("ECOSHELL_REAL_SERVERS"), reason="ECOSHELL_REAL_SERVERS=1 downloads servers and tries them"
)


@pytest.fixture
def opened(tmp_path):
    """Connects to a server from elsewhere, and closes it."""

    @asynccontextmanager
    async def connected(*command):
        server = McpServer(
            Server("real", command=command, cwd=str(tmp_path)),
            folder=tmp_path / "cache",
            characters=8_000,
            files=lambda: tmp_path / "files",
            connecting=240.0,
        )
        try:
            await server.connect()
            yield {tool.listed.name: tool for tool in server.tools}
        finally:
            await server.aclose()

    return connected


@pytest.fixture
def from_pypi(tmp_path):
    """Installs a package in an environment of its own, and gives the program of its name."""

    def install(package: str) -> str:
        folder = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        found = subprocess.run(
            [folder / "bin" / "pip", "install", "--quiet", package], check=False, capture_output=True
        )
        if found.returncode:
            pytest.skip(f"{package} cannot be installed here")
        return str(folder / "bin" / package)

    return install


@pytest.fixture
def npx() -> str:
    return shutil.which("npx") or pytest.skip("there is no npx")


async def test_the_time_server_tells_the_time(opened, from_pypi):
    async with opened(from_pypi("mcp-server-time")) as tools:
        assert {"get_current_time", "convert_time"} <= set(tools)
        assert "Europe/Berlin" in (await tools["get_current_time"].run({"timezone": "Europe/Berlin"})).text
        assert not (await tools["get_current_time"].run({"timezone": "Nowhere/At_all"})).ok


async def test_the_git_server_reads_a_repository(opened, from_pypi, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)  # noqa: ASYNC221 - nothing waits for it
    (tmp_path / "repo" / "new.txt").write_text("new")
    async with opened(from_pypi("mcp-server-git")) as tools:
        assert "new.txt" in (await tools["git_status"].run({"repo_path": str(tmp_path / "repo")})).text


async def test_the_filesystem_server_stays_in_its_folder(opened, npx, tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    folder = str(tmp_path / "inside")
    async with opened(npx, "-y", "@modelcontextprotocol/server-filesystem", folder) as tools:
        read = tools["read_text_file"]
        assert "inside" in (await read.run({"path": str(tmp_path / "inside" / "a.txt")})).text
        assert not (await read.run({"path": str(tmp_path / "b.txt")})).ok


async def test_the_server_of_everything_is_understood(opened, npx):
    async with opened(npx, "-y", "@modelcontextprotocol/server-everything") as tools:
        assert "hello" in (await tools["echo"].run({"message": "hello"})).text
        total = next(tool for name, tool in tools.items() if "sum" in name or name == "add")
        assert "5" in (await total.run({"a": 2, "b": 3})).text
        image = next((tool for name, tool in tools.items() if "image" in name.lower()), None)
        if image is not None:
            assert "kept in" in (await image.run({})).text

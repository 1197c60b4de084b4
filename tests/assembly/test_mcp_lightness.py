"""Fifty servers of twenty tools cost nothing until one of them is wanted."""

import json
import os
import subprocess
import sys
from pathlib import Path

OPENED = """
import asyncio, json, sys, threading
from pathlib import Path
from ecoshell.assembly.shell import assemble
from ecoshell.options import Options

async def main():
    shell = await assemble(Options(model="script:" + sys.argv[1]))
    await shell.status()
    loaded = sorted(sys.modules)
    children = Path("/proc/self/task").glob("*/children")
    started = [child for file in children for child in file.read_text().split()]
    print(json.dumps([loaded, len(shell.deps.catalog), started]))
    await shell.aclose()

asyncio.run(main())
"""


def opened(home: Path) -> tuple[set[str], int, list[str]]:
    script = home / "script.jsonl"
    script.write_text("")
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "ECOSHELL_HOME": str(home)},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    loaded, tools, started = json.loads(done.stdout)
    return set(loaded), tools, started


def configure(home: Path) -> None:
    """Fifty servers in the settings, and the lists they gave when they were connected to."""
    from ecoshell.tools.mcp.servers import CachedLists, Server

    (home / "config").mkdir(parents=True)
    settings: list[str] = []
    for number in range(50):
        name, url = f"server{number}", f"http://127.0.0.1:9/{number}"
        settings.append(f'[mcp.servers.{name}]\nurl = "{url}"\n')
        records = [
            {
                "name": f"tool{at}",
                "description": "Does.",
                "parameters": {"type": "object", "properties": {"a": {}}},
            }
            for at in range(20)
        ]
        CachedLists(home / "cache" / "mcp", Server(name, url=url, cwd=str(Path.cwd()))).write(
            {"tools": records}
        )
    (home / "config" / "config.toml").write_text("".join(settings))


def test_fifty_servers_start_nothing_and_load_only_what_reads_their_lists(tmp_path: Path) -> None:
    for name in ("none", "fifty"):
        (tmp_path / name).mkdir()
    configure(tmp_path / "fifty")
    without, tools, _ = opened(tmp_path / "none")
    with_them, all_tools, started = opened(tmp_path / "fifty")
    assert all_tools == tools + 1000
    assert {
        name for name in with_them - without if not name.startswith("ecoshell.tools.mcp")
    } == set()
    assert started == []
    assert not {"mcp", "mcp_types", "httpx2", "jsonschema"} & with_them

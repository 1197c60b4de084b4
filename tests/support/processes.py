"""Processes started by the shells of a home that still run."""

import asyncio
from pathlib import Path

import pytest


def processes_of(home: Path) -> list[str]:
    """Command lines of running processes that were started with this `ECOSHELL_HOME`."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("the environment of other processes cannot be read here")
    return [
        line for folder in Path("/proc").glob("[0-9]*") if (line := _command_line(folder, home))
    ]


async def process_appears(home: Path, part: str) -> None:
    """Wait for a process of the home with `part` in its command line; a new process has no environment at first."""
    async with asyncio.timeout(600):
        while not any(part in line for line in processes_of(home)):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


def _command_line(folder: Path, home: Path) -> str:
    """The command line if the process belongs to the home, else an empty string; the process may end meanwhile."""
    try:
        if f"ECOSHELL_HOME={home}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
            return ""
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

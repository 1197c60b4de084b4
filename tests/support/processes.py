"""Which processes a home's shells have started and not ended."""

import asyncio
from pathlib import Path

import pytest


def processes_of(home: Path) -> list[str]:
    """Command lines of the living processes whose `ECOSHELL_HOME` this was when they started."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("the environment of other processes cannot be read here")
    return [line for folder in Path("/proc").glob("[0-9]*") if (line := _command_line(folder, home))]


async def process_appears(home: Path, part: str) -> None:
    """Wait until one of them has this in its command line; a program just started has no environment to read yet."""
    async with asyncio.timeout(600):
        while not any(part in line for line in processes_of(home)):  # noqa: ASYNC110 - nothing else tells when
            await asyncio.sleep(0.01)


def _command_line(folder: Path, home: Path) -> str:
    """The command line if the process belongs to the home, else nothing; a process may end while it is looked at."""
    try:
        if f"ECOSHELL_HOME={home}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
            return ""
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

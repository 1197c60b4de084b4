"""The files of a workspace by name, as a person would look for them: what git ignores and what hides is left out."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from ecoshell.tools.builtin.walk import CLOSED

MOST = 20_000
"""Files listed at most."""
_CLOSED = CLOSED | {"venv", "env", "dist", "build", "target", "site-packages"}
_SECONDS = 5.0
_GIT = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
"""A repository may name a program in `core.fsmonitor`; looking for a file must not run it."""


async def files_of(root: Path) -> list[str]:
    """Files below `root` by their paths in it, at most MOST, and the folders they are in, which end in a slash."""
    listed = await _from_git(root)
    if listed is None:
        return await asyncio.to_thread(lambda: _with_folders(itertools.islice(_walked(root), MOST)))
    return await asyncio.to_thread(lambda: _with_folders(itertools.islice(_present(root, listed), MOST)))


async def _from_git(root: Path) -> list[str] | None:
    """What git knows or would add; None where there is no repository, no git, or no answer in time."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*_GIT, cwd=root, stdin=nothing, stdout=pipe, stderr=nothing)
    except OSError:
        return None
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return os.fsdecode(output).split("\0")[:-1] if process.returncode == 0 else None


def _present(root: Path, listed: Iterable[str]) -> Iterator[str]:
    """Those that are there: git also lists what was deleted and not committed."""
    return (path for path in dict.fromkeys(listed) if _nameable(path) and (root / path).is_file())


def _walked(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _CLOSED)
        for name in sorted(files):
            path = (Path(base) / name).relative_to(root).as_posix()
            if not name.startswith(".") and _nameable(path):
                yield path


def _nameable(path: str) -> bool:
    """Whether the path can be typed and shown: no control characters, no bytes that are not UTF-8."""
    return path.isprintable()


def _with_folders(files: Iterable[str]) -> list[str]:
    found = list(files)
    folders = {f"{folder}/" for path in found for folder in PurePosixPath(path).parents if folder.name}
    return sorted([*found, *folders])

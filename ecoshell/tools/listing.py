"""The files of a workspace by name, as a person would look for them: what git ignores and what hides is left out."""

import asyncio
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from ecoshell.tools.builtin.walk import CLOSED
from ecoshell.tools.git import git

MOST = 20_000
"""Files listed at most."""
_CLOSED = CLOSED | {"venv", "env", "dist", "build", "target", "site-packages"}
_SECONDS = 5.0
_FILES = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")


async def files_of(root: Path) -> list[str]:
    """Files below `root` by their paths in it, at most MOST, and the folders they are in, which end in a slash."""
    listed = await _from_git(root)
    if listed is None:
        return await asyncio.to_thread(lambda: _with_folders(itertools.islice(_walked(root), MOST)))
    return await asyncio.to_thread(lambda: _with_folders(itertools.islice(_present(root, listed), MOST)))


async def top_of(root: Path, seconds: float) -> dict[str, list[str]]:
    """What is in a workspace, by name (folders end in a slash), and of each folder what is in that.

    What git ignores and what hides is left out. Of each at most MOST are looked at; a folder for which the time was up
    seems empty.
    """
    listed = await _from_git(root, seconds)
    if listed is None:
        return await asyncio.to_thread(_scanned, root, time.monotonic() + seconds)
    return await asyncio.to_thread(lambda: _branched(itertools.islice(_present(root, listed), MOST)))


def _branched(paths: Iterable[str]) -> dict[str, list[str]]:
    """The first two levels of these paths."""
    top: dict[str, dict[str, None]] = {}
    for path in paths:
        name, slash, rest = path.partition("/")
        inner, deeper, _ = rest.partition("/")
        if not name.startswith(".") and not inner.startswith("."):
            below = top.setdefault(name + slash, {})
            if inner:
                below[inner + deeper] = None
    return {name: sorted(top[name]) for name in sorted(top)}


def _scanned(root: Path, until: float) -> dict[str, list[str]]:
    return {name: _names_in(root / name, until) if name.endswith("/") else [] for name in _names_in(root, until)}


def _names_in(folder: Path, until: float) -> list[str]:
    """The names in a folder; none where it cannot be read, or where it is too late."""
    try:
        with os.scandir(folder) as entries:
            found = itertools.takewhile(lambda _: time.monotonic() < until, itertools.islice(entries, MOST))
            names = [f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name for one in found]
    except OSError:
        return []
    return sorted(
        name for name in names if not name.startswith(".") and _nameable(name) and name.rstrip("/") not in _CLOSED
    )


async def _from_git(root: Path, seconds: float = _SECONDS) -> list[str] | None:
    """What git knows or would add; None where there is no repository, no git, or no answer in time."""
    listed = await git(root, *_FILES, seconds=seconds)
    return None if listed is None else listed.split("\0")[:-1]


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

"""Listings of the workspace: all files for completion, and its first two levels for models."""

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ecoshell.tools.git_state import git
from ecoshell.tools.workspace import CLOSED

MAX_FILES = 20_000
_CLOSED = CLOSED | {"venv", "env", "dist", "build", "target", "site-packages"}
_GIT_SECONDS = 5.0
_LS_FILES = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")


async def files_of(root: Path) -> list[str]:
    """The relative paths of up to MAX_FILES files below `root`, and of their folders, which end in a slash."""
    git_output = await git(root, *_LS_FILES, seconds=_GIT_SECONDS)

    def listing() -> list[str]:
        names = _walk(root) if git_output is None else _existing(root, git_output)
        files = list(itertools.islice(names, MAX_FILES))
        folders = {
            f"{folder}/" for path in files for folder in PurePosixPath(path).parents if folder.name
        }
        return sorted([*files, *folders])

    return await asyncio.to_thread(listing)


async def top_of(root: Path, seconds: float) -> dict[str, list[str]]:
    """The names in a workspace, each with the names inside it; folders end in a slash.

    Omits hidden files, files that git ignores, and everything after MAX_FILES files or the time limit.
    """
    git_output = await git(root, *_LS_FILES, seconds=seconds)
    deadline = time.monotonic() + seconds

    def listing() -> dict[str, list[str]]:
        if git_output is None:
            names = _names_in(root, deadline)
            return {
                name: _names_in(root / name, deadline) if name.endswith("/") else []
                for name in names
            }
        top: dict[str, dict[str, None]] = {}
        for path in itertools.islice(_existing(root, git_output), MAX_FILES):
            name, slash, tail = path.partition("/")
            inner, inner_slash, _ = tail.partition("/")
            if not name.startswith(".") and not inner.startswith("."):
                children = top.setdefault(name + slash, {})
                if inner:
                    children[inner + inner_slash] = None
        return {name: sorted(top[name]) for name in sorted(top)}

    return await asyncio.to_thread(listing)


def _names_in(folder: Path, deadline: float) -> list[str]:
    """The names in a folder; empty if it is unreadable or the deadline has passed."""
    try:
        with os.scandir(folder) as scan:
            entries = itertools.takewhile(
                lambda _: time.monotonic() < deadline, itertools.islice(scan, MAX_FILES)
            )
            names = [
                f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
            ]
    except OSError:
        return []
    return sorted(
        name
        for name in names
        if not name.startswith(".") and name.isprintable() and name.rstrip("/") not in _CLOSED
    )


def _existing(root: Path, git_output: str) -> Iterator[str]:
    """The printable paths that git lists, without files deleted since the last commit."""
    names = dict.fromkeys(git_output.split("\0")[:-1])
    return (path for path in names if path.isprintable() and (root / path).is_file())


def _walk(root: Path) -> Iterator[str]:
    for base, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _CLOSED
        )
        for name in sorted(files):
            path = (Path(base) / name).relative_to(root).as_posix()
            if not name.startswith(".") and path.isprintable():
                yield path

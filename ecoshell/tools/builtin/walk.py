"""Goes through the folders of the workspace without leaving it."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ecoshell.worker import checkpoint

HIDDEN = frozenset({".git", ".hg", ".svn"})
"""Never shown: they hold the history of a project, not the project."""
CLOSED = frozenset({"node_modules", ".venv", ".tox", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
"""Shown, but not entered: what other programs put there would bury the rest."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder; `path` is relative to where the walk began, `folder` the open descriptor of its folder."""

    path: str
    name: str
    folder: int
    status: os.stat_result
    depth: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder itself, not a link to one."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.status.st_mode)

    def open(self) -> BinaryIO:
        """Open the entry for reading; valid only until the walk goes on. Raises OSError when it became a link."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.fdopen(os.open(self.name, flags, dir_fd=self.folder), "rb")

    def target(self) -> str:
        """Where a symbolic link points; empty for anything else."""
        return os.readlink(self.name, dir_fd=self.folder) if stat.S_ISLNK(self.status.st_mode) else ""


def walk(descriptor: int, depth: int | None = None) -> Iterator[Entry]:
    """Every entry below an open folder, at most `depth` levels down, in order of name; links are not followed."""
    for base, folders, files, here in os.fwalk(".", dir_fd=descriptor):
        level = 0 if base == "." else base.count("/")
        for name in sorted(set(folders + files) - HIDDEN):
            checkpoint()
            try:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:  # gone since the folder was read
                continue
            yield Entry(f"{base}/{name}".removeprefix("./"), name, here, status, level + 1)
        inner = depth is None or level + 1 < depth
        folders[:] = sorted(set(folders) - HIDDEN - CLOSED) if inner else []

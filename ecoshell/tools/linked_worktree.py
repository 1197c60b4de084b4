"""The folders of another repository that git in a linked worktree writes."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_WRITTEN = ("objects", "refs/heads", "logs/refs/heads")
"""What a commit writes in the repository, besides the worktree's own folder; no hooks and no settings."""
_FIXED = ("commondir", "gitdir", "modules")
"""Files of the worktree's own folder that say where git finds hooks and settings."""
_MAX_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class LinkedWorktree:
    """A folder whose `.git` is a file that names its own folder in another repository."""

    repository: Path
    """The repository's `.git` folder."""
    own: Path
    """Its folder `worktrees/NAME`, with index and HEAD."""

    @property
    def settings(self) -> Path:
        """Settings of this worktree, which git obeys and a command does not write."""
        return self.own / "config.worktree"

    def writable(self) -> Iterator[Path]:
        """Yield the folders that a commit writes."""
        yield self.own
        for path in (self.repository / name for name in _WRITTEN):
            if path.is_dir() and Path(os.path.realpath(path)) == path:
                yield path

    def fixed(self) -> Iterator[Path]:
        """Yield the existing files and folders in those that must not change."""
        for path in (*(self.own / name for name in _FIXED), self.settings):
            if os.path.lexists(path):
                yield path


def linked_worktree(folder: Path) -> LinkedWorktree | None:
    """Return the linked worktree with this real path; None if the folder is not one.

    Repository and worktree must name each other, so that files in the folder cannot point at any repository.
    """
    with suppress(OSError, UnicodeDecodeError, ValueError):
        word, _, place = _line(folder / ".git").partition(": ")
        own = Path(os.path.realpath(folder / place))
        repository = Path(os.path.realpath(own / _line(own / "commondir")))
        places = Path(os.path.realpath(own / _line(own / "gitdir"))), own.parent
        user = os.geteuid()
        if (
            word == "gitdir"
            and places == (folder / ".git", repository / "worktrees")
            and not folder.is_relative_to(repository)
            and all(path.stat().st_uid == user for path in (own, repository))
        ):
            return LinkedWorktree(repository, own)
    return None


def _line(file: Path) -> str:
    """The only line of a small file; raises OSError and UnicodeDecodeError."""
    with file.open("rb") as opened:
        return opened.read(_MAX_BYTES).decode().rstrip("\n")

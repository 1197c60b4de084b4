"""Files that rules on effects protect: tools that read a whole folder leave them out, and the sandbox holds them."""

import os
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from ecoshell.tools.path_patterns import folded_patterns, is_within

_MAX_PATHS = 100_000
"""Maximum number of paths of a workspace that are compared with the rules for a command."""


@dataclass(frozen=True, slots=True)
class Protection:
    """The files of a workspace that are not read and not written, as folded patterns."""

    root: Path
    unread: frozenset[str]
    unwritten: frozenset[str]

    @classmethod
    def of(cls, workspace: Path, read: Iterable[str], write: Iterable[str]) -> "Protection":
        """Return what these patterns of rules protect; reads links from the disk."""
        root = Path(os.path.realpath(workspace))
        unread, unwritten = (
            frozenset(folded for pattern in patterns for folded in folded_patterns(root, pattern))
            for patterns in (read, write)
        )
        return cls(root, unread, unwritten)

    def hides(self, path: str) -> bool:
        """Return whether a resolved path, absolute or relative to the workspace, is not read."""
        return bool(self.unread) and is_within(self.unread, os.path.join(self.root, path))  # noqa: PTH118

    def paths(self) -> Iterator[tuple[Path, bool]]:
        """Yield the topmost existing paths that are protected, and whether they are not even read."""
        if not self.unread and not self.unwritten:
            return
        count = 0
        for folder, folders, files in os.walk(self.root):
            for name in (*folders, *files):
                path, count = f"{folder}/{name}", count + 1
                is_unread = is_within(self.unread, path)
                if is_unread or is_within(self.unwritten, path):
                    yield Path(path), is_unread
                    if is_unread and name in folders:
                        folders.remove(name)
            if count > _MAX_PATHS:
                return


protection: ContextVar[Protection | None] = ContextVar("protection", default=None)
"""What the running tool omits."""


class Omissions:
    """Tells which entries of a folder are omitted, and counts them."""

    def __init__(self, folder: str) -> None:
        """`folder` is a resolved path relative to the workspace."""
        self._folder = folder
        self._protection = protection.get()
        self.count = 0

    def __call__(self, path: str) -> bool:
        """Return whether an entry, by its path relative to the folder, is omitted."""
        if self._protection is None or not self._protection.hides(
            os.path.normpath(f"{self._folder}/{path}")
        ):
            return False
        self.count += 1
        return True

    def note(self) -> str:
        """Return the line that says what was omitted; empty if nothing was."""
        return f"\n[omitted: {self.count} that the user's rules protect]" if self.count else ""

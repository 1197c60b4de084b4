"""Files that rules on effects protect: tools that read a whole folder leave them out, and the sandbox holds them."""

import os
import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from ecoshell.tools.path_patterns import GLOB, folded_patterns, is_within

_MAX_PATHS = 100_000
"""Maximum number of paths of a workspace that are compared with the rules for a command."""


_EVERYTHING = re.compile(r"(^|/)\**$")
"""The end of a pattern that covers everything in a folder."""


@dataclass(frozen=True, slots=True)
class Protection:
    """The files of a workspace that are not read and not written, as folded patterns."""

    root: Path
    unread: frozenset[str]
    unwritten: frozenset[str]
    named: tuple[tuple[Path, bool], ...] = ()
    """The paths that patterns name without wildcards, with everything below, and whether they are not read."""

    @classmethod
    def of(cls, workspace: Path, read: Sequence[str], write: Sequence[str]) -> "Protection":
        """Return what these patterns of rules protect; reads links from the disk."""
        root = Path(os.path.realpath(workspace))
        unread, unwritten = (
            frozenset(folded for pattern in patterns for folded in folded_patterns(root, pattern))
            for patterns in (read, write)
        )
        named = dict[Path, bool]()
        for patterns, is_unread in ((write, False), (read, True)):
            for path in filter(None, (_named(root, pattern) for pattern in patterns)):
                named[Path(os.path.realpath(path))] = is_unread
        return cls(root, unread, unwritten, tuple(named.items()))

    def hides(self, path: str) -> bool:
        """Return whether a resolved path, absolute or relative to the workspace, is not read."""
        return bool(self.unread) and is_within(self.unread, os.path.join(self.root, path))  # noqa: PTH118

    def paths(self) -> Iterator[tuple[Path, bool]]:
        """Yield the existing real paths that are protected, and whether they are not even read.

        A folder counts if a pattern covers everything in it; what lies below an unread one is omitted.
        """
        for path, is_unread in self.named:
            if not self.root.is_relative_to(path):
                yield from [(path, is_unread)] if path.exists() else ()
            elif not is_unread:
                yield self.root, False
        unread, unwritten = _with_folders(self.unread), _with_folders(self.unwritten)
        for folder, folders, files in _walk(self.root) if unread or unwritten else ():
            below = set(folders)
            for name in (*folders, *files):
                path, is_folder = f"{folder}/{name}", name in below
                is_unread = is_within(unread if is_folder else self.unread, path)
                if is_unread or is_within(unwritten if is_folder else self.unwritten, path):
                    real = Path(os.path.realpath(path))
                    if real.exists() and not self.root.is_relative_to(real):
                        yield real, is_unread
                    if is_unread and is_folder:
                        folders.remove(name)


def is_held(workspace: Path, effect: str, pattern: str) -> bool:
    """Return whether the sandbox holds a rule on reading or writing, also for files that do not exist yet."""
    root = Path(os.path.realpath(workspace))
    path, stem = _named(root, pattern), GLOB.split(pattern)[0]
    folder = path or Path(os.path.normpath(root / stem[: stem.rfind("/") + 1]))
    is_inside, is_around = folder.is_relative_to(root), root.is_relative_to(folder)
    if is_inside and Path(os.path.realpath(folder)) != folder:
        return False  # A command can replace the link.
    if path is None:
        if effect == "write":
            return not is_inside and not is_around
        count = sum(len(folders) + len(files) for _, folders, files in _walk(root))
        return is_inside and count <= _MAX_PATHS
    if effect == "read":
        return is_inside or not is_around
    return not is_inside or (folder.is_dir() if _EVERYTHING.search(pattern) else folder.exists())


def _named(root: Path, pattern: str) -> Path | None:
    """Return the path that a pattern names together with everything below; None if it has other wildcards."""
    stem = _EVERYTHING.sub("", pattern)
    if GLOB.search(stem):
        return None
    return Path(os.path.normpath(root / (stem or pattern[: pattern.startswith("/")])))


def _with_folders(patterns: frozenset[str]) -> frozenset[str]:
    """Return folded patterns with those of the folders in which they cover everything."""
    stems = {_EVERYTHING.sub("", pattern) for pattern in patterns}
    return patterns | stems - {""}


def _walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the folders of a workspace as `os.walk` does, until it has too many paths."""
    count = 0
    for folder, folders, files in os.walk(root):
        count += len(folders) + len(files)
        yield folder, folders, files
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

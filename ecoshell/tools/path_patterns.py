"""Paths in calls, compared with the path patterns of rules."""

import fnmatch
import glob
import itertools
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

GLOB = re.compile(r"[*?\[]")
"""The beginning of a wildcard."""
_MAX_PATH = 4096
"""Characters of a path; no system allows more."""


def locations(workspace: Path, path: str) -> tuple[str, str] | None:
    """A path normalised and with its links resolved, both absolute; None if it is not a path."""
    if not path.strip() or "\0" in path or len(path) > _MAX_PATH:
        return None
    try:
        top, alias = os.path.realpath(workspace), posixpath.abspath(workspace)
        absolute = posixpath.join(top, path)
        normal, real = posixpath.normpath(absolute), os.path.realpath(absolute)
    except (OSError, ValueError):
        return None
    if f"{normal}/".startswith(f"{alias}/"):  # the path starts with a link to the workspace
        normal = f"{top}{normal[len(alias) :]}"
    return normal, real


def absolute_pattern(top: str, pattern: str) -> str:
    """The absolute, normalised form of a rule's pattern; a final slash matches everything below."""
    pattern = f"{pattern}*" if pattern.endswith("/") else pattern
    if posixpath.isabs(pattern):
        return posixpath.normpath(pattern)
    return posixpath.normpath(f"{glob.escape(top)}/{pattern}")


def folded_patterns(workspace: Path, pattern: str) -> set[str]:
    """The absolute forms of a rule's pattern, as written and with its links resolved, folded."""
    top, stem = os.path.realpath(workspace), GLOB.split(pattern)[0]
    folder = stem if stem == pattern else stem[: stem.rfind("/") + 1]
    # Links are resolved before the first wildcard.
    resolved = glob.escape(os.path.realpath(posixpath.join(top, folder)))
    if len(folder) < len(pattern):
        resolved = f"{resolved}/{pattern[len(folder) :]}"
    patterns = [absolute_pattern(top, pattern), resolved]
    if pattern.startswith("*"):
        patterns.append(pattern)
    return set(map(fold, patterns))


def is_within(patterns: Iterable[str], path: str) -> bool:
    """Whether one of these folded patterns matches an absolute path or a folder above it."""
    folders = list(ancestors(fold(path)))
    return any(fnmatch.fnmatchcase(folder, pattern) for pattern in patterns for folder in folders)


def may_be_in(workspace: Path, pattern: str, paths: tuple[str, str]) -> bool:
    """Whether the pattern matches one of these paths, a folder above it, or something below it."""
    patterns, is_folder = folded_patterns(workspace, pattern), posixpath.isdir(paths[1])
    for folded_pattern, path in itertools.product(patterns, map(fold, paths)):
        plain = GLOB.split(folded_pattern)[0]
        if is_within((folded_pattern,), path):
            return True
        if is_folder and (plain.startswith(f"{path}/") or f"{path}/".startswith(plain)):
            return True
    return False


def ancestors(path: str) -> Iterator[str]:
    """The path and all folders above it."""
    yield path
    while path != (path := posixpath.dirname(path)):
        yield path


def fold(text: str) -> str:
    """A path in the form in which the most tolerant file system compares it, where `.GIT` is `.git`."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    if plain.isascii():
        return plain
    return "".join(char for char in plain if unicodedata.category(char) != "Cf")

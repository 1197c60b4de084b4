"""Takes back what a turn wrote: files get the content, the mode and the existence they had before it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ecoshell.errors import ToolError, UsageError
from ecoshell.tools.builtin.files import unified
from ecoshell.tools.workspace import Kept, UndoLog, Workspace, digest

Outcome = Literal["restored", "kept", "changed", "as before"]
_COMPARED = 200_000
"""Bytes of a file up to which it is shown how it was changed."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A file that is not what the turn left: somebody has changed it since, and is to be asked."""

    path: str
    changes: str
    """What taking it back would change, as a unified diff; empty where it is no text, or long."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of it, by the files' names in the workspace."""

    restored: tuple[str, ...]
    kept: tuple[str, ...]
    """Left as they are: somebody else changed them, too, or there is no copy."""
    changed: tuple[Changed, ...] = ()
    """Those of them that could be taken back all the same."""


def restore(log: UndoLog, session: str, copies: str, *, over: str = "") -> Restored:
    """Take back the writes of one turn; doing it twice does no harm. Raises StoreError.

    `over` names a file that is taken back although somebody has changed it since, and then it is the only one.
    """
    writes = [write for write in log.writes(session, copies) if over in ("", write.path)]
    outcomes: dict[str, Outcome] = {}
    changed: list[Changed] = []
    files: dict[str, dict[str, list[Kept]]] = {}
    for write in writes:
        files.setdefault(write.root, {}).setdefault(write.path, []).append(write)
    for root, by_file in files.items():
        for path, of_file in by_file.items():
            try:
                copy = log.copy(session, copies, of_file[0]) if of_file[0].copy else None
                workspace = Workspace(Path(root), undo=log)
                outcomes[path] = _take_back(workspace, of_file, copy, over=bool(over))
                if outcomes[path] == "changed":
                    changed.append(Changed(path, _changes(path, workspace.read_bytes(path), copy)))
            except (ToolError, UsageError, OSError):  # the workspace is gone, the file is a folder now or read-only
                outcomes[path] = "kept"
        made = {folder for of_file in by_file.values() for write in of_file for folder in write.folders}
        for folder in sorted(made, key=lambda name: -name.count("/")):
            with suppress(ToolError, UsageError):  # one that cannot be removed may stay
                Workspace(Path(root)).remove(folder, folder=True)
    restored = tuple(path for path, outcome in outcomes.items() if outcome == "restored")
    kept = tuple(path for path, outcome in outcomes.items() if outcome in ("kept", "changed"))
    return Restored(restored, kept, tuple(changed))


def _take_back(workspace: Workspace, writes: Sequence[Kept], copy: bytes | None, *, over: bool) -> Outcome:
    """Give one file what it was before the first of these writes.

    Not (but for `over`) where it is not what they left, or one of them replaced what somebody wrote between them.
    """
    first = writes[0]
    no_copy = first.lost or (first.existed and copy is None)
    if no_copy or workspace.name(workspace.resolve(first.path)) != first.path:  # or a link leads elsewhere
        return "kept"
    now = workspace.read_bytes(first.path)
    ours = {"", *(write.after for write in writes), *([] if copy is None else [digest(copy)])}
    met = {write.found for write in writes}
    if not over and now != copy and (now is None or not {digest(now), *met} <= ours):
        return "changed"
    if copy is None:
        workspace.remove(first.path)
    elif now != copy:
        workspace.put_back(first.path, copy, first.mode)
    return "as before" if now == copy else "restored"


def _changes(path: str, now: bytes | None, copy: bytes | None) -> str:
    if max(len(now or b""), len(copy or b"")) > _COMPARED:
        return ""
    try:
        return unified(path, None if now is None else now.decode(), "" if copy is None else copy.decode())
    except UnicodeDecodeError:
        return ""

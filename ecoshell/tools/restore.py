"""Takes back what a turn wrote: files get the content, the mode and the existence they had before it."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ecoshell.errors import ToolError, UsageError
from ecoshell.tools.undo import Kept, UndoLog, digest
from ecoshell.tools.workspace import Workspace

Outcome = Literal["restored", "kept", "as before"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of it, by the files' names in the workspace."""

    restored: tuple[str, ...]
    kept: tuple[str, ...]
    """Left as they are: somebody changed them after the turn, or there is no copy."""


def restore(log: UndoLog, session: str, turn: int) -> Restored:
    """Take back the writes of one turn; doing it twice does no harm. Raises StoreError."""
    writes = log.writes(session, turn)
    outcomes: dict[str, Outcome] = {}
    for root in dict.fromkeys(write.root for write in writes):
        for path, of_file in _by_file(write for write in writes if write.root == root).items():
            try:
                copy = log.copy(session, turn, of_file[0]) if of_file[0].copy else None
                outcomes[path] = _take_back(Workspace(Path(root)), of_file, copy)
            except (ToolError, UsageError, OSError):  # the workspace is gone, the file is a folder now or read-only
                outcomes[path] = "kept"
        _remove_folders(root, writes)
    return Restored(_with(outcomes, "restored"), _with(outcomes, "kept"))


def _by_file(writes: Iterable[Kept]) -> dict[str, list[Kept]]:
    files: dict[str, list[Kept]] = {}
    for write in writes:
        files.setdefault(write.path, []).append(write)
    return files


def _take_back(workspace: Workspace, writes: Sequence[Kept], copy: bytes | None) -> Outcome:
    """Give one file what it was before the first of these writes, unless it is not what one of them left."""
    first = writes[0]
    if first.lost or workspace.name(workspace.resolve(first.path)) != first.path:  # no copy, or a link leads elsewhere
        return "kept"
    now = workspace.read_bytes(first.path)
    if now != copy and (now is None or digest(now) not in {write.after for write in writes}):
        return "kept"
    if copy is None:
        workspace.remove(first.path)
    elif now != copy:
        workspace.put_back(first.path, copy, first.mode)
    return "as before" if now == copy else "restored"


def _remove_folders(root: str, writes: Iterable[Kept]) -> None:
    """Remove the folders the writes made, as far as they are empty; one that cannot be removed may stay."""
    made = {folder for write in writes if write.root == root for folder in write.folders}
    for folder in sorted(made, key=lambda name: -name.count("/")):
        with suppress(ToolError, UsageError):
            Workspace(Path(root)).remove_empty(folder)


def _with(outcomes: dict[str, Outcome], wanted: Outcome) -> tuple[str, ...]:
    return tuple(path for path, outcome in outcomes.items() if outcome == wanted)

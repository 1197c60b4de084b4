"""Undo the writes of a turn: restore content, mode and existence of its files."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ecoshell.errors import ToolError, UsageError
from ecoshell.tools.diffs import unified
from ecoshell.tools.undo_log import SavedWrite, UndoLog, digest
from ecoshell.tools.workspace import Workspace

Outcome = Literal["restored", "removed", "kept", "changed", "as before"]
_MAX_DIFF_BYTES = 200_000
"""Maximum size of a file whose changes are displayed."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A file that was changed after the turn, so that the user must confirm its restoration."""

    path: str
    changes: str
    """Unified diff of the restoration; empty for binary and large files."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of an undo, as paths relative to the workspace."""

    restored: tuple[str, ...]
    kept: tuple[str, ...]
    """Unchanged files: changed by others, or without a copy."""
    changed: tuple[Changed, ...] = ()
    """Files of `kept` that can be restored after confirmation."""
    removed: tuple[str, ...] = ()
    """Files of `restored` that did not exist before the turn."""


def restore(log: UndoLog, session: str, copies: str, *, over: str = "") -> Restored:
    """Undo the writes of one turn; idempotent. Raises StoreError.

    `over` names a single file to restore although it was changed after the turn.
    """
    writes = [write for write in log.writes(session, copies) if over in ("", write.path)]
    outcomes: dict[str, Outcome] = {}
    changed: list[Changed] = []
    files: dict[str, dict[str, list[SavedWrite]]] = {}
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
            except (ToolError, UsageError, OSError):
                # The workspace was removed, or the file is not writable.
                outcomes[path] = "kept"
        created = {
            folder for of_file in by_file.values() for write in of_file for folder in write.folders
        }
        for folder in sorted(created, key=lambda name: -name.count("/")):
            with suppress(ToolError, UsageError):  # Folders with other content stay.
                Workspace(Path(root)).remove(folder, folder=True)

    def ended(*ends: Outcome) -> tuple[str, ...]:
        return tuple(path for path, outcome in outcomes.items() if outcome in ends)

    restored, unchanged = ended("restored", "removed"), ended("kept", "changed")
    return Restored(restored, unchanged, tuple(changed), ended("removed"))


def _take_back(
    workspace: Workspace, writes: Sequence[SavedWrite], copy: bytes | None, *, over: bool
) -> Outcome:
    """Restore one file to its state before the first of these writes.

    Unless `over`, a file that was changed between or after these writes is not restored.
    """
    first = writes[0]
    has_no_copy = first.lost or (first.existed and copy is None)
    leads_elsewhere = workspace.name(workspace.resolve(first.path)) != first.path
    if has_no_copy or leads_elsewhere:
        return "kept"
    now = workspace.read_bytes(first.path)
    own_digests = {"", *(write.after for write in writes)}
    if copy is not None:
        own_digests.add(digest(copy))
    replaced = {write.found for write in writes}
    if not over and now != copy and (now is None or not {digest(now), *replaced} <= own_digests):
        return "changed"
    if copy is None:
        workspace.remove(first.path)
    elif now != copy:
        workspace.put_back(first.path, copy, first.mode)
    if now == copy:
        return "as before"
    return "removed" if copy is None else "restored"


def _changes(path: str, now: bytes | None, copy: bytes | None) -> str:
    if max(len(now or b""), len(copy or b"")) > _MAX_DIFF_BYTES:
        return ""
    try:
        return unified(path, None if now is None else now.decode(), (copy or b"").decode())
    except UnicodeDecodeError:
        return ""

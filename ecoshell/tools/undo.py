"""What files were like before each turn changed them, kept on disk so that a turn can be undone after a kill too.

One folder for a session, one in it for a turn of one process: two shells that go on with the same session count their
turns alike. In it `index.jsonl` has a line for each write, in order, and each numbered file beside it holds what a file
was before the turn's first write to it. Both are written before the file itself, for their owner alone.
"""

import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ecoshell.errors import StoreError
from ecoshell.paths import is_special, make_private

TEMPORARY = ".*.part"
"""How files are called that are being written, and the notes of them."""
_INDEX = "index.jsonl"
_OUTDATED = 30 * 86_400.0
"""Seconds after which the copies of a session that nobody used are removed."""


@dataclass(frozen=True, slots=True)
class Before:
    """A file as it was before a write; `data` is None when there was none."""

    root: str
    """The workspace's folder."""
    path: str
    """Relative to the workspace."""
    data: bytes | None
    mode: int | None
    folders: tuple[str, ...] = ()
    """Folders the write makes, relative to the workspace, outermost first."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One write as it is kept; `copy` is empty for a file that was not there, and when the turn wrote to it before."""

    root: str
    path: str
    existed: bool
    mode: int | None
    copy: str
    after: str
    """The digest of what was written."""
    folders: tuple[str, ...] = ()
    lost: str = ""
    """Why there is no copy, although one is needed."""


class UndoLog:
    """Keeps copies for the last turns of each session, within bounds; may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        owner: str = "",
        turns: int = 20,
        file_bytes: int = 10_000_000,
        total_bytes: int = 200_000_000,
    ) -> None:
        """`turns` and `total_bytes` count for one session; a file over `file_bytes` is not kept.

        No two processes that may talk in one session have the same `owner`.
        """
        self._folder = folder
        self._owner = owner
        self._turns = turns
        self.file_bytes = file_bytes
        """The size of the largest file that is kept."""
        self._total_bytes = total_bytes
        self._lock = threading.Lock()
        self._session = ""
        self._copies = ""
        self._known: dict[str, str] = {}
        """Files of the turn of the moment, each with why its first state is lost; empty where it is kept."""
        self._lost: list[str] = []

    def enter(self, session: str, turn: int) -> str:
        """From now on writes belong to this turn of this session; gives the name its copies are found by."""
        with self._lock:
            self._session, self._copies = session, f"{turn}.{self._owner}" if self._owner else str(turn)
            self._known, self._lost = {}, []
            return self._copies

    def keep(self, before: Before, after: bytes) -> None:
        """Keep what a file is before `after` is written to it; what cannot be kept is said by `take_lost`."""
        with self._lock:
            if not self._session:  # a workspace that is used outside a session
                return
            try:
                self._keep(before, digest(after))
            except OSError as error:
                why = f"no copy could be kept ({error.strerror or error})"
                if not self._known.get(before.path):
                    self._lost.append(f"/undo will not restore {before.path}: {why}.")
                self._known[before.path] = why

    @contextmanager
    def writing(self, folder: Path, temporary: str) -> Generator[None]:
        """While it lasts, a temporary file stands in the folder that `sweep` removes should this process be killed."""
        note, descriptor = self._folder / temporary, None
        try:
            if self._session:
                with suppress(OSError):  # nothing can be kept there, which `keep` has said
                    descriptor = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    os.write(descriptor, os.fsencode(folder))
            yield
        finally:
            if descriptor is not None:
                note.unlink(missing_ok=True)
                os.close(descriptor)

    def sweep(self) -> None:
        """Remove the temporary files that killed processes have left in workspaces."""
        for note in self._folder.glob(TEMPORARY) if self._folder.is_dir() else ():
            with suppress(OSError), note.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the process that writes there lives
                folder = os.fsdecode(file.read())
                if folder:
                    Path(folder, note.name).unlink(missing_ok=True)
                note.unlink(missing_ok=True)

    def take_lost(self) -> list[str]:
        """What /undo will not be able to restore, said once."""
        with self._lock:
            said, self._lost = self._lost, []
            return said

    def writes(self, session: str, copies: str) -> tuple[Kept, ...]:
        """The writes of a turn, in order; none when it made none or its copies are no longer there.

        A line that was being written when the process was killed, or that is damaged, is left out.
        """
        file = self._place(session, copies) / _INDEX
        try:
            lines = b"" if is_special(file) else file.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}.", kept="Nothing was undone.") from error
        found: list[Kept] = []
        for line in lines.splitlines():
            try:
                record: dict[str, Any] = json.loads(line)
                kept = replace(Kept(**record), folders=tuple(map(str, record["folders"])))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if {*map(type, (kept.root, kept.path, kept.copy, kept.after, kept.lost))} == {str}:
                found.append(kept)
        return tuple(found)

    def copy(self, session: str, copies: str, kept: Kept) -> bytes:
        """What the file held; raises OSError when the copy is gone."""
        return (self._place(session, copies) / kept.copy).read_bytes()

    def forget(self, session: str, copies: str = "") -> None:
        """Remove the copies of one turn, or all of a session, as when it is deleted."""
        shutil.rmtree(self._place(session, copies), ignore_errors=True)

    def _keep(self, before: Before, after: str) -> None:
        place = self._place(self._session, self._copies)
        if not self._known or not place.is_dir():
            make_private(self._folder)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            oldest = time.time() - _OUTDATED
            for folder in self._folder.iterdir():
                if folder.name != self._session and folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder, ignore_errors=True)
            earlier = self._turn_folders(place.parent)
            for folder in earlier[: max(0, len(earlier) - self._turns + 1)]:
                shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(mode=0o700)
        lost, copy = self._known.get(before.path, ""), ""
        if before.path not in self._known and before.data is not None:
            lost = self._too_large(place, len(before.data))
            copy = "" if lost else str(len(self._known) + 1)
            if copy:
                try:
                    _add(place / copy, before.data)
                except OSError:
                    (place / copy).unlink(missing_ok=True)
                    raise
        kept = Kept(before.root, before.path, before.data is not None, before.mode, copy, after, before.folders, lost)
        _add(place / _INDEX, b"\n" + json.dumps(asdict(kept)).encode() + b"\n")  # before it may stand half a line
        if lost and before.path not in self._known:
            self._lost.append(f"/undo will not restore {before.path}: {lost}.")
        self._known[before.path] = lost

    def _too_large(self, place: Path, size: int) -> str:
        """Why a copy of this size cannot be kept; makes room by removing those of the oldest turns."""
        if size > self.file_bytes:
            return f"it was larger than {self.file_bytes:,} bytes"
        folders = self._turn_folders(place.parent)
        sizes = {folder: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
        used = sum(sizes.values())
        for folder in folders:
            if used + size <= self._total_bytes:
                return ""
            if folder != place:
                shutil.rmtree(folder, ignore_errors=True)
                used -= sizes[folder]
        return "" if used + size <= self._total_bytes else "too much was changed in this turn to keep all of it"

    def _turn_folders(self, session: Path) -> Sequence[Path]:
        """The folders of the session's turns, oldest first."""
        numbered = [(one.name.partition(".")[0], one) for one in session.iterdir()]
        return [one for _, one in sorted((int(turn), one) for turn, one in numbered if turn.isdecimal())]

    def _place(self, session: str, copies: str) -> Path:
        return self._folder / session / copies


def digest(data: bytes) -> str:
    """What tells one content from another."""
    return hashlib.sha256(data).hexdigest()


def _add(file: Path, data: bytes) -> None:
    """Add bytes to a file, which is its owner's alone from before the first."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as opened:
        opened.write(data)

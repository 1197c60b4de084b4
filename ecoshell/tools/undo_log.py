"""Copies of files from before each turn's writes, so that `/undo` can restore them."""

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
"""Name pattern of files being written and of their notes."""
_INDEX = "index.jsonl"
_TEXTS = ("root", "path", "copy", "after", "lost", "found")
"""Fields of a `SavedWrite` that a damaged index could give another type."""
_MAX_AGE_SECONDS = 30 * 86_400.0
"""Copies of sessions unused for this long are removed."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file before a write; `data` is None if it did not exist. Paths are relative to the workspace `root`."""

    root: str
    path: str
    data: bytes | None
    mode: int | None
    folders: tuple[str, ...] = ()
    """Folders that the write creates, outermost first."""


@dataclass(frozen=True, slots=True)
class SavedWrite:
    """The record of one write; `copy` is empty for new files and for later writes of the same turn."""

    root: str
    path: str
    existed: bool
    mode: int | None
    copy: str
    after: str
    """Digest of the written data."""
    folders: tuple[str, ...] = ()
    lost: str = ""
    """Reason why a required copy is missing."""
    found: str = ""
    """Digest of the data that the write replaced; empty for a new file."""


class UndoLog:
    """Copies of files from before the latest turns of each session, available even after a kill.

    Each session has a folder with one folder per turn and process, because two shells in one session number their turns
    alike. `index.jsonl` has a line for each write; numbered files hold the state before the turn's first write. Both
    are written before the file itself and readable by the owner only. Thread-safe.
    """

    def __init__(
        self,
        folder: Path,
        *,
        owner: str = "",
        turns: int = 20,
        file_bytes: int = 10_000_000,
        total_bytes: int = 200_000_000,
    ) -> None:
        """`turns` and `total_bytes` limit one session; larger files than `file_bytes` are not copied.

        `owner` differs between processes that may use the same session.
        """
        self._folder = folder
        self._owner = owner
        self._turns = turns
        self.file_bytes = file_bytes
        """Maximum size of a copied file."""
        self._total_bytes = total_bytes
        self._lock = threading.Lock()
        self._session = ""
        self._copies = ""
        self._known: dict[str, str] = {}
        """Files of the current turn, with the reason why the copy is missing, or an empty text."""
        self._lost: list[str] = []

    def enter(self, session: str, turn: int) -> str:
        """Start a turn, and return the name of its copies."""
        with self._lock:
            self._session = session
            self._copies = f"{turn}.{self._owner}" if self._owner else str(turn)
            self._known = {}
            self._lost = []
            return self._copies

    def keep(self, state: FileState, after: bytes) -> None:
        """Copy a file before `after` is written to it; failures are reported by `take_lost`."""
        with self._lock:
            if not self._session:  # The workspace is used outside of a session.
                return
            try:
                self._keep(state, digest(after))
            except OSError as error:
                reason = f"no copy could be made ({error.strerror or error})"
                if not self._known.get(state.path):
                    self._lost.append(f"/undo will not restore {state.path}: {reason}.")
                self._known[state.path] = reason

    @contextmanager
    def writing(self, folder: Path, temporary: str) -> Generator[None]:
        """Note a temporary file in the folder, so that `sweep` removes it if this process is killed."""
        note = self._folder / temporary
        descriptor = None
        try:
            if self._session:
                with suppress(OSError):  # `keep` has reported a folder that is not writable.
                    descriptor = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    os.write(descriptor, os.fsencode(folder))
            yield
        finally:
            if descriptor is not None:
                note.unlink(missing_ok=True)
                os.close(descriptor)

    def sweep(self) -> None:
        """Remove temporary files of killed processes from workspaces."""
        for note in self._folder.glob(TEMPORARY) if self._folder.is_dir() else ():
            with suppress(OSError), note.open("rb") as file:
                # Raises while the writing process is alive.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder = os.fsdecode(file.read())
                if folder:
                    Path(folder, note.name).unlink(missing_ok=True)
                note.unlink(missing_ok=True)

    def take_lost(self) -> list[str]:
        """Return and clear the messages about files that /undo cannot restore."""
        with self._lock:
            messages = self._lost
            self._lost = []
            return messages

    def writes(self, session: str, copies: str) -> tuple[SavedWrite, ...]:
        """Return the writes of a turn in order; empty without copies. Skips incomplete and damaged lines."""
        file = self._place(session, copies) / _INDEX
        try:
            lines = b"" if is_special(file) else file.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(
                f"{file} cannot be read: {error.strerror}.", kept="Nothing was undone."
            ) from error
        writes: list[SavedWrite] = []
        for line in lines.splitlines():
            try:
                record: dict[str, Any] = json.loads(line)
                write = replace(SavedWrite(**record), folders=tuple(map(str, record["folders"])))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if all(isinstance(getattr(write, name), str) for name in _TEXTS):
                writes.append(write)
        return tuple(writes)

    def copy(self, session: str, copies: str, write: SavedWrite) -> bytes:
        """Return the content of a copy; raises OSError if it is missing."""
        return (self._place(session, copies) / write.copy).read_bytes()

    def forget(self, session: str, copies: str = "") -> None:
        """Remove the copies of one turn or of a whole session."""
        shutil.rmtree(self._place(session, copies), ignore_errors=True)

    def _keep(self, state: FileState, after: str) -> None:
        place = self._place(self._session, self._copies)
        if not self._known or not place.is_dir():
            make_private(self._folder)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            oldest = time.time() - _MAX_AGE_SECONDS
            for folder in self._folder.iterdir():
                if folder.name != self._session and folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder, ignore_errors=True)
            earlier = self._turn_folders(place.parent)
            for folder in earlier[: max(0, len(earlier) - self._turns + 1)]:
                shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(mode=0o700)
        lost, copy = self._known.get(state.path, ""), ""
        if state.path not in self._known and state.data is not None:
            lost = self._too_large(place, len(state.data))
            copy = "" if lost else str(len(self._known) + 1)
            if copy:
                try:
                    _append(place / copy, state.data)
                except OSError:
                    (place / copy).unlink(missing_ok=True)
                    raise
        existed = state.data is not None
        replaced = "" if state.data is None else digest(state.data)
        write = SavedWrite(
            state.root, state.path, existed, state.mode, copy, after, state.folders, lost, replaced
        )
        # The leading line break ends a line that a killed process left incomplete.
        _append(place / _INDEX, b"\n" + json.dumps(asdict(write)).encode() + b"\n")
        if lost and state.path not in self._known:
            self._lost.append(f"/undo will not restore {state.path}: {lost}.")
        self._known[state.path] = lost

    def _too_large(self, place: Path, size: int) -> str:
        """Make room by removing the oldest turns; returns the reason if the copy still does not fit."""
        if size > self.file_bytes:
            return f"it was larger than {self.file_bytes:,} bytes"
        sizes = {
            folder: sum(file.stat().st_size for file in folder.iterdir())
            for folder in self._turn_folders(place.parent)
        }
        excess = sum(sizes.values()) + size - self._total_bytes
        for folder, folder_size in sizes.items():
            if excess > 0 and folder != place:
                shutil.rmtree(folder, ignore_errors=True)
                excess -= folder_size
        return "this turn changed too much to copy all of it" if excess > 0 else ""

    def _turn_folders(self, session: Path) -> Sequence[Path]:
        """Return the folders of the session's turns, oldest first."""
        numbered = [(folder.name.partition(".")[0], folder) for folder in session.iterdir()]
        turns = sorted((int(turn), folder) for turn, folder in numbered if turn.isdecimal())
        return [folder for _, folder in turns]

    def _place(self, session: str, copies: str) -> Path:
        return self._folder / session / copies


def digest(data: bytes) -> str:
    """Return the SHA-256 digest."""
    return hashlib.sha256(data).hexdigest()


def _append(file: Path, data: bytes) -> None:
    """Append to a file that only its owner can read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as opened:
        opened.write(data)

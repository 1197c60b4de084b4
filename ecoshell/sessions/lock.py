"""Locks by which only one shell at a time writes a session; each ends with its process."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ecoshell.errors import UsageError
from ecoshell.paths import make_private


class SessionLock:
    """The lock of one session, held until `release` or the end of the process.

    It excludes nobody where files cannot be locked or the folder cannot be written.
    """

    def __init__(self, folder: Path, session: str, *, fix: str) -> None:
        """Take the lock; raises UsageError with this `fix` if another shell has it."""
        self._file = folder / f"{session}.lock"
        self._opened: BinaryIO | None = None
        try:
            make_private(folder)
            while self._opened is None:
                self._opened = self._locked()
        except BlockingIOError as error:
            raise UsageError(f"Session {session} is open in another ecoshell.", fix=fix) from error
        except OSError:
            pass

    def _locked(self) -> BinaryIO | None:
        """The locked file; None if its last owner has just removed it. Raises OSError."""
        opened = self._file.open("ab")
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_file(opened):
                return opened
        except BaseException:
            opened.close()
            raise
        opened.close()
        return None

    def _is_file(self, opened: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(opened.fileno()), self._file.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let other shells open the session."""
        if self._opened is not None:
            with suppress(OSError):
                self._file.unlink()
            self._opened.close()
            self._opened = None

"""The draft: what stands in the prompt, kept in a file so that no crash takes it."""

import os
from contextlib import suppress
from pathlib import Path


class DraftFile:
    """One draft on disk. A file that cannot be written is no error: the draft is then only on the screen."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> str:
        """The draft of the last time, or nothing."""
        try:
            return self._file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def write(self, text: str) -> None:
        """Keep the draft, whole or not at all; an empty one removes the file."""
        with suppress(OSError):
            if not text.strip():
                self._file.unlink(missing_ok=True)
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._file.with_suffix(f".{os.getpid()}")
            fresh.write_text(text, encoding="utf-8", errors="backslashreplace")
            fresh.replace(self._file)

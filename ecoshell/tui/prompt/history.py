"""What was sent before, in the file and the format that the line shell uses too (prompt-toolkit's FileHistory)."""

from datetime import datetime
from pathlib import Path

_KEPT = 1_000
_TAIL = 1_000_000
"""Bytes read from the end of the file."""


class History:
    """Questions from oldest to newest, and a place in them while a person looks back.

    A file that cannot be read or written is no error: the history then lasts as long as the chat.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._entries = _read(file) if file else []
        self._place = len(self._entries)
        self._draft = ""

    def back(self, draft: str) -> str | None:
        """The entry before; `draft` is what the prompt holds now. None at the beginning."""
        if self._place == 0:
            return None
        if self._place == len(self._entries):
            self._draft = draft
        self._place -= 1
        return self._entries[self._place]

    def forward(self) -> str | None:
        """The entry after, and after the last one the draft again. None when not looking back."""
        if self._place >= len(self._entries):
            return None
        self._place += 1
        return self._draft if self._place == len(self._entries) else self._entries[self._place]

    def add(self, text: str) -> None:
        """Keep what was sent, unless it is what was sent last, and stop looking back."""
        if not self._entries or self._entries[-1] != text:
            self._entries.append(text)
            self._write(text)
        self._place = len(self._entries)

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        lines = "".join(f"+{line}\n" for line in text.split("\n"))
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8", errors="backslashreplace") as out:
                out.write(f"\n# {datetime.now()}\n{lines}")
        except OSError:
            self._file = None  # a full disk or a read-only home must not stop the chat


def _read(file: Path) -> list[str]:
    try:
        with file.open("rb") as source:
            source.seek(max(0, source.seek(0, 2) - _TAIL))
            text = source.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    entries: list[str] = []
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.startswith("+"):
            lines.append(line[1:])
        elif lines:
            entries.append("\n".join(lines))
            lines.clear()
    return entries[-_KEPT:]

"""What was sent before, in the file and the format that the line shell uses too (prompt-toolkit's FileHistory)."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.paths import make_private
from ecoshell.tui.prompt.drafts import Draft

if TYPE_CHECKING:
    from ecoshell.messages import Attachment

_KEPT = 1_000
_TAIL = 1_000_000
"""Bytes read from the end of the file."""
_ATTACHED = 20_000_000
"""Characters of attachments that are remembered; they last as long as the chat and are not in the file."""


class History:
    """Questions from oldest to newest, and a place in them while a person looks back.

    A file that cannot be read or written stops nothing: the history then lasts as long as the chat.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._entries: list[str] = []
        self._place = 0
        self._draft = Draft()
        self._attachments: dict[str, tuple[Attachment, ...]] = {}

    def load(self) -> list[str]:
        """The entries of the file, to be given to `begin_with`; takes its time and changes nothing."""
        return _read(self._file) if self._file else []

    def begin_with(self, entries: Iterable[str]) -> None:
        """Put these before what was sent since."""
        before = list(entries)
        self._entries[:0] = before
        self._place += len(before)

    def back(self, draft: Draft) -> Draft | None:
        """The entry before; `draft` is what the prompt holds now. None at the beginning."""
        if self._place == 0:
            return None
        if self._place == len(self._entries):
            self._draft = draft
        self._place -= 1
        return self.recalled(self._entries[self._place])

    def forward(self) -> Draft | None:
        """The entry after, and after the last one the draft again. None when not looking back."""
        if self._place >= len(self._entries):
            return None
        self._place += 1
        return self._draft if self._place == len(self._entries) else self.recalled(self._entries[self._place])

    def search(self, query: str) -> list[str]:
        """The entries that hold every word of the query, the newest first; with a capital in it, case counts."""
        fold = str.lower if query.islower() or not query else str
        words = fold(query).split()
        newest_first = dict.fromkeys(reversed(self._entries))
        return [entry for entry in newest_first if all(word in fold(entry) for word in words)]

    def recalled(self, entry: str) -> Draft:
        """An entry as it was sent, with its attachments where they are still remembered."""
        return Draft(entry, self._attachments.get(entry, ()))

    def add(self, draft: Draft) -> bool:
        """Remember what was sent and stop looking back; says whether it is new, and to be written to the file."""
        is_new = bool(draft.text.strip()) and self._entries[-1:] != [draft.text]
        if is_new:
            self._entries.append(draft.text)
        if draft.attachments:
            self._attachments[draft.text] = draft.attachments
            self._forget_the_oldest_attachments()
        self._place = len(self._entries)
        return is_new

    def write(self, text: str) -> OSError | None:
        """Add an entry to the file; takes its time. Gives why this one and those after it are not kept, once."""
        if self._file is None:
            return None
        lines = "".join(f"+{line}\n" for line in text.split("\n"))
        try:
            make_private(self._file.parent)
            self._file.touch(mode=0o600)
            with self._file.open("a", encoding="utf-8", errors="backslashreplace") as out:
                out.write(f"\n# {datetime.now()}\n{lines}")
        except OSError as failure:
            self._file = None  # a full disk or a read-only home must not stop the chat
            return failure
        return None

    def _forget_the_oldest_attachments(self) -> None:
        sizes = {entry: sum(len(one.text) for one in kept) for entry, kept in self._attachments.items()}
        excess = sum(sizes.values()) - _ATTACHED
        for entry, size in list(sizes.items())[:-1]:
            if excess <= 0:
                break
            excess -= size
            del self._attachments[entry]


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

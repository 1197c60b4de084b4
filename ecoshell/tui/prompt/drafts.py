"""The draft, large pastes and the history of the prompt, stored in files so that a crash does not lose them."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ecoshell.paths import is_special, make_private, replacement

if TYPE_CHECKING:
    from ecoshell.messages import Attachment, Image


_MARK = "\0attachments "
"""Start of a draft with attachments; typed text contains no NUL."""
_PAUSE = 0.5
"""Seconds without a change after which the draft is stored."""
_MAX_DELAY = 2.0
"""Seconds after which it is stored in any case."""
_MAX_INLINE_LINES = 20
_MAX_INLINE_CHARACTERS = 2_000
"""Larger pastes are replaced by a marker."""
_MARKER = re.compile(r"\[(?:(paste-(\d+)) · [\d,]+ (?:lines|characters)|image [^\n]+? \d+×\d+)\]")
_MAX_ENTRIES = 1_000
_TAIL_BYTES = 1_000_000
"""The part of the history file that is read."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Typed text, and the large pastes whose markers it contains."""

    text: str = ""
    attachments: "tuple[Attachment, ...]" = ()


@dataclass(slots=True, eq=False, repr=False)
class DraftFile:
    """A draft on disk, stored in a thread while the user types.

    File errors are not fatal; the draft is then on the screen only. A draft without attachments is plain text, one with
    attachments is JSON after a mark.
    """

    file: Path
    current: Callable[[], Draft] | None = None
    """Returns the draft to store."""
    complain: Callable[[OSError], None] | None = None
    """Called once if the draft cannot be stored."""
    _changed_at: float = 0.0
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def read(self) -> Draft:
        """The stored draft, or an empty one."""
        if is_special(self.file):
            return Draft()
        try:
            with self.file.open(encoding="utf-8", errors="replace", newline="") as source:
                content = source.read()
        except OSError:
            return Draft()
        if not content.startswith(_MARK):
            return Draft(content)
        from ecoshell.messages import Attachment, Image  # not needed for the first frame

        stored = content.removeprefix(_MARK)
        try:
            record = json.loads(stored)
            attachments = (
                Attachment(item["name"], item["text"], item["image"] and Image(**item["image"]))
                for item in record["attachments"]
            )
            return Draft(record["text"], tuple(attachments))
        except (ValueError, TypeError, KeyError, RecursionError):  # damaged
            return Draft(stored)

    def write(self, draft: Draft) -> OSError | None:
        """Store the draft atomically; an empty one removes the file. Return the error, if any."""
        try:
            if draft.text.strip():
                make_private(self.file.parent)
                text = draft.text
                if draft.attachments:
                    text = f"{_MARK}{json.dumps(asdict(draft))}"
                with replacement(self.file) as fresh:
                    fresh.write(text.encode(errors="backslashreplace"))
            else:
                self.file.unlink(missing_ok=True)
        except OSError as failure:
            return failure
        return None

    def touch(self) -> None:
        """Schedule storing after a change."""
        self._changed_at = asyncio.get_running_loop().time()
        if self.current is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._keep(self.current))

    async def close(self) -> None:
        """Store the current draft, after a write in progress."""
        self._closing.set()
        self.touch()
        if self._task is not None:
            await self._task

    async def _keep(self, current: Callable[[], Draft]) -> None:
        """Store the draft at every pause, at the latest after `_MAX_DELAY`, and at the end."""
        stored_at, clock = -1.0, asyncio.get_running_loop().time
        while stored_at < self._changed_at:
            latest = clock() + _MAX_DELAY
            while (
                not self._closing.is_set()
                and (delay := min(self._changed_at + _PAUSE, latest) - clock()) > 0
            ):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), delay)
            stored_at = clock()
            failure = await asyncio.to_thread(self.write, current())
            if failure is not None and self.complain is not None and not self._closing.is_set():
                self.complain(failure)
                self.complain = None


def is_large(text: str) -> bool:
    """Whether a paste is replaced by a marker."""
    return (
        len(text) > _MAX_INLINE_CHARACTERS
        or text.count("\n", 0, _MAX_INLINE_CHARACTERS) >= _MAX_INLINE_LINES
    )


def unified(text: str) -> str:
    """The text with `\\n` line ends (terminals send carriage returns) and without NULs."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


@dataclass(slots=True)
class Pastes:
    """Large pastes and images by their markers.

    A paste stays here after its marker is deleted, so that undo works; a draft has only those whose markers it
    contains. A marker typed by hand is plain text.
    """

    by_marker: "dict[str, Attachment]" = field(default_factory=dict[str, "Attachment"])
    _last: int = 0
    """Number of the last paste, unique within a chat."""

    def add(self, text: str) -> str:
        """Store a paste and return its marker: `[paste-1 · 312 lines]`."""
        from ecoshell.messages import Attachment  # not needed for the first frame

        self._last += 1
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        marker = f"[paste-{self._last} · {size}]"
        self.by_marker[marker] = Attachment(f"paste-{self._last}", text)
        return marker

    def add_image(self, image: "Image") -> str:
        """Store an image and return its marker: `[image photo.png 640×480]`."""
        from ecoshell.images import attached, label  # not needed for the first frame

        name, number = image.name, 1
        while label(image) in self.by_marker and self.by_marker[label(image)].image != image:
            number += 1
            image = replace(image, name=f"{name} ({number})")
        self.by_marker[label(image)] = attached(image)
        return label(image)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of every marker of a stored paste in a text."""
        for match in _MARKER.finditer(text):
            if match[0] in self.by_marker:
                yield match.span()

    def attachments_of(self, text: str) -> "tuple[Attachment, ...]":
        """The pastes whose markers are in a text, each once."""
        markers = dict.fromkeys(text[start:end] for start, end in self.spans(text))
        return tuple(self.by_marker[marker] for marker in markers)

    def expand(self, text: str) -> str:
        """The text with every marker replaced by its paste."""

        def paste(match: re.Match[str]) -> str:
            attachment = self.by_marker.get(match[0])
            return attachment.text if attachment else match[0]

        return _MARKER.sub(paste, text)

    def adopt(self, text: str, attachments: "Iterable[Attachment]") -> None:
        """Store the pastes of an earlier draft; new ones are numbered after them."""
        by_name = {
            attachment.text if attachment.image else attachment.name: attachment
            for attachment in attachments
        }
        for match in _MARKER.finditer(text):
            if (attachment := by_name.get(match[1] or match[0])) is not None:
                self.by_marker[match[0]] = attachment
                self._last = max(self._last, int(match[2] or 0))


class History:
    """Sent questions from oldest to newest, with a position for browsing.

    File errors are not fatal; the history then lasts as long as the chat.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = None if file is None or is_special(file) else file
        self._entries: list[str] = []
        self._place = 0
        self._draft = Draft()
        self._attachments: dict[str, tuple[Attachment, ...]] = {}

    def load(self) -> list[str]:
        """Read the entries of the file, for `prepend`."""
        if self._file is None:
            return []
        try:
            with self._file.open("rb") as source:
                source.seek(max(0, source.seek(0, 2) - _TAIL_BYTES))
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
        return entries[-_MAX_ENTRIES:]

    def prepend(self, entries: Iterable[str]) -> None:
        """Insert older entries before those of this chat."""
        older = list(entries)
        self._entries[:0] = older
        self._place += len(older)

    def move(self, by: Literal[-1, 1], draft: Draft) -> Draft | None:
        """The previous or next entry, and after the last one the draft from before browsing; None beyond the ends."""
        place = self._place + by
        if not 0 <= place <= len(self._entries):
            return None
        if self._place == len(self._entries):
            self._draft = draft
        self._place = place
        return self._draft if place == len(self._entries) else self.recalled(self._entries[place])

    def search(self, query: str) -> list[str]:
        """Entries with every word of the query, newest first; capitals make it case-sensitive."""
        fold = str.lower if query.islower() or not query else str
        words = fold(query).split()
        newest_first = dict.fromkeys(reversed(self._entries))
        return [entry for entry in newest_first if all(word in fold(entry) for word in words)]

    def recalled(self, entry: str) -> Draft:
        """An entry with its attachments, if it was sent in this chat."""
        return Draft(entry, self._attachments.get(entry, ()))

    def add(self, draft: Draft) -> bool:
        """Add what was sent and stop browsing; return whether it is new and has to be written to the file."""
        is_new = bool(draft.text.strip()) and self._entries[-1:] != [draft.text]
        if is_new:
            self._entries.append(draft.text)
        if draft.attachments:
            self._attachments[draft.text] = draft.attachments
        self._place = len(self._entries)
        return is_new

    def write(self, text: str) -> OSError | None:
        """Append an entry to the file; return the first error, after which nothing is written."""
        if self._file is None:
            return None
        lines = "".join(f"+{line}\n" for line in text.split("\n"))
        try:
            make_private(self._file.parent)
            self._file.touch(mode=0o600)
            with self._file.open("a", encoding="utf-8", errors="backslashreplace") as out:
                out.write(f"\n# {datetime.now()}\n{lines}")
        except OSError as failure:
            self._file = None
            return failure
        return None

"""What is typed and what was sent: the draft, large pastes beside it, and the history.

Draft and history are kept in files, so that no crash takes them.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ecoshell.paths import is_special, make_private, replacement

if TYPE_CHECKING:
    from ecoshell.messages import Attachment, Image


_MARK = "\0attachments "
"""How a draft with attachments begins: no text that was typed holds a NUL."""
_SLICE = 1 << 20
"""Characters written in one go: other threads get their turn between them."""
_PAUSE = 0.5
"""Seconds without a change after which the draft is kept."""
_LONGEST = 2.0
"""Seconds after which it is kept although the person types on."""
_LINES = 20
_CHARACTERS = 2_000
"""A paste with more lines or more characters than these is kept aside."""
_MARKER = re.compile(r"\[(?:(paste-(\d+)) · [\d,]+ (?:lines|characters)|image [^\n]+? \d+×\d+)\]")
_KEPT = 1_000
_TAIL = 1_000_000
"""Bytes read from the end of the file."""
_ATTACHED = 20_000_000
"""Characters of attachments that are remembered; they last as long as the chat and are not in the file."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is typed, and the large pastes whose markers stand in it."""

    text: str = ""
    attachments: "tuple[Attachment, ...]" = ()


@dataclass(slots=True, eq=False, repr=False)
class DraftFile:
    """One draft on disk, kept while a person types: off the event loop, one write after the other.

    A file that cannot be read or written stops nothing: the draft is then only on the screen. A draft without
    attachments is its plain text. One with attachments begins with a line that lists its parts, the text (no name) and
    each attachment with their lengths in characters, and the parts follow one after the other.
    """

    file: Path
    current: Callable[[], Draft] | None = None
    """Gives what is kept from now on."""
    complain: Callable[[OSError], None] | None = None
    """Told once, while a person types, why it is not kept."""
    _changed_at: float = 0.0
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def read(self) -> Draft:
        """The draft of the last time, or an empty one."""
        if is_special(self.file):
            return Draft()
        try:
            with self.file.open(encoding="utf-8", errors="replace", newline="") as source:
                kept = source.read()
        except OSError:
            return Draft()
        if not kept.startswith(_MARK):
            return Draft(kept)
        from ecoshell.messages import Attachment, Image  # no first frame waits for it

        try:
            head, _, body = kept.removeprefix(_MARK).partition("\n")
            parts: list[dict[str, Any]] = json.loads(head)
            texts: list[Attachment] = []
            for part in parts:
                name, text = str(part["name"]), body[: part["length"]]
                texts.append(Attachment(name, text, Image(**part["image"]) if "image" in part else None))
                body = body[part["length"] :]
        except (ValueError, TypeError, KeyError, RecursionError):  # it is no such file
            return Draft(kept.removeprefix(_MARK))
        return Draft(texts[0].text if texts else body, tuple(texts[1:]))

    def write(self, draft: Draft) -> OSError | None:
        """Keep the draft, whole or not at all; an empty one removes the file. Gives why it is not kept."""
        try:
            if draft.text.strip():
                make_private(self.file.parent)
                with replacement(self.file) as fresh:
                    if draft.attachments:
                        parts: list[dict[str, Any]] = [{"name": "", "length": len(draft.text)}]
                        for one in draft.attachments:
                            image = {"image": asdict(one.image)} if one.image else {}
                            parts.append({"name": one.name, "length": len(one.text), **image})
                        fresh.write(f"{_MARK}{json.dumps(parts)}\n".encode())
                    for text in (draft.text, *(one.text for one in draft.attachments)):
                        for at in range(0, len(text), _SLICE):
                            fresh.write(text[at : at + _SLICE].encode(errors="backslashreplace"))
            else:
                self.file.unlink(missing_ok=True)
        except OSError as failure:
            return failure
        return None

    def touch(self) -> None:
        """Say that the draft has changed: it is kept once the person pauses, and every two seconds while not."""
        self._changed_at = asyncio.get_running_loop().time()
        if self.current is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._keep(self.current))

    async def close(self) -> None:
        """Keep the draft as it is now, after what is being written already."""
        self._closing.set()
        self.touch()
        if self._task is not None:
            await self._task

    async def _keep(self, current: Callable[[], Draft]) -> None:
        """Keep it whenever the person pauses or has typed for long enough, and at the end."""
        kept_at, clock = -1.0, asyncio.get_running_loop().time
        while kept_at < self._changed_at:
            latest = clock() + _LONGEST
            while not self._closing.is_set() and (rest := min(self._changed_at + _PAUSE, latest) - clock()) > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), rest)
            kept_at = clock()
            failure = await asyncio.to_thread(self.write, current())
            if failure is not None and self.complain is not None and not self._closing.is_set():
                self.complain(failure)
                self.complain = None


def is_large(text: str) -> bool:
    """Whether a paste is better kept aside than typed out."""
    return len(text) > _CHARACTERS or text.count("\n", 0, _CHARACTERS) >= _LINES


def unified(text: str) -> str:
    """The text with newlines alone for line ends (terminals send carriage returns), and without NULs."""
    for old, new in (("\r\n", "\n"), ("\r", "\n"), ("\0", "")):
        if old in text:
            text = text.replace(old, new)
    return text


@dataclass(slots=True)
class Pastes:
    """What was pasted and kept aside, by the marker that stands for it.

    A text stays here after its marker is gone, so that undoing brings it back; only what a text's markers name goes
    along with it. A marker that somebody typed names nothing and is text.
    """

    kept: "dict[str, Attachment]" = field(default_factory=dict[str, "Attachment"])
    """May be emptied; the numbers go on, so that no two pastes of a chat share a name."""
    _last: int = 0

    def keep(self, text: str) -> str:
        """Keep a paste aside; gives its marker, `[paste-1 · 312 lines]`."""
        from ecoshell.messages import Attachment  # no first frame waits for it

        self._last += 1
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        marker = f"[paste-{self._last} · {size}]"
        self.kept[marker] = Attachment(f"paste-{self._last}", text)
        return marker

    def keep_image(self, image: "Image") -> str:
        """Keep an image aside; gives its marker, `[image photo.png 640×480]`."""
        from ecoshell.images import attached, label  # no first frame waits for it

        name, number = image.name, 1
        while label(image) in self.kept and self.kept[label(image)].image != image:
            number += 1
            image = replace(image, name=f"{name} ({number})")
        self.kept[label(image)] = attached(image)
        return label(image)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the markers of kept pastes stand in a text: start and end of each."""
        for found in _MARKER.finditer(text):
            if found[0] in self.kept:
                yield found.span()

    def named_in(self, text: str) -> "tuple[Attachment, ...]":
        """The pastes whose markers stand in a text, each once."""
        markers = dict.fromkeys(text[start:end] for start, end in self.spans(text))
        return tuple(self.kept[marker] for marker in markers)

    def expanded(self, text: str) -> str:
        """The text with every paste in the place of its marker."""
        return _MARKER.sub(lambda found: kept.text if (kept := self.kept.get(found[0])) else found[0], text)

    def adopt(self, text: str, attachments: "Iterable[Attachment]") -> None:
        """Take over the pastes that a draft from before names; new ones are numbered after them."""
        by_name = {one.text if one.image else one.name: one for one in attachments}
        for found in _MARKER.finditer(text):
            if (attachment := by_name.get(found[1] or found[0])) is not None:
                self.kept[found[0]] = attachment
                self._last = max(self._last, int(found[2] or 0))


def _size(attachment: "Attachment") -> int:
    return len(attachment.text) + (len(attachment.image.data) if attachment.image else 0)


class History:
    """Questions from oldest to newest, and a place in them while a person looks back.

    A file that cannot be read or written stops nothing: the history then lasts as long as the chat.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = None if file is None or is_special(file) else file
        self._entries: list[str] = []
        self._place = 0
        self._draft = Draft()
        self._attachments: dict[str, tuple[Attachment, ...]] = {}

    def load(self) -> list[str]:
        """The entries of the file, to be given to `begin_with`; takes its time and changes nothing."""
        if self._file is None:
            return []
        try:
            with self._file.open("rb") as source:
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

    def begin_with(self, entries: Iterable[str]) -> None:
        """Put these before what was sent since."""
        before = list(entries)
        self._entries[:0] = before
        self._place += len(before)

    def move(self, by: Literal[-1, 1], draft: Draft) -> Draft | None:
        """The entry before or after, and after the last one the draft again, which is what the prompt held at first.

        None beyond either end.
        """
        place = self._place + by
        if not 0 <= place <= len(self._entries):
            return None
        if self._place == len(self._entries):
            self._draft = draft
        self._place = place
        return self._draft if place == len(self._entries) else self.recalled(self._entries[place])

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
            sizes = {entry: sum(map(_size, kept)) for entry, kept in self._attachments.items()}
            excess = sum(sizes.values()) - _ATTACHED
            for entry, size in list(sizes.items())[:-1]:  # the oldest are forgotten first
                if excess > 0:
                    excess -= size
                    del self._attachments[entry]
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

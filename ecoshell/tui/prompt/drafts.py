"""The draft: what stands in the prompt, kept in a file so that no crash takes it."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ecoshell.files import replacement
from ecoshell.paths import make_private

if TYPE_CHECKING:
    from ecoshell.messages import Attachment

_MARK = "\0attachments "
"""How a draft with attachments begins: no text that was typed holds a NUL."""
_SLICE = 1 << 20
"""Characters written in one go: other threads get their turn between them."""
_PAUSE = 0.5
"""Seconds without a change after which the draft is kept."""
_LONGEST = 2.0
"""Seconds after which it is kept although the person types on."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is typed, and the large pastes whose markers stand in it."""

    text: str = ""
    attachments: "tuple[Attachment, ...]" = ()


class _Part(TypedDict):
    """One stretch of a draft's file: the text (no name) or an attachment, with its length in characters."""

    name: str
    length: int


class DraftFile:
    """One draft on disk. A file that cannot be read or written stops nothing: the draft is then only on the screen.

    A draft without attachments is its plain text. One with attachments begins with a line that lists its parts, and the
    parts follow one after the other.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def read(self) -> Draft:
        """The draft of the last time, or an empty one."""
        try:
            with self._file.open(encoding="utf-8", errors="replace", newline="") as source:
                kept = source.read()
        except OSError:
            return Draft()
        if not kept.startswith(_MARK):
            return Draft(kept)
        try:
            return _parted(kept)
        except (ValueError, TypeError, KeyError):
            return Draft(kept.removeprefix(_MARK))

    def write(self, draft: Draft) -> OSError | None:
        """Keep the draft, whole or not at all; an empty one removes the file. Gives why it is not kept."""
        with self._lock:
            try:
                if draft.text.strip():
                    make_private(self._file.parent)
                    with replacement(self._file) as fresh:
                        for piece in _pieces(draft):
                            fresh.write(piece.encode(errors="backslashreplace"))
                else:
                    self._file.unlink(missing_ok=True)
            except OSError as failure:
                return failure
        return None


def _pieces(draft: Draft) -> Iterator[str]:
    """The file's text, in slices."""
    if draft.attachments:
        parts = [_Part(name="", length=len(draft.text))]
        parts += [_Part(name=one.name, length=len(one.text)) for one in draft.attachments]
        yield f"{_MARK}{json.dumps(parts)}\n"
    for text in (draft.text, *(one.text for one in draft.attachments)):
        for at in range(0, len(text), _SLICE):
            yield text[at : at + _SLICE]


def _parted(kept: str) -> Draft:
    """The draft in a file's text; raises ValueError, TypeError and KeyError for what is not such a file."""
    from ecoshell.messages import Attachment  # no first frame waits for it

    head, _, body = kept.removeprefix(_MARK).partition("\n")
    parts: list[_Part] = json.loads(head)
    texts: list[Attachment] = []
    for part in parts:
        texts.append(Attachment(part["name"], body[: part["length"]]))
        body = body[part["length"] :]
    return Draft(texts[0].text if texts else body, tuple(texts[1:]))


class DraftKeeper:
    """Keeps the draft of the moment in its file while a person types: off the event loop, one write after the other."""

    def __init__(
        self, file: DraftFile, current: Callable[[], Draft], complain: Callable[[OSError], None] = lambda _: None
    ) -> None:
        """`complain` is told once, while a person types, that the draft cannot be kept."""
        self._file = file
        self._current = current
        self._complain = complain
        self._complained = False
        self._changed_at = 0.0
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def touch(self) -> None:
        """Say that the draft has changed: it is kept once the person pauses, and every two seconds while not."""
        self._changed_at = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Keep the draft as it is now, after what is being written already."""
        self._closing.set()
        self.touch()
        if self._task is not None:
            await self._task

    async def _keep(self) -> None:
        kept_at = -1.0
        while kept_at < self._changed_at:
            await self._pause()
            kept_at = asyncio.get_running_loop().time()
            failure = await asyncio.to_thread(self._file.write, self._current())
            if failure is not None and not self._complained and not self._closing.is_set():
                self._complained = True
                self._complain(failure)

    async def _pause(self) -> None:
        """Wait until the person pauses or has typed for long enough, or until the end."""
        clock = asyncio.get_running_loop().time
        latest = clock() + _LONGEST
        while not self._closing.is_set() and (rest := min(self._changed_at + _PAUSE, latest) - clock()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), rest)

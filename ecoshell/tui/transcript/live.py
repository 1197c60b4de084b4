"""Text that is still arriving: what is finished becomes sections once, and only its open end is ever set again."""

from typing import Protocol

from ecoshell.tui.transcript.blocks import Block, Piece, Tone, row, rows_of
from ecoshell.tui.transcript.layout import in_sections
from ecoshell.tui.transcript.sections import LONGEST, Section
from ecoshell.untrusted import visible


class Reading(Protocol):
    """Makes sections of text that comes in pieces."""

    def feed(self, text: str) -> list[Section]:
        """Take a piece, and give the sections it has finished."""
        ...

    def tail(self) -> list[Section]:
        """The open sections as they would be if the text ended here."""
        ...


class PlainReader:
    """Reads text as it is, line by line."""

    def __init__(self, tone: Tone) -> None:
        self._tone: Tone = tone
        self._rest = ""

    def feed(self, text: str) -> list[Section]:
        """Take a piece; some lines at a time are finished together."""
        self._rest += text
        if len(self._rest) < LONGEST:
            return []
        end = self._rest.rfind("\n") + 1
        if not end and len(self._rest) < 8 * LONGEST:
            return []
        whole, self._rest = self._rest[: end or None], self._rest[end:] if end else ""
        return self._sections(whole.removesuffix("\n"))

    def tail(self) -> list[Section]:
        """The lines that are left."""
        return self._sections(self._rest) if self._rest else []

    def _sections(self, text: str) -> list[Section]:
        return [*in_sections(row(Piece(line, self._tone)) for line in text.split("\n"))]


class Live:
    """What arrives beside one sign; an answer is read as Markdown, a thought as it is."""

    def __init__(self, sign: str, tone: Tone) -> None:
        self.sign = sign
        self.tone: Tone = tone
        self._reader: Reading = _markdown_reader() if tone == "text" else PlainReader(tone)
        self._arrived: list[str] = []
        self._held = ""
        """White space at the end, of which nobody knows yet whether anything follows."""
        self._read: list[str] = []

    def append(self, text: str) -> None:
        """Take a piece; it is read with the next `finished`."""
        self._arrived.append(text)

    @property
    def waiting(self) -> bool:
        """Whether anything has arrived that was not read yet."""
        return bool(self._arrived)

    def finished(self) -> list[Section]:
        """The sections that what has arrived since the last time has finished."""
        arrived = self._held + "".join(self._arrived)
        self._arrived.clear()
        solid = arrived.rstrip()
        self._held = arrived[len(solid) :]
        if not self._read:
            solid = solid.lstrip()
        if not solid:
            return []
        shown = visible(solid)
        self._read.append(shown)
        return self._reader.feed(shown)

    def tail(self) -> list[Section]:
        """The sections that are still open."""
        return self._reader.tail()

    @property
    def text(self) -> str:
        """Everything that has been read, without the white space around it."""
        return "".join(self._read)

    def block(self) -> Block:
        """What has been read, as a block."""
        if self.tone == "text":
            return Block(self.sign, self.tone, markdown=self.text)
        return Block(self.sign, self.tone, rows_of(self.text, self.tone))


def _markdown_reader() -> Reading:
    from ecoshell.tui.transcript.reader import Reader  # no first frame waits for it

    return Reader()

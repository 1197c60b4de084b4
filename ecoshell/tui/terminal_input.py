"""What the terminal sends, understood: Textual's parser, quick with pastes and not deaf to alt+enter."""

import io
from collections.abc import Generator, Iterable

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Paste
from textual.message import Message

_EDGE = len(BRACKETED_PASTE_START) - 1
"""Characters of a bracket that may have come in an earlier piece."""


class TerminalParser(XTermParser):
    """Textual's parser, which is given the brackets of a paste; what stands between them goes round it.

    It reads one character at a time, some two microseconds each, and takes escape sequences in a paste for keys.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._before = ""
        """The last characters outside of a paste."""
        self._paste: _Paste | None = None

    def feed(self, data: str) -> Iterable[Message]:
        """Parse a piece of what the terminal sends."""
        if not data:
            yield from super().feed(data)
        while data:
            if self._paste is None:
                data = yield from self._outside(data)
            else:
                data = yield from self._inside(self._paste, data)

    def _outside(self, data: str) -> Generator[Message, None, str]:
        """Parse up to a paste's first bracket; gives what comes after it."""
        seen = self._before + data
        at = seen.find(BRACKETED_PASTE_START)
        if at < 0:
            self._before = seen[-_EDGE:]
            yield from super().feed(_told_apart(data))
            return ""
        rest = seen[at + len(BRACKETED_PASTE_START) :]
        yield from super().feed(_told_apart(data[: len(data) - len(rest)]))
        self._before, self._paste = "", _Paste()
        return rest

    def _inside(self, paste: "_Paste", data: str) -> Generator[Message, None, str]:
        """Take up to a paste's last bracket; gives what comes after it."""
        rest = paste.add(data)
        if rest is None:
            return ""
        self._paste = None
        for message in super().feed(BRACKETED_PASTE_END):
            yield Paste(paste.text) if isinstance(message, Paste) else message
        return rest


def _told_apart(data: str) -> str:
    """Keys with alt+enter as newer terminals send it: the older ones' would be taken for enter."""
    return data.replace("\x1b\r", "\x1b[13;3u")


class _Paste:
    """A paste on its way; its line ends become newlines piece by piece, so that other threads get their turn."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)

    @property
    def text(self) -> str:
        """What was pasted, without NULs."""
        return "".join(self._pieces)

    def add(self, data: str) -> str | None:
        """Take a piece; once the paste is over, what comes behind it."""
        data = self._held + data
        at = data.find(BRACKETED_PASTE_END)
        whole, self._held = (data[:at], "") if at >= 0 else (data[:-_EDGE], data[-_EDGE:])
        self._pieces.append(self._newlines.decode(whole.replace("\0", ""), final=at >= 0))
        return data[at + len(BRACKETED_PASTE_END) :] if at >= 0 else None

"""Textual's driver and parser for Unix terminals, with fast pastes, alt+enter, and robustness.

Invalid input bytes and a terminal that disappears do not stop the app.
"""

import io
import os
import selectors
import signal
from codecs import getincrementaldecoder
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Paste
from textual.message import Message

if TYPE_CHECKING:
    from textual.app import App


_CHUNK = 1 << 16
_TICK = 0.1
"""Seconds between checks for the app's end and for a lone escape key."""
_BRACKET_OVERLAP = len(BRACKETED_PASTE_START) - 1
"""Characters of a paste bracket that may be in the previous chunk."""


class TerminalDriver(LinuxDriver):
    """Ignores input bytes that are not UTF-8, and discards output once the terminal is gone."""

    def __init__(
        self,
        app: "App[Any]",
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)  # pyright: ignore[reportUnknownMemberType]
        self._file = cast("TextIO", _DiscardingFile(self._file))

    def run_input_thread(self) -> None:
        """Read until the app or the terminal ends; Textual's loop with a faster parser."""
        parser = TerminalParser(self._debug)
        decode = getincrementaldecoder("utf-8")("ignore").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_TICK):
                    try:
                        read = os.read(self.fileno, _CHUNK)
                    except OSError:
                        read = b""
                    if not read:  # a terminal that was not the controlling one sends no hang-up
                        signal.raise_signal(signal.SIGHUP)
                        return
                    for message in parser.feed(text) if (text := decode(read)) else ():
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    def _sigcont_application(self, *_: object) -> None:
        if self._must_signal_resume:  # a hang-up also sends SIGCONT, with nothing to resume
            super()._sigcont_application()  # pyright: ignore[reportUnknownMemberType]


class _DiscardingFile:
    """Discards writes after an error: an exception in the writer thread would block the app forever."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        if not self._broken:
            try:
                return self._file.write(text)
            except OSError:
                self._broken = True
        return len(text)

    def flush(self) -> None:
        if not self._broken:
            try:
                self._file.flush()
            except OSError:
                self._broken = True


class TerminalParser(XTermParser):
    """Passes only the brackets of a paste to Textual's parser, and the text around it.

    Textual reads single characters, at about two microseconds each, and takes escape sequences in a paste for keys.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._previous = ""
        """The last characters, which may belong to a paste bracket."""
        self._pasted: list[str] | None = None
        """The pieces of an unfinished paste."""
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)

    def feed(self, data: str) -> Iterable[Message]:
        """Parse a chunk; a paste is decoded in pieces, so that other threads can run."""
        if not data:
            yield from super().feed(data)
        while data:
            chunk = self._previous + data
            bracket = BRACKETED_PASTE_START if self._pasted is None else BRACKETED_PASTE_END
            at = chunk.find(bracket)
            remainder = chunk[at + len(bracket) :] if at >= 0 else ""
            if self._pasted is None:
                # newer terminals' alt+enter; the older sequence would be read as enter
                yield from super().feed(
                    data[: len(data) - len(remainder)].replace("\x1b\r", "\x1b[13;3u")
                )
                self._previous = "" if at >= 0 else chunk[-_BRACKET_OVERLAP:]
                self._pasted = [] if at >= 0 else None
            else:
                end = at if at >= 0 else -_BRACKET_OVERLAP
                pasted, self._previous = chunk[:end], "" if at >= 0 else chunk[end:]
                self._pasted.append(self._newlines.decode(pasted.replace("\0", ""), final=at >= 0))
                if at >= 0:
                    text, self._pasted = "".join(self._pasted), None
                    for message in super().feed(BRACKETED_PASTE_END):
                        yield Paste(text) if isinstance(message, Paste) else message
            data = remainder

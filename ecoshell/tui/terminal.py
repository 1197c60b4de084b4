"""The terminal: Textual's driver and parser, made to outlive bad bytes and a terminal that goes away.

They are also quick with pastes and not deaf to alt+enter.
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
"""Seconds after which it is looked whether the app has ended and whether an escape was a key of its own."""
_EDGE = len(BRACKETED_PASTE_START) - 1
"""Characters of a bracket that may have come in an earlier piece."""


class TerminalDriver(LinuxDriver):
    """Drops input bytes that are not UTF-8; once the terminal is gone, writes go nowhere and hold nothing up."""

    def __init__(
        self, app: "App[Any]", *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)  # pyright: ignore[reportUnknownMemberType]
        self._file = cast("TextIO", _Leaky(self._file))

    def run_input_thread(self) -> None:
        """Read until the app ends or the terminal does; Textual's loop, with a parser that is quick with pastes."""
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
                    if not read:  # the terminal is gone, and no hang-up comes from one that was not the controlling one
                        signal.raise_signal(signal.SIGHUP)
                        return
                    for message in parser.feed(text) if (text := decode(read)) else ():
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    def _sigcont_application(self, *_: object) -> None:
        if self._must_signal_resume:  # a hang-up comes with SIGCONT too, and then there is nothing to go on with
            super()._sigcont_application()  # pyright: ignore[reportUnknownMemberType]


class _Leaky:
    """A file whose writes are lost once it is broken: a writer that died of an error would block the app for good."""

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
    """Textual's parser, which is given the brackets of a paste; what stands between them goes round it.

    It reads one character at a time, some two microseconds each, and takes escape sequences in a paste for keys.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._before = ""
        """The last characters outside of a paste; in one, those of its last piece, which may belong to the bracket."""
        self._pasted: list[str] | None = None
        """The pieces of a paste on its way."""
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)

    def feed(self, data: str) -> Iterable[Message]:
        """Parse what has come; the text of a paste is taken piece by piece, so that other threads get their turn."""
        if not data:
            yield from super().feed(data)
        while data:
            seen = self._before + data
            bracket = BRACKETED_PASTE_START if self._pasted is None else BRACKETED_PASTE_END
            at = seen.find(bracket)
            rest = seen[at + len(bracket) :] if at >= 0 else ""
            if self._pasted is None:
                # keys with alt+enter as newer terminals send it: the older ones' would be taken for enter
                yield from super().feed(data[: len(data) - len(rest)].replace("\x1b\r", "\x1b[13;3u"))
                self._before = "" if at >= 0 else seen[-_EDGE:]
                self._pasted = [] if at >= 0 else None
            else:
                whole, self._before = (seen[:at], "") if at >= 0 else (seen[:-_EDGE], seen[-_EDGE:])
                self._pasted.append(self._newlines.decode(whole.replace("\0", ""), final=at >= 0))
                if at >= 0:
                    text, self._pasted = "".join(self._pasted), None
                    for message in super().feed(BRACKETED_PASTE_END):
                        yield Paste(text) if isinstance(message, Paste) else message
            data = rest

"""The terminal: Textual's driver, made to outlive input that is not UTF-8 and a terminal that goes away."""

import os
import selectors
import signal
from codecs import getincrementaldecoder
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from ecoshell.tui.terminal_input import TerminalParser

if TYPE_CHECKING:
    from textual.app import App

_CHUNK = 1 << 16
_TICK = 0.1
"""Seconds after which it is looked whether the app has ended and whether an escape was a key of its own."""


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
                    self._process(parser.feed(text) if (text := decode(read)) else ())
                self._process(parser.tick())

    def _process(self, messages: Iterable[Message]) -> None:
        for message in messages:
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
        """Write, or lose the text."""
        if not self._broken:
            try:
                return self._file.write(text)
            except OSError:
                self._broken = True
        return len(text)

    def flush(self) -> None:
        """Flush, or lose what is left."""
        if not self._broken:
            try:
                self._file.flush()
            except OSError:
                self._broken = True

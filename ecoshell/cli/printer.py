"""Prints plain lines on any terminal, pipe or screen reader."""

import base64
from collections.abc import Mapping
from time import monotonic
from typing import NoReturn, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments

_ASCII_SIGNS: Mapping[str, str] = {
    "›": ">", "◊": "-", "◦": "|", "·": "|", "←": "<", "→": "->", "►": "*", "»": "*", "└": "=", "≡": "=",
    "−": "-", "«": "<", "√": "ok:", "×": "!!", "■": "!!", "≈": "~", "¶": "attached:",
}  # fmt: skip
"""Signs for terminals without Unicode, and for screen readers; where a sign has a meaning, a word repeats it."""
_PROGRESS_SECONDS = 10.0
"""Seconds between two lines of progress where they cannot be replaced."""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave a closed pipe to `fenced`; rich would exit with a status of its choice."""
        raise BrokenPipeError


class Printer:
    """Prints text unchanged: no markup, no wrapping, and no colours in a pipe or with TERM=dumb or NO_COLOR."""

    def __init__(self, file: TextIO) -> None:
        self._console = _Console(
            file=file, markup=False, emoji=False, highlight=False, soft_wrap=True
        )
        self.is_full_terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        """Whether the output is a terminal that understands escape sequences."""
        self._reported_at = -_PROGRESS_SECONDS
        is_utf = self._console.encoding.lower().startswith("utf")
        self.has_unicode = self.is_full_terminal and is_utf

    @property
    def width(self) -> int:
        """Width of a line in cells."""
        return self._console.width

    def sign(self, icon: str) -> str:
        """The icon, or its ASCII form."""
        return icon if self.has_unicode else _ASCII_SIGNS.get(icon, icon)

    def line(self, text: str, style: str = "", end: str = "\n") -> None:
        """Print text that is already safe to show; an empty `end` leaves the line open."""
        # Segments keep tabs, which rich's Text expands to blanks
        segment = Segment(f"{text}{end}", self._console.get_style(style))
        self._console.print(Segments([segment]), end="")

    def progress(self, text: str) -> None:
        """Show progress in place; an empty text removes it. Without a full terminal, a line every few seconds."""
        if self.is_full_terminal:
            fitted = set_cell_size(text, min(cell_len(text), self.width - 1))
            self._console.file.write(f"\r\x1b[K{fitted}")
            self._console.file.flush()
        elif (
            text
            and self._console.is_terminal
            and monotonic() - self._reported_at >= _PROGRESS_SECONDS
        ):
            self._reported_at = monotonic()
            self.line(text)

    def copy(self, text: str) -> bool:
        """Copy text to the clipboard through the terminal (OSC 52), also over ssh; False without a terminal."""
        if not self.is_full_terminal:
            return False
        encoded = base64.b64encode(text.encode("utf-8", "replace")).decode()
        self._console.file.write(f"\x1b]52;c;{encoded}\x07")
        self._console.file.flush()
        return True

    def clear(self) -> None:
        """Clear the screen if there is one."""
        if self.is_full_terminal:
            self._console.clear()

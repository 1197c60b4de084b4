"""Large pastes: kept aside and named by a marker in the prompt, so that ten megabytes neither hang nor hide it."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ecoshell.untrusted import visible

if TYPE_CHECKING:
    from ecoshell.messages import Attachment

_LINES = 20
_CHARACTERS = 2_000
"""A paste with more lines or more characters than these is kept aside."""
_MARKER = re.compile(r"\[(paste-(\d+)) · [\d,]+ (?:lines|characters)\]")


def is_large(text: str) -> bool:
    """Whether a paste is better kept aside than typed out."""
    return len(text) > _CHARACTERS or text.count("\n", 0, _CHARACTERS) >= _LINES


def cleaned(text: str) -> str:
    """The text as it may stand in the prompt: every line ends in a newline, what could steer the terminal is shown."""
    return visible(unified(text))


def unified(text: str) -> str:
    """The text with newlines alone for line ends (terminals send carriage returns), and without NULs."""
    for old, new in (("\r\n", "\n"), ("\r", "\n"), ("\0", "")):
        if old in text:
            text = text.replace(old, new)
    return text


class Pastes:
    """What was pasted and kept aside, by the marker that stands for it.

    A text stays here after its marker is gone, so that undoing brings it back; only what a text's markers name goes
    along with it. A marker that somebody typed names nothing and is text.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Attachment] = {}
        self._last = 0

    def keep(self, text: str) -> str:
        """Keep a paste aside; gives its marker, `[paste-1 · 312 lines]`."""
        from ecoshell.messages import Attachment  # no first frame waits for it

        self._last += 1
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        marker = f"[paste-{self._last} · {size}]"
        self._kept[marker] = Attachment(f"paste-{self._last}", text)
        return marker

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the markers of kept pastes stand in a text: start and end of each."""
        for found in _MARKER.finditer(text):
            if found[0] in self._kept:
                yield found.span()

    def named_in(self, text: str) -> "tuple[Attachment, ...]":
        """The pastes whose markers stand in a text, each once."""
        markers = dict.fromkeys(text[start:end] for start, end in self.spans(text))
        return tuple(self._kept[marker] for marker in markers)

    def expanded(self, text: str) -> str:
        """The text with every paste in the place of its marker."""
        return _MARKER.sub(lambda found: kept.text if (kept := self._kept.get(found[0])) else found[0], text)

    def adopt(self, text: str, attachments: "Iterable[Attachment]") -> None:
        """Take over the pastes that a draft from before names; new ones are numbered after them."""
        by_name = {one.name: one for one in attachments}
        for found in _MARKER.finditer(text):
            if (attachment := by_name.get(found[1])) is not None:
                self._kept[found[0]] = attachment
                self._last = max(self._last, int(found[2]))

    def clear(self) -> None:
        """Forget the texts; the numbers go on, so that no two pastes of a chat share a name."""
        self._kept.clear()

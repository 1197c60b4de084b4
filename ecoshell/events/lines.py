"""The words of an event, which interfaces only format."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ecoshell.messages import visible_line

Kind = Literal[
    "info", "good", "warning", "error", "note", "thought", "call", "result", "failure",
    "question", "answer", "progress",
]  # fmt: skip
"""What a line is about, which determines its color; `progress` matters only while it is current."""
_LABELS: Mapping[Kind, str] = {
    "call": "call",
    "result": "result:",
    "failure": "result:",
    "note": "note:",
    "error": "error:",
}


@dataclass(frozen=True, slots=True)
class Line:
    """The words of an event. Text and detail may contain anything; interfaces escape them."""

    kind: Kind
    icon: str
    """A character in the default fonts of terminals."""
    text: str
    detail: str = ""
    """Reasons, sizes or amounts that follow the text."""

    @property
    def label(self) -> str:
        """The word that names the kind where an icon is not enough; empty for most kinds."""
        return _LABELS.get(self.kind, "")

    @property
    def tail(self) -> str:
        """The detail after the text, escaped, on one line."""
        detail = visible_line(self.detail)
        gap = " " if self.text.endswith((".", "?")) else " · "
        return f"{gap if self.text else ''}{detail}" if detail else ""

    @property
    def words(self) -> str:
        """Text and detail, escaped, on one line."""
        return f"{visible_line(self.text)}{self.tail}"

"""Replies that are printed while they arrive, and remembered so that they are not printed again when they are whole."""

from collections.abc import Callable

from ecoshell.events import TextArrived
from ecoshell.options import ROLES
from ecoshell.untrusted import visible

_CALL_BEGINS = ("{", "```", '["', "[SoP]")
"""How a call or a plan begins that a model writes as text; it is shown when it is made, not while it is spelled out."""


class Streamed:
    """The replies of one step, a line for each."""

    def __init__(self, write: Callable[[str], None], sign: str) -> None:
        """`write` prints without ending the line; `sign` stands before each reply."""
        self._write = write
        self._sign = sign
        self._replies: list[str] = []
        self._open = False
        self._withheld = False

    def arrive(self, event: TextArrived) -> None:
        """Print a piece, whose role it is first; nothing of a call."""
        text = event.text if self._open else event.text.lstrip()  # models like to begin with a space
        if self._withheld or not text:
            return
        if not self._open:
            self._withheld = text.startswith(_CALL_BEGINS)
            if self._withheld:
                return
            self._write(f"{self._sign} {said_by(event.role)}")
            self._open = True
            self._replies.append("")
        self._replies[-1] += text
        self._write(visible(text))

    def end(self) -> None:
        """Take it that the reply is over."""
        self._withheld = False
        if self._open:
            self._write("\n")
            self._open = False

    def forget(self) -> None:
        """Begin another step."""
        self._replies.clear()

    def was(self, text: str) -> bool:
        """Whether this is what was printed last."""
        return (self._replies[-1] if self._replies else "").strip() == text.strip()

    def had(self, thought: str) -> bool:
        """Whether a reply began so; a planner says after its thought who is next."""
        return any(reply.strip().startswith(thought.strip()) for reply in self._replies)


def said_by(role: str) -> str:
    """The words before what a role says, where there are several."""
    return f"{role}: " if role in ROLES else ""

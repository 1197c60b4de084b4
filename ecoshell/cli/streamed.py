"""Replies that are printed while they arrive, and remembered so that they are not printed again when they are whole."""

from collections.abc import Callable

from ecoshell.events import TextArrived
from ecoshell.events.describe import words_text
from ecoshell.options import ROLES
from ecoshell.untrusted import visible

_CALL_BEGINS = ("{", "```", '["', "[SoP]")
"""How a call or a plan begins that a model writes as text; it is shown when it is made, not while it is spelled out."""


class Streamed:
    """The replies of one step, a line for each."""

    def __init__(self, write: Callable[[str, str], None], sign: str, dot: str) -> None:
        """`write` prints in a style without ending the line; `sign` stands before each reply, `dot` before the line
        that says that a model reasons.
        """
        self._write = write
        self._sign = sign
        self._dot = dot
        self._reasoned: list[str] = []
        self._replies: list[str] = []
        self._open: str = ""
        """The channel of the reply that is being printed; empty when none is."""
        self._withheld = False

    def arrive(self, event: TextArrived) -> None:
        """Print a piece, whose role it is first; nothing of a call, and of what is reasoned only that it is."""
        if self._open and self._open != event.channel:
            self.end()  # an answer after a thought, or either after what was reasoned
        if event.channel == "reasoning":
            if not self._open:
                self._write(f"{self._dot} {said_by(event.role)}thinking …", "dim")
                self._open = event.channel
            self._reasoned.append(event.text)
            return
        text = event.text if self._open else event.text.lstrip()  # models like to begin with a space
        if self._withheld or not text:
            return
        if not self._open:
            self._withheld = text.startswith(_CALL_BEGINS)
            if self._withheld:
                return
            self._write(f"{self._sign} {said_by(event.role)}", "")
            self._open = event.channel
            self._replies.append("")
        self._replies[-1] += text
        self._write(visible(text), "")

    def end(self) -> None:
        """Take it that the reply is over."""
        self._withheld = False
        if self._open:
            counted = f" {words_text(''.join(self._reasoned))}" if self._open == "reasoning" else ""
            self._write(f"{counted}\n", "dim" if counted else "")
            self._open = ""

    def take_reasoned(self) -> bool:
        """Whether what a reply was preceded by was told of; asked once for each reply."""
        told = bool(self._reasoned)
        self._reasoned.clear()
        return told

    def forget(self) -> None:
        """Begin another step."""
        self._reasoned.clear()
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

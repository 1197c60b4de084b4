"""Quotes of the last result by models that were trained for ecoshell."""

from ecoshell.messages import fenced
from ecoshell.models import Request
from ecoshell.models.elements import open_end

QUOTE = "[result]"  # placeholder with which models trained for ecoshell quote the last result


class Quoting:
    """Replaces the first `QUOTE` in a streamed text by the last result of a request.

    A result of several lines becomes a code block, because Markdown would join the lines of a table or a program.
    """

    def __init__(self, request: Request) -> None:
        results = [message.result for message in request.messages if message.speaker == "tool"]
        self._result = results[-1].strip() if results else ""
        self._block = fenced(self._result) if "\n" in self._result else ""
        self._waiting, self._last_output = "", ""
        self._open = bool(self._result)

    def feed(self, piece: str) -> str:
        """Add a piece; returns the text up to what may become the placeholder."""
        output = self._replaced(piece) if self._open else self._after(piece)
        self._last_output = output or self._last_output
        return output

    def _replaced(self, piece: str) -> str:
        text, self._waiting = self._waiting + piece, ""
        prefix, placeholder, suffix = text.partition(QUOTE)
        if placeholder:
            self._open = False
            output = prefix + self._block_after(prefix or self._last_output)
            self._last_output = output
            return output + self._after(suffix)
        end = len(text) - open_end(text, QUOTE)
        output, self._waiting = text[:end], text[end:]
        return output

    def end(self) -> str:
        """The text that was held back."""
        text, self._waiting = self._waiting, ""
        return text

    def _block_after(self, text: str) -> str:
        if not self._block:
            return self._result
        return f"\n{self._block}" if text and not text.endswith("\n") else self._block

    def _after(self, piece: str) -> str:
        """The piece, on a new line if it follows a code block."""
        is_below = self._block and self._last_output.endswith(self._block)
        is_below = is_below and piece and not piece.startswith("\n")
        return f"\n{piece}" if is_below else piece

    def shortened(self, text: str) -> str:
        """The text with the last result in it replaced by the placeholder."""
        prefix, result, suffix = text.rpartition(self._result) if self._result else ("", "", text)
        return f"{prefix}{QUOTE}{suffix}" if result else text

"""Extracts the answer from a call of `finish` while the model still writes it."""

import re
from dataclasses import dataclass
from typing import Any, cast

from ecoshell.models.elements import Elements

_SURROGATE = re.compile("[\\ud800-\\udfff]")


@dataclass(eq=False)
class AnswerText:
    """Extracts the answer from the partial JSON arguments of a call of `finish`."""

    _written: str = ""
    _answer: str = ""

    def feed(self, piece: str) -> str:
        """Add a piece of the arguments; returns what it adds to the answer."""
        from pydantic_core import from_json  # parses 20 kB in 3 µs: everything is parsed again

        self._written += piece
        if _SURROGATE.search(piece):  # surrogate pairs may be split between pieces
            pairs = self._written.encode("utf-16-le", "surrogatepass")
            self._written = pairs.decode("utf-16-le", "surrogatepass")
        try:
            arguments = from_json(self._written, allow_partial="trailing-strings")
        except (ValueError, TypeError):  # not JSON, or half of a surrogate pair at the end
            return ""
        is_object = isinstance(arguments, dict)
        answer = cast("dict[str, Any]", arguments).get("answer") if is_object else None
        if not isinstance(answer, str) or not answer.startswith(self._answer):
            return ""
        addition, self._answer = answer[len(self._answer) :], answer
        return addition


@dataclass(eq=False)
class ElementAnswer:
    """Extracts the answer from a partial call of `finish` written as XML elements."""

    _elements: Elements
    _written: str = ""
    _length: int = 0

    def feed(self, piece: str) -> str:
        """Add a piece of the elements; returns what it adds to the answer."""
        self._written += piece
        answer = self._elements.text_so_far(self._written, "answer")
        addition, self._length = answer[self._length :], max(self._length, len(answer))
        return addition

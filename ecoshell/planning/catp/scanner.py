"""A place in the text of a plan: what comes next there, and what is said where something else was expected."""

import json
import re
from typing import Any, cast

from ecoshell.planning.catp.faults import BOM, PlanFault, shown
from ecoshell.planning.catp.words import STRING

_STRING = re.compile(STRING, re.DOTALL)
_BLANK = re.compile(r"\s*+")
_FENCE = re.compile(r"\s*+```[\w-]*+[ \t]*+\n")
_JSON = json.JSONDecoder()

Span = tuple[int, int]
"""Where a part of a text begins, and where it has ended."""


def unfenced(text: str) -> Span:
    """A text without a byte order mark before it and a code fence around it."""
    start = len(BOM) if text.startswith(BOM) else 0
    fence = _FENCE.match(text, start)
    if fence is None:
        return start, len(text)
    closing = text.rfind("```", fence.end())
    closed = closing >= 0 and not text[closing + 3 :].strip()
    return fence.end(), closing if closed else len(text)


class Scanner:
    """A place in a text, which only goes on; so reading takes time in proportion to the text."""

    def __init__(self, text: str, span: Span) -> None:
        self.text = text
        self.at, self.end = span

    @property
    def at_end(self) -> bool:
        return self.at >= self.end

    def skip(self) -> int:
        """Pass over blanks; the place after them."""
        found = _BLANK.match(self.text, self.at, self.end)
        self.at = found.end() if found else self.at
        return self.at

    def sees(self, pattern: re.Pattern[str]) -> bool:
        """Whether this comes next."""
        return bool(pattern.match(self.text, self.at, self.end))

    def took(self, sign: str) -> bool:
        """Whether this sign comes next after blanks; it is passed over."""
        self.skip()
        if self.at_end or not self.text.startswith(sign, self.at, self.end):
            return False
        self.at += len(sign)
        return True

    def take(self, sign: str, instead: str = "") -> None:
        """Pass over a sign that must come next."""
        if not self.took(sign):
            raise self.expected(instead or f"`{sign}`")

    def string(self, what: str) -> str:
        """The JSON string that must come next."""
        place = self.skip()
        found = _STRING.match(self.text, self.at, self.end)
        if not found:
            raise self.expected(f"{what} in quotes")
        try:
            value = str(json.loads(found[0]))
        except json.JSONDecodeError as error:
            raise PlanFault.at(self.text, place, f"{what} is not a JSON string: {error.msg}.") from error
        self.at = found.end()
        return value

    def values(self, *kinds: type) -> list[Any] | None:
        """A JSON list of these kinds, passed over at once; None where none comes next, and nothing is passed over."""
        self.skip()
        try:
            found, end = cast("tuple[object, int]", _JSON.raw_decode(self.text, self.at))
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, list) or end > self.end:
            return None
        listed = cast("list[Any]", found)
        if not set(map(type, listed)) <= set(kinds):
            return None
        self.at = end
        return listed

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        """What must come next, by its pattern."""
        self.skip()
        found = pattern.match(self.text, self.at, self.end)
        if not found:
            raise self.expected(what)
        self.at = found.end()
        return found[0]

    def next_is(self, sign: str) -> bool:
        """Whether this sign comes next after blanks."""
        self.skip()
        return not self.at_end and self.text.startswith(sign, self.at, self.end)

    def expected(self, what: str) -> PlanFault:
        """The fault that something else stands here."""
        self.skip()
        there = "the text ends here" if self.at_end else f"here is {shown(self.text[self.at : self.at + 20])}"
        return PlanFault.at(self.text, self.at, f"Expected {what}; {there}.")

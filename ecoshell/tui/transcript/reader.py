"""Reads Markdown line by line: a section is given as soon as nothing that follows can change it.

The sections depend on the text alone and not on the pieces in which it came, so that an answer that was streamed is set
like one that came whole. Where CommonMark would have to look far ahead, the nearest reading that need not is taken: a
nested list may be indented by two, and HTML and references are shown as they are. No character is left out of sight.
"""

import copy
import re

from ecoshell.tui.transcript.parts import CodePart, Part, ProsePart, TablePart
from ecoshell.tui.transcript.sections import LONGEST, Place, Prose, Rule, Section
from ecoshell.tui.transcript.table import is_delimiter

_FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*([^\s`]*)[^`]*$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=\s|$)")
_RULE = re.compile(r" {0,3}([-*_])(?:\s*\1){2,}\s*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_ITEM = re.compile(r"\s*([-*+]|(\d{1,9})[.)])(?:\s+(.*)|$)")
_QUOTE = re.compile(r" {0,3}((?:> ?)+)")
_CODE = "    "
"""The indent of code without a fence."""


def sections_of_markdown(text: str, *, indent: str = "") -> list[Section]:
    """The sections of a whole text; `indent` stands before each of its lines."""
    reader = Reader(indent)
    return [*reader.feed(text), *reader.close()]


class Reader:
    """Takes Markdown in any pieces."""

    def __init__(self, indent: str = "") -> None:
        self._indent = indent
        self._rest = ""
        self._cut: str | None = None
        """What is lost between the bits of the line that is being read, if it was cut off for its length."""
        self._done: list[Section] = []
        self._part: Part | None = None
        self._quote = 0
        self._items: list[tuple[int, int]] = []
        """The open list items: where their signs stand, and how wide they are."""
        self._blank = False
        """Whether the line before was empty."""
        self._begun = False

    def feed(self, text: str) -> list[Section]:
        """Take a piece, and give the sections it has finished."""
        text = self._rest + text
        start = 0
        while True:
            end = text.find("\n", start, start + LONGEST + 1)
            if end >= 0:
                self._step(text[start:end])
                self._cut = None
                start = end + 1
            elif len(text) - start > LONGEST:
                end = text.rfind(" ", start, start + LONGEST) + 1 or start + LONGEST
                self._step(text[start:end])
                self._cut = " " if text[end - 1] == " " else ""
                start = end
            else:
                break
        self._rest = text[start:]
        return self._taken()

    def close(self) -> list[Section]:
        """Take the text as ended, and give the sections that were open."""
        if self._rest:
            self._step(self._rest)
            self._rest = ""
        self._finish()
        return self._taken()

    def tail(self) -> list[Section]:
        """The open sections as they would be if the text ended here."""
        twin = copy.copy(self)
        twin._done, twin._items, twin._part = [], list(self._items), copy.copy(self._part)
        if twin._part is not None:
            twin._part.lines = list(twin._part.lines)
        return twin.close()

    def _taken(self) -> list[Section]:
        done, self._done = self._done, []
        return done

    def _step(self, line: str) -> None:
        if self._cut is not None:
            self._go_on(line, self._cut)
            return
        line = line.replace("\t", _CODE).rstrip("\r")
        quote, body = _unquoted(line)
        part = self._part
        if isinstance(part, CodePart) and quote >= self._quote:
            if self._code(part, _unquoted(line, self._quote)[1]):
                return
        elif quote != self._quote and not (isinstance(part, ProsePart) and not quote and not _begins(body)):
            self._finish()
            self._items.clear()
            self._quote = quote
        if body.strip():
            self._read(body)
            self._blank = False
        else:
            self._finish()
            self._blank = True

    def _go_on(self, bit: str, glue: str) -> None:
        """Take the next bit of a line that was cut off for its length."""
        part = self._part
        if part is None or isinstance(part, TablePart):
            self._start(ProsePart(self._place(0), [bit]))
        else:
            self._divide(part, glue)
            part.lines.append(bit)

    def _code(self, part: CodePart, line: str) -> bool:
        """Take a line in the open code; says whether it belonged to it."""
        if part.closed_by(line):
            self._finish()
            return bool(part.fence)
        part.take(line)
        self._watch(part)
        return True

    def _read(self, line: str) -> None:
        """A line that is not empty and not in a fence."""
        part, indent = self._part, len(line) - len(line.lstrip())
        under = _UNDERLINE.match(line)
        if under and isinstance(part, ProsePart) and not self._items:
            part.level = 1 if "=" in under[1] else 2
            self._finish()
        elif isinstance(part, TablePart) and "|" in line:
            part.take(line)
            self._watch(part)
        elif isinstance(part, ProsePart) and "|" in line and is_delimiter(line, part.lines[-1]):
            self._begin_table(part, line)
        elif self._begin(line, indent):
            pass
        elif isinstance(part, ProsePart):
            part.take(line.strip() if not line.endswith("  ") else f"{line.strip()}  ")
            self._watch(part)
        elif indent >= len(_CODE) and not self._items:
            self._start(CodePart(self._place(0), [line[len(_CODE) :]]))
        else:
            self._start(ProsePart(self._place(indent), [line.lstrip()]))

    def _begin(self, line: str, indent: int) -> bool:
        """Begin a new part if the line says so."""
        if fence := _FENCE.match(line):
            self._start(CodePart(self._place(indent), fence=fence[1], language=fence[2]))
        elif _RULE.match(line):
            self._start(None)
            self._done.append(Rule(self._place(indent)))
            self._begun = True
        elif heading := _HEADING.match(line):
            self._start(ProsePart(self._place(0), [_heading(line[heading.end() :])], len(heading[1])))
            self._finish()
        elif item := self._item(line):
            self._begin_item(item, indent)
        else:
            return False
        return True

    def _item(self, line: str) -> re.Match[str] | None:
        """A line that begins a list item; in a paragraph, a number other than 1 is only a number."""
        item = _ITEM.match(line)
        in_paragraph = isinstance(self._part, ProsePart) and not self._items
        return None if item and in_paragraph and (item[2] not in (None, "1") or not item[3]) else item

    def _begin_item(self, item: re.Match[str], indent: int) -> None:
        gap = self._begun and (self._blank or not self._items)
        while self._items and indent <= self._items[-1][0] + 1:
            self._items.pop()
        sign = f"{item[1]} " if item[2] else "• "
        before = self._before()
        place = Place(before + sign, before + " " * len(sign), gap)
        self._items.append((indent, len(sign)))
        text = item[3] or ""
        if fence := _FENCE.match(text):
            self._start(None)
            self._done.append(Prose("", place))
            text, part = "", CodePart(Place(place.hang, place.hang), fence=fence[1], language=fence[2])
        else:
            part = ProsePart(place, [text])
        self._start(part)

    def _begin_table(self, part: ProsePart, line: str) -> None:
        head = part.lines.pop()
        place = part.place
        if part.lines:
            self._finish()
            place = Place(place.hang, place.hang, gap=True)
        self._part = TablePart(place, [head, line])

    def _start(self, part: Part | None) -> None:
        self._finish()
        self._part = part
        self._begun = self._begun or part is not None

    def _place(self, indent: int) -> Place:
        """Where a part with this indent stands; the list items it is not in are closed."""
        while self._items and indent <= self._items[-1][0]:
            self._items.pop()
        before = self._before()
        return Place(before, before, gap=self._begun)

    def _before(self) -> str:
        return self._indent + "▌ " * self._quote + " " * sum(width for _, width in self._items)

    def _watch(self, part: Part) -> None:
        """Close a part that has become long; it goes on in a section of its own."""
        if part.is_long:
            self._divide(part, None if isinstance(part, CodePart) else " ")

    def _divide(self, part: Part, glue: str | None) -> None:
        self._done += part.sections()
        part.renew(glue)

    def _finish(self) -> None:
        if self._part is not None:
            self._done += self._part.sections()
            self._part = None


def _unquoted(line: str, most: int = 99) -> tuple[int, str]:
    """How many quote signs a line begins with, and what is behind them; no more than `most` are taken off."""
    quote = _QUOTE.match(line) if most else None
    if quote is None:
        return 0, line
    depth = quote[1].count(">")
    if depth <= most:
        return depth, line[quote.end() :]
    start = [at for at, sign in enumerate(line) if sign == ">"][most - 1] + 1
    return depth, line[start:].removeprefix(" ")


def _begins(line: str) -> bool:
    """Whether a line begins something new wherever it stands."""
    return not line.strip() or any(pattern.match(line) for pattern in (_FENCE, _RULE, _HEADING, _ITEM))


def _heading(text: str) -> str:
    text = text.strip()
    bare = text.rstrip("#")
    return bare.strip() if not bare or bare[-1].isspace() else text

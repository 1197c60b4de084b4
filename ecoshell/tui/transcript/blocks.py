"""What a transcript is made of: blocks of pieces that know their meaning and nothing of colours or widths."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

from ecoshell.budget.money import counted
from ecoshell.untrusted import visible

Tone = Literal[
    "text", "muted", "question", "thought", "tool", "good", "warning", "error",
    "heading", "link", "code", "keyword", "name", "string", "number", "comment", "added", "removed", "hunk",
]  # fmt: skip
TONES: tuple[Tone, ...] = get_args(Tone)
Kind = Literal["plain", "markdown", "diff"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text in one tone, shown as it is: no markup in it means anything."""

    text: str
    tone: Tone = "text"
    stress: str = ""
    """Any of b (bold), i (italic), u (underlined), s (struck through)."""
    link: str = ""
    """An address that has been found safe to open."""


@dataclass(frozen=True, slots=True)
class Row:
    """Pieces that are wrapped together beside a lead, which stands before the first line only."""

    pieces: tuple[Piece, ...]
    lead: str = ""
    hang: str = ""
    """What stands before the other lines, padded to the lead's width."""
    joined: str | None = None
    """What is between it and the row before it, where one long line was cut in two; None for a line of its own."""
    folds: bool = False
    """Whether a click on it opens or closes what is folded."""

    @property
    def text(self) -> str:
        """The row without its looks and its lead."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def plain(self) -> str:
        """The row without its looks."""
        return self.lead + self.text


def row(*pieces: Piece, lead: str = "") -> Row:
    """A row of these pieces."""
    return Row(pieces, lead)


@dataclass(frozen=True, slots=True)
class Body:
    """A text of any length below a block's rows, of which the first lines are shown until it is opened."""

    text: str
    """Already made visible."""
    lines: int
    """Lines shown while it is folded."""
    kind: Kind = "plain"
    tone: Tone = "text"
    corner: str = ""
    """What stands before its first line, in the place of the indent."""
    indent: str = "  "
    head: Row | None = None
    """What it is, above it; of a body that shows no line while it is folded, all there is to see."""

    @property
    def folded(self) -> tuple[str, str]:
        """As much as is shown while it is folded, and words for the rest (empty when there is none)."""
        return folded(self.text, lines=self.lines, characters=200 * self.lines)

    @property
    def is_headed(self) -> bool:
        """Whether nothing but its head is shown while it is folded."""
        return self.head is not None and not self.lines


class Picture(Protocol):
    """Lines that are set for the width they are painted at; their number does not depend on it."""

    @property
    def height(self) -> int:
        """How many lines there are."""
        ...

    def rows(self, width: int, start: int, stop: int) -> Iterator[Row]:
        """Some of the lines, in rows of at most `width` cells."""
        ...


_PICTURE_LINES = 24
"""Lines of a picture that are shown until it is opened."""
_PICTURE_WIDTH = 120
"""Cells that a picture has where there is no screen to ask for its width."""


@dataclass(frozen=True, slots=True)
class CallRef:
    """Which call of a session it is."""

    turn: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Block:
    """A sign in the margin and beside it rows, Markdown and long texts, each wrapped to the width."""

    sign: str = ""
    tone: Tone = "text"
    """The sign's."""
    rows: tuple[Row, ...] = ()
    markdown: str = ""
    picture: Picture | None = None
    bodies: tuple[Body, ...] = ()
    name: str = ""
    """By what it is found when it is to be shown otherwise; empty for one that stays as it is."""
    gap: bool = False
    """Whether an empty line goes before it."""
    turn: bool = False
    """Whether a turn begins with it."""
    call: CallRef | None = None
    """The call whose result it shows."""
    judged: bool = False
    """Whether a judge has had the result, so that the person can say otherwise."""
    verdict: tuple[Piece, ...] = ()
    """What is thought of the result, at the end of the first row."""

    @property
    def markable(self) -> CallRef | None:
        """The call whose result the person can mark; None where there is none."""
        return self.call if self.judged else None

    @property
    def head(self) -> tuple[Row, ...]:
        """The rows as they are shown."""
        if not self.verdict or not self.rows:
            return self.rows
        first, *others = self.rows
        return (replace(first, pieces=(*first.pieces, *self.verdict)), *others)

    @property
    def foldable(self) -> bool:
        """Whether a part of it is folded away until it is opened."""
        return bool(self.picture_rest) or any(body.folded[1] for body in self.bodies)

    def pictured(self, *, opened: bool) -> int:
        """Lines of its picture that are shown."""
        height = self.picture.height if self.picture else 0
        return height if opened else min(_PICTURE_LINES, height)

    @property
    def picture_rest(self) -> str:
        """Words for the lines of its picture that are folded away; empty when none is."""
        more = self.pictured(opened=True) - self.pictured(opened=False)
        return f"… {counted(more, 'more line')}" if more else ""

    @property
    def plain(self) -> str:
        """The block without its looks, as it is shown while folded."""
        return "\n".join(self._parts(lambda body: body.folded, opened=False))

    @property
    def whole(self) -> str:
        """Everything in it, for copying: rows as they are, Markdown as it was written."""
        return "\n".join(self._parts(lambda body: (body.text, ""), opened=True))

    def _parts(self, of: Callable[[Body], tuple[str, str]], *, opened: bool) -> Iterator[str]:
        yield from (line.plain for line in self.head)
        if self.markdown:
            yield self.markdown
        if self.picture:
            rows = self.picture.rows(_PICTURE_WIDTH, 0, self.pictured(opened=opened))
            yield from (line.plain.rstrip() for line in rows)
            yield from (words for words in (self.picture_rest,) if words and not opened)
        for body in self.bodies:
            if body.head is not None:
                yield body.head.plain
            text, more = of(body)
            more = "" if body.is_headed else more
            yield from (words for words in (f"{body.corner}{text}" if text else "", more) if words)


def rows_of(text: str, tone: Tone = "text") -> tuple[Row, ...]:
    """One row for each line of a text that somebody else wrote."""
    return tuple(row(Piece(line, tone)) for line in visible(text).split("\n"))


def folded(text: str, *, lines: int, characters: int) -> tuple[str, str]:
    """The beginning of a text, and words for what was left out (empty when nothing was)."""
    head = text[:characters].split("\n")
    shown = "\n".join(head[:lines])
    if len(shown) == len(text):
        return text, ""
    more = text.count("\n", len(shown) + 1 if shown else 0)
    if more or not shown:
        return shown, f"… {counted(more + 1, 'more line' if shown else 'line')}"
    return shown, f"… {counted(len(text) - len(shown), 'more character')}"

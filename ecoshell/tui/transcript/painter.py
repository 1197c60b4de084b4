"""From blocks to strips: wraps rows beside their sign, sets Markdown, and gives every tone its style."""

from collections.abc import Iterable, Mapping

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.strip import Strip

from ecoshell.tui.transcript.blocks import Block, Row, Tone

MARGIN = 3
"""Cells the sign stands in."""
_NARROWEST = 8
_TAB = "    "


class Painter:
    """Paints blocks in one set of styles."""

    def __init__(self, styles: Mapping[Tone, Style]) -> None:
        self._styles = styles
        self._set: dict[tuple[str, int], list[Strip]] = {}
        code = styles["tool"]
        theme = Theme(
            {
                "markdown.code": code,
                "markdown.code_block": code,
                "markdown.item.bullet": styles["muted"],
                "markdown.item.number": styles["muted"],
                "markdown.h1": Style(bold=True),
                "markdown.h1.border": styles["muted"],
                "markdown.h2": Style(bold=True, underline=True),
                "markdown.block_quote": styles["thought"],
                "markdown.hr": styles["muted"],
                "markdown.link": styles["tool"],
                "markdown.link_url": styles["tool"],
                "table.border": styles["muted"],
            }
        )
        self._console = Console(theme=theme, force_terminal=True, color_system="truecolor", legacy_windows=False)

    def prepare(self, block: Block, width: int) -> None:
        """Set the block's Markdown ahead of painting it: for use in a thread, because a long answer takes a while."""
        if block.markdown:
            self._set[block.markdown, width] = self._markdown(block.markdown, _inside(width))

    def paint(self, block: Block, width: int) -> list[Strip]:
        """The block's lines at this width."""
        inside = _inside(width)
        lines = [line for row in block.rows for line in self.wrap(row, inside)]
        if block.markdown:
            lines += self._set.pop((block.markdown, width), None) or self._markdown(block.markdown, inside)
        signed = self.beside(block.sign, block.tone, lines)
        return [Strip([]), *signed] if block.gap else signed

    def wrap(self, row: Row, width: int) -> list[Strip]:
        """One row, wrapped beside its lead."""
        text = Text(end="")
        for piece in row.pieces:
            text.append(piece.text.replace("\t", _TAB), self._styles[piece.tone])
        lines = [self._strip(line) for line in text.wrap(self._console, max(1, width - cell_len(row.lead)))]
        return self.beside(row.lead, "muted", lines, cell_len(row.lead)) if row.lead else lines

    def beside(self, sign: str, tone: Tone, lines: Iterable[Strip], margin: int = MARGIN) -> list[Strip]:
        """Lines with the sign in the margin of the first."""
        head = Text(sign, self._styles[tone])
        head.pad_right(margin - head.cell_len)
        blank = Strip([Segment(" " * margin)], margin)
        return [Strip.join([blank if at else self._strip(head), line]) for at, line in enumerate(lines)]

    def _markdown(self, text: str, width: int) -> list[Strip]:
        from rich.markdown import Markdown  # its parser is not needed for the first frame

        shown = Markdown(text, hyperlinks=False, code_theme="ansi_dark", inline_code_theme="ansi_dark")
        options = self._console.options.update(width=width)
        lines = self._console.render_lines(shown, options, pad=False)
        strips: list[Strip] = []
        for strip in (Strip(_without_background(line)) for line in lines):
            if strip.text.strip() or (strips and strips[-1].text.strip()):  # one empty line is enough of a gap
                strips.append(strip)
        return strips if not strips or strips[-1].text.strip() else strips[:-1]

    def _strip(self, text: Text) -> Strip:
        return Strip(list(text.render(self._console)), text.cell_len)


def _inside(width: int) -> int:
    return max(_NARROWEST, width - MARGIN)


def _without_background(line: Iterable[Segment]) -> list[Segment]:
    """The segments without the backgrounds that a code theme brings: the screen has its own."""
    return [
        Segment(text, style.without_color + Style(color=style.color) if style and style.bgcolor else style)
        for text, style, control in line
        if not control
    ]

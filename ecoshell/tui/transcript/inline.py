"""Markdown inside a paragraph: stress, code and links become pieces, and every other character stays as it is."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ecoshell.tui.transcript.blocks import Piece, Tone
from ecoshell.untrusted import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Pieces = tuple[Piece, ...]
_SAFE = re.compile(r"(?:https?://|mailto:)[!-~]+", re.IGNORECASE)
_STRESS = {"em": "i", "strong": "b", "s": "s"}
_MARKED = re.compile(r"[\\`*_~\[\]!<&\n]")
"""What a text without Markdown has none of."""


@lru_cache(maxsize=512)
def inline(text: str, tone: Tone = "text") -> tuple[Pieces, ...]:
    """The pieces of a paragraph, one tuple for each line that the writer wanted to begin anew."""
    if not _MARKED.search(text):
        return ((Piece(visible(text), tone),),)
    setting = _Setting(tone)
    for token in _parser().parseInline(text)[0].children or ():
        setting.take(token)
    return tuple(tuple(line) for line in setting.lines)


def safe_link(address: str) -> str:
    """The address if it may be opened (http, https, mailto; printable ASCII alone), else nothing."""
    return address if _SAFE.fullmatch(address) else ""


class _Setting:
    """What is in force while the tokens of a paragraph pass by."""

    def __init__(self, tone: Tone) -> None:
        self.lines: list[list[Piece]] = [[]]
        self._tone: Tone = tone
        self._stress: list[str] = []
        self._links: list[tuple[str, str]] = []
        """Where the open links lead, and the text shown for them so far."""

    def take(self, token: "Token") -> None:
        """Set one token."""
        kind = token.type
        if kind == "hardbreak":
            self.lines.append([])
        elif kind == "softbreak":
            self._add(" ", self._tone)
        elif kind == "code_inline":
            self._add(token.content, "tool")
        elif kind == "link_open":
            self._links.append((str(token.attrs.get("href", "")), ""))
        elif kind == "link_close":
            self._close_link()
        elif kind == "image":
            self._add(f"[image: {token.content}] ({token.attrs.get('src', '')})", "link")
        elif token.tag in _STRESS:
            self._turn(_STRESS[token.tag], on=token.nesting == 1)
        else:
            self._add(token.content, self._tone)

    def _turn(self, stress: str, *, on: bool) -> None:
        if on:
            self._stress.append(stress)
        else:
            self._stress.remove(stress)

    def _add(self, text: str, tone: Tone) -> None:
        if not text:
            return
        link = ""
        if self._links:
            address, shown = self._links[-1]
            self._links[-1] = (address, shown + text)
            link, tone = safe_link(address), "link" if tone == self._tone else tone
        self.lines[-1].append(Piece(visible(text), tone, "".join(self._stress), link))

    def _close_link(self) -> None:
        """Show where a link leads, unless that is what it says."""
        address, shown = self._links.pop()
        if address.removeprefix("mailto:") != shown:
            self.lines[-1].append(Piece(f" ({visible(address)})", "muted", link=safe_link(address)))


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # not needed for the first frame

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough")

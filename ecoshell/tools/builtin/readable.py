"""The text of a web page as a person reads it."""

import re

from ecoshell.worker import in_worker

_BLANK_LINES = re.compile(r"\n\s*\n\s*")
_SECONDS = 15.0
_LEAST_SHARE = 0.2
"""Of the whole page's text: an article shorter than this is not what the page is about."""


def readable_text(html: str) -> str:
    """The main text of a page under its title; of a page without one, all its text.

    Works in a worker process. Raises ToolError where that takes too long or too much memory; may block.
    """
    return in_worker(_readable, html, seconds=_SECONDS)


def _readable(html: str) -> str:
    from lxml.etree import LxmlError, ParserError  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
    from readability import Document  # heavy
    from readability.readability import Unparseable

    if not html.strip():
        return ""
    whole = _text(html)
    try:
        document = Document(html)
        title = str(document.short_title())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        article = _text(str(document.summary()))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    except (Unparseable, LxmlError, ParserError, RecursionError):
        return whole
    text = article if len(article) >= len(whole) * _LEAST_SHARE else whole
    return text if not title or title in text[: len(title) + 200] else f"{title}\n\n{text}"


def _text(html: str) -> str:
    from inscriptis import get_text

    return _BLANK_LINES.sub("\n\n", get_text(html)).strip()

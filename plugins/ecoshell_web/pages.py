"""Text and parts of HTML pages, which are untrusted; runs in a worker process."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urljoin, urlsplit

from ecoshell.errors import ToolError
from ecoshell.messages import visible, visible_line

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_INVISIBLE = ("script", "style", "template", "noscript")
_ITEM_CHARACTERS = 2_000
"""Characters of a link, heading or row."""
_BLANK_LINES = re.compile(r"\n\s*\n\s*")
_MIN_ARTICLE_SHARE = 0.2
"""Minimum share of an article in the page's text; below it the whole text is used."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a text."""

    text: str
    end: int
    """The character after it."""
    total: int
    """Characters of the whole text."""


def excerpt(text: str, start: int, characters: int) -> Excerpt:
    """Return as many whole lines as fit, from a character on."""
    start = max(0, start)
    end = min(len(text), start + characters)
    if end < len(text):
        end = text.rfind("\n", start + characters // 2, end) + 1 or end
    return Excerpt(text[start:end].rstrip(), end, len(text))


def extract(
    html: str, address: str, part: str, selector: str, start: int, characters: int
) -> Excerpt:
    """Return an excerpt of the parts of one kind, in page order; raises ToolError for an invalid selector."""
    lxml = import_module("lxml.html")
    try:
        page = lxml.document_fromstring(
            html.encode(errors="replace"), parser=lxml.HTMLParser(encoding="utf-8")
        )
    except lxml.etree.ParserError:  # An empty page.
        return Excerpt("", 0, 0)
    for element in [*page.iter(*_INVISIBLE)]:
        element.drop_tree()
    elements = _select(page, selector) if selector.strip() else [page]
    base = address
    with suppress(ValueError):  # Brackets without an IPv6 address.
        base = urljoin(address, next(iter(page.xpath("//base/@href")), ""))
    kinds: dict[str, Callable[[Any], Iterable[str]]] = {
        "text": lambda element: [_text(element)],
        "links": lambda element: _links(element, base),
        "tables": _tables,
        "headings": _headings,
    }
    items = dict.fromkeys(item for element in elements for item in kinds[part](element) if item)
    return excerpt("\n".join(items).rstrip(), start, characters)


def readable_text(html: str) -> str:
    """Return title and main text of a page, or all its text."""
    from lxml.etree import LxmlError, ParserError  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
    from readability import Document  # heavy
    from readability.readability import Unparseable

    if not html.strip():
        return ""
    full_text = _plain_text(html)
    try:
        document = Document(html)
        title = str(document.short_title())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        article = _plain_text(str(document.summary()))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    except (Unparseable, LxmlError, ParserError, RecursionError):
        return full_text
    text = article if len(article) >= len(full_text) * _MIN_ARTICLE_SHARE else full_text
    return text if not title or title in text[: len(title) + 200] else f"{title}\n\n{text}"


def _plain_text(html: str) -> str:
    from inscriptis import get_text

    return _BLANK_LINES.sub("\n\n", get_text(html)).strip()


def _select(page: Any, selector: str) -> list[Any]:
    """Return the elements that match a CSS selector, without those inside other matches."""
    syntax_error = import_module("lxml.cssselect").SelectorError
    try:
        matches: list[Any] = page.cssselect(selector)
    except (
        syntax_error,
        import_module("lxml.etree").XPathError,
    ) as error:  # For an unknown namespace.
        raise ToolError(
            f"{visible_line(selector)[:80]} is not a CSS selector: {visible_line(str(error))}."
        ) from error
    matching = {*matches}
    return [
        match for match in matches if not any(above in matching for above in match.iterancestors())
    ]


def _text(element: Any) -> str:
    from inscriptis import get_text

    html: str = import_module("lxml.html").tostring(element, encoding="unicode")
    lines = (line.rstrip() for line in get_text(html).splitlines())
    return visible("\n".join(line for line in lines if line).strip())


def _links(element: Any, base: str) -> Iterator[str]:
    """Yield the text and the address of each HTTP link."""
    for link in element.iter("a"):
        try:
            target = urljoin(base, (link.get("href") or "").strip())
            scheme = urlsplit(target).scheme
        except ValueError:  # Brackets without an IPv6 address.
            continue
        if link.get("href") and scheme in ("http", "https"):
            text = visible_line(link.text_content()) or "(no text)"
            yield f"{text}: {visible_line(target)}"[:_ITEM_CHARACTERS]


def _headings(element: Any) -> Iterator[str]:
    for heading in element.iter(*_HEADINGS):
        text = f"{'#' * int(heading.tag[1])} {visible_line(heading.text_content())}"
        yield text[:_ITEM_CHARACTERS]


def _tables(element: Any) -> Iterator[str]:
    """Yield the rows of each table that contains no other table, which would be for layout."""
    for table in element.iter("table"):
        if next(table.iterdescendants("table"), None) is not None:
            continue
        rows = [
            [visible_line(cell.text_content()) for cell in row.iter("td", "th")]
            for row in table.iter("tr")
        ]
        caption = [visible_line(caption.text_content()) for caption in table.iter("caption")][:1]
        lines = [" | ".join(row)[:_ITEM_CHARACTERS] for row in rows if any(row)]
        if lines:
            yield "\n".join([*caption, *lines]) + "\n"

"""Parts of HTML pages, which are untrusted; runs in a worker process."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any
from urllib.parse import urljoin, urlsplit

from ecoshell.errors import ToolError
from ecoshell.messages import Observation, visible, visible_line
from ecoshell.tools.running import truncation_mark

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_INVISIBLE = ("script", "style", "template", "noscript")
_ITEM_CHARACTERS = 2_000
"""Characters of a link, heading or row."""


def extract(
    html: str, address: str, part: str, selector: str, characters: int
) -> Observation | None:
    """Return the parts of one kind that fit, in page order, or None without any.

    Raises ToolError for an invalid selector.
    """
    lxml = import_module("lxml.html")
    try:
        page = lxml.document_fromstring(
            html.encode(errors="replace"), parser=lxml.HTMLParser(encoding="utf-8")
        )
    except lxml.etree.ParserError:  # An empty page.
        return None
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
    items = [*dict.fromkeys(item for element in elements for item in kinds[part](element) if item)]
    return _fitting(items, part, characters) if items else None


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
    return "\n".join(line for line in lines if line).strip()


def _links(element: Any, base: str) -> Iterator[str]:
    """Yield the text and the address of each HTTP link."""
    for link in element.iter("a"):
        try:
            target = urljoin(base, (link.get("href") or "").strip())
            scheme = urlsplit(target).scheme
        except ValueError:  # Brackets without an IPv6 address.
            continue
        if link.get("href") and scheme in ("http", "https"):
            yield f"{visible_line(link.text_content()) or '(no text)'}: {visible_line(target)}"


def _headings(element: Any) -> Iterator[str]:
    for heading in element.iter(*_HEADINGS):
        yield f"{'#' * int(heading.tag[1])} {visible_line(heading.text_content())}"


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


def _fitting(items: list[str], part: str, characters: int) -> Observation:
    """Return the items that fit, with a truncation mark; a single item that does not fit is cut."""
    fitting: list[str] = []
    room = characters
    for item in items:
        text = visible(item) if part in ("text", "tables") else item[:_ITEM_CHARACTERS]
        if len(text) > room and fitting:
            break
        fitting.append(text[:room])
        room -= len(text) + 1
        if room <= 0:
            break
    text = "\n".join(fitting).rstrip()
    if len(fitting) < len(items):
        return Observation(
            f"{text}\n{truncation_mark(len(fitting), len(items), part)}", truncated=True
        )
    if room < 0:
        return Observation(f"{text}\n{truncation_mark(characters, len(items[-1]))}", truncated=True)
    return Observation(text)

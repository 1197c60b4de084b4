"""Takes pages of HTML apart; works in a worker process, as anybody may have written them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any
from urllib.parse import urljoin, urlsplit

from ecoshell.errors import ToolError
from ecoshell.messages import Observation, visible, visible_line
from ecoshell.tools.running import truncation_mark

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_UNSEEN = ("script", "style", "template", "noscript")
_LONGEST = 2_000
"""Characters of one link, heading or row."""


def extracted(html: str, address: str, part: str, selector: str, characters: int) -> Observation | None:
    """The parts of one kind, in the order of the page, as many as fit; None where there is none.

    Raises ToolError for a selector that is none.
    """
    lxml = import_module("lxml.html")
    try:
        page = lxml.document_fromstring(html.encode(errors="replace"), parser=lxml.HTMLParser(encoding="utf-8"))
    except lxml.etree.ParserError:  # a page without anything on it
        return None
    for one in [*page.iter(*_UNSEEN)]:
        one.drop_tree()
    places = _chosen(page, selector) if selector.strip() else [page]
    base = address
    with suppress(ValueError):  # brackets that are no IPv6 address
        base = urljoin(address, next(iter(page.xpath("//base/@href")), ""))
    kinds: dict[str, Callable[[Any], Iterable[str]]] = {
        "text": lambda place: [_text(place)],
        "links": lambda place: _links(place, base),
        "tables": _tables,
        "headings": _headings,
    }
    found = [*dict.fromkeys(one for place in places for one in kinds[part](place) if one)]
    return _fitting(found, part, characters) if found else None


def _chosen(page: Any, selector: str) -> list[Any]:
    """What a CSS selector finds, without what lies in something else that it finds."""
    from cssselect import SelectorError

    try:
        chosen: list[Any] = page.cssselect(selector)
    except (SelectorError, import_module("lxml.etree").XPathError) as error:  # of a namespace that the page has not
        raise ToolError(f"{visible_line(selector)[:80]} is not a CSS selector: {visible_line(str(error))}.") from error
    known = {*chosen}
    return [one for one in chosen if not any(above in known for above in one.iterancestors())]


def _text(place: Any) -> str:
    from inscriptis import get_text

    html: str = import_module("lxml.html").tostring(place, encoding="unicode")
    lines = (line.rstrip() for line in get_text(html).splitlines())
    return "\n".join(line for line in lines if line).strip()


def _links(place: Any, base: str) -> Iterator[str]:
    """Each link's text and its address, of those that can be fetched."""
    for one in place.iter("a"):
        try:
            target = urljoin(base, (one.get("href") or "").strip())
            scheme = urlsplit(target).scheme
        except ValueError:  # brackets that are no IPv6 address
            continue
        if one.get("href") and scheme in ("http", "https"):
            yield f"{visible_line(one.text_content()) or '(no text)'}: {visible_line(target)}"


def _headings(place: Any) -> Iterator[str]:
    for one in place.iter(*_HEADINGS):
        yield f"{'#' * int(one.tag[1])} {visible_line(one.text_content())}"


def _tables(place: Any) -> Iterator[str]:
    """Each table without one in it, as lines of cells; one that only lays out others has none of its own."""
    for table in place.iter("table"):
        if next(table.iterdescendants("table"), None) is not None:
            continue
        rows = [[visible_line(cell.text_content()) for cell in row.iter("td", "th")] for row in table.iter("tr")]
        caption = [visible_line(one.text_content()) for one in table.iter("caption")][:1]
        lines = [" | ".join(row)[:_LONGEST] for row in rows if any(row)]
        if lines:
            yield "\n".join([*caption, *lines]) + "\n"


def _fitting(found: list[str], part: str, characters: int) -> Observation:
    """As many as fit, and how many there are; one that does not fit alone is cut."""
    shown: list[str] = []
    left = characters
    for one in found:
        text = visible(one) if part in ("text", "tables") else one[:_LONGEST]
        if len(text) > left and shown:
            break
        shown.append(text[:left])
        left -= len(text) + 1
        if left <= 0:
            break
    text = "\n".join(shown).rstrip()
    if len(shown) < len(found):
        return Observation(f"{text}\n{truncation_mark(len(shown), len(found), part)}", truncated=True)
    if left < 0:
        return Observation(f"{text}\n{truncation_mark(characters, len(found[-1]))}", truncated=True)
    return Observation(text)

"""Tools for the web: a search by a SearXNG server of one's choice, and pages as text or by their parts.

Addresses are reached as `fetch_url` reaches them, with its limits, and never on this machine or its local network
unless the settings allow it; the search alone goes wherever `[plugins.web] searxng` says. Pages are taken apart in
ecoshell's worker process.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlencode, urlsplit

from ecoshell.errors import ToolError, UsageError, closest_word
from ecoshell.messages import Effect, Observation, visible_line
from ecoshell.plugins import hookimpl
from ecoshell.tools import Limits, Subject, ToolOptions
from ecoshell.tools.builtin.fetch import HTML, FetchTool, Page
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.running import in_thread, truncation_mark
from ecoshell.worker import in_worker

from . import pages

_NO_SERVER = (
    "There is no server to search with. Tell the user to name a SearXNG server: "
    "ecoshell config set plugins.web.searxng https://searxng.example.org"
)
_MOST = 20
"""Results of a search."""
_SNIPPET = 300
"""Characters of what a result says."""
_MARKS = 200

Address = Annotated[str, "Address beginning with http:// or https://.", Subject.ADDRESS]


class WebTools:
    """The tools of one session; each public method is one."""

    def __init__(self, options: ToolOptions, searxng: str) -> None:
        self._options = options
        self._searxng = searxng
        self._web = FetchTool(options)
        self._search = FetchTool(replace(options, allow_private=True))

    async def web_search(
        self,
        query: Annotated[str, "What to look for."],
        count: Annotated[int, "How many results."] = 8,
    ) -> Observation:
        """Search the web (internet) for pages about something: titles, addresses and snippets."""
        if not self._searxng:
            raise ToolError(_NO_SERVER)
        if not query.strip():
            raise ToolError("`query` is empty.")
        address = f"{self._searxng}/search?{urlencode({'q': query, 'format': 'json'})}"
        page = await self._search.page(address, redirects=0)
        lines = await in_thread(lambda: [*_results(page, max(1, min(count, _MOST)))])
        return Observation("\n".join(lines) or f"Nothing was found for {visible_line(query)}.")

    async def web_fetch(
        self,
        url: Address,
        start: Annotated[int, "Character to begin at, to read on."] = 0,
    ) -> Observation:
        """Read a web page (article, documentation) as text, a long one in parts."""
        page = await self._page(url)
        text = await self._web.readable(page)
        return self._part(text, max(0, start), page)

    async def web_extract(
        self,
        url: Address,
        part: Annotated[Literal["text", "links", "tables", "headings"], "What to take."] = "text",
        selector: Annotated[str, "CSS selector of where to look, such as main table."] = "",
    ) -> Observation:
        """Extract parts of a web page: its links, tables or headings, or what a CSS selector finds."""
        page = await self._page(url)
        if page.kind not in HTML:
            raise ToolError(f"{page.address} is {page.kind[:80]}, not a page of HTML; web_fetch shows its text.")
        seconds, most = self._options.fetch_seconds, (self._options.result.characters - _MARKS)
        found = await in_thread(
            lambda: in_worker(pages.extracted, page.text, page.address, part, selector, most, seconds=seconds)
        )
        rest = f"[truncated: only {self._options.fetch_bytes} bytes were fetched]" if page.cut else ""
        if not found:
            within = f" within {selector}" if selector else ""
            raise ToolError(f"{page.address} has no {part}{within}; web_fetch shows what it says. {rest}".rstrip())
        return replace(found, text=f"{found.text}\n{rest}", truncated=True) if rest else found

    async def _page(self, url: str) -> Page:
        page = await self._web.page(url)
        if page.status >= 400:
            raise ToolError(f"{page.address} answered {page.status} {page.reason}.")
        return page

    def _part(self, text: str, start: int, page: Page) -> Observation:
        """So much of a text from a character on as fits, and how to read on."""
        if not text:
            return Observation(f"{page.address} has no text.")
        if start >= len(text):
            raise ToolError(f"{page.address} has {len(text)} characters; `start` {start} is beyond them.")
        end = min(len(text), start + (self._options.result.characters - _MARKS))
        if end < len(text):
            end = text.rfind("\n", start + (self._options.result.characters - _MARKS) // 2, end) + 1 or end
        shown = text[start:end].rstrip()
        if end < len(text):
            mark = truncation_mark(end - start, len(text))
            return Observation(f"{shown}\n{mark} Go on with start={end}.", truncated=True)
        if page.cut:
            return Observation(
                f"{shown}\n[truncated: only {self._options.fetch_bytes} bytes were fetched]", truncated=True
            )
        return Observation(shown)


def _results(page: Page, count: int) -> Iterator[str]:
    """What a SearXNG server has found, as lines; raises ToolError where it has not answered as one does."""
    server = "{0.scheme}://{0.netloc}".format(urlsplit(page.address))
    if page.status == 403:
        why = "Most likely it gives no JSON: `json` must stand under `search: formats:` in its settings.yml"
        raise ToolError(f"{server} refuses (403). {why}, as whoever runs it can change.")
    if page.status == 429:
        raise ToolError(f"{server} was asked too often (429). Wait, or go on without it.")
    try:
        answer: Any = json.loads(page.text) if page.status < 400 else None
        found = cast("list[Mapping[str, Any]]", answer["results"])
        answers = cast("list[Any]", answer.get("answers") or [])
        silent = [": ".join(map(str, one)) for one in answer.get("unresponsive_engines") or ()]
        for one in answers[:3]:
            text = str(cast("Mapping[str, Any]", one).get("answer", "")) if isinstance(one, Mapping) else str(one)
            yield f"Answer: {visible_line(text)[:_SNIPPET]}"
        for number, one in enumerate(found[:count], start=1):
            yield f"{number}. {visible_line(str(one.get('title') or one['url']))[:_SNIPPET]}"
            yield f"   {visible_line(str(one['url']))[:_SNIPPET]}"
            said = visible_line(str(one.get("content") or ""))
            day = str(one.get("publishedDate") or "")[:10]
            if said or day:
                yield f"   {f'({visible_line(day)}) ' if day else ''}{said[:_SNIPPET]}".rstrip()
        if len(found) > count:
            yield truncation_mark(count, len(found), "results")
        if not found and silent:
            yield f"Nothing was found, and engines did not answer: {visible_line(', '.join(silent))[:_SNIPPET]}."
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        said = f"{page.status} {page.reason}, {page.kind[:80]}"
        raise ToolError(f"{server} did not answer as a SearXNG server does ({said}).") from error


@hookimpl
def tools(options: ToolOptions, settings: Mapping[str, Any]) -> list[FunctionTool]:
    """`web_search`, `web_fetch`, `web_extract`."""
    if lacking := [name for name in ("lxml", "cssselect") if find_spec(name) is None]:
        raise UsageError(f"needs {' and '.join(lacking)}: pip install {' '.join(lacking)}")
    of_session = WebTools(options, _address(settings))
    limits = Limits(options.fetch_seconds, options.result)
    reach: tuple[Effect, ...] = ("network",)
    methods = (of_session.web_search, of_session.web_fetch, of_session.web_extract)
    return [FunctionTool(method, effects=reach, limits=limits) for method in methods]


def _address(settings: Mapping[str, Any]) -> str:
    """The address of the SearXNG server, empty where there is none; raises UsageError for what is wrong."""
    for name in settings:
        if name != "searxng":
            hint = "did you mean searxng?" if closest_word(name, ["searxng"]) else "it has searxng alone"
            raise UsageError(f"[plugins.web] has no setting {name}; {hint}")
    given: object = settings.get("searxng", "")
    address = given.strip().rstrip("/").removesuffix("/search") if isinstance(given, str) else ""
    parts = urlsplit(address)
    if given and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
        raise UsageError("plugins.web.searxng must be an address, such as https://searxng.example.org")
    return address

"""Tools for the web: pages as text or in parts, and search with a SearXNG server.

Pages are fetched from private addresses only if the settings allow it. Only the search may use any address, that of
`[plugins.web] searxng`. Pages are parsed in a worker process.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlencode, urlsplit

from ecoshell.errors import ToolError, UsageError, closest_word
from ecoshell.messages import Effect, Observation, visible_line
from ecoshell.plugins import hookimpl
from ecoshell.tools import Limits, Subject, ToolOptions
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.running import in_thread, truncation_mark
from ecoshell.worker import in_worker
from ecoshell_web import pages
from ecoshell_web.fetching import HTML, Fetcher, Page
from ecoshell_web.pages import Excerpt, excerpt

_MAX_RESULTS = 20
_SNIPPET_CHARACTERS = 300
_MARK_CHARACTERS = 200
"""Room for truncation marks in a result."""

Address = Annotated[str, "Address beginning with http:// or https://.", Subject.ADDRESS]


class WebTools:
    """The tools of one session; each public method is one."""

    def __init__(self, options: ToolOptions, searxng: str) -> None:
        self._options = options
        self._searxng = searxng
        self._web = Fetcher(options)
        self._search = Fetcher(replace(options, allow_private=True))

    async def fetch_url(self, url: Address) -> Observation:
        """Fetch a web page (website, link, URL, internet address) and show its readable text."""
        page = await self._web.page(url)
        text = await self._web.readable(page)
        if page.status >= 400:
            return Observation(
                f"{page.address} answered {page.status} {page.reason}.\n{text}", ok=False
            )
        if not text:
            return Observation(f"{page.address} has no text.", truncated=page.cut)
        return self._observation(page, excerpt(text, 0, self._room), "text")

    async def web_search(
        self,
        query: Annotated[str, "What to look for."],
        count: Annotated[int, "How many results."] = 8,
    ) -> Observation:
        """Search the web (internet) for pages about something: titles, addresses and snippets."""
        if not query.strip():
            raise ToolError("`query` is empty.")
        address = f"{self._searxng}/search?{urlencode({'q': query, 'format': 'json'})}"
        page = await self._search.page(address, redirects=0)
        lines = await in_thread(lambda: [*_results(page, max(1, min(count, _MAX_RESULTS)))])
        return Observation("\n".join(lines) or f"Nothing was found for {visible_line(query)}.")

    async def web_extract(
        self,
        url: Address,
        part: Annotated[Literal["text", "links", "tables", "headings"], "What to take."] = "text",
        selector: Annotated[str, "CSS selector of where to look, such as main table."] = "",
        start: Annotated[int, "Character to begin at, to read on."] = 0,
    ) -> Observation:
        """Extract parts of a web page: links, tables, headings or what a CSS selector finds; or read on in its text."""
        page = await self._web.page(url)
        if page.status >= 400:
            raise ToolError(f"{page.address} answered {page.status} {page.reason}.")
        if part == "text" and not selector.strip():
            return self._observation(
                page, excerpt(await self._web.readable(page), start, self._room), "text"
            )
        if page.kind not in HTML:
            raise ToolError(
                f"{page.address} is {page.kind[:80]}, not an HTML page; fetch_url returns its text."
            )
        arguments = (page.text, page.address, part, selector, start, self._room)
        result = await in_thread(
            lambda: in_worker(pages.extract, *arguments, seconds=self._options.fetch_seconds)
        )
        subject = f"{part} within {selector}" if selector else part
        return self._observation(page, result, subject)

    @property
    def _room(self) -> int:
        return self._options.result.characters - _MARK_CHARACTERS

    def _observation(self, page: Page, result: Excerpt, subject: str) -> Observation:
        """Return an excerpt with marks of truncation; raises ToolError if it is empty."""
        fetched = f"[truncated: only the first {self._options.fetch_bytes} bytes were fetched]"
        if not result.total:
            mark = f" {fetched}" if page.cut else ""
            raise ToolError(f"{page.address} has no {subject}.{mark}")
        if not result.text:
            raise ToolError(
                f"{page.address} has {result.total} characters of {subject}; `start` is beyond them."
            )
        marks = [fetched] if page.cut else []
        if result.end < result.total:
            mark = truncation_mark(len(result.text), result.total)
            marks = [f"{mark} web_extract continues with start={result.end}."]
        return Observation("\n".join([result.text, *marks]), truncated=bool(marks))


def _results(page: Page, count: int) -> Iterator[str]:
    """Yield the lines of search results; raises ToolError for an unexpected response."""
    server = "{0.scheme}://{0.netloc}".format(urlsplit(page.address))
    if page.status == 403:
        why = (
            "JSON is probably disabled: its settings.yml must list `json` under `search: formats:`"
        )
        raise ToolError(f"{server} refuses (403). {why}.")
    if page.status == 429:
        raise ToolError(f"{server} limits requests (429). Wait, or continue without it.")
    try:
        answer: Any = json.loads(page.text) if page.status < 400 else None
        results = cast("list[Mapping[str, Any]]", answer["results"])
        answers = cast("list[Any]", answer.get("answers") or [])
        failed = [
            ": ".join(map(str, engine)) for engine in answer.get("unresponsive_engines") or ()
        ]
        for item in answers[:3]:
            text = (
                str(cast("Mapping[str, Any]", item).get("answer", ""))
                if isinstance(item, Mapping)
                else str(item)
            )
            yield f"Answer: {visible_line(text)[:_SNIPPET_CHARACTERS]}"
        for number, result in enumerate(results[:count], start=1):
            yield f"{number}. {visible_line(str(result.get('title') or result['url']))[:_SNIPPET_CHARACTERS]}"
            yield f"   {visible_line(str(result['url']))[:_SNIPPET_CHARACTERS]}"
            snippet = visible_line(str(result.get("content") or ""))
            day = str(result.get("publishedDate") or "")[:10]
            if snippet or day:
                yield f"   {f'({visible_line(day)}) ' if day else ''}{snippet[:_SNIPPET_CHARACTERS]}".rstrip()
        if len(results) > count:
            yield truncation_mark(count, len(results), "results")
        if not results and failed:
            engines = visible_line(", ".join(failed))[:_SNIPPET_CHARACTERS]
            yield f"Nothing was found, and engines did not answer: {engines}."
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        status = f"{page.status} {page.reason}, {page.kind[:80]}"
        raise ToolError(f"{server} did not answer as a SearXNG server does ({status}).") from error


@hookimpl
def tools(options: ToolOptions, settings: Mapping[str, Any]) -> list[FunctionTool]:
    """Return `fetch_url` and `web_extract`, and `web_search` if a search server is configured."""
    methods = WebTools(options, server := _address(settings))
    limits = Limits(options.fetch_seconds, options.result)
    reach: tuple[Effect, ...] = ("network",)
    searches = (methods.web_search,) if server else ()
    functions = (methods.fetch_url, *searches, methods.web_extract)
    return [FunctionTool(function, effects=reach, limits=limits) for function in functions]


def _address(settings: Mapping[str, Any]) -> str:
    """Return the address of the SearXNG server, empty if it is not set; raises UsageError if it is invalid."""
    for name in settings:
        if name != "searxng":
            hint = (
                "did you mean searxng?"
                if closest_word(name, ["searxng"])
                else "the only setting is searxng"
            )
            raise UsageError(f"[plugins.web] has no setting {name}; {hint}")
    value: object = settings.get("searxng", "")
    address = value.strip().rstrip("/").removesuffix("/search") if isinstance(value, str) else ""
    parts = urlsplit(address)
    if value and (
        parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment
    ):
        raise UsageError(
            "plugins.web.searxng must be an address, such as https://searxng.example.org"
        )
    return address

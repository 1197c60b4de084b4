"""The tools of ecoshell_web, with a server like SearXNG and untrusted pages."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ecoshell.errors import UsageError
from ecoshell.messages import Observation
from ecoshell.tools import ResultSize, Subject, ToolOptions, subjects_of
from ecoshell.tools.function import FunctionTool
from ecoshell_web import tools

PAGE = """<?xml version="1.0" encoding="utf-8"?><html><head><title>Foxes</title><base href="/wiki/"></head><body>
<nav><a href="/">Home</a></nav><main><h1>The red\x1b[31m fox</h1><p class="lead">It is <b>red</b>.</p>
<h2>Where</h2><a href="dens.html#top">Dens</a> <a href="https://example.org/a">Else</a> <a href="javascript:x()">No</a>
<a href="dens.html#top">Dens</a> <a href="http://[">Broken</a>
<table><caption>Weights</caption><tr><th>who</th><th>kg</th></tr><tr><td>fox</td><td>7</td></tr></table>
<table class="frame"><tr><td><table><tr><td>inner</td></tr></table></td></tr></table></main>
<script>var hidden = "<h1>no</h1>";</script></body></html>"""
RESPONSE = {
    "query": "foxes",
    "results": [
        {
            "url": f"https://example.org/{number}",
            "title": f"Fox {number}\x1b[2J",
            "content": "They\nare <red>.",
        }
        for number in range(12)
    ],
    "answers": [{"answer": "A fox is a mammal."}, "Or two."],
    "unresponsive_engines": [["google", "timeout"]],
}
RESPONSE["results"][0]["publishedDate"] = "2026-05-01T00:00:00"  # pyright: ignore


class Site:
    """A server with an answer per path; records the requests."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.answers: dict[str, tuple[int, str, str]] = {}
        self.address = ""

    def answer(
        self, path: str, text: str, kind: str = "text/html; charset=utf-8", status: int = 200
    ) -> str:
        self.answers[path] = status, kind, text
        return f"{self.address}{path}"

    @contextmanager
    def serving(self) -> Iterator["Site"]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                status, kind, text = site.answers.get(
                    urlsplit(self.path).path, (404, "text/plain", "nothing")
                )
                self.send_response(status)
                self.send_header("Location" if status == 302 else "Content-Type", kind)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.address = f"http://127.0.0.1:{server.server_port}"
        yield self
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    with Site().serving() as served:
        served.answer("/page", PAGE)
        served.answer("/search", json.dumps(RESPONSE), "application/json")
        yield served


Run = Callable[..., Any]


@pytest.fixture
def run(site: Site) -> Run:
    """Run a tool with settings that allow private addresses, unless `near` is False."""

    async def call(
        name: str, *, searxng: str | None = None, near: bool = True, **arguments: Any
    ) -> Observation:
        settings = {"searxng": site.address if searxng is None else searxng}
        options = ToolOptions(allow_private=near, result=ResultSize(2_000))
        return await named(options, settings)[name].run(arguments)

    return call


def named(options: ToolOptions, settings: dict[str, Any]) -> dict[str, FunctionTool]:
    return {tool.name: tool for tool in tools(options, settings)}


def test_tools_have_network_effects_and_declare_addresses() -> None:
    available = named(ToolOptions(), {"searxng": "https://searxng.example.org"})
    assert [*available] == ["fetch_url", "web_search", "web_extract"]
    assert {tool.effects for tool in available.values()} == {frozenset({"network"})}
    assert {name: subjects_of(tool) for name, tool in available.items()} == {
        "fetch_url": {"url": Subject.ADDRESS},
        "web_search": {},
        "web_extract": {"url": Subject.ADDRESS},
    }


async def test_search_returns_titles_addresses_and_snippets(run: Run, site: Site) -> None:
    result = await run("web_search", query="foxes & dogs", count=2)
    assert result.text.splitlines() == [
        "Answer: A fox is a mammal.",
        "Answer: Or two.",
        "1. Fox 0␛[2J",
        "   https://example.org/0",
        "   (2026-05-01) They are <red>.",
        "2. Fox 1␛[2J",
        "   https://example.org/1",
        "   They are <red>.",
        "[truncated: 2 of 12 results shown]",
    ]
    assert parse_qs(urlsplit(site.requests[0]).query) == {"q": ["foxes & dogs"], "format": ["json"]}


async def test_only_the_search_may_use_private_addresses(run: Run, site: Site) -> None:
    assert (await run("web_search", query="foxes", near=False)).ok
    for name in ("fetch_url", "web_extract"):
        refused = await run(name, url=f"{site.address}/page", near=False)
        assert (refused.ok, "on this machine or its local network" in refused.text) == (False, True)
    assert [urlsplit(path).path for path in site.requests] == ["/search"]


async def test_search_does_not_follow_redirects(run: Run, site: Site) -> None:
    site.answer("/search", "", f"{site.address}/page", 302)
    refused = await run("web_search", query="foxes", near=False)
    assert (refused.ok, "redirects" in refused.text, f"{site.address}/page" in refused.text) == (
        False,
        True,
        True,
    )
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "text", "words"),
    [
        (
            403,
            "text/html",
            "<h1>Forbidden</h1>",
            "its settings.yml must list `json` under `search: formats:`",
        ),
        (429, "text/html", "Too many", "limits requests"),
        (
            200,
            "text/html",
            "<p>Welcome",
            "did not answer as a SearXNG server does (200 OK, text/html)",
        ),
        (500, "application/json", "{}", "did not answer as a SearXNG server does (500"),
        (200, "application/json", '{"results": [{}]}', "did not answer as a SearXNG server does"),
        (200, "application/json", "[" * 90_000, "did not answer as a SearXNG server does"),
    ],
)
async def test_unexpected_response_is_reported(
    status: int, kind: str, text: str, words: str, run: Run, site: Site
) -> None:
    site.answer("/search", text, kind, status)
    result = await run("web_search", query="foxes")
    assert (result.ok, words in result.text) == (False, True), result.text


async def test_empty_search_names_failed_engines(run: Run, site: Site) -> None:
    site.answer(
        "/search", json.dumps({**RESPONSE, "results": [], "answers": []}), "application/json"
    )
    result = await run("web_search", query="foxes")
    assert result.text == "Nothing was found, and engines did not answer: google: timeout."
    site.answer("/search", '{"results": []}', "application/json")
    assert (await run("web_search", query="foxes")).text == "Nothing was found for foxes."


def test_search_is_not_offered_without_a_server() -> None:
    assert [*named(ToolOptions(), {})] == ["fetch_url", "web_extract"]
    assert [*named(ToolOptions(), {"searxng": ""})] == ["fetch_url", "web_extract"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"searxng": "example.org"}, "must be an address"),
        ({"searxng": "file:///etc"}, "must be an address"),
        ({"searxng": 8080}, "must be an address"),
        ({"searxgn": "https://example.org"}, "has no setting searxgn; did you mean searxng?"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", "[?]")):
        tools(ToolOptions(), settings)


@pytest.mark.parametrize("ending", ["", "/", "/search"])
async def test_search_address_may_have_a_suffix(ending: str, run: Run, site: Site) -> None:
    assert (await run("web_search", query="foxes", searxng=f"{site.address}{ending}")).ok


async def test_long_page_is_read_in_parts(run: Run, site: Site) -> None:
    lines = [f"line {number} of many" for number in range(200)]
    url = site.answer("/long", "\n".join(lines), "text/plain")
    result = await run("fetch_url", url=url)
    read, parts = "", 1
    while True:
        text, mark, more = result.text.partition("\n[truncated: ")
        read = f"{read}\n{text}" if read else text
        assert len(result.text) <= 2_000
        assert result.truncated == bool(mark)
        if not mark:
            break
        parts, start = parts + 1, int(more.rpartition("start=")[2].rstrip("."))
        result = await run("web_extract", url=url, start=start)
    assert (read.splitlines(), parts) == (lines, 2)
    beyond = await run("web_extract", url=url, start=10_000)
    assert (beyond.ok, "`start` is beyond them" in beyond.text) == (False, True)
    assert (await run("web_extract", url=url, start=-5)).text.startswith("line 0")


async def test_html_page_is_read_as_text(run: Run, site: Site) -> None:
    for name in ("fetch_url", "web_extract"):
        result = await run(name, url=f"{site.address}/page")
        assert "It is red." in result.text
        assert "hidden" not in result.text
    missing = await run("web_extract", url=f"{site.address}/missing")
    assert (missing.ok, missing.text) == (False, f"{site.address}/missing answered 404 Not Found.")


async def test_extract_returns_parts_of_a_page(run: Run, site: Site) -> None:
    async def parts(part: str, selector: str = "") -> list[str]:
        result = await run("web_extract", url=f"{site.address}/page", part=part, selector=selector)
        assert result.ok, result.text
        return result.text.splitlines()

    dens = f"Dens: {site.address}/wiki/dens.html#top"
    assert await parts("links") == [f"Home: {site.address}/", dens, "Else: https://example.org/a"]
    assert await parts("links", "main") == [dens, "Else: https://example.org/a"]
    assert await parts("headings") == ["# The red␛[31m fox", "## Where"]
    assert await parts("tables") == ["Weights", "who | kg", "fox | 7", "", "inner"]
    assert await parts("text", ".lead, .lead b") == ["It is red."]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"part": "tables", "selector": "nav"}, "has no tables within nav"),
        ({"part": "text", "selector": "p >"}, "p > is not a CSS selector"),
        ({"part": "text", "selector": "p::first-line"}, "is not a CSS selector"),
        (
            {"part": "text", "selector": "svg|a"},
            "svg|a is not a CSS selector: Undefined namespace prefix.",
        ),
    ],
)
async def test_failed_extraction_is_reported(
    arguments: dict[str, str], words: str, run: Run, site: Site
) -> None:
    result = await run("web_extract", url=f"{site.address}/page", **arguments)
    assert (result.ok, words in result.text) == (False, True), result.text


async def test_invalid_base_address_is_ignored(run: Run, site: Site) -> None:
    url = site.answer("/odd", '<base href="http://["><a href="/x">x</a>')
    assert (await run("web_extract", url=url, part="links")).text == f"x: {site.address}/x"


async def test_extract_requires_html(run: Run, site: Site) -> None:
    for text, kind, words in (
        ("{}", "application/json", "not an HTML page"),
        ("", "text/html", "has no links"),
    ):
        result = await run("web_extract", url=site.answer("/other", text, kind), part="links")
        assert (result.ok, words in result.text) == (False, True), result.text


@pytest.mark.parametrize("part", ["text", "links", "tables", "headings"])
async def test_extract_is_bounded(part: str, run: Run, site: Site) -> None:
    many = "".join(
        f"<h2>{n} {'x' * 50}</h2><a href='/{n}'>{n}</a><table><tr><td>{n}</td></tr></table>"
        for n in range(500)
    )
    endless = f"<h1>{'y' * 9_000}</h1><a href='/{'z' * 9_000}'>z</a><table><tr><td>{'w' * 9_000}</td></tr></table>"
    for page in (many, endless):
        result = await run("web_extract", url=site.answer("/many", page), part=part)
        assert len(result.text) <= 2_000
        assert result.truncated
        assert "web_extract continues with start=" in result.text[-200:]


async def test_extract_marks_pages_that_were_not_fetched_completely(run: Run, site: Site) -> None:
    url = site.answer("/large", "<h1>Begin</h1>" + "x" * 2_000_000 + "<h2>End</h2>")
    mark = "[truncated: only the first 2000000 bytes were fetched]"
    result = await run("web_extract", url=url, part="headings")
    assert (result.text, result.truncated) == (f"# Begin\n{mark}", True)
    assert (await run("web_extract", url=url, part="links")).text.endswith(mark)


async def test_deeply_nested_page_costs_at_most_an_error(run: Run, site: Site) -> None:
    url = site.answer("/deep", "<div>" * 100_000 + "<a href='/x'>deep</a>")
    for part in ("text", "links"):
        result = await run("web_extract", url=url, part=part)
        assert len(result.text) <= 2_000
    assert (await run("web_extract", url=f"{site.address}/page", part="headings")).ok

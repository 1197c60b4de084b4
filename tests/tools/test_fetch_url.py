import gzip
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.addresses import is_public, require_public_name
from ecoshell.tools.builtin.fetch import FetchTool
from ecoshell.tools.builtin.options import ToolOptions
from ecoshell.tools.builtin.readable import readable_text
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.limits import Limits

LOREM = "The quick brown fox, who was very tired, jumped over the lazy dog. " * 8
PAGE = f"""<html><head><title>Foxes and dogs</title><script>var hidden = 1;</script></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop</a></nav><article><h1>Foxes</h1><p>{LOREM}</p>
<table><tr><td>fox</td><td>red</td></tr></table></article></body></html>"""
PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/": (200, {"Content-Type": "text/html; charset=utf-8"}, PAGE.encode()),
    "/plain": (200, {"Content-Type": "text/plain; charset=latin-1"}, "café".encode("latin-1")),
    "/meta": (200, {"Content-Type": "text/html"}, '<meta charset="windows-1252"><p>café</p>'.encode("cp1252")),
    "/badcharset": (200, {"Content-Type": "text/plain; charset=hex"}, b"text"),
    "/json": (200, {"Content-Type": "application/vnd.api+json"}, b'{"a": 1}'),
    "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG"),
    "/none": (200, {}, b"no type"),
    "/empty": (200, {"Content-Type": "text/html"}, b""),
    "/missing": (404, {"Content-Type": "text/plain"}, b"nothing here"),
    "/zipped": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, gzip.compress(b"z" * 1_000_000)),
    "/moved": (302, {"Location": "/plain"}, b""),
    "/circle": (302, {"Location": "/circle"}, b""),
    "/tofile": (302, {"Location": "file:///etc/passwd"}, b""),
    "/topassword": (302, {"Location": "http://me:pw@example.org/"}, b""),
}


class Handler(BaseHTTPRequestHandler):
    seen: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.seen.append((self.headers["Host"], self.path))
        if self.path == "/endless":
            self.endless()
            return
        if self.path == "/silent":
            self.server.released.wait(20)  # pyright: ignore[reportAttributeAccessIssue]
            return
        status, headers, body = PAGES[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def endless(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"more and more\n" * 1_000)
        except OSError:
            return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        return


class Site:
    def __init__(self, port: int, seen: list[tuple[str, str]]) -> None:
        self.port = port
        self.seen = seen

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    seen: list[tuple[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Seen", (Handler,), {"seen": seen}))
    server.daemon_threads = True
    server.released = threading.Event()  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Site(server.server_port, seen)
    server.released.set()  # pyright: ignore[reportAttributeAccessIssue]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def near() -> FetchTool:
    return FetchTool(ToolOptions(allow_private=True, fetch_bytes=50_000))


async def refusal(tool: FetchTool, url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await tool.fetch_url(url)
    return str(caught.value)


async def test_a_page_comes_as_readable_text_under_its_title(near: FetchTool, site: Site):
    text = (await near.fetch_url(site.url("/"))).text
    assert text.startswith("Foxes and dogs\n")
    assert "quick brown fox" in text
    assert "hidden" not in text
    assert "<" not in text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/plain", "café"),
        ("/meta", "café"),
        ("/badcharset", "text"),
        ("/json", '{"a": 1}'),
        ("/none", "no type"),
        ("/moved", "café"),
    ],
)
async def test_text_comes_as_it_is(near: FetchTool, site: Site, path: str, text: str):
    found = await near.fetch_url(site.url(path))
    assert (found.ok, found.text) == (True, text)


async def test_an_empty_page_is_said_to_be_empty(near: FetchTool, site: Site):
    assert (await near.fetch_url(site.url("/empty"))).text == f"{site.url('/empty')} has no text."


async def test_an_error_page_is_not_ok_and_keeps_its_text(near: FetchTool, site: Site):
    found = await near.fetch_url(site.url("/missing"))
    assert not found.ok
    assert found.text == f"{site.url('/missing')} answered 404 Not Found.\nnothing here"


async def test_what_is_not_text_is_refused_by_its_type(near: FetchTool, site: Site):
    assert "image/png, which is not text" in await refusal(near, site.url("/image"))


@pytest.mark.parametrize("path", ["/endless", "/zipped"])
async def test_a_large_answer_is_cut_while_it_arrives(near: FetchTool, site: Site, path: str):
    found = await near.fetch_url(site.url(path))
    assert found.truncated
    assert len(found.text) < 50_100
    assert "[truncated: only the first 50000 bytes were fetched]" in found.text


async def test_redirects_are_followed_only_so_far_and_only_over_the_web(near: FetchTool, site: Site):
    assert "more than 5 times" in await refusal(near, site.url("/circle"))
    assert len(site.seen) == 6
    assert "only http:// and https://" in await refusal(near, site.url("/tofile"))
    assert "password" in await refusal(near, site.url("/topassword"))


async def test_a_server_that_does_not_answer_is_given_up(site: Site):
    tool = FunctionTool(
        FetchTool(ToolOptions(allow_private=True)).fetch_url, effects=["network"], limits=Limits(seconds=0.3)
    )
    found = await tool.run({"url": site.url("/silent")})
    assert (found.ok, found.text) == (
        False,
        "fetch_url was stopped: it took longer than 0.3 s. Give it less to do, or go on without it.",
    )
    hasty = FetchTool(ToolOptions(allow_private=True, fetch_seconds=0.2))
    assert "did not answer in time" in await refusal(hasty, site.url("/silent"))


async def test_a_server_that_is_not_there_is_told(near: FetchTool):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refused
        assert "could not be fetched" in await refusal(near, f"http://127.0.0.1:{closed.getsockname()[1]}/")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "javascript:alert(1)",
        "data:text/plain,hello",
        "http://",
        "",
        "http://me:secret@example.org/",
        "http://[::1",
        "http://exa mple.org/\x00",
        "https://" + "x" * 70_000,
    ],
)
async def test_what_is_no_plain_web_address_is_refused(near: FetchTool, url: str):
    message = await refusal(near, url)
    assert "secret" not in message


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "0x7f.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]"]
)
async def test_this_machine_is_not_reached_however_it_is_called(site: Site, host: str):
    message = await refusal(FetchTool(ToolOptions()), site.url("/plain", host))
    assert "local network" in message or "cannot be found" in message
    assert site.seen == []


@pytest.mark.parametrize(
    "host", ["10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]", "[::1]"]
)
async def test_the_local_network_is_not_reached(host: str):
    assert "local network" in await refusal(FetchTool(ToolOptions()), f"http://{host}/")


async def test_the_address_that_was_checked_is_the_one_connected_to(
    near: FetchTool, site: Site, monkeypatch: pytest.MonkeyPatch
):
    resolve, asked = socket.getaddrinfo, list[str]()

    def fickle(host: str, *arguments: object, **named: object):
        if host != "fickle.example":
            return resolve(host, *arguments, **named)  # pyright: ignore[reportArgumentType]
        asked.append(host)
        return resolve("127.0.0.1" if len(asked) == 1 else "192.0.2.1", *arguments, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(socket, "getaddrinfo", fickle)
    assert (await near.fetch_url(site.url("/plain", "fickle.example"))).text == "café"
    assert asked == ["fickle.example"]
    assert site.seen == [(f"fickle.example:{site.port}", "/plain")]


async def test_a_proxy_of_the_environment_is_used_but_not_for_private_names(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    PAGES["http://example.org/page"] = (200, {"Content-Type": "text/plain"}, b"by proxy")
    monkeypatch.setenv("http_proxy", site.url(""))
    far = FetchTool(ToolOptions())
    assert (await far.fetch_url("http://example.org/page")).text == "by proxy"
    for host in ("localhost", "10.0.0.1", "printer.local", "[::1]"):
        assert "local network" in await refusal(far, f"http://{host}/page")
    assert len(site.seen) == 1


@given(number=st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_as_public_inside_ipv6_as_outside(number: int):
    plain = IPv4Address(number)
    for carrier in (0xFFFF << 32, 0x64FF9B << 96, 0):
        inside = IPv6Address(carrier | number) if carrier else IPv6Address((0x2002 << 112) | (number << 80))
        assert is_public(inside) <= is_public(plain)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111"])
def test_the_open_internet_is_public(address: str):
    assert is_public(ip_address(address))
    require_public_name(address)


@pytest.mark.parametrize("address", ["224.0.0.1", "255.255.255.255", "100.64.0.1", "ff02::1", "::", "2001:db8::1"])
def test_special_addresses_are_not_public(address: str):
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "html",
    [
        "",
        " ",
        "<!-- only -->",
        "<",
        "no tags at all",
        "<html>",
        "\x00\x01",
        "<?xml version='1.0' encoding='utf-8'?><p>x</p>",
        "<p>\ud83d</p>",
    ],
)
def test_odd_pages_give_some_text_and_no_crash(html: str):
    assert "<p>" not in readable_text(html)


def test_a_page_nested_without_end_is_read():
    assert isinstance(readable_text("<div>" * 50_000 + "deep"), str)


def test_a_page_that_is_not_an_article_keeps_all_its_text():
    items = "".join(f"<li><a href='/{number}'>Entry {number}</a></li>" for number in range(50))
    text = readable_text(f"<html><title>Index</title><body><ul>{items}</ul><p>Short.</p></body></html>")
    assert "Entry 0" in text
    assert "Entry 49" in text

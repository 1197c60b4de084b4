import asyncio
import gzip
import socket
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecoshell.errors import ToolError
from ecoshell.tools import Limits, ResultSize, ToolOptions
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.running import contained
from ecoshell.worker import in_worker
from ecoshell_web import WebTools
from ecoshell_web.fetching import is_public, require_public_name
from ecoshell_web.pages import readable_text

LOREM = "The quick brown fox, who was very tired, jumped over the lazy dog. " * 8
PAGE = f"""<html><head><title>Foxes and dogs</title><script>var hidden = 1;</script></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop</a></nav><article><h1>Foxes</h1><p>{LOREM}</p>
<table><tr><td>fox</td><td>red</td></tr></table></article></body></html>"""
PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/": (200, {"Content-Type": "text/html; charset=utf-8"}, PAGE.encode()),
    "/plain": (200, {"Content-Type": "text/plain; charset=latin-1"}, "café".encode("latin-1")),
    "/meta": (
        200,
        {"Content-Type": "text/html"},
        '<meta charset="windows-1252"><p>café</p>'.encode("cp1252"),
    ),
    "/badcharset": (200, {"Content-Type": "text/plain; charset=hex"}, b"text"),
    "/json": (200, {"Content-Type": "application/vnd.api+json"}, b'{"a": 1}'),
    "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG"),
    "/none": (200, {}, b"no type"),
    "/empty": (200, {"Content-Type": "text/html"}, b""),
    "/missing": (404, {"Content-Type": "text/plain"}, b"nothing here"),
    "/zipped": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(b"z" * 1_000_000),
    ),
    "/deflated": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "deflate"},
        zlib.compress(b"zipped"),
    ),
    "/raw": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "Deflate"},
        zlib.compress(b"zipped", wbits=-15),
    ),
    "/gzipped": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "x-gzip"},
        gzip.compress(b"zipped"),
    ),
    "/parts": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(b"zip") + gzip.compress(b"ped") + b"\0" * 9,
    ),
    "/nogzip": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        b"not packed at all",
    ),
    "/moved": (302, {"Location": "/plain"}, b""),
    "/circle": (302, {"Location": "/circle"}, b""),
    "/tofile": (302, {"Location": "file:///etc/passwd"}, b""),
    "/topassword": (302, {"Location": "http://me:pw@example.org/"}, b""),
}
NOTHING_PACKED = zlib.compressobj(wbits=31).compress(b"") + b"\x00\x00\x00\xff\xff" * 10_000
"""The beginning of a gzip file with an endless number of empty members."""
DRIPS: dict[str, tuple[dict[str, str], bytes, float]] = {
    "/drip": ({"Content-Type": "text/plain"}, b"x", 0.02),
    "/drippage": ({"Content-Type": "text/html"}, b"<p>x", 0.02),
    "/nothing": ({"Content-Type": "text/plain", "Content-Encoding": "gzip"}, NOTHING_PACKED, 0),
}


class Handler(BaseHTTPRequestHandler):
    requests: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.requests.append((self.headers["Host"], self.path))
        if self.path == "/endless":
            self.endless()
            return
        if self.path in DRIPS:
            self.drip(*DRIPS[self.path])
            return
        if self.path == "/silent":
            self.server.released.wait(600)  # pyright: ignore[reportAttributeAccessIssue]
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

    def drip(self, headers: dict[str, str], piece: bytes, pause: float) -> None:
        """Repeat the same bytes."""
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            while not self.server.released.wait(pause):  # pyright: ignore[reportAttributeAccessIssue]
                self.wfile.write(piece)
        except OSError:
            return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        return


class Site:
    def __init__(self, port: int, requests: list[tuple[str, str]]) -> None:
        self.port = port
        self.requests = requests

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    requests: list[tuple[str, str]] = []
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("RecordingHandler", (Handler,), {"requests": requests})
    )
    server.daemon_threads = True
    server.released = threading.Event()  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Site(server.server_port, requests)
    server.released.set()  # pyright: ignore[reportAttributeAccessIssue]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def near() -> WebTools:
    options = ToolOptions(ResultSize(2_000_000), allow_private=True, fetch_bytes=50_000)
    return WebTools(options, "")


async def refusal(tool: WebTools, url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await tool.fetch_url(url)
    return str(caught.value)


async def test_a_page_becomes_readable_text_with_its_title(near: WebTools, site: Site):
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
async def test_text_is_returned_unchanged(near: WebTools, site: Site, path: str, text: str):
    observation = await near.fetch_url(site.url(path))
    assert (observation.ok, observation.text) == (True, text)


async def test_an_empty_page_is_reported(near: WebTools, site: Site):
    assert (await near.fetch_url(site.url("/empty"))).text == f"{site.url('/empty')} has no text."


@pytest.mark.parametrize(
    "piece", ["<td>x", "<p>a,b", "<br>", "<a href=x>", "<div>", "&lt;", "<!--", "<"]
)
async def test_extracting_a_slow_page_times_out(near: WebTools, site: Site, piece: str):
    PAGES["/bomb"] = (
        200,
        {"Content-Type": "text/html"},
        ("<table><tr>" + piece * 400_000).encode(),
    )
    hasty = WebTools(ToolOptions(allow_private=True, fetch_seconds=1), "")
    try:
        assert isinstance(
            (await asyncio.wait_for(hasty.fetch_url(site.url("/bomb")), 600)).text, str
        )
    except ToolError as error:
        assert "Stopped" in str(error) or "in time" in str(error)  # noqa: PT017 - two possible errors
    assert "brown fox" in (await near.fetch_url(site.url("/"))).text


async def test_an_error_page_is_not_ok_and_keeps_its_text(near: WebTools, site: Site):
    observation = await near.fetch_url(site.url("/missing"))
    assert not observation.ok
    assert observation.text == f"{site.url('/missing')} answered 404 Not Found.\nnothing here"


async def test_a_page_that_is_not_text_is_refused(near: WebTools, site: Site):
    assert "image/png, which is not text" in await refusal(near, site.url("/image"))


@pytest.mark.parametrize("path", ["/endless", "/zipped"])
async def test_a_large_response_is_truncated_while_it_arrives(
    near: WebTools, site: Site, path: str
):
    observation = await near.fetch_url(site.url(path))
    assert observation.truncated
    assert len(observation.text) < 50_100
    assert "[truncated: only the first 50000 bytes were fetched]" in observation.text


@pytest.mark.parametrize("path", ["/deflated", "/raw", "/gzipped", "/parts"])
async def test_unrequested_compression_is_unpacked(near: WebTools, site: Site, path: str):
    assert (await near.fetch_url(site.url(path))).text == "zipped"


@pytest.mark.parametrize(
    "encoding", ["gzip, gzip", "gzip,deflate", "br", "zstd", "compress", "gzip, br", "x", "a-" * 99]
)
async def test_unknown_and_nested_encodings_are_refused(near: WebTools, site: Site, encoding: str):
    twice = gzip.compress(gzip.compress(b"z" * 100_000_000, 1))
    PAGES["/encoded"] = (200, {"Content-Type": "text/plain", "Content-Encoding": encoding}, twice)
    message = await refusal(near, site.url("/encoded"))
    assert f"uses the encoding '{encoding[:80]}'" in message
    assert len(message) < 300


async def test_an_invalid_encoding_is_an_error(near: WebTools, site: Site):
    assert "does not match its declared encoding" in await refusal(near, site.url("/nogzip"))


async def test_endless_empty_members_are_truncated(near: WebTools, site: Site):
    assert (await near.fetch_url(site.url("/nothing"))).truncated


@pytest.mark.parametrize("path", ["/drip", "/drippage"])
async def test_an_endless_slow_response_times_out(site: Site, path: str):
    hasty = WebTools(ToolOptions(allow_private=True, fetch_seconds=0.5), "")
    assert "did not answer in time" in await refusal(hasty, site.url(path))


@pytest.mark.parametrize(
    "charset",
    [
        "punycode",
        "idna",
        "base64",
        "hex",
        "bz2",
        "zip",
        "rot13",
        "uu",
        "quopri",
        "unicode_escape",
        "utf-7",
    ],
)
async def test_an_unsupported_charset_is_read_as_utf8(site: Site, charset: str):
    patient = WebTools(ToolOptions(ResultSize(2_000_000), allow_private=True), "")
    body = "é-Ⓜ".encode() + b"a-b" * 500_000
    PAGES["/charset"] = (200, {"Content-Type": f"text/plain; charset={charset}"}, body)
    observation = await patient.fetch_url(site.url("/charset"))
    assert observation.text == body.decode()


@pytest.mark.parametrize(
    "charset", ["cp1252", "latin-1", "Shift_JIS", "EUC-KR", "gb18030", "koi8-r", "utf-16", "big5"]
)
async def test_text_charsets_are_decoded(near: WebTools, site: Site, charset: str):
    word = {
        "Shift_JIS": "日本",
        "EUC-KR": "한국",
        "gb18030": "中国",
        "koi8-r": "мир",
        "big5": "中國",
    }.get(charset, "café")
    PAGES["/charset"] = (
        200,
        {"Content-Type": f"text/plain; charset={charset}"},
        word.encode(charset),
    )
    assert (await near.fetch_url(site.url("/charset"))).text == word


async def test_redirects_are_limited_in_number_and_scheme(near: WebTools, site: Site):
    assert "more than 5 times" in await refusal(near, site.url("/circle"))
    assert len(site.requests) == 6
    assert "only http:// and https://" in await refusal(near, site.url("/tofile"))
    assert "password" in await refusal(near, site.url("/topassword"))


async def test_a_silent_server_times_out(site: Site):
    tool = FunctionTool(
        WebTools(ToolOptions(allow_private=True), "").fetch_url,
        effects=["network"],
        limits=Limits(seconds=0.3),
    )
    observation = await contained(tool, {"url": site.url("/silent")}, tool.limits)
    assert (observation.ok, observation.text) == (
        False,
        "fetch_url was stopped: it took longer than 0.3 s. Give it less to do, or continue without it.",
    )
    hasty = WebTools(ToolOptions(allow_private=True, fetch_seconds=0.2), "")
    assert "did not answer in time" in await refusal(hasty, site.url("/silent"))


async def test_an_unreachable_server_is_an_error(near: WebTools):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening
        assert "could not be fetched" in await refusal(
            near, f"http://127.0.0.1:{closed.getsockname()[1]}/"
        )


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
async def test_other_addresses_are_refused(near: WebTools, url: str):
    message = await refusal(near, url)
    assert "secret" not in message


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "0x7f.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]"],
)
async def test_this_machine_is_refused_under_any_name(site: Site, host: str):
    message = await refusal(WebTools(ToolOptions(), ""), site.url("/plain", host))
    assert "local network" in message or "cannot be resolved" in message
    assert site.requests == []


@pytest.mark.parametrize(
    "host",
    ["10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]", "[::1]"],
)
async def test_the_local_network_is_refused(host: str):
    assert "local network" in await refusal(WebTools(ToolOptions(), ""), f"http://{host}/")


async def test_the_connection_goes_to_the_checked_address(
    near: WebTools, site: Site, monkeypatch: pytest.MonkeyPatch
):
    resolve, lookups = socket.getaddrinfo, list[str]()

    def fickle(host: str, *arguments: object, **options: object):
        if host != "fickle.example":
            return resolve(host, *arguments, **options)  # pyright: ignore[reportArgumentType]
        lookups.append(host)
        return resolve("127.0.0.1" if len(lookups) == 1 else "192.0.2.1", *arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(socket, "getaddrinfo", fickle)
    assert (await near.fetch_url(site.url("/plain", "fickle.example"))).text == "café"
    assert lookups == ["fickle.example"]
    assert site.requests == [(f"fickle.example:{site.port}", "/plain")]


async def test_an_international_name_is_resolved_as_encoded(
    near: WebTools, site: Site, monkeypatch: pytest.MonkeyPatch
):
    resolve = socket.getaddrinfo

    def local(host: str, *arguments: object, **options: object):
        host = "127.0.0.1" if host == "xn--strae-oqa.example" else host
        return resolve(host, *arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(socket, "getaddrinfo", local)
    assert (await near.fetch_url(site.url("/plain", "straße.example"))).text == "café"
    assert site.requests == [(f"xn--strae-oqa.example:{site.port}", "/plain")]


async def test_a_proxy_of_the_environment_is_used_but_not_for_private_names(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    PAGES["http://example.org/page"] = (200, {"Content-Type": "text/plain"}, b"by proxy")
    monkeypatch.setenv("http_proxy", site.url(""))
    far = WebTools(ToolOptions(), "")
    assert (await far.fetch_url("http://example.org/page")).text == "by proxy"
    for host in ("localhost", "10.0.0.1", "printer.local", "[::1]"):
        assert "local network" in await refusal(far, f"http://{host}/page")
    assert len(site.requests) == 1


@pytest.mark.parametrize("proxy", ["gopher://127.0.0.1:9", "socks4://127.0.0.1:9"])
async def test_an_unsupported_proxy_is_an_error(proxy: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", proxy)
    assert "proxy" in await refusal(WebTools(ToolOptions(), ""), "http://example.org/")


PRIVATE = [
    *(
        "127.0.0.0/8",
        "0.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "100.64.0.0/10",
    ),
    *(
        "169.254.169.254/32",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "127.0.0.1/32",
        "224.0.0.0/4",
    ),
]
PRIVATE_V6 = [
    "::/128",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
]
CARRIERS = [
    "::",
    "::ffff:0:0",
    "64:ff9b::",
    "64:ff9b:1::",
    "64:ff9b:1:7f00::",
    "::ffff:0:0:0",
    "2001::",
    "fe80::5efe:0:0",
]


def bits(network: IPv4Network | IPv6Network) -> st.SearchStrategy[int]:
    return st.integers(int(network.network_address), int(network.broadcast_address))


@st.composite
def private_hosts(draw: st.DrawFn) -> str:
    """Generate a private address in a notation that clients, proxies or resolvers accept."""
    dots = "." * draw(st.integers(0, 2))
    kind = draw(st.sampled_from(("v4", "inside", "6to4", "v6", "name")))
    if kind == "v6":
        return bracketed(
            draw, IPv6Address(draw(bits(IPv6Network(draw(st.sampled_from(PRIVATE_V6))))))
        )
    if kind == "name":
        name = draw(
            st.sampled_from(
                ("localhost", "printer", "x.localhost", "a.local", "metadata.google.internal")
            )
        )
        return draw(st.sampled_from((name, name.upper(), name.title()))) + dots
    number = draw(bits(IPv4Network(draw(st.sampled_from(PRIVATE)))))
    if kind == "inside":
        return bracketed(
            draw, IPv6Address(int(IPv6Address(draw(st.sampled_from(CARRIERS)))) | number)
        )
    if kind == "6to4":
        return bracketed(
            draw, IPv6Address((0x2002 << 112) | (number << 80) | draw(st.integers(0, 1)))
        )
    first = draw(
        st.integers(0, 3)
    )  # number of separate bytes; the last part contains the other ones
    parts = [*number.to_bytes(4)[:first], number & ((1 << (32 - 8 * first)) - 1)]
    return (
        ".".join(
            draw(st.sampled_from(("{:d}", "0x{:x}", "0X{:X}", "0{:o}", "0x0{:x}"))).format(part)
            for part in parts
        )
        + dots
    )


def bracketed(draw: st.DrawFn, address: IPv6Address) -> str:
    return f"[{draw(st.sampled_from((str(address), address.exploded, address.exploded.upper())))}]"


@settings(
    max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(host=private_hosts())
def test_no_spelling_of_a_private_address_passes_to_a_proxy(
    host: str, site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", site.url(""))
    with pytest.raises(ToolError):
        asyncio.run(WebTools(ToolOptions(), "").fetch_url(f"http://{host}/page"))
    assert site.requests == []


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(host=private_hosts())
def test_a_redirect_to_a_private_address_is_not_followed_by_a_proxy(
    host: str, site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", site.url(""))
    PAGES["http://example.org/away"] = (302, {"Location": f"//{host}/page"}, b"")
    site.requests.clear()
    with pytest.raises(ToolError):
        asyncio.run(WebTools(ToolOptions(), "").fetch_url("http://example.org/away"))
    assert [path for _, path in site.requests] == ["http://example.org/away"]


@pytest.mark.parametrize(
    "host", ["example.org", "8.8.8.8", "134744072", "[2606:4700:4700::1111]", "[64:ff9b::808:808]"]
)
async def test_a_public_name_passes_to_a_proxy(
    host: str, site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", site.url(""))
    for name in (host, host.strip("[]")):  # httpcore sends a proxy the address without brackets.
        PAGES[f"http://{name}/page"] = (200, {"Content-Type": "text/plain"}, b"by proxy")
    assert "by proxy" in str(await WebTools(ToolOptions(), "").fetch_url(f"http://{host}/page"))
    assert len(site.requests) == 1


@given(number=st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_as_public_inside_ipv6_as_outside(number: int):
    plain = IPv4Address(number)
    for carrier in (0xFFFF << 32, 0x64FF9B << 96, 0):
        inside = (
            IPv6Address(carrier | number)
            if carrier
            else IPv6Address((0x2002 << 112) | (number << 80))
        )
        assert is_public(inside) <= is_public(plain)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111"])
def test_the_open_internet_is_public(address: str):
    assert is_public(ip_address(address))
    require_public_name(address)


@pytest.mark.parametrize(
    "address", ["224.0.0.1", "255.255.255.255", "100.64.0.1", "ff02::1", "::", "2001:db8::1"]
)
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
def test_malformed_pages_give_text(html: str):
    assert "<p>" not in in_worker(readable_text, html)


def test_a_deeply_nested_page_is_read():
    assert isinstance(in_worker(readable_text, "<div>" * 50_000 + "deep"), str)


def test_a_page_that_is_not_an_article_keeps_all_its_text():
    items = "".join(f"<li><a href='/{number}'>Entry {number}</a></li>" for number in range(50))
    text = in_worker(
        readable_text,
        f"<html><title>Index</title><body><ul>{items}</ul><p>Short.</p></body></html>",
    )
    assert "Entry 0" in text
    assert "Entry 49" in text

"""Fetches web pages as text; local addresses are refused unless the settings allow them.

A host name is resolved once and the connection goes to the checked address, which defeats DNS rebinding. Behind a
proxy, which resolves names itself, only the name can be checked.
"""

import asyncio
import codecs
import functools
import re
import socket
import zlib
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from ecoshell.errors import ToolError
from ecoshell.tools import ToolOptions
from ecoshell.tools.running import in_thread
from ecoshell.worker import checkpoint, in_worker
from ecoshell_web.pages import readable_text

if TYPE_CHECKING:
    import ssl

    import httpx

_REDIRECTS = 5
_EXTRACT_SECONDS = 15.0
HTML = frozenset({"text/html", "application/xhtml+xml"})
"""The media types of pages."""
_TEXT = frozenset(
    {
        "application/json",
        "application/xml",
        "application/javascript",
        "application/yaml",
        "application/toml",
    }
)
_HEADERS = {
    "User-Agent": "ecoshell (fetch_url)",
    "Accept": "text/html, text/plain, application/json, text/*;q=0.9, */*;q=0.1",
    "Accept-Encoding": "identity",  # Servers may compress regardless; unpacking is limited.
}
_WINDOW_BITS = {"gzip": (47,), "x-gzip": (47,), "deflate": (47, -15)}
"""Window sizes for zlib; servers send deflate with or without a zlib header."""
_META_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w-]{1,40})""", re.IGNORECASE
)
_CHARSETS = re.compile(
    r"utf-?(8|16|32)(-[bl]e|-sig)?|ascii|iso8859-\d+|cp(125\d|437|85\d|866|874|932|949|950)|koi8-[rut]|mac-\w+|tis-620"
    r"|gb(2312|k|18030)|big5(hkscs)?|shift_jis(x0213|_2004)?|euc_(jp|kr|jis_2004|jisx0213)|iso2022_(jp|kr)[_\w]*|johab"
)
"""Accepted charsets. Python has others, such as punycode, that take minutes for a few megabytes."""


@dataclass(frozen=True, slots=True)
class Page:
    """A response, after redirects."""

    address: str
    kind: str
    """The media type, such as text/html."""
    text: str
    cut: bool
    """Whether the page exceeded the size limit."""
    status: int
    reason: str


@dataclass(eq=False)
class Fetcher:
    """Fetches web pages within the limits of the options."""

    _options: ToolOptions

    async def readable(self, page: Page) -> str:
        """Return the readable text of a page; raises ToolError if that takes too long or too much memory."""
        if page.kind not in HTML:
            return page.text
        seconds = min(_EXTRACT_SECONDS, self._options.fetch_seconds)
        return await in_thread(lambda: in_worker(readable_text, page.text, seconds=seconds))

    async def page(self, url: str, *, redirects: int = _REDIRECTS) -> Page:
        """Fetch a page, following redirects; error responses are returned too.

        Raises ToolError for addresses that are refused, unreachable or not text.
        """
        await asyncio.to_thread(
            _ssl_context
        )  # The first call imports httpx, which would block the event loop.
        import httpx

        try:
            async with asyncio.timeout(self._options.fetch_seconds):
                address = _web_address(url)
                for _ in range(redirects + 1):  # not by httpx, because each address must be checked
                    result = await self._fetch(address)
                    if isinstance(result, Page):
                        return result
                    address = _web_address(str(address.join(result)))
                raise ToolError(
                    f"{url} redirects more than {redirects} times, finally to {address}."
                )
        except httpx.InvalidURL as error:
            raise ToolError(f"{url} is not a web address: {error}.") from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise ToolError(f"{url} did not answer in time.") from error
        except httpx.HTTPError as error:
            raise ToolError(
                f"{url} could not be fetched: {error or type(error).__name__}."
            ) from error

    async def _fetch(self, url: "httpx.URL") -> Page | str:
        """Send one request; returns the page or the redirect target."""
        import urllib.request  # half a megabyte, needed only for fetching

        import httpx

        target, headers, extensions = url, dict(_HEADERS), dict[str, str]()
        host = url.raw_host.decode("ascii")  # as httpx encodes it; the system encodes ß differently
        proxies = {} if urllib.request.proxy_bypass(url.host) else urllib.request.getproxies()
        proxy = proxies.get(url.scheme) or proxies.get("all")
        if proxy is None:  # Connect to the checked address with the host's name in Host and SNI.
            address = await checked_address(
                host, url.port or 443, allow_private=self._options.allow_private
            )
            target = url.copy_with(host=address)
            headers["Host"] = url.netloc.decode("ascii")
            extensions["sni_hostname"] = host
        elif not self._options.allow_private:
            require_public_name(host)
        try:
            client = httpx.AsyncClient(
                proxy=proxy,
                trust_env=False,
                verify=_ssl_context(),
                timeout=self._options.fetch_seconds,
            )
        except (
            ImportError,
            ValueError,
        ) as error:  # a proxy that httpx does not support, or only with an extra
            raise ToolError(f"The configured proxy for {url} cannot be used: {error}.") from error
        async with (
            client,
            client.stream("GET", target, headers=headers, extensions=extensions) as response,
        ):
            if response.has_redirect_location:
                return response.headers["Location"]
            return await self._read(url, response)

    async def _read(self, url: "httpx.URL", response: "httpx.Response") -> Page:
        """Read the body of a response, up to the size limit."""
        kind = response.headers.get("Content-Type", "text/plain").partition(";")[0].strip().lower()
        if not (
            kind.startswith("text/") or kind in HTML | _TEXT or kind.endswith(("+json", "+xml"))
        ):
            raise ToolError(
                f"{url} is {kind[:80]}, which is not text; use run_command to download it."
            )
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "", *_WINDOW_BITS):
            raise ToolError(f"{url} uses the encoding {encoding[:80]!r}, which is not supported.")
        limit, body = self._options.fetch_bytes, bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > limit:
                break
        try:
            text, cut = await asyncio.to_thread(
                _text, bytes(body), encoding, response.charset_encoding, limit
            )
        except zlib.error as error:
            raise ToolError(
                f"{url} does not match its declared encoding {encoding}: {error}."
            ) from error
        return Page(str(url), kind, text, cut, response.status_code, response.reason_phrase)


@functools.cache
def _ssl_context() -> "ssl.SSLContext":
    import httpx  # heavy

    return httpx.create_ssl_context()


def _web_address(text: str) -> "httpx.URL":
    """Parse a web address, with https as the default scheme; raises ToolError for other addresses."""
    import httpx

    url = httpx.URL(text.strip())
    if not url.scheme:
        url = httpx.URL(f"https://{text.strip()}")
    if url.scheme not in ("http", "https"):
        raise ToolError(f"{text} cannot be fetched: only http:// and https:// addresses can.")
    if not url.host:
        raise ToolError(f"{text} is not a web address: it has no host.")
    if url.userinfo:
        raise ToolError("Addresses with a user name or password cannot be fetched.")
    return url


def _text(body: bytes, encoding: str, charset: str | None, limit: int) -> tuple[str, bool]:
    """Decode at most `limit` bytes of a body, and return whether there was more; raises zlib.error.

    The charset is that of the header, else of the page, else UTF-8; unknown charsets count as UTF-8.
    """
    unpacked = body
    for bits in _WINDOW_BITS.get(encoding, ()):
        try:  # The body itself may be truncated.
            unpacked = _unpacked(body[:limit], bits, limit + 1)
            break
        except zlib.error:
            if bits == _WINDOW_BITS[encoding][-1]:
                raise
    cut = len(body) > limit or len(unpacked) > limit
    content = unpacked[:limit]
    if charset is None and (match := _META_CHARSET.search(content[:2048])):
        charset = match[1].decode("ascii")
    try:
        codec = codecs.lookup(charset or "utf-8").name
        return content.decode(
            codec if _CHARSETS.fullmatch(codec) else "utf-8", errors="replace"
        ), cut
    except (LookupError, UnicodeError, ValueError):  # an unknown charset
        return content.decode(errors="replace"), cut


def _unpacked(packed: bytes, bits: int, limit: int) -> bytes:
    """Unpack at most `limit` bytes of all gzip members; raises zlib.error if the first is invalid."""
    unpacked = b""
    while packed and len(unpacked) < limit:
        checkpoint()
        stream = zlib.decompressobj(bits)
        try:
            part = stream.decompress(packed, limit - len(unpacked))
        except zlib.error:
            if unpacked:  # Ignore data after the last member.
                break
            raise
        if not part:  # Empty members could repeat endlessly.
            break
        unpacked += part
        packed = stream.unused_data
    return unpacked


# -- addresses

_UNICAST = IPv6Network("2000::/3")
"""Global IPv6 addresses; others are local or embed an IPv4 address."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""Prefix through which IPv6-only networks reach IPv4 addresses."""
_NOT_PUBLIC = (
    IPv4Network("192.0.0.0/24"),  # metadata services of Oracle's cloud
    IPv4Network("168.63.129.16/32"),  # and of Azure
    IPv6Network("2001::/23"),  # Teredo and 6to4 embed an IPv4 address.
    IPv6Network("2002::/16"),
)
"""Additional non-public networks that Python considers global."""
_LOCAL_NAME = re.compile(
    r"(.*\.)?(localhost|local|localdomain|internal|intranet|private|corp|home|lan|home\.arpa)|[^.]*",
    re.DOTALL,
)
"""Names of local networks, including all names without a dot."""
_NUMBER = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)", re.DOTALL)
"""Hosts with a numeric last part, which some clients interpret as an address."""
_PRIVATE = "{} is on this machine or its local network, which fetch_url cannot access."


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is public, including an embedded IPv4 address."""
    if isinstance(address, IPv6Address):
        inner = (
            IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else address.ipv4_mapped
        )
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return (
        address.is_global
        and not address.is_multicast
        and not any(address in local for local in _NOT_PUBLIC)
    )


def require_public_name(host: str) -> None:
    """Check the name of a host that a proxy resolves; raises ToolError for local names."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        public = is_public(ip_address(name))
    except ValueError:
        public = not _LOCAL_NAME.fullmatch(name)
        if _NUMBER.fullmatch(name):  # such as `2130706433`, `127.1`, `0x7f.1`
            try:
                public = is_public(IPv4Address(socket.inet_aton(name)))
            except OSError:
                public = False
    if not public:
        raise ToolError(_PRIVATE.format(host))


async def checked_address(host: str, port: int, *, allow_private: bool) -> str:
    """Resolve a host to an address that may be accessed; raises ToolError."""
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"{host} cannot be resolved: {error}.") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in entries]
    if not allow_private and not all(is_public(ip_address(address)) for address in addresses):
        raise ToolError(_PRIVATE.format(host))
    return addresses[0]

"""fetch_url: a page from the web, as text."""

import asyncio
import codecs
import functools
import re
import zlib
from typing import TYPE_CHECKING, Annotated

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.base import Subject
from ecoshell.tools.builtin.addresses import checked_address, require_public_name
from ecoshell.tools.builtin.options import ToolOptions
from ecoshell.tools.builtin.readable import readable_text
from ecoshell.tools.threads import in_thread
from ecoshell.worker import in_worker

if TYPE_CHECKING:
    import ssl

    import httpx

_REDIRECTS = 5
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset(
    {"application/json", "application/xml", "application/javascript", "application/yaml", "application/toml"}
)
_HEADERS = {
    "User-Agent": "ecoshell (fetch_url)",
    "Accept": "text/html, text/plain, application/json, text/*;q=0.9, */*;q=0.1",
    "Accept-Encoding": "identity",  # what comes compressed all the same is unpacked only so far
}
_WINDOW_BITS = {"gzip": (47,), "x-gzip": (47,), "deflate": (47, -15)}
"""How zlib reads each encoding; servers that say deflate send it with a header of its own or without."""
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w-]{1,40})""", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-?(8|16|32)(-[bl]e|-sig)?|ascii|iso8859-\d+|cp(125\d|437|85\d|866|874|932|949|950)|koi8-[rut]|mac-\w+|tis-620"
    r"|gb(2312|k|18030)|big5(hkscs)?|shift_jis(x0213|_2004)?|euc_(jp|kr|jis_2004|jisx0213)|iso2022_(jp|kr)[_\w]*|johab"
)
"""Python's names of the charsets of texts. It has others (punycode, idna) that take minutes over a few megabytes."""


class FetchTool:
    """The reader of web pages."""

    def __init__(self, options: ToolOptions) -> None:
        self._options = options

    async def fetch_url(
        self, url: Annotated[str, "Address beginning with http:// or https://.", Subject.ADDRESS]
    ) -> Observation:
        """Fetch a web page (website, link, URL, internet address) and show its readable text."""
        await asyncio.to_thread(_ssl_context)  # the first call imports httpx, which would hold up the event loop
        import httpx

        try:
            async with asyncio.timeout(self._options.fetch_seconds):
                return await self._followed(_web_address(url))
        except httpx.InvalidURL as error:
            raise ToolError(f"{url} is not a web address: {error}.") from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise ToolError(f"{url} did not answer in time.") from error
        except httpx.HTTPError as error:
            raise ToolError(f"{url} could not be fetched: {error or type(error).__name__}.") from error

    async def _followed(self, url: "httpx.URL") -> Observation:
        """Fetch, following redirects by hand: every address on the way is checked."""
        for _ in range(_REDIRECTS + 1):
            found = await self._fetch(url)
            if isinstance(found, Observation):
                return found
            url = _web_address(str(url.join(found)))
        raise ToolError(f"{url} redirects more than {_REDIRECTS} times.")

    async def _fetch(self, url: "httpx.URL") -> Observation | str:
        """One request: what the page says, or where it redirects to."""
        import httpx

        target, headers, extensions = url, dict(_HEADERS), dict[str, str]()
        proxy = _proxy_for(url)
        if proxy is None:  # connect to the very address that was checked, under the host's name
            address = await checked_address(url.host, url.port or 443, allow_private=self._options.allow_private)
            target = url.copy_with(host=address)
            headers["Host"] = url.netloc.decode("ascii")
            extensions["sni_hostname"] = url.raw_host.decode("ascii")
        elif not self._options.allow_private:
            require_public_name(url.raw_host.decode("ascii"))
        try:
            client = httpx.AsyncClient(
                proxy=proxy, trust_env=False, verify=_ssl_context(), timeout=self._options.fetch_seconds
            )
        except (ImportError, ValueError) as error:  # a kind of proxy that httpx does not know, or only with an extra
            raise ToolError(f"The proxy that the environment names for {url} cannot be used: {error}.") from error
        async with client, client.stream("GET", target, headers=headers, extensions=extensions) as response:
            if response.has_redirect_location:
                return response.headers["Location"]
            return await self._told(url, response)

    async def _told(self, url: "httpx.URL", response: "httpx.Response") -> Observation:
        kind = response.headers.get("Content-Type", "text/plain").partition(";")[0].strip().lower()
        if not (kind.startswith("text/") or kind in _HTML | _TEXT or kind.endswith(("+json", "+xml"))):
            raise ToolError(f"{url} is {kind[:80]}, which is not text; use run_command to download it.")
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "", *_WINDOW_BITS):
            raise ToolError(f"{url} came in the encoding {encoding[:80]!r}, which is not read here.")
        most, body = self._options.fetch_bytes, bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > most:
                break
        try:
            text, cut = await asyncio.to_thread(_text, bytes(body), encoding, response.charset_encoding, most)
        except zlib.error as error:
            raise ToolError(f"{url} is not in the encoding that it says it is in ({encoding}): {error}.") from error
        if kind in _HTML:
            seconds = self._options.fetch_seconds
            text = await in_thread(lambda: in_worker(readable_text, text, seconds=seconds))
        if cut:
            text += f"\n[truncated: only the first {self._options.fetch_bytes} bytes were fetched]"
        if response.is_error:
            return Observation(f"{url} answered {response.status_code} {response.reason_phrase}.\n{text}", ok=False)
        return Observation(text or f"{url} has no text.", truncated=cut)


@functools.cache
def _ssl_context() -> "ssl.SSLContext":
    import httpx  # heavy

    return httpx.create_ssl_context()


def _web_address(text: str) -> "httpx.URL":
    """The address, https if no scheme is given; raises ToolError for anything but a plain web address."""
    import httpx

    url = httpx.URL(text.strip())
    if not url.scheme:
        url = httpx.URL(f"https://{text.strip()}")
    if url.scheme not in ("http", "https"):
        raise ToolError(f"{text} cannot be fetched: only http:// and https:// addresses can.")
    if not url.host:
        raise ToolError(f"{text} is not a web address: it names no host.")
    if url.userinfo:
        raise ToolError("An address with a name or password in it is not fetched.")
    return url


def _proxy_for(url: "httpx.URL") -> str | None:
    """The proxy the environment names for this address."""
    import urllib.request  # half a megabyte that no open chat needs before a page is fetched

    if urllib.request.proxy_bypass(url.host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


def _text(body: bytes, encoding: str, charset: str | None, most: int) -> tuple[str, bool]:
    """At most `most` bytes of a body as text, and whether there was more; raises zlib.error."""
    unpacked = _unpacked(body[:most], encoding, most + 1) if encoding in _WINDOW_BITS else body
    cut = len(body) > most or len(unpacked) > most
    return _decoded(unpacked[:most], charset), cut


def _unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """The first bytes of a compressed body, which may have been cut off itself."""
    *others, last = _WINDOW_BITS[encoding]
    for bits in others:
        try:
            return zlib.decompressobj(bits).decompress(body, most)
        except zlib.error:
            continue
    return zlib.decompressobj(last).decompress(body, most)


def _decoded(body: bytes, charset: str | None) -> str:
    """The text in the charset of the header, else the one the page names, else UTF-8; so too where it is unknown."""
    if charset is None and (named := _META_CHARSET.search(body[:2048])):
        charset = named[1].decode("ascii")
    try:
        codec = codecs.lookup(charset or "utf-8").name
        return body.decode(codec if _CHARSETS.fullmatch(codec) else "utf-8", errors="replace")
    except (LookupError, UnicodeError, ValueError):  # a charset nobody knows
        return body.decode(errors="replace")

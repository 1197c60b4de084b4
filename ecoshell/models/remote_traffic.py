"""What goes over the network for one ask, in the helper process: how much may come, and whether it can cost money.

Bytes are counted where they arrive, before anybody looks for lines or JSON in them, so those of every kind count:
comments, empty chunks, half a line, the text of an error. They are counted again once unpacked.
"""

import re
import zlib
from collections.abc import AsyncIterable, AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import cast

REFUSALS = frozenset({400, 401, 403, 404, 413, 422, 429})
"""Statuses that certainly came before any work. Whatever else is answered may stand at the end of work that is billed:
a gateway's 502 as a rule does."""

_LONGEST_REFUSAL = 1 << 16
"""Bytes of an answer that is no success; what comes after them is not read."""
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_WINDOW_BITS = 47
"""For zlib: gzip or deflate, whichever it is."""
_ODD_USAGE = re.compile(
    rb"""(?<!\\)"(?:
        (?:prompt|completion|input|output|total|cached|reasoning|cache_(?:read|write|creation)(?:_input)?
            |prompt_cache_(?:hit|miss))_tokens
        |(?:input|output|total|cache(?:Read|Write)(?:Input)?)Tokens
        |(?:prompt|candidates|total|thoughts|cachedContent)TokenCount
        |(?:prompt_)?eval_count
    )"\s{0,9}:\s{0,9}(?:[tf"NI\[-]|\d{1,20}[.eE]|\d{10})""",
    re.VERBOSE,
)
"""A count of tokens that is no whole number from 0 to 999,999,999. Looked for in what was sent, since litellm makes
numbers of `true`, `"7"` and 7.0."""
CONNECT = 3.0
"""Seconds in which somebody must be connected to."""
_ODD_USAGE_LENGTH = 128
"""Bytes; more than it takes to see one, as it may lie across two pieces."""


class BadBody(Exception):
    """What came is too long for an answer, or packed in a way that is not read here."""


@dataclass(slots=True)
class Traffic:
    """The traffic of one ask; `left` bytes of answer may still come."""

    left: int
    sent: bool = False
    """Whether anything was sent through httpx, as nearly all providers do."""
    unrefused: int = 0
    """Requests that were sent and not certainly turned away before any work."""
    unreached: str = ""
    """The last address, as host:port, at which nobody could be connected to."""
    odd_usage: bool = False
    """Whether a count of tokens was none."""

    def enter(self) -> None:
        """Count for this ask whatever the current task sends from now on."""
        _CURRENT.set(self)

    async def body(self, pieces: AsyncIterable[bytes], encoding: str, *, refused: bool) -> AsyncIterator[bytes]:
        """The body of an answer, counted, unpacked and counted again; of one that is no success only the beginning."""
        if encoding not in ("identity", *_PACKED):
            raise BadBody(f"it answered in the encoding {encoding[:80]!r}, which it was not asked for")
        unpack = zlib.decompressobj(_WINDOW_BITS).decompress if encoding in _PACKED else None
        told, tail = 0, b""
        async for piece in pieces:
            self._take(len(piece))
            room = min(self.left, _LONGEST_REFUSAL) if refused else self.left
            try:
                text = unpack(piece, room + 1) if unpack else piece
            except zlib.error as error:
                raise BadBody(f"what it sent is not in the encoding {encoding!r} that it says") from error
            self._take(len(text))
            tail = (tail + text)[-len(text) - _ODD_USAGE_LENGTH :]
            self.odd_usage = self.odd_usage or _ODD_USAGE.search(tail) is not None
            yield text
            told += len(text)
            if refused and told > _LONGEST_REFUSAL:
                return

    def _take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise BadBody("it sent far more than an answer of this length takes, and was cut off")


_CURRENT: ContextVar[Traffic | None] = ContextVar("traffic", default=None)


def count_traffic() -> None:
    """Have every httpx client in this process count what it sends and receives for the ask it works for."""
    import httpx

    class Body(httpx.AsyncByteStream):
        def __init__(self, response: httpx.Response, traffic: Traffic) -> None:
            self._inner = cast("httpx.AsyncByteStream", response.stream)
            encoding = response.headers.pop("Content-Encoding", "identity").strip().lower()  # or httpx would unpack it
            self._pieces = traffic.body(self._inner, encoding, refused=not response.is_success)

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._pieces

        async def aclose(self) -> None:
            await self._inner.aclose()

    send = httpx.AsyncHTTPTransport.handle_async_request

    async def counted(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        traffic = _CURRENT.get()
        if traffic is None:
            return await send(self, request)
        request.headers["Accept-Encoding"] = "identity"
        limits = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {**limits, "connect": min(limits.get("connect") or CONNECT, CONNECT)}
        traffic.sent = True
        traffic.unrefused += 1
        try:
            response = await send(self, request)
        except (httpx.ConnectError, httpx.ConnectTimeout):  # nobody was reached
            traffic.unrefused -= 1
            port = request.url.port or {"http": 80}.get(request.url.scheme, 443)
            traffic.unreached = f"{request.url.host}:{port}"
            raise
        traffic.unreached = ""
        traffic.unrefused -= response.status_code in REFUSALS
        response.stream = Body(response, traffic)
        return response

    httpx.AsyncHTTPTransport.handle_async_request = counted

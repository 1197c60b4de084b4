"""The network traffic of one ask in the helper process: limited, and watched for what litellm would hide.

Bytes are counted on arrival, before parsing, so all of them count: comments, empty chunks, half a line, the text of an
error. They are counted again after decompression.
"""

import json
import re
import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast

REFUSALS = frozenset({400, 401, 403, 404, 413, 422, 429, 529})
"""Statuses that certainly precede any work. Others may follow billed work, as a gateway's 502 usually does."""

_MAX_ERROR_BYTES = 1 << 16  # maximum bytes that are read of an error response
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_WINDOW_BITS = 47  # for zlib: gzip or deflate
_UNUSUAL_USAGE = re.compile(
    rb"""(?<!\\)"(?:
        (?:prompt|completion|input|output|total|cached|reasoning|cache_(?:read|write|creation)(?:_input)?
            |prompt_cache_(?:hit|miss))_tokens
        |(?:input|output|total|cache(?:Read|Write)(?:Input)?)Tokens
        |(?:prompt|candidates|total|thoughts|cachedContent)TokenCount
        |(?:prompt_)?eval_count
    )"\s{0,9}:\s{0,9}(?:[tf"NI\[-]|\d{1,20}[.eE]|\d{10})""",
    re.VERBOSE,
)
"""A token count that is not an integer from 0 to 999,999,999. Searched in the raw data, because litellm converts
`true`, `"7"` and 7.0 to integers."""
_REFUSAL = re.compile(
    rb'(?<!\\)"(?:refusal"\s{0,9}:\s{0,9}"[^"]|stop_reason"\s{0,9}:\s{0,9}"refusal")'
)
"""OpenAI's text of a refusal, which litellm drops, or Anthropic's finish reason."""
_MALFORMED_CALL = re.compile(
    rb'(?<!\\)"finishReason"\s{0,9}:\s{0,9}"'
    rb"(?:MALFORMED_FUNCTION_CALL|UNEXPECTED_TOOL_CALL|MISSING_THOUGHT_SIGNATURE)"
)
"""Gemini's finish reasons that litellm turns into `stop`."""
CONNECT = 3.0  # seconds until a connection must be established
_OVERLAP_BYTES = 128  # bytes that are kept between pieces, enough to match across two of them


class BadBody(Exception):
    """The response is not an answer, is too long, or has an unsupported encoding."""


@dataclass(slots=True)
class Traffic:
    """The traffic of one ask; `left` bytes of answer are still allowed."""

    left: int
    sent: bool = False  # whether anything was sent through httpx, as nearly all providers do
    unrefused: int = 0  # sent requests that were not certainly rejected before any work
    unreached: str = ""  # the last address (host:port) that could not be connected to
    odd_usage: bool = False  # whether a token count was invalid
    retry_after: float | None = None  # seconds to wait, by the headers of the last refusal
    refusal: bool = False
    malformed_call: bool = False

    async def body(
        self, pieces: AsyncIterable[bytes], encoding: str, *, refused: bool
    ) -> AsyncIterator[bytes]:
        """The body of a response, counted before and after decompression; of an error only the beginning."""
        if encoding not in ("identity", *_PACKED):
            raise BadBody(f"it used the encoding {encoding[:80]!r}, which was not requested")
        unpack = zlib.decompressobj(_WINDOW_BITS).decompress if encoding in _PACKED else None
        sent_bytes, tail, lines = 0, b"", StreamLines()
        async for piece in pieces:
            self._take(len(piece))
            room = min(self.left, _MAX_ERROR_BYTES) if refused else self.left
            try:
                text = unpack(piece, room + 1) if unpack else piece
            except zlib.error as error:
                raise BadBody(f"its answer is not in the stated encoding {encoding!r}") from error
            self._take(len(text))
            tail = (tail + text)[-len(text) - _OVERLAP_BYTES :]
            self.odd_usage = self.odd_usage or _UNUSUAL_USAGE.search(tail) is not None
            self.refusal = self.refusal or _REFUSAL.search(tail) is not None
            self.malformed_call = self.malformed_call or _MALFORMED_CALL.search(tail) is not None
            yield text if refused else lines.feed(text)
            sent_bytes += len(text)
            if refused and sent_bytes > _MAX_ERROR_BYTES:
                return
        yield lines.end()

    def finish(self, reason: str) -> str:
        """The finish reason: litellm's `reason`, unless it hides the provider's own."""
        if self.refusal and reason in ("stop", "content_filter"):
            return "refusal"
        return "malformed_call" if self.malformed_call and reason == "stop" else reason

    def _take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise BadBody("it sent far more data than an answer needs, and was cut off")


_UNUSUAL_CONTENT = re.compile(
    rb"""(?<!\\)"(?:content"\s{0,9}:\s{0,9}\[|refusal"\s{0,9}:\s{0,9}")"""
)
"""Content as a list of parts, or a refusal: litellm drops both from a stream of chat chunks."""


@dataclass(slots=True)
class StreamLines:
    """Converts lists of content parts and refusals in a stream of chat chunks to text.

    All other data passes unchanged and without delay; only a line that may contain either is buffered.
    """

    _waiting: bytes = b""

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; returns the data that is ready."""
        if not self._waiting and not _UNUSUAL_CONTENT.search(piece) and piece.endswith(b"\n"):
            return piece
        text = self._waiting + piece
        lines, newline, self._waiting = text.rpartition(b"\n")
        return b"\n".join(map(_with_text_content, lines.split(b"\n"))) + newline if newline else b""

    def end(self) -> bytes:
        """The buffered rest at the end of the stream."""
        text, self._waiting = self._waiting, b""
        return _with_text_content(text)


def _with_text_content(line: bytes) -> bytes:
    """A line of a stream with its content as text; other lines are returned unchanged."""
    prefix, _, data = line.partition(b"data:")
    if prefix or not _UNUSUAL_CONTENT.search(line):
        return line
    try:
        chunk = json.loads(data)
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if isinstance(delta.get("content"), list):
                delta["content"] = text_of(delta["content"])
            if isinstance(delta.get("refusal"), str) and not delta.get("content"):
                delta["content"] = delta.pop("refusal")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return line
    return b"data: " + json.dumps(chunk).encode()


current_traffic: ContextVar[Traffic | None] = ContextVar("traffic", default=None)
"""The traffic of the current task's ask."""


def count_traffic() -> None:
    """Let all httpx clients of this process count the traffic of their asks."""
    import httpx

    class Body(httpx.AsyncByteStream):
        def __init__(self, response: httpx.Response, traffic: Traffic) -> None:
            self._inner = cast("httpx.AsyncByteStream", response.stream)
            # Without the header, httpx does not decompress the body.
            encoding = response.headers.pop("Content-Encoding", "identity").strip().lower()
            self._pieces = traffic.body(self._inner, encoding, refused=not response.is_success)

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._pieces

        async def aclose(self) -> None:
            await self._inner.aclose()

    send = httpx.AsyncHTTPTransport.handle_async_request

    async def counted(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        traffic = current_traffic.get()
        if traffic is None:
            return await send(self, request)
        request.headers["Accept-Encoding"] = "identity"
        limits = request.extensions.setdefault("timeout", {})
        limits["connect"] = min(limits.get("connect") or CONNECT, CONNECT)
        traffic.sent = True
        traffic.unrefused += 1
        try:
            response = await send(self, request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            traffic.unrefused -= 1
            port = request.url.port or {"http": 80}.get(request.url.scheme, 443)
            traffic.unreached = f"{request.url.host}:{port}"
            raise
        traffic.unreached = ""
        traffic.unrefused -= response.status_code in REFUSALS
        response.headers.pop("Set-Cookie", None)  # otherwise asks with another key would send it
        wait = None if response.is_success else retry_after(response.headers, time.time())
        traffic.retry_after = wait
        response.stream = Body(response, traffic)
        return response

    httpx.AsyncHTTPTransport.handle_async_request = counted


_DURATION = re.compile(
    r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?", re.ASCII
)
_LIMITS = ("requests", "tokens")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by Retry-After (seconds or an HTTP date), or until the reset of an exhausted limit."""
    with suppress(KeyError, ValueError):
        return _plain_seconds(headers["retry-after-ms"]) / 1000
    if header := headers.get("retry-after", ""):
        with suppress(ValueError):
            return _plain_seconds(header)
        with suppress(TypeError, ValueError, OverflowError):
            return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    resets: list[float] = []
    for limit in _LIMITS:
        duration = _DURATION.fullmatch(headers.get(f"x-ratelimit-reset-{limit}", ""))
        if headers.get(f"x-ratelimit-remaining-{limit}") == "0" and duration and duration.group():
            hours, minutes, seconds, milliseconds = (float(part or 0) for part in duration.groups())
            resets.append(hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)
    return max(resets, default=None)


def _plain_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def text_of(content: Any) -> str:
    """Text of a delta; some servers send a list of parts."""
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        texts: list[Any] = [part["text"] if _is_text(part) else part for part in parts]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(cast("dict[str, Any]", part).get("text"), str)

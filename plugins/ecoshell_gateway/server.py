"""The gateway's ASGI application: checks each request, reserves its price, forwards it and settles."""

import asyncio
import hmac
import json
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ecoshell.budget import nano_to_usd_text
from ecoshell.budget.working_time import TimeUp
from ecoshell.models.traffic import REFUSALS
from ecoshell.secrecy import mask_secrets
from ecoshell_gateway.bodies import Body, mapping, parse_body
from ecoshell_gateway.errors import Refused
from ecoshell_gateway.metering import Meter, Reserved
from ecoshell_gateway.protocols import CHAT, MESSAGES, RESPONSES, Format, RequestFacts
from ecoshell_gateway.protocols.format import Provider
from ecoshell_gateway.rules import Rules
from ecoshell_gateway.streams import MAX_REPLY_BYTES, EventReader, ReplyReader
from ecoshell_gateway.upstream import Headers, Upstream, returned_headers

if TYPE_CHECKING:
    import httpx

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY_BYTES = 32 << 20
BODY_SECONDS = 60.0
"""Time limit for receiving a request."""
CLIENT_SECONDS = 120.0
"""Time limit for a client to take a piece of the reply."""
REPLY_SECONDS = 3600.0
_LARGE_BODY_BYTES = 1 << 16
"""Larger bodies are read in a thread."""
_UNBILLED = REFUSALS | {402, 405, 409, 415}
"""Statuses that certainly precede any work; 529 is Anthropic's overload."""
_EVENTS_PER_TOKEN, _BYTES_PER_TOKEN, _SPARE_TOKENS, _SPARE_BYTES = 16, 1 << 14, 512, 1 << 23
"""Limits after which a reply is cut off, because its provider ignores the output limit."""
_PAID: Mapping[str, Format] = {
    "/chat/completions": CHAT,
    "/responses": RESPONSES,
    "/messages": MESSAGES,
}
_BATCHES = ("/batches", "/messages/batches")
_COUNT_TOKENS = "/messages/count_tokens"
_COUNTED_FIELDS = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking"})
_MODELS = "/models"
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


@dataclass(slots=True)
class Counts:
    """Numbers of requests since the gateway started."""

    requests: int = 0
    refused: int = 0


@dataclass(slots=True)
class Incoming:
    """A request whose sender has the token."""

    method: str
    path: str
    """Without the version, such as `/chat/completions`."""
    query: str
    headers: Headers
    receive: Receive
    client: Send
    has_started: bool = False
    """Whether a part of the response was sent."""
    has_body: bool = False
    """Whether the whole body was received."""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response."""
        self.has_started = True
        await self.client(message)

    def header(self, name: str) -> str:
        """Return a header's value; empty without it."""
        key = name.encode()
        return next(
            (value.decode("latin-1") for header, value in self.headers if header.lower() == key), ""
        )

    @property
    def provider(self) -> Provider:
        """The provider whose format the sender uses."""
        is_anthropic = self.path.startswith("/messages") or self.header("anthropic-version")
        return "anthropic" if is_anthropic else "openai"


class Gateway:
    """The ASGI application."""

    def __init__(self, meter: Meter, upstream: Upstream, rules: Rules, token: str) -> None:
        self.counts = Counts()
        self._meter = meter
        self._upstream = upstream
        self._rules = rules
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError("the gateway speaks HTTP only")
        path, has_token = self._without_token(scope["path"])
        query = scope["query_string"].decode("latin-1")
        request = Incoming(scope["method"], path, query, scope["headers"], receive, send)
        wire = MESSAGES if request.provider == "anthropic" else _PAID.get(path, CHAT)
        try:
            _check_host(request)
            if path == "/healthz":
                await _respond(send, 200, await self._health())
            elif path in ("", "/") and request.method in ("GET", "HEAD"):
                await _respond(send, 200, b"{}")
            elif not has_token and not self._is_authorized(request):
                raise Refused(
                    "auth", "wrong or missing token. Use the gateway's token as the API key."
                )
            else:
                await self._serve(request, wire)
        except ConnectionAbortedError:
            pass
        except Refused as refusal:
            if request.has_started:
                raise  # the server closes the connection, so that the reply does not look complete
            self.counts.refused += refusal.status in (402, 429)
            headers = [(b"x-should-retry", b"false" if refusal.retry_after is None else b"true")]
            if refusal.retry_after is not None:
                headers.append((b"retry-after", str(refusal.retry_after).encode()))
            if request.method == "POST" and not request.has_body:
                headers.append(
                    (b"connection", b"close")
                )  # or the server would read a body without end
            message = json.dumps(mask_secrets(wire.error(refusal))).encode()
            await _respond(send, refusal.status, message, headers)

    def _without_token(self, path: str) -> tuple[str, bool]:
        """Split `/t/TOKEN` off a path, for clients that keep their own credentials, and remove the version."""
        has_token = False
        if path.startswith("/t/"):
            token, slash, rest = path[3:].partition("/")
            has_token, path = hmac.compare_digest(token.encode(), self._token), slash + rest
        return path.removeprefix("/v1") if path.startswith("/v1/") else path, has_token

    def _is_authorized(self, request: Incoming) -> bool:
        bearer = request.header("authorization")
        values = (
            bearer[7:] if bearer[:7].lower() == "bearer " else "",
            request.header("x-api-key"),
        )
        return any(hmac.compare_digest(value.encode(), self._token) for value in values)

    async def _health(self) -> bytes:
        """Return spending as exact JSON numbers."""
        status = await self._meter.status()
        left = "null" if status.left is None else nano_to_usd_text(status.left)
        amounts = f'"spent_usd": {nano_to_usd_text(status.spent)}, "reserved_usd": {nano_to_usd_text(status.reserved)}'
        counts = f'"requests": {self.counts.requests}, "refused": {self.counts.refused}'
        return f'{{{amounts}, "left_usd": {left}, {counts}}}'.encode()

    async def _serve(self, request: Incoming, wire: Format) -> None:
        if request.path.startswith(_BATCHES):
            raise Refused(
                "cap", "Batches are refused, because their price cannot be reserved under a cap."
            )
        if request.method == "GET" and (
            request.path == _MODELS or request.path.startswith(f"{_MODELS}/")
        ):
            await _watched(self._forward_free(request, b""), request.receive)
        elif request.method == "POST" and request.path == _COUNT_TOKENS:
            body = await _body_of(request)
            await _watched(self._forward_free(request, body), request.receive)
        elif request.method == "POST" and request.path in _PAID:
            self.counts.requests += 1
            body = await _body_of(request)
            await _watched(self._forward_paid(request, wire, body), request.receive)
        else:
            raise Refused(
                "not_found", f"{request.method} {request.path[:100]} is not served by the gateway."
            )

    async def _forward_free(self, request: Incoming, data: bytes) -> None:
        """Forward a request that costs nothing."""
        async with self._response(request, data) as response:
            _check_redirect(response)
            body = await _whole_body(response)
        await _respond(request.send, response.status_code, body, returned_headers(response))

    async def _forward_paid(self, request: Incoming, wire: Format, data: bytes) -> None:
        body, facts = await _in_thread_if_large(data, lambda: _read(wire, data))
        model = self._rules.model_for(
            facts.model, await self._meter.caps() if self._rules.needs_caps else ()
        )
        if model != facts.model:
            body = body.with_values({"model": model})
            facts = wire.read(body)
        self._rules.check(facts)
        reserved = await self._reserve(request, wire, body, facts)
        exchange = _Exchange(self._meter, wire, reserved)
        try:
            self._rules.count(reserved.hold)
            prepared = _prepared(body, reserved).encoded()
            await reserved.time.spend(lambda: self._exchange(request, exchange, prepared))
        except TimeUp:
            raise await self._meter.time_refusal() from None
        finally:
            await exchange.settle()

    async def _reserve(
        self, request: Incoming, wire: Format, body: Body, facts: RequestFacts
    ) -> Reserved:
        """Reserve a request; one that does not fit is counted by its provider first, if that can be done for free."""
        max_nano = self._rules.max_request_nano
        can_count = wire is MESSAGES and not facts.prompt.is_open
        try:
            reserved = await self._meter.reserve(
                wire, facts, max_nano=max_nano, may_wait=not can_count
            )
        except Refused as refusal:
            if not can_count or refusal.kind != "cap":
                raise
        else:
            if not can_count or reserved.limit is None:
                return reserved
            await self._meter.release(reserved)
        if (tokens := await self._counted(request, body)) is not None:
            self._meter.count(wire, facts, tokens)
        return await self._meter.reserve(wire, facts, max_nano=max_nano)

    async def _counted(self, request: Incoming, body: Body) -> int | None:
        """Return Anthropic's count of a prompt, which is free; None if it fails."""
        fields = {name: value for name, value in body.fields.items() if name in _COUNTED_FIELDS}
        try:
            async with self._response(
                request, json.dumps(fields).encode(), path=_COUNT_TOKENS
            ) as response:
                reply: Any = json.loads(await _whole_body(response))
        except (Refused, ValueError):
            return None
        tokens: Any = (
            cast("dict[str, Any]", reply).get("input_tokens") if isinstance(reply, dict) else None
        )
        return tokens if type(tokens) is int and tokens > 0 else None

    async def _exchange(self, request: Incoming, exchange: "_Exchange", data: bytes) -> None:
        import httpx

        try:
            async with self._response(request, data) as response:
                if 300 <= response.status_code < 400:
                    await exchange.release()
                _check_redirect(response)
                is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
                if response.status_code >= 400 or not is_stream:
                    await _pass_whole(request, exchange, response)
                else:
                    await _pass_stream(request, exchange, response)
        except Refused as refusal:
            if isinstance(refusal.__cause__, (httpx.ConnectError, httpx.ConnectTimeout)):
                await exchange.release()
            raise

    @asynccontextmanager
    async def _response(
        self, request: Incoming, data: bytes, path: str = ""
    ) -> "AsyncGenerator[httpx.Response]":
        """The provider's response; raises Refused if the connection fails."""
        import httpx

        place = request.provider, request.method, path or request.path, request.query
        try:
            async with self._upstream.response(*place, request.headers, data) as response:
                yield response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            host = self._upstream.addresses[request.provider].host
            reason = "timed out" if isinstance(error, httpx.TimeoutException) else "failed"
            message = (
                f"The connection to {host} {reason}: {str(error)[:200] or type(error).__name__}"
            )
            raise Refused("upstream", message) from error


class _Exchange:
    """A reserved request and its reply; it is settled or released once."""

    def __init__(self, meter: Meter, wire: Format, reserved: Reserved) -> None:
        facts = reserved.facts
        self.reader: EventReader | ReplyReader = ReplyReader(wire)
        self.max_bytes = _SPARE_BYTES + _BYTES_PER_TOKEN * reserved.hold.max_tokens
        self.max_events = _EVENTS_PER_TOKEN * (reserved.hold.max_tokens + _SPARE_TOKENS)
        self._new_reader = lambda: EventReader(wire, drops_usage=facts.adds_usage)
        self._meter = meter
        self._reserved = reserved
        self._is_ended = False

    def read_events(self) -> None:
        """Read a stream instead of one JSON value."""
        self.reader = self._new_reader()

    async def settle(self) -> None:
        """End the reservation with what was reported so far."""
        if not self._is_ended:
            self._is_ended = True
            await self._meter.settle(self._reserved, self.reader.report, self.reader.events)

    async def release(self) -> None:
        """Cancel the reservation."""
        if not self._is_ended:
            self._is_ended = True
            await self._meter.release(self._reserved)

    async def cut_off(self) -> None:
        """Give up a reply that is longer than its limit allows, and refuse its model from now on."""
        await self._meter.bar(self._reserved, "it continued past its output limit and was cut off")
        raise Refused(
            "upstream", "The reply is longer than its output limit allows, and was cut off."
        )


async def _pass_whole(request: Incoming, exchange: _Exchange, response: "httpx.Response") -> None:
    """Pass on a reply without streaming; the request is settled before its client has the reply."""
    if response.status_code in _UNBILLED:
        await exchange.release()
    body = await _whole_body(response)
    if response.status_code < 300:
        exchange.reader.feed(body)
        exchange.reader.end()
    await exchange.settle()
    await _respond(request.send, response.status_code, body, returned_headers(response))


async def _pass_stream(request: Incoming, exchange: _Exchange, response: "httpx.Response") -> None:
    """Pass on a stream; the request is settled before its client has the last event."""
    exchange.read_events()
    reader, received = exchange.reader, 0
    await _send(
        request.send,
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": returned_headers(response),
        },
    )
    async with asyncio.timeout(REPLY_SECONDS):
        async for piece in response.aiter_raw():
            received += len(piece)
            passed = reader.feed(piece)
            if reader.report.is_complete:
                await exchange.settle()
            elif received > exchange.max_bytes or reader.events > exchange.max_events:
                await exchange.cut_off()
            if passed:
                await _send(
                    request.send, {"type": "http.response.body", "body": passed, "more_body": True}
                )
    rest = reader.end()
    await exchange.settle()
    await _send(request.send, {"type": "http.response.body", "body": rest, "more_body": False})


def _read(wire: Format, data: bytes) -> tuple[Body, RequestFacts]:
    body = parse_body(data)
    return body, wire.read(body)


def _prepared(body: Body, reserved: Reserved) -> Body:
    """Set the output limit if it was lowered, and ask for the usage of a stream."""
    facts = reserved.facts
    values: dict[str, Any] = {}
    if reserved.limit is not None:
        values = dict.fromkeys(facts.limit_fields, reserved.limit)
    if facts.adds_usage:
        values["stream_options"] = {**mapping(body, "stream_options"), "include_usage": True}
    return body.with_values(values)


async def _in_thread_if_large(
    data: bytes, read: Callable[[], tuple[Body, RequestFacts]]
) -> tuple[Body, RequestFacts]:
    return await asyncio.to_thread(read) if len(data) > _LARGE_BODY_BYTES else read()


async def _watched(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Do the work, but stop it when its client disconnects."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watcher.cancel()
        if not task.done():
            task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body_of(request: Incoming) -> bytes:
    """Receive a request's body within its limits; raises Refused."""
    if request.header("content-encoding").lower() not in ("", "identity"):
        raise Refused("invalid", "Compressed requests are not supported.")
    length = request.header("content-length")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            if length.isdecimal() and int(length[:12]) > MAX_BODY_BYTES:
                raise _too_large()
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionAbortedError
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise _too_large()
                if not message.get("more_body", False):
                    request.has_body = True
                    return bytes(body)
    except TimeoutError:
        raise Refused(
            "timeout", f"The request took longer than {BODY_SECONDS:.0f} seconds to arrive."
        ) from None


def _too_large() -> Refused:
    return Refused("too_large", f"The request has more than {MAX_BODY_BYTES:,} bytes.")


async def _whole_body(response: "httpx.Response") -> bytes:
    """Read a response's body within its limits; raises Refused."""
    import httpx

    body = bytearray()
    try:
        async with asyncio.timeout(REPLY_SECONDS):
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MAX_REPLY_BYTES:
                    raise Refused("upstream", f"The reply has more than {MAX_REPLY_BYTES:,} bytes.")
    except (httpx.HTTPError, TimeoutError) as error:
        raise Refused("upstream", f"The reply was cut off: {type(error).__name__}.") from error
    return bytes(body)


def _check_redirect(response: "httpx.Response") -> None:
    if 300 <= response.status_code < 400:
        raise Refused(
            "upstream",
            f"The provider answered with a redirect ({response.status_code}), which is ignored.",
        )


def _check_host(request: Incoming) -> None:
    """Refuse other host names, with which a web page could reach the gateway through a browser."""
    host = request.header("host")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.lower() not in _LOOPBACK_NAMES:
        raise Refused("auth", f"Host {host[:60]!r} is not this machine.")


async def _respond(
    send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Send a whole response; JSON unless the headers say otherwise."""
    all_headers = [*headers, (b"content-length", str(len(body)).encode())]
    if not any(name == b"content-type" for name, _ in headers):
        all_headers.append((b"content-type", b"application/json"))
    await _send(send, {"type": "http.response.start", "status": status, "headers": all_headers})
    await _send(send, {"type": "http.response.body", "body": body, "more_body": False})


async def _send(send: Send, message: MutableMapping[str, Any]) -> None:
    """Send a part of a response; raises TimeoutError if the client does not take it."""
    async with asyncio.timeout(CLIENT_SECONDS):
        await send(message)

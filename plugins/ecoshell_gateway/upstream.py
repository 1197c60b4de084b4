"""Sends requests to the provider: fixed addresses, real keys, headers on a list, no redirects, time limits."""

import itertools
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ecoshell.errors import UsageError
from ecoshell.models.servers import is_loopback
from ecoshell_gateway.protocols.format import Provider

if TYPE_CHECKING:
    import httpx

OFFICIAL: Mapping[Provider, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}
_SENT_HEADERS = frozenset(
    {"content-type", "accept", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta"}
    | {
        "openai-organization",
        "openai-project",
        "session_id",
        "conversation_id",
        "x-client-request-id",
        "x-title",
    }
    | {"anthropic-dangerous-direct-browser-access", "http-referer", "x-app", "originator"}
)
_SENT_PREFIXES = ("x-stainless-",)
_RETURNED_HEADERS = frozenset(
    {
        "content-type",
        "content-encoding",
        "cache-control",
        "request-id",
        "x-request-id",
        "retry-after",
    }
    | {"retry-after-ms", "x-should-retry", "openai-processing-ms", "openai-version", "openai-model"}
)
_RETURNED_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
_CREDENTIALS = frozenset({"authorization", "x-api-key", "chatgpt-account-id"})
SILENCE_SECONDS = 600.0
"""Some providers send nothing while a model reasons."""
_TIMEOUTS = {"connect": 10.0, "read": SILENCE_SECONDS, "write": 60.0, "pool": 60.0}
_MAX_CONNECTIONS = 64
_POOLS = 8
"""Pools of connections to each provider; httpcore looks at every connection of a pool for each request."""

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Address:
    """A provider's base URL, to which paths such as `/chat/completions` are appended, and its key."""

    provider: Provider
    base: str
    key: str | None

    @property
    def host(self) -> str:
        """The host's name."""
        return urlsplit(self.base).hostname or ""


def address(provider: Provider, url: str, key: str | None) -> Address:
    """Return the address of a base URL; raises UsageError for anything but http and https.

    OpenAI's base URLs usually end with the version, Anthropic's do not.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
        is_usable = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
        )
    except ValueError:
        is_usable = False
    if not is_usable:
        fix = "Use a base URL such as https://api.openai.com/v1."
        raise UsageError(f"--upstream-{provider} {url!r} is not an HTTP address.", fix=fix)
    base = url.partition("?")[0].partition("#")[0].rstrip("/")
    path = urlsplit(base).path
    if not path or (provider == "anthropic" and not path.endswith("/v1")):
        base += "/v1"
    return Address(provider, base, key)


@dataclass(slots=True)
class _Pool:
    transport: "httpx.AsyncHTTPTransport"
    running: int = 0


class Upstream:
    """Connections to the providers, without the cookies, redirects and retries of a whole HTTP client."""

    def __init__(
        self, addresses: Mapping[Provider, Address], *, passes_credentials: bool = False
    ) -> None:
        """`passes_credentials` sends the client's own credentials instead of a key, for subscriptions."""
        self.addresses = addresses
        self._passes_credentials = passes_credentials
        context = ssl.create_default_context()
        self._pools = {
            provider: [_Pool(_transport(target, context)) for _ in range(_POOLS)]
            for provider, target in addresses.items()
        }

    @asynccontextmanager
    async def response(
        self, provider: Provider, method: str, path: str, query: str, headers: Headers, body: bytes
    ) -> "AsyncGenerator[httpx.Response]":
        """Send a request and yield the response before its body; raises httpx.HTTPError."""
        import httpx

        target = self.addresses[provider]
        url = f"{target.base}{path}" + (f"?{query}" if query else "")
        request = httpx.Request(
            method,
            url,
            content=body or None,
            headers=self._headers(target, headers),
            extensions={"timeout": _TIMEOUTS},
        )
        pool = min(self._pools[provider], key=attrgetter("running"))
        pool.running += 1
        try:
            response = await pool.transport.handle_async_request(request)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            pool.running -= 1

    async def close(self) -> None:
        """Close all connections."""
        for pool in itertools.chain.from_iterable(self._pools.values()):
            await pool.transport.aclose()

    def _headers(self, target: Address, headers: Headers) -> list[tuple[str, str]]:
        sent = [
            (name, text)
            for name, text in _texts(headers)
            if name in _SENT_HEADERS
            or name.startswith(_SENT_PREFIXES)
            or (self._passes_credentials and name in _CREDENTIALS)
        ]
        sent.append(
            ("accept-encoding", "identity")
        )  # so that usage can be read from the passing bytes
        if not self._passes_credentials:
            key = target.key or "none"
            sent.append(
                ("x-api-key", key)
                if target.provider == "anthropic"
                else ("authorization", f"Bearer {key}")
            )
        return sent


def _transport(target: Address, context: ssl.SSLContext) -> "httpx.AsyncHTTPTransport":
    """Return the connections to a provider, through the proxy of the environment if there is one."""
    import httpx

    parts = urlsplit(target.base)
    proxy = (
        None
        if proxy_bypass(parts.netloc) or is_loopback(target.host)
        else getproxies().get(parts.scheme)
    )
    limits = httpx.Limits(
        max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS
    )
    return httpx.AsyncHTTPTransport(verify=context, limits=limits, proxy=proxy)


def returned_headers(response: "httpx.Response") -> Headers:
    """Return the headers of a response that the client receives."""
    return [
        (name.lower(), value)
        for name, value in response.headers.raw
        if (text := name.decode("latin-1").lower()) in _RETURNED_HEADERS
        or text.startswith(_RETURNED_PREFIXES)
    ]


def _texts(headers: Headers) -> Iterable[tuple[str, str]]:
    return ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)

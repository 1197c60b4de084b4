"""Starts a gateway: ledger, caps, prices, keys, socket and HTTP server."""

import asyncio
import errno
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ecoshell.assembly import load_settings, open_ledger
from ecoshell.assembly.plugins import plugins_of
from ecoshell.assembly.prices import price_book
from ecoshell.budget import Scope, parse_amount
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import UsageError
from ecoshell.models.keys import Keys
from ecoshell.paths import Paths
from ecoshell.secrecy import add_secret, environ
from ecoshell_gateway.metering import TURN, Meter
from ecoshell_gateway.options import GatewayOptions
from ecoshell_gateway.prices import Prices
from ecoshell_gateway.protocols.format import Provider
from ecoshell_gateway.registry import RunningGateway, registered
from ecoshell_gateway.rules import Rules
from ecoshell_gateway.server import Gateway
from ecoshell_gateway.upstream import OFFICIAL, Address, Upstream, address

if TYPE_CHECKING:
    from ecoshell.settings.schema import Settings

_HOST = "127.0.0.1"
_BACKLOG = 1024
_MAX_CONNECTIONS = 1024
_SHUTDOWN_SECONDS = 5
_TOKEN_BYTES = 24
_BASE_VARIABLES: Mapping[Provider, str] = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
}


@dataclass(frozen=True, slots=True)
class Serving:
    """A gateway that accepts requests."""

    url: str
    token: str
    meter: Meter
    ledger: Ledger
    gateway: Gateway
    session: str
    has_cap: bool


@asynccontextmanager
async def serving(
    paths: Paths, options: GatewayOptions, *, command: str = ""
) -> AsyncGenerator[Serving]:
    """Serve on a loopback port until the block ends; raises UsageError, SettingsError and StoreError."""
    if find_spec("uvicorn") is None:
        raise UsageError(
            "The gateway needs uvicorn, which is not installed.",
            fix="pip install 'ecoshell[gateway]'",
        )
    settings = await asyncio.to_thread(load_settings, paths)
    addresses = await asyncio.to_thread(_addresses, options)
    token = options.token or secrets.token_urlsafe(_TOKEN_BYTES)
    add_secret(token)
    session = session_of(options.token)
    with (
        closing(_socket(options.port)) as listener,
        closing(await _ledger(paths, settings)) as ledger,
    ):
        has_cap = await asyncio.to_thread(_set_caps, ledger, session, settings, options)
        prices = await asyncio.to_thread(_prices, settings, paths, addresses, options)
        meter = Meter(ledger, session, prices, ask_seconds=options.ask_seconds)
        upstream = Upstream(addresses, passes_credentials=options.is_subscription)
        gateway = Gateway(meter, upstream, Rules(options.rules), token)
        port = listener.getsockname()[1]
        try:
            with registered(paths, RunningGateway(os.getpid(), session, port, command)):
                async with _listening(gateway, listener):
                    yield Serving(
                        f"http://{_HOST}:{port}", token, meter, ledger, gateway, session, has_cap
                    )
        finally:
            await upstream.close()
            meter.close()


def session_of(token: str) -> str:
    """Return the ledger's session of a run: a chosen token continues its session, a random one begins another."""
    name = sha256(token.encode()).hexdigest()[:12] if token else secrets.token_hex(6)
    return f"gateway-{name}"


async def _ledger(paths: Paths, settings: "Settings") -> Ledger:
    ledger = await asyncio.to_thread(open_ledger, paths, settings)
    try:
        ledger.require_writable("Nothing was reserved.")
    except BaseException:
        ledger.close()
        raise
    return ledger


def _set_caps(ledger: Ledger, session: str, settings: "Settings", options: GatewayOptions) -> bool:
    """Set the caps of the options and the settings; returns whether any cap applies."""
    defaults: dict[Scope, str | None] = {"day": settings.budget.day, "month": settings.budget.month}
    for scope, text in defaults.items():
        ledger.adopt_cap(scope, None if text is None else parse_amount(text))
    caps = dict(options.caps)
    if "session" not in caps and settings.budget.session is not None:
        caps["session"] = parse_amount(settings.budget.session)
    for scope, amount in caps.items():
        ledger.set_cap(session, scope, amount)
    return bool(ledger.caps(session, TURN))


def _prices(
    settings: "Settings",
    paths: Paths,
    addresses: Mapping[Provider, Address],
    options: GatewayOptions,
) -> Prices:
    plugin_prices = plugins_of(settings, paths, lambda _: None).prices()
    book = price_book(settings, plugin_prices=plugin_prices, free_local=False)
    hosts: dict[Provider, str] = {provider: target.host for provider, target in addresses.items()}
    return Prices(
        book, hosts, allow_unpriced=options.allow_unpriced, is_subscription=options.is_subscription
    )


def _addresses(options: GatewayOptions) -> dict[Provider, Address]:
    """Return the providers' addresses and keys; the keyring may block."""
    keys, chosen = (
        Keys(),
        {"openai": options.upstream_openai, "anthropic": options.upstream_anthropic},
    )
    addresses: dict[Provider, Address] = {}
    for provider, official in OFFICIAL.items():
        url = chosen[provider] or environ.get(_BASE_VARIABLES[provider], "").strip() or official
        key = None if options.is_subscription else keys.find(provider) or _auth_token(provider)
        addresses[provider] = address(provider, url, key)
    return addresses


def _auth_token(provider: Provider) -> str | None:
    """Return the token of an outer gateway, which Claude Code takes from this variable."""
    return (
        environ.get("ANTHROPIC_AUTH_TOKEN", "").strip() or None if provider == "anthropic" else None
    )


def _socket(port: int) -> socket.socket:
    """Bind a loopback port; raises UsageError if it is taken."""
    # asyncio turns off Nagle's algorithm only for sockets with this protocol number.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise UsageError(
            f"Port {port} cannot be used: {os.strerror(error.errno)}.",
            fix="Choose another port, or 0 for a free one.",
        ) from None
    return listener


@asynccontextmanager
async def _listening(gateway: Gateway, listener: socket.socket) -> AsyncGenerator[None]:
    """Run the HTTP server; running requests have some seconds to end."""
    import uvicorn

    from ecoshell_gateway.connections import Connection

    started = asyncio.Event()

    class Server(uvicorn.Server):
        """A server that reports its start and leaves the signals to the command."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set()

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

    application: Any = gateway
    config = uvicorn.Config(
        application,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await started.wait()
        yield
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task

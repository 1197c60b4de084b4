"""Signing in to a server by OAuth, in its helper: the SDK does it, and the shell keeps what comes of it.

What is kept is `{"tokens", "expires_at", "client", "metadata", "resource", "issuer", "port"}`. The person's browser
comes back to a port of this machine, which stays the same for as long as the server knows the client by it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

_PATIENCE = 600.0
"""Seconds a person may take in the browser."""
_DONE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou may close this now.\n"
Record = Mapping[str, Any]


class SignIn:
    """What the SDK's provider is given: a storage, and a way to the person."""

    def __init__(
        self,
        server: Record,
        tell: Callable[[Record], None],
        ask: Callable[[Record], Awaitable[Record]],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`server` is as the helper is told of it; `tell` is given what is to be kept, `failed` why it cannot be."""
        self._url, given = server["url"], server["auth"]
        self._given: Record = given["client"]
        self._state: dict[str, Any] = dict(given["state"])
        if given["anew"]:
            self._state.pop("tokens", None)
        self._tell = tell
        self._ask = ask
        self._failed = failed
        self._came: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._listener: asyncio.Server | None = None

    async def provider(self) -> "httpx2.Auth":
        """The authentication of the server's HTTP client; when it fails it says so, as who waits for an answer to the
        request is not told."""
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata

        if "tokens" not in self._state:
            await self._listen()
        provider = self._provider = OAuthClientProvider(
            self._url,
            OAuthClientMetadata.model_validate(
                {
                    "client_name": "ecoshell",
                    "redirect_uris": [self._redirect],
                    "grant_types": ["authorization_code", "refresh_token"],
                    "response_types": ["code"],
                    "scope": self._given.get("scope"),
                }
            ),
            self,
            redirect_handler=self._visit,
            callback_handler=lambda: asyncio.wait_for(self._came, _PATIENCE),
            client_metadata_url=self._given.get("metadata_url"),
        )
        inner = provider.async_auth_flow

        async def flow(request: "httpx2.Request") -> AsyncGenerator["httpx2.Request", "httpx2.Response"]:
            steps = inner(request)
            try:
                sent = await steps.__anext__()
                while True:
                    sent = await steps.asend((yield sent))
            except StopAsyncIteration:
                return
            except Exception as failure:
                self._failed(failure)
                raise
            finally:
                await steps.aclose()

        provider.async_auth_flow = flow
        return provider

    async def aclose(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.close()

    @property
    def _redirect(self) -> str:
        return f"http://127.0.0.1:{self._state['port']}/callback"

    async def _listen(self) -> None:
        """Listen where the browser comes back to; on another port the server has to get to know the client anew."""
        if self._listener is not None:
            return
        try:
            self._listener = await asyncio.start_server(self._hear, "127.0.0.1", self._state.get("port", 0))
        except OSError:
            self._listener = await asyncio.start_server(self._hear, "127.0.0.1", 0)
            self._state.pop("client", None)
        self._state["port"] = self._listener.sockets[0].getsockname()[1]

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from mcp.shared.auth import AuthorizationCodeResult

        target = (await reader.readline()).decode("ascii", "replace").split(" ")[1:2]
        found = {name: values[0] for name, values in parse_qs(urlsplit(target[0]).query).items()} if target else {}
        if "state" in found and not self._came.done():
            code = found.get("code", "")
            self._came.set_result(AuthorizationCodeResult(code=code, state=found["state"], iss=found.get("iss")))
        writer.write(_DONE)
        writer.close()

    async def _visit(self, address: str) -> None:
        await self._listen()
        self._came = asyncio.get_running_loop().create_future()
        if (await self._ask({"visit": address, "message": "Sign in."})).get("action") != "accept":
            raise RuntimeError("nobody has signed in; `ecoshell mcp login` does it")

    async def get_tokens(self) -> "OAuthToken | None":
        """The tokens that were kept, with what the SDK needs to renew them."""
        from mcp.shared.auth import OAuthMetadata, OAuthToken, ProtectedResourceMetadata

        state, context = self._state, self._provider.context
        if "tokens" not in state:
            return None
        if state.get("metadata"):
            context.oauth_metadata = OAuthMetadata.model_validate(state["metadata"])
        if state.get("resource"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(state["resource"])
        context.auth_server_url, context.token_expiry_time = state.get("issuer"), state.get("expires_at")
        return OAuthToken.model_validate(state["tokens"])

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        """Have them kept."""
        context = self._provider.context
        about, resource = context.oauth_metadata, context.protected_resource_metadata
        self._state |= {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": None if tokens.expires_in is None else time.time() + tokens.expires_in,
            "metadata": about and about.model_dump(mode="json", exclude_none=True),
            "resource": resource and resource.model_dump(mode="json", exclude_none=True),
            "issuer": context.auth_server_url,
        }
        self._tell({"auth": self._state})

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        """The client as the server knows it: as the settings have it, or as it was registered."""
        from mcp.shared.auth import OAuthClientInformationFull

        if "client_id" in self._given:
            secret = self._given.get("client_secret")
            method = self._given.get("method", "client_secret_basic" if secret else "none")
            known = {"client_id": self._given["client_id"], "client_secret": secret, "redirect_uris": [self._redirect]}
            return OAuthClientInformationFull.model_validate({**known, "token_endpoint_auth_method": method})
        client = self._state.get("client")
        return None if client is None else OAuthClientInformationFull.model_validate(client)

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        """Remember it; it is kept with the tokens."""
        self._state["client"] = client_info.model_dump(mode="json", exclude_none=True)

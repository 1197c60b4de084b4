"""OAuth sign-in to a server, in its helper process: the SDK performs it, and the shell stores the resulting state.

The state is `{"tokens", "expires_at", "client", "metadata", "resource", "issuer", "port"}`. The browser is redirected
to a local port, which stays the same as long as the client registration is used.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

_BROWSER_SECONDS = 600.0  # seconds that the user has for signing in
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou may close this now.\n"
Record = Mapping[str, Any]


class SignIn:
    """Token storage and redirect handling for the SDK's OAuth provider."""

    def __init__(
        self,
        server: Record,
        write: Callable[[Record], None],
        ask: Callable[[Record], Awaitable[Record]],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`server` is the helper's first line; `write` receives the state to store, `fail` the error of a sign-in."""
        self._url, auth = server["url"], server["auth"]
        self._client: Record = auth["client"]
        self._state: dict[str, Any] = dict(auth["state"])
        if auth["renew"]:
            self._state.pop("tokens", None)
        self._write = write
        self._ask = ask
        self._fail = fail
        loop = asyncio.get_running_loop()
        self._result: asyncio.Future[AuthorizationCodeResult] = loop.create_future()
        self._listener: asyncio.Server | None = None

    async def provider(self) -> "httpx2.Auth":
        """Return the authentication of the HTTP client; it reports failures, which the SDK does not pass on."""
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata

        if "tokens" not in self._state:
            await self._listen()
        metadata = {
            "client_name": "ecoshell",
            "redirect_uris": [self._redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "scope": self._client.get("scope"),
        }
        provider = self._provider = OAuthClientProvider(
            self._url,
            OAuthClientMetadata.model_validate(metadata),
            self,
            redirect_handler=self._visit,
            callback_handler=lambda: asyncio.wait_for(self._result, _BROWSER_SECONDS),
            client_metadata_url=self._client.get("metadata_url"),
        )
        sdk_flow = provider.async_auth_flow

        async def flow(
            request: "httpx2.Request",
        ) -> AsyncGenerator["httpx2.Request", "httpx2.Response"]:
            steps = sdk_flow(request)
            try:
                outgoing = await steps.__anext__()
                while True:
                    outgoing = await steps.asend((yield outgoing))
            except StopAsyncIteration:
                return
            except Exception as error:
                self._fail(error)
                raise
            finally:
                await steps.aclose()

        provider.async_auth_flow = flow
        return provider

    async def aclose(self) -> None:
        """Stop listening for the browser."""
        if self._listener is not None:
            self._listener.close()

    @property
    def _redirect(self) -> str:
        return f"http://127.0.0.1:{self._state['port']}/callback"

    async def _listen(self) -> None:
        """Listen for the redirected browser; another port than before requires a new client registration."""
        if self._listener is not None:
            return
        try:
            port: int = self._state.get("port", 0)
            self._listener = await asyncio.start_server(self._receive, "127.0.0.1", port)
        except OSError:
            self._listener = await asyncio.start_server(self._receive, "127.0.0.1", 0)
            self._state.pop("client", None)
        self._state["port"] = self._listener.sockets[0].getsockname()[1]

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from mcp.shared.auth import AuthorizationCodeResult

        target = (await reader.readline()).decode("ascii", "replace").split(" ")[1:2]
        fields = parse_qs(urlsplit(target[0]).query) if target else {}
        query = {name: values[0] for name, values in fields.items()}
        if "state" in query and not self._result.done():
            result = AuthorizationCodeResult(
                code=query.get("code", ""), state=query["state"], iss=query.get("iss")
            )
            self._result.set_result(result)
        writer.write(_PAGE)
        writer.close()

    async def _visit(self, url: str) -> None:
        await self._listen()
        self._result = asyncio.get_running_loop().create_future()
        if (await self._ask({"visit": url, "message": "Sign in."})).get("action") != "accept":
            raise RuntimeError("sign-in was declined; run `ecoshell mcp login` to sign in")

    async def get_tokens(self) -> "OAuthToken | None":
        """Return the stored tokens, and give the SDK what it needs to refresh them."""
        from mcp.shared.auth import OAuthMetadata, OAuthToken, ProtectedResourceMetadata

        state, context = self._state, self._provider.context
        if "tokens" not in state:
            return None
        if state.get("metadata"):
            context.oauth_metadata = OAuthMetadata.model_validate(state["metadata"])
        if resource := state.get("resource"):
            metadata = ProtectedResourceMetadata.model_validate(resource)
            context.protected_resource_metadata = metadata
        context.auth_server_url = state.get("issuer")
        context.token_expiry_time = state.get("expires_at")
        return OAuthToken.model_validate(state["tokens"])

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        """Store the tokens in the shell."""
        context = self._provider.context
        metadata, resource = context.oauth_metadata, context.protected_resource_metadata
        self._state |= {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": None if tokens.expires_in is None else time.time() + tokens.expires_in,
            "metadata": metadata and metadata.model_dump(mode="json", exclude_none=True),
            "resource": resource and resource.model_dump(mode="json", exclude_none=True),
            "issuer": context.auth_server_url,
        }
        self._write({"auth": self._state})

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        """Return the client registration, from the settings or a previous registration."""
        from mcp.shared.auth import OAuthClientInformationFull

        if "client_id" in self._client:
            secret = self._client.get("client_secret")
            method = self._client.get("method", "client_secret_basic" if secret else "none")
            registration = {
                "client_id": self._client["client_id"],
                "client_secret": secret,
                "redirect_uris": [self._redirect],
                "token_endpoint_auth_method": method,
            }
            return OAuthClientInformationFull.model_validate(registration)
        client = self._state.get("client")
        return None if client is None else OAuthClientInformationFull.model_validate(client)

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        """Remember the registration, which is stored with the tokens."""
        self._state["client"] = client_info.model_dump(mode="json", exclude_none=True)

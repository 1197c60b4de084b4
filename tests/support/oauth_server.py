"""A server with OAuth sign-in and its authorization server, over HTTP; the argument is the port."""

import secrets
import sys
import time

from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthToken

PORT = int(sys.argv[1])
OWN = f"http://127.0.0.1:{PORT}"


class Authority(OAuthAuthorizationServerProvider):
    """Authorizes every client and counts renewals."""

    def __init__(self):
        self.clients, self.codes, self.tokens, self.renewals = {}, {}, {}, {}
        self.renewed = 0

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        code = AuthorizationCode(
            code=secrets.token_urlsafe(),
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 600,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.pop(authorization_code, None)

    async def exchange_authorization_code(self, client, authorization_code):
        return self._issue(client, authorization_code.scopes)

    async def load_refresh_token(self, client, refresh_token):
        return self.renewals.pop(refresh_token, None)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        self.renewed += 1
        return self._issue(client, scopes)

    async def load_access_token(self, token):
        return self.tokens.get(token)

    async def revoke_token(self, token):
        self.tokens.pop(token.token, None)

    def _issue(self, client, scopes):
        access, renewal = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.tokens = {
            access: AccessToken(
                token=access, client_id=client.client_id, scopes=scopes, expires_at=None
            )
        }
        self.renewals[renewal] = RefreshToken(
            token=renewal, client_id=client.client_id, scopes=scopes
        )
        return OAuthToken(
            access_token=access, expires_in=3600, refresh_token=renewal, scope=" ".join(scopes)
        )


AUTHORITY = Authority()
server = MCPServer(
    "private",
    auth_server_provider=AUTHORITY,
    auth=AuthSettings(
        issuer_url=OWN,
        resource_server_url=f"{OWN}/mcp",
        client_registration_options=ClientRegistrationOptions(enabled=True),
    ),
)


@server.tool()
def renewed() -> str:
    """Return the number of renewed tokens and of clients."""
    return f"{AUTHORITY.renewed} of {len(AUTHORITY.clients)}"


if __name__ == "__main__":
    server.run(transport="streamable-http", host="127.0.0.1", port=PORT)

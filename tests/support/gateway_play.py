"""A gateway inside a test: real server, real ledger, real HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from ecoshell.budget import parse_amount
from ecoshell.budget.entries import Entry
from ecoshell.budget.ledger import Ledger
from ecoshell.paths import Paths
from ecoshell_gateway.options import GatewayOptions
from ecoshell_gateway.rules import RuleOptions
from ecoshell_gateway.serving import Serving, serving

TOKEN = "test-token"
CHAT = "gpt-4.1-mini"
CLAUDE = "claude-sonnet-4-5"


@dataclass
class Play:
    """A running gateway and a client of it."""

    serving: Serving
    client: httpx.AsyncClient
    paths: Paths

    async def chat(self, text: str = "hi", **fields: Any) -> httpx.Response:
        """Send a chat completion."""
        messages = [{"role": "user", "content": text}]
        body = {"model": CHAT, "max_completion_tokens": 100, "messages": messages, **fields}
        body = {name: value for name, value in body.items() if value is not ...}
        return await self.client.post("/v1/chat/completions", json=body)

    async def health(self) -> dict[str, Any]:
        """What the gateway reports of itself."""
        return (await self.client.get("/healthz")).json()

    def entries(self) -> list[Entry]:
        """All entries of the run, oldest first."""
        with closing(Ledger(self.paths.ledger_file)) as ledger, ledger.reading() as db:
            from ecoshell.budget.entries import entry_from_row

            rows = db.execute(
                "SELECT * FROM entries WHERE session = ? ORDER BY id", (self.serving.session,)
            )
            return [entry_from_row(row) for row in rows]


def message_of(response: httpx.Response) -> str:
    """The message of an error, in either format."""
    return response.json()["error"]["message"]


@asynccontextmanager
async def playing(
    folder: Path,
    upstream: str,
    *,
    budget: str | None = "1.00",
    rules: RuleOptions | None = None,
    **options: Any,
) -> AsyncGenerator[Play]:
    """Serve one upstream for all formats."""
    paths = Paths.under(folder)
    chosen = GatewayOptions(
        caps={} if budget is None else {"session": parse_amount(budget)},
        rules=rules or RuleOptions(),
        token=TOKEN,
        upstream_openai=upstream,
        upstream_anthropic=upstream,
    )
    async with serving(paths, replace(chosen, **options)) as server:
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            base_url=server.url, headers=headers, timeout=30, trust_env=False
        ) as client:
            yield Play(server, client, paths)

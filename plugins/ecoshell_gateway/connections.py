"""The server's connections, with a time limit for the start of each request."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 30.0
"""Time limit for a client to send a request's method, path and headers."""


class Connection(H11Protocol):
    """A connection that is closed if a request does not begin in time."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept a connection."""
        super().connection_made(transport)
        self._limit = self.loop.call_later(HEAD_SECONDS, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the time limit with the connection."""
        super().connection_lost(exc)
        self._stop()

    def handle_events(self) -> None:
        """Read what has arrived; a complete head ends the time limit."""
        previous: object = self.cycle
        super().handle_events()
        if self.cycle is not previous:
            self._stop()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._stop()
        self._limit = self.loop.call_later(HEAD_SECONDS, self._end)
        super().on_response_complete()

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end(self) -> None:
        self.transport.close()

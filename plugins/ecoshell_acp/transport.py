"""Transport of protocol messages as lines of JSON over two file descriptors."""

import asyncio
import json
import os
import re
import threading
from contextlib import suppress
from functools import partial
from typing import Any, cast

from acp import RequestError

from ecoshell.tools.running import in_thread

_SURROGATE_ESCAPE = re.compile(rb"\\ud[89a-f]", re.IGNORECASE)
"""Matches a JSON escape that may be half of a surrogate pair."""


class StdioTransport:
    """A transport over any two descriptors; an invalid line is answered with an error."""

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self._output_fd = output_fd
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self._send_lock = asyncio.Lock()
        self._unanswered: set[str] = set()
        """IDs of requests without a response, except prompts."""
        self._response_sent = asyncio.Event()
        self._is_closed = False
        read = partial(self._read, input_fd, asyncio.get_running_loop())
        threading.Thread(target=read, name="editor", daemon=True).start()  # a pipe may never end

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the input, once all requests except prompts are answered."""
        while line := await self._received.get():
            if not line.strip():
                continue
            try:
                message: Any = json.loads(line)
                if _SURROGATE_ESCAPE.search(line):  # an unpaired surrogate cannot be stored
                    message = json.loads(
                        json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
                    )
            except (ValueError, RecursionError) as failure:
                error = RequestError.parse_error({"details": str(failure)})
            else:
                if isinstance(message, dict):
                    request = cast("dict[str, Any]", message)
                    if "id" in request and request.get("method") not in (None, "session/prompt"):
                        self._unanswered.add(repr(request["id"]))
                    return request
                error = RequestError.invalid_request({"details": "A message is one JSON object."})
            await self.send({"jsonrpc": "2.0", "id": None, "error": error.to_error_obj()})
        while self._unanswered and not self._is_closed:
            self._response_sent.clear()
            await self._response_sent.wait()
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message; a closed output ends the transport."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)
        line = text.encode("utf-8", "replace") + b"\n"  # strict readers reject unpaired surrogates
        async with self._send_lock:
            if self._is_closed:
                return
            try:
                await in_thread(partial(_write, self._output_fd, line))
            except OSError:
                self._is_closed = True
                self._received.put_nowait(b"")
        if "method" not in message:
            self._unanswered.discard(repr(message.get("id")))
        self._response_sent.set()

    async def close(self) -> None:
        """Stop writing."""
        self._is_closed = True

    def _read(self, input_fd: int, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError, OSError), open(input_fd, "rb") as file:
            for line in file:
                loop.call_soon_threadsafe(self._received.put_nowait, line)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._received.put_nowait, b"")


def _write(output_fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(output_fd, data) :]

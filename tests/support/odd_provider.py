"""A provider of chat completions on loopback that fails, cuts off and misreports as a test asks it to."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

Body = dict[str, Any]
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request is answered."""

    status: int = 200
    usage: Any = field(default_factory=lambda: USAGE)
    """The reported usage; None for none."""
    pieces: int = 3
    """Events with text, before the usage."""
    cut_after: int | None = None
    """How many events are sent before the connection is cut; 0 cuts it before the headers."""
    headers: tuple[str, ...] = ()
    hangs: bool = False
    """Whether the reply waits for `OddProvider.release` after its first piece."""


class OddProvider:
    """An asyncio server; `requests` holds the parsed bodies, `heads` the lines of each request's head."""

    def __init__(self, answer: Callable[[Body], Answer] = lambda _: Answer()) -> None:
        self.answer = answer
        self.requests: list[Body] = []
        self.heads: list[list[str]] = []
        self.release = asyncio.Event()
        self.closed_early = asyncio.Event()
        """Set when the gateway closes a connection whose reply hangs."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.release.set()
        self._server.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                fields = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in head[1:])
                }
                data = await reader.readexactly(int(fields.get("content-length", 0)))
                self.heads.append(head)
                body: Body = json.loads(data) if data else {}
                self.requests.append(body)
                if not await self._reply(body, reader, writer):
                    break
        writer.close()

    async def _reply(
        self, body: Body, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        answer = self.answer(body)
        if answer.cut_after == 0:
            return False
        if answer.status != 200 or not body.get("stream"):
            return await self._reply_whole(body, answer, writer)
        extra = "".join(f"{line}\r\n" for line in answer.headers)
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{extra}".encode())
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        for number, event in enumerate(events(body, answer)):
            if number == answer.cut_after:
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            if answer.hangs and number == 0:
                await self._hang(reader)
        writer.write(b"0\r\n\r\n")
        return True

    async def _hang(self, reader: asyncio.StreamReader) -> None:
        waits: list[Awaitable[Any]] = [self.release.wait(), reader.read(1)]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if tasks[1] in done:
            self.closed_early.set()
            raise ConnectionAbortedError

    async def _reply_whole(self, body: Body, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        message = {"role": "assistant", "content": "word " * answer.pieces}
        reply: Body = {
            "id": "c",
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message}],
        }
        if answer.usage is not None:
            reply["usage"] = answer.usage
        data = json.dumps(reply if answer.status == 200 else {"error": {"message": "no"}}).encode()
        extra = "".join(f"{line}\r\n" for line in answer.headers)
        head = f"HTTP/1.1 {answer.status} X\r\ncontent-type: application/json\r\n{extra}"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode())
        writer.write(data if answer.cut_after is None else data[: len(data) // 2])
        await writer.drain()
        return answer.cut_after is None


def events(body: Body, answer: Answer) -> list[bytes]:
    """The events of a stream; the usage comes if the request asks for it."""
    chunk = {"id": "c", "model": body.get("model")}
    texts: list[Body] = [
        {**chunk, "choices": [{"index": 0, "delta": {"content": "word "}}]}
    ] * answer.pieces
    if answer.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
        texts.append({**chunk, "choices": [], "usage": answer.usage})
    return [*(f"data: {json.dumps(text)}\n\n".encode() for text in texts), b"data: [DONE]\n\n"]

"""A minimal provider of chat completions on loopback, to measure the gateway against; prints its port."""

import asyncio
import json
from contextlib import suppress

PIECES = 20
_USAGE = {"prompt_tokens": 20, "completion_tokens": PIECES, "total_tokens": 20 + PIECES}
_CHUNK = json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": "word "}}]})
_LAST = json.dumps({"id": "c", "choices": [], "usage": _USAGE})
_MESSAGE = {"role": "assistant", "content": "word " * PIECES}
_REPLY = json.dumps(
    {"id": "c", "choices": [{"index": 0, "message": _MESSAGE}], "usage": _USAGE}
).encode()


async def serve() -> None:
    """Serve until the process is killed."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the parent reads the port
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            if b'"stream": true' in body:
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for event in (*[_CHUNK] * PIECES, _LAST, "[DONE]"):
                    data = f"data: {event}\n\n".encode()
                    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n%s" % (len(_REPLY), _REPLY))
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve())

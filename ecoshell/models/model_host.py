"""The model host: a worker for remote models (remote_worker) that outlives a command and serves many at once.

`main` detaches itself, listens on the socket of a HostAddress and greets every connection with one line, `{"pid",
"idle_seconds", "environ"}`. After that a connection speaks the worker's protocol, without `environ` records: a host
only holds the keys of running asks. `{"stop": true}` ends the host. When a connection ends, its asks are cancelled.

The host takes the lock before it creates the socket and keeps it until the process is gone, however that ends. So an
address has at most one host, and a socket without a locked lock file is stale.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ecoshell.models import remote_worker
from ecoshell.models.host_address import (
    HostAddress,
    environ_digest,
    host_environ,
    peer_user,
    take_lock,
)
from ecoshell.secrecy import close_process

_UNREAD_LIMIT = 1 << 26  # bytes kept for a client that does not read; then it is dropped
_FIRST_CLIENT_SECONDS = 10.0  # minimum time a new host waits for the command that started it
_LOOK_SECONDS = 0.5  # interval between checks for clients
_LOCK_PATIENCE = 10.0  # seconds to wait for a host that is ending to let its lock go


def main() -> None:
    """Start a host and return once it or another one listens; exit with status 1 if that fails.

    The arguments are the folder and key of the address, the bytes of memory it may take, and the seconds without
    an ask after which it ends.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os._exit(0 if os.read(reading, 1) else 1)
    os.close(reading)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    os.umask(0o077)

    folder, key, memory, idle = sys.argv[1:5]
    close_process()  # asks carry keys
    remote_worker.limit_memory(int(memory))
    address = HostAddress(Path(folder), key)
    address.require_private()
    if _lock(address):
        asyncio.run(_Host(address, float(idle)).serve(writing))
    elif _answers(address):
        os.write(writing, b"\n")


def _lock(address: HostAddress) -> bool:
    """Become the host of this address; returns False when another process is."""
    give_up = time.monotonic() + _LOCK_PATIENCE
    while take_lock(address) is None:
        if _answers(address) or time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    address.socket_file.unlink(missing_ok=True)
    return True


def _answers(address: HostAddress) -> bool:
    try:
        address.connect().close()
    except OSError:
        return False
    return True


class _Host:
    def __init__(self, address: HostAddress, idle: float) -> None:
        self._address = address
        self._idle = idle
        self._digest = environ_digest(host_environ(os.environ))
        self._loaded = asyncio.Event()
        self._workers: set[remote_worker.Worker] = set()  # one for each client
        self._used = 0.0  # when the last ask ended, by the loop's clock

    async def serve(self, listening: int) -> None:
        """Listen, report that to the descriptor, load litellm and serve until the host has been idle long enough."""
        loop = asyncio.get_running_loop()
        self._used = loop.time() + _FIRST_CLIENT_SECONDS
        path = str(self._address.socket_file)
        await asyncio.start_unix_server(self._meet, path, limit=remote_worker.LINE_LIMIT)
        os.write(listening, b"\n")
        os.close(listening)
        self._loading = asyncio.create_task(self._load())
        while self._workers or loop.time() - self._used < self._idle:
            remaining = self._used + self._idle - loop.time()
            await asyncio.sleep(_LOOK_SECONDS if self._workers else max(remaining, 0.01))
        self._end()

    async def _load(self) -> None:
        await remote_worker.load(self._loaded)
        while any(each.is_busy for each in self._workers):  # noqa: ASYNC110 - asks come first
            await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.to_thread(remote_worker.warm_litellm)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends; a misbehaving client does not affect others."""
        connection = writer.get_extra_info("socket")
        loop, asks = asyncio.get_running_loop(), 0
        worker = remote_worker.Worker(_bounded_write(writer.transport), self._loaded)
        try:
            if peer_user(connection) != os.geteuid():
                return
            idle = 0.0 if self._workers else loop.time() - self._used
            hello: dict[str, Any] = {"pid": os.getpid(), "environ": self._digest}
            hello["idle_seconds"] = round(max(idle, 0.0), 3)
            writer.write(json.dumps(hello).encode() + b"\n")
            self._workers.add(worker)
            remote_worker.clients.add(connection.fileno())
            while line := await reader.readline():  # raises ValueError for one that is too long
                message = json.loads(line)
                if "stop" in message:
                    self._end()
                worker.take(message)
                asks += 1
                del line, message  # it contains a key, and the next line may come much later
        except (ValueError, KeyError, TypeError) as error:
            ended = {"ended": f"it could not read what it was asked ({error})"[:500]}
            writer.write(json.dumps(ended).encode() + b"\n")
        except OSError:  # the client left
            pass
        except MemoryError:
            remote_worker.end_process()
        finally:
            remote_worker.clients.discard(connection.fileno())
            worker.cancel()
            self._workers.discard(worker)
            self._used = loop.time() if asks else min(self._used, loop.time())
            writer.close()

    def _end(self) -> None:
        self._address.socket_file.unlink(missing_ok=True)
        os._exit(0)  # which lets the lock go last of all


def _bounded_write(transport: asyncio.WriteTransport) -> Callable[[bytes], None]:
    """Returns a function that writes to a client, and drops one that does not read."""

    def write(line: bytes) -> None:
        if not transport.is_closing():
            transport.write(line)
            if transport.get_write_buffer_size() > _UNREAD_LIMIT:
                transport.abort()

    return write


if __name__ == "__main__":
    main()

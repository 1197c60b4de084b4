"""A way to a server over which connections are cut and answers come late, at random."""

import random
import socket
import threading
import time
from contextlib import suppress


class BadNetwork:
    """Listens on loopback and passes on what it gets, until a connection's luck runs out."""

    def __init__(self, port: int, *, seed: int = 0) -> None:
        self._to = port
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listening.getsockname()[1]
        self.cut = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    continue
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                luck = self._chance.random()
                if luck < 0.005:
                    self.cut += 1
                    break
                if luck < 0.03:
                    time.sleep(self._chance.random() / 2)
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

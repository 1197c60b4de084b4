"""A proxy on loopback that cuts and delays connections at random."""

import random
import socket
import threading
import time
from contextlib import suppress


class BadNetwork:
    """Forwards connections to a port, delays some data and cuts some connections."""

    def __init__(self, port: int, *, seed: int = 0) -> None:
        self._to = port
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listening.getsockname()[1]
        self.cut = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
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
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                luck = self._chance.random()
                if luck < 0.005:
                    self.cut += 1
                    break
                if luck < 0.03:
                    time.sleep(self._chance.random() / 2)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

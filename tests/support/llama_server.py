"""The embedded model behind `llama_cpp.server`, an OpenAI-compatible server."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ecoshell.models.embedded import embedded_path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def llama_address(port: int) -> str:
    """The base URL of the server at a port."""
    return f"http://127.0.0.1:{port}/v1"


@contextmanager
def llama_server(port: int, *, context: int = 2048) -> Iterator[str]:
    """Run the server and yield its base URL; skip the test if its extras are not installed."""
    pytest.importorskip("fastapi", reason="the extra llama-cpp-python[server] is not installed")
    pytest.importorskip("llama_cpp", reason="the extra `local` is not installed")
    options = [
        "--model",
        str(embedded_path()),
        "--port",
        str(port),
        "--n_ctx",
        str(context),
        "--verbose",
        "False",
    ]
    options += ["--logits_all", "False"]  # the default is twice as slow
    server = subprocess.Popen(
        [sys.executable, "-m", "llama_cpp.server", *options], stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(f"{llama_address(port)}/models", server)
        yield llama_address(port)
    finally:
        server.terminate()
        server.wait()


def _wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=60).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the server did not start")

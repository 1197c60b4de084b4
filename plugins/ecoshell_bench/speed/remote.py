"""A question to a remote model that answers at once, with a warm model host and without one."""

import json
import os
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any

from ecoshell.models.host_address import stop_all
from ecoshell.paths import Paths
from ecoshell_bench.speed.measuring import Home, Measurement, against, new_home, wall

ANSWER = "The answer."
MODEL = "openai/immediate"
_IMPORT = (sys.executable, "-c", "import litellm")
_OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
"""The environment ecoshell sets for litellm, so that it fetches nothing during import."""


def measure_remote(repeat: int) -> Iterator[Measurement]:
    """Measure seconds of `ecoshell ask` from process start to end; yields nothing without litellm."""
    if find_spec("litellm") is None:
        return
    with new_home() as home, immediate_server() as address:
        settings = Paths.under(home.folder).settings_file
        with settings.open("a", encoding="utf-8") as file:
            file.write(f'\n[models."{MODEL}"]\nbase_url = "{address}"\n')
        try:
            yield from _measure(home, repeat)
        finally:
            stop_all(Paths.under(home.folder).run_folder)


def _measure(home: Home, repeat: int) -> Iterator[Measurement]:
    environ = {
        **home.environ,
        "OPENAI_API_KEY": "no-key-at-all",
    }  # avoids a look-up in the system keyring
    asking = (
        sys.executable,
        "-m",
        "ecoshell",
        "ask",
        "Hello?",
        "--quiet",
        "--workspace",
        str(home.folder),
        "--model",
    )
    remote, scripted = (
        wall((*asking, MODEL), environ),
        wall((*asking, home.script(ANSWER)), environ),
    )

    def cold() -> float:
        stop_all(Paths.under(home.folder).run_folder)
        return remote()

    yield against("ask_remote", remote, scripted, max(1, repeat * 2 // 3))
    yield against(
        "ask_remote_cold", cold, wall(_IMPORT, {**os.environ, **_OFFLINE}), max(1, repeat // 3)
    )


@contextmanager
def immediate_server() -> Generator[str]:
    """Run a loopback server with OpenAI's protocol that answers at once; yield its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the name is the base's

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice: dict[str, Any] = {
            "index": 0,
            "delta": {"role": "assistant", "content": ANSWER},
            "finish_reason": None,
        }
        end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 70, "completion_tokens": 3, "total_tokens": 73}
        base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "immediate"}
        chunks: list[dict[str, Any]] = [
            {"choices": [choice]},
            {"choices": [end]},
            {"choices": [], "usage": usage},
        ]
        body = (
            "".join(f"data: {json.dumps(base | chunk)}\n\n" for chunk in chunks)
            + "data: [DONE]\n\n"
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

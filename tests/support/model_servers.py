"""Servers on loopback that imitate Ollama, LM Studio, llama-server and vLLM: model lists and chats."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EMPTY_OLLAMA: Mapping[str, Any] = {"/api/tags": {"models": []}}
OLLAMA = {
    "/api/tags": {
        "models": [
            {"name": "qwen3:4b", "model": "qwen3:4b", "size": 2_500_000_000},
            {
                "name": "nomic-embed-text:latest",
                "model": "nomic-embed-text:latest",
                "size": 270_000_000,
            },
        ]
    },
    "/api/ps": {"models": [{"name": "qwen3:4b", "context_length": 8192}]},
    "/api/show qwen3:4b": {
        "capabilities": ["completion", "tools"],
        "parameters": "num_ctx                  4096",
    },
    "/api/show nomic-embed-text:latest": {"capabilities": ["embedding"]},
}
LM_STUDIO = {
    "/api/v0/models": {
        "data": [
            {
                "id": "qwen3-4b",
                "type": "llm",
                "max_context_length": 40960,
                "loaded_context_length": 16384,
                "capabilities": ["tool_use"],
            },
            {"id": "nomic-embed", "type": "embeddings"},
        ]
    },
}
LLAMA_SERVER = {
    "/v1/models": {
        "object": "list",
        "data": [{"id": "small.gguf", "meta": {"size": 1000, "n_ctx_train": 32768}}],
    },
    "/props": {
        "default_generation_settings": {"n_ctx": 4096},
        "chat_template_caps": {"supports_tool_calls": True},
    },
}
VLLM = {"/v1/models": {"object": "list", "data": [{"id": "Qwen/Qwen3-4B", "max_model_len": 16384}]}}


class ModelServer:
    """A server; `answers` are JSON objects by path, followed by the model's name for a POST."""

    def __init__(self, answers: Mapping[str, Any], *, silent: bool = False, port: int = 0) -> None:
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        """Bodies of the chat requests."""
        handler = type(
            "Handler", (_Handler,), {"answers": answers, "record": self, "silent": silent}
        )
        self.closed = threading.Event()
        self._server = _Quiet(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def model_server(
    answers: Mapping[str, Any], *, silent: bool = False, port: int = 0
) -> Iterator[ModelServer]:
    server = ModelServer(answers, silent=silent, port=port)
    try:
        yield server
    finally:
        server.close()


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    answers: Mapping[str, Any]
    record: ModelServer
    silent: bool

    def log_message(self, *_args: object) -> None: ...

    def do_GET(self) -> None:
        self._answer(self.path)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path in ("/api/chat", "/v1/chat/completions"):
            self.record.bodies.append(body)
            (self._chat_ollama if self.path == "/api/chat" else self._chat)(body)
        else:
            self._answer(f"{self.path} {body.get('model')}")

    def _answer(self, path: str) -> None:
        self.record.asked.append(path)
        if self.silent:
            self.record.closed.wait()
        answer = self.answers.get(path)
        self._send(json.dumps(answer or {"error": "not found"}).encode(), 200 if answer else 404)

    def _send(self, text: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _chat_ollama(self, body: dict[str, Any]) -> None:
        name = body["model"]
        if self.answers is EMPTY_OLLAMA:
            error = {"error": f"model '{name}' not found"}
            self._send(json.dumps(error).encode(), 404)
            return
        first = {
            "model": name,
            "message": {"role": "assistant", "content": f"I am {name}."},
            "done": False,
        }
        last = {
            "model": name,
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 40,
            "eval_count": 6,
        }
        text = "".join(json.dumps(part) + "\n" for part in (first, last))
        self._send(text.encode(), kind="application/x-ndjson")

    def _chat(self, body: dict[str, Any]) -> None:
        def chunk(delta: dict[str, Any], **more: Any) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
            return json.dumps(
                {
                    "id": "1",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": body["model"],
                    "choices": [choice],
                }
            )

        usage = {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}
        end = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": body["model"],
            "choices": [],
            "usage": usage,
        }
        parts = (
            chunk({"role": "assistant", "content": f"I am {body['model']}."}),
            chunk({}, finish_reason="stop"),
            json.dumps(end),
            "[DONE]",
        )
        self._send(
            "".join(f"data: {part}\n\n" for part in parts).encode(), kind="text/event-stream"
        )

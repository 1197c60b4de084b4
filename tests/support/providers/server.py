"""The part that all emulators share: HTTP and server-sent events on loopback, scripts, signatures, prompt caches."""

import base64
import hashlib
import hmac
import json
import secrets
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self, TypeGuard

from providers.script import CHARACTERS_PER_TOKEN, Answer, Failure, Prompt, Reply, Script, limited

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """The limits of one model, in tokens, and how it reasons.

    `reasoning`: "none", "effort" (OpenAI), "budget", "adaptive" (Anthropic), "level" (Gemini 3).
    `cache_minimum`: the shortest prefix that is cached. `default_effort`: the effort of a request that names none.
    """

    context: int
    max_output: int
    reasoning: str = "none"
    efforts: tuple[str, ...] = ()
    cache_minimum: int = 1024
    default_effort: str = "medium"


class Rejected(Exception):
    """A request that breaks a rule of the provider."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "",
        param: str | None = None,
        code: str = "",
    ):
        super().__init__(message)
        self.message, self.status, self.kind, self.param, self.code = (
            message,
            status,
            kind,
            param,
            code,
        )


@dataclass(slots=True)
class PrefixCache:
    """Prompts that were seen, to find the longest prefix that a new one shares with any of them."""

    _prompts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def shared_tokens(self, key: str, prompt: str) -> int:
        """Tokens of the longest shared prefix; remembers the prompt."""
        prompts = self._prompts.setdefault(key, [])
        longest = max((_shared_length(prompt, other) for other in prompts), default=0)
        prompts.append(prompt)
        del prompts[:-50]
        return longest // CHARACTERS_PER_TOKEN


def _shared_length(prompt: str, other: str) -> int:
    low, high = 0, min(len(prompt), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if prompt[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Emulator(ABC):
    """One provider on loopback.

    `requests` holds every parsed body, `rejections` the messages of those that broke a rule. What the model answers
    is set with `script`: a function of the request, or answers in order. Use it as a context manager.
    """

    models: ClassVar[Mapping[str, Model]]
    key_header: ClassVar[str] = "authorization"

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        self.known_models = {**self.models, **(models or {})}
        self.requests: list[Body] = []
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.rejections: list[str] = []
        self.usages: list[Body] = []
        """The usage reported for each accepted request, in the provider's own words."""
        self.closed = threading.Event()
        self._accepted = 0
        self._script: Script = _no_script
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"emulator": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def base_url(self) -> str:
        """What a client is given as its base URL."""
        return self.address

    def script(self, answers: Script | Iterable[Answer]) -> None:
        """Set what the model answers from now on."""
        if callable(answers):
            self._script = answers
            return
        remaining = iter(tuple(answers))

        def next_answer(prompt: Prompt) -> Answer:
            answer = next(remaining, None)
            assert answer is not None, f"the script has no answer to request {prompt.number}"
            return answer

        self._script = next_answer

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- what each provider does in its own way

    @abstractmethod
    def read(self, path: str, body: Body) -> Prompt:
        """Check a request against the provider's rules, and read it. Raises Rejected."""

    def count(self, path: str, body: Body) -> Body | None:
        """The answer of the endpoint that counts a prompt; None for other paths. Raises Rejected."""
        return None

    @abstractmethod
    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        """The usage that is reported, prompt caching included."""

    @abstractmethod
    def message(self, prompt: Prompt, reply: Reply, usage: Body) -> Body:
        """The whole answer as it is without streaming."""

    @abstractmethod
    def events(self, prompt: Prompt, reply: Reply, message: Body) -> Iterator[Body]:
        """The same answer as a stream of events."""

    @abstractmethod
    def error(self, rejected: Rejected) -> Body:
        """The body of an error."""

    @abstractmethod
    def error_event(self) -> Body:
        """An error in the middle of a stream."""

    def failure(self, failure: Failure) -> Rejected:
        """A scripted failure in the provider's words."""
        kinds = {429: "rate_limit_error", 529: "overloaded_error"}
        return Rejected(
            failure.message
            or {429: "Rate limit reached", 529: "Overloaded"}.get(failure.status, "Internal error"),
            status=failure.status,
            kind=kinds.get(failure.status, "server_error"),
        )

    def is_streaming(self, path: str, body: Body) -> bool:
        return body.get("stream") is True

    def is_reasoning_event(self, event: Body) -> bool:
        """Whether an event carries a piece of reasoning."""
        return False

    def event_text(self, event: Body) -> str:
        return f"data: {json.dumps(event)}\n\n"

    def end_text(self) -> str:
        return ""

    # -- shared helpers

    def model(self, name: str) -> Model:
        model = self.known_models.get(name)
        if model is None:
            raise Rejected(
                self.unknown_model(name), status=404, kind="not_found_error", code="model_not_found"
            )
        return model

    def unknown_model(self, name: str) -> str:
        return f"The model `{name}` does not exist or you do not have access to it."

    def sign(self, *parts: str) -> str:
        """A signature of a text that only this emulator can make."""
        digest = hmac.new(self._secret, "\0".join(parts).encode(), hashlib.sha256).digest()
        return base64.b64encode(digest).decode()

    def is_signed(self, signature: object, *parts: str) -> bool:
        return isinstance(signature, str) and hmac.compare_digest(
            signature.encode(), self.sign(*parts).encode()
        )

    def identifier(self, prefix: str, *parts: object) -> str:
        """An ID in the provider's style, different for each request and part."""
        digest = hmac.new(self._secret, repr(parts).encode(), hashlib.sha256).hexdigest()
        return f"{prefix}{digest[:22]}"

    def respond(self, path: str, headers: Mapping[str, str], body: Body) -> "Response":
        """The response to one request."""
        with self._lock:
            self.requests.append(body)
            self.paths.append(path)
            self.headers.append(headers)
            try:
                if not headers.get(self.key_header):
                    raise Rejected(
                        "invalid x-api-key",
                        status=401,
                        kind="authentication_error",
                        code="invalid_api_key",
                    )
                if (count := self.count(path, body)) is not None:
                    return Response(200, count)
                prompt = self.read(path, body)
            except Rejected as rejected:
                self.rejections.append(rejected.message)
                return Response(rejected.status, self.error(rejected))
            self._accepted += 1
            answer = self._script(prompt)
            if isinstance(answer, Failure):
                extra = (
                    {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
                )
                return Response(answer.status, self.error(self.failure(answer)), extra)
            reply = limited(
                answer if prompt.is_reasoning else answer.without_reasoning(),
                prompt.max_output_tokens,
            )
            usage = self.usage(prompt, reply)
            self.usages.append(usage)
            message = self.message(prompt, reply, usage)
            if not self.is_streaming(path, body):
                return Response(200, message)
            return Response(200, {}, stream=self._stream(prompt, reply, message))

    @property
    def next_number(self) -> int:
        return self._accepted + 1

    def _stream(self, prompt: Prompt, reply: Reply, message: Body) -> Iterator[str]:
        for count, event in enumerate(self.events(prompt, reply, message)):
            if count == reply.cut_after:
                raise ConnectionError
            if count == reply.fail_after:
                yield self.event_text(self.error_event())
                return
            yield self.event_text(event)
            while reply.endless and self.is_reasoning_event(event) and not self.closed.is_set():
                yield self.event_text(event)
        yield self.end_text()


@dataclass(slots=True)
class Response:
    status: int
    body: Body
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    stream: Iterator[str] | None = None


def _no_script(prompt: Prompt) -> Answer:
    raise AssertionError(f"request {prompt.number} came before the script was set")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is expected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    emulator: ClassVar[Emulator]

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the name it has in the base class

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            response = self.emulator.respond(self.path, headers, body)
        except Exception as error:  # noqa: BLE001 - a script or an emulator that fails is told to the client
            response = Response(
                500, {"error": {"message": f"emulator: {error!r}", "type": "emulator_error"}}
            )
            self.emulator.rejections.append(f"emulator: {error!r}")
        if response.stream is None:
            self._send(response)
        else:
            self._send_stream(response.stream)

    def _send(self, response: Response) -> None:
        data = json.dumps(response.body).encode()
        self.send_response(response.status)
        for name, value in {"Content-Type": "application/json", **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_stream(self, stream: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for text in stream:
                data = text.encode()
                if data:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


def pieces(text: str, size: int = 20) -> Iterator[str]:
    """A text in pieces, as a stream sends it; at least one."""
    for start in range(0, max(len(text), 1), size):
        yield text[start : start + size]


def section(body: Mapping[str, Any], name: str) -> Body:
    """An object in a body; empty if it is missing."""
    value: Any = body.get(name)
    return value or {}


def entries(body: Mapping[str, Any], name: str) -> list[Body]:
    """A list of objects in a body; empty if it is missing."""
    value: Any = body.get(name)
    return value or []


def is_entries(value: object) -> TypeGuard[list[Body]]:
    return isinstance(value, list)


def is_body(value: object) -> TypeGuard[Body]:
    return isinstance(value, dict)


def canonical(value: object) -> str:
    """A value as text for token counts and caches."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def padded(tokens: int, digest_of: str) -> str:
    """A text with as many tokens as an image, to put in its place in a prompt."""
    digest = hashlib.sha256(digest_of.encode()).hexdigest()
    return (digest * (tokens * CHARACTERS_PER_TOKEN // len(digest) + 1))[
        : tokens * CHARACTERS_PER_TOKEN
    ]

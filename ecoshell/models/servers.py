"""Model servers on this machine (Ollama, LM Studio, llama.cpp and vLLM), detected on loopback.

Models have litellm's names, such as `ollama_chat/qwen3:4b`. The address comes from the program's own environment
variable or is its default. Only loopback addresses are contacted.
"""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlsplit

SECONDS = 0.2  # time limit for listing a server's models, which usually takes a thousandth of it
_MAX_ANSWER_BYTES = 4 << 20
_MAX_MODELS = 64
_MAX_NAME_CHARS = 300
_OLLAMA_CONTEXT = 4096  # tokens of Ollama's default context
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1", re.IGNORECASE)
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})  # all addresses; loopback is used

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Served:
    """A model of a server on this machine; unknown is None."""

    name: str  # litellm's name
    program: str
    base_url: str
    context: int | None = None
    native_tools: bool | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Program:
    """One kind of server: its names, addresses, and how it lists its models."""

    name: str
    providers: tuple[str, ...]  # litellm's provider names; models are listed under the first
    default_url: str
    variable: str
    start: str  # command that starts the server
    download: str  # command that downloads a model; empty if the server starts with one
    list_models: "Callable[[ServerQuery], Iterator[Served]]"

    def address(self, environ: Mapping[str, str]) -> str | None:
        """The base URL on loopback; None if the configured one is elsewhere or invalid."""
        configured = environ.get(self.variable, "").strip().rstrip("/")
        if not configured:
            return self.default_url
        try:
            parts = urlsplit(configured if "://" in configured else f"http://{configured}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return None
        if host not in _ANYWHERE and not _LOOPBACK.fullmatch(host):
            return None
        default_url = urlsplit(self.default_url)
        address = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
        place = f"{address}:{port or default_url.port}{parts.path or default_url.path}"
        return f"{parts.scheme}://{place}"


class Servers:
    """The local model servers."""

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, seconds: float = SECONDS
    ) -> None:
        self._seconds = seconds
        self._environ = os.environ if environ is None else environ
        self._known: dict[str, Served] = {}
        self._empty: tuple[_Program, ...] = ()
        self._asking = threading.Lock()

    def models(self) -> list[Served]:
        """All models of all running servers; servers are queried in parallel, for at most SECONDS."""
        models = self._ask(_PROGRAMS)
        return sorted(models, key=lambda model: (model.program, model.name))

    def empty(self) -> tuple[tuple[str, str], ...]:
        """The servers that listed no model when queried last: the program, and how to download a model."""
        return tuple(
            (program.name, f"{program.download} NAME downloads one" if program.download else "")
            for program in self._empty
        )

    def served(self, name: str, *, ask: bool = True) -> Served | None:
        """The model of a name with a server's prefix; the server is queried unless the model is known.

        None for other names, or if the server is not on loopback.
        """
        provider, slash, _ = name.partition("/")
        program = _program_of(provider)
        address = program.address(self._environ) if program and slash else None
        if program is None or address is None:
            return None
        listed = f"{program.providers[0]}/{name.partition('/')[2]}"
        if ask and listed not in self._known:
            self._ask([program])
        model = self._known.get(listed)
        if model is None or provider != program.providers[0]:
            return Served(name, program.name, address, model.context if model else None)
        return model

    def _ask(self, programs: "Sequence[_Program]") -> list[Served]:
        import_module("http.client")  # before the clock starts
        with self._asking:
            deadline = time.monotonic() + self._seconds
            queries = [
                ServerQuery(program, address, deadline)
                for program in programs
                if (address := program.address(self._environ))
            ]
            threads = [threading.Thread(target=query.run, daemon=True) for query in queries]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            models = [model for query in queries for model in query.models[:_MAX_MODELS]]
            self._empty = tuple(
                query.program for query in queries if query.answered and not query.models
            )
            self._known.update((model.name, model) for model in models)
            return models


@dataclass(eq=False)
class ServerQuery:
    """A query for a server's models; models not listed by the deadline stay unknown."""

    program: _Program
    base_url: str
    deadline: float
    models: list[Served] = field(default_factory=list[Served])
    answered: bool = False  # whether the server listed its models to the end

    def run(self) -> None:
        """Query the server; never raises."""
        from http.client import HTTPException

        with suppress(OSError, ValueError, HTTPException, RecursionError):
            for model in self.program.list_models(self):
                self.models.append(model)
            self.answered = True

    def model(
        self,
        name: Any,
        *,
        context: int | None = None,
        native_tools: bool | None = None,
        size: int | None = None,
    ) -> Iterator[Served]:
        """The model of a name on this server, if the name is valid."""
        is_text = isinstance(name, str) and name.strip() == name and name.isprintable()
        if is_text and 0 < len(name) <= _MAX_NAME_CHARS:
            full_name, program = f"{self.program.providers[0]}/{name}", self.program.name
            yield Served(full_name, program, self.base_url, context, native_tools, size)

    def get(self, path: str, body: Answer | None = None, *, needed: bool = False) -> Answer:
        """The JSON object at a path of the server (not of its base URL); empty on errors.

        If it is needed, errors are raised: OSError, ValueError or HTTPException.
        """
        from http import client  # imports `email`, slowly

        parts = urlsplit(self.base_url)
        seconds = self.deadline - time.monotonic()
        kind = client.HTTPSConnection if parts.scheme == "https" else client.HTTPConnection
        line = kind(parts.hostname or "", parts.port, timeout=max(seconds, 0.001))
        try:
            sent = None if body is None else json.dumps(body)
            method = "GET" if body is None else "POST"
            line.request(method, path, sent, {"Content-Type": "application/json"})
            response = line.getresponse()
            answer = json.loads(response.read(_MAX_ANSWER_BYTES))
            if response.status != client.OK or not isinstance(answer, dict):
                raise ValueError(f"status {response.status}, or no JSON object")
            return cast("Answer", answer)
        except (OSError, ValueError, client.HTTPException):
            if needed:
                raise
            return {}
        finally:
            line.close()


def _ollama(ask: ServerQuery) -> Iterator[Served]:
    """Ollama's own API; the context is that of the loaded model, of its file, or else the default.

    Ollama silently truncates longer prompts, so no more is assumed.
    """
    listed = _objects(ask.get("/api/tags", needed=True).get("models"))
    loaded = _objects(ask.get("/api/ps").get("models"))
    running = {str(model.get("name")): model for model in loaded}
    for model in listed:
        name = model["name"] if isinstance(model.get("name"), str) else ""
        details = ask.get("/api/show", {"model": name})
        capabilities = details.get("capabilities")
        abilities = cast("list[Any]", capabilities) if isinstance(capabilities, list) else None
        if abilities and "completion" not in abilities:
            continue  # made for embeddings
        settings = str(details.get("parameters", ""))
        set_in_file = re.search(r"^num_ctx\s+(\d+)\s*$", settings, re.MULTILINE)
        context = _count(running.get(name, {}).get("context_length"))
        context = context or (int(set_in_file[1]) if set_in_file else _OLLAMA_CONTEXT)
        tools, size = None if abilities is None else "tools" in abilities, _count(model.get("size"))
        yield from ask.model(name, context=context, native_tools=tools, size=size)


def _lm_studio(ask: ServerQuery) -> Iterator[Served]:
    """LM Studio's own API gives each model's type and context; older versions lack it."""
    listed = _objects(ask.get("/api/v0/models").get("data"))
    for model in listed or _objects(ask.get("/v1/models", needed=True).get("data")):
        name, kind, abilities = model.get("id"), model.get("type", "llm"), model.get("capabilities")
        if kind in ("llm", "vlm"):
            tools = "tool_use" in abilities if isinstance(abilities, list) else None
            context = _count(model.get("loaded_context_length"))
            yield from ask.model(name, context=context, native_tools=tools)


def _llama_cpp(ask: ServerQuery) -> Iterator[Served]:
    """llama-server, whose properties say whether the model's template supports tools."""
    listed = _objects(ask.get("/v1/models", needed=True).get("data"))
    properties = ask.get("/props")
    context = _count(_object(properties.get("default_generation_settings")).get("n_ctx"))
    capabilities = _object(properties.get("chat_template_caps"))
    tools = True if capabilities.get("supports_tool_calls") is True else None
    for model in listed:
        size = _count(_object(model.get("meta")).get("size"))
        yield from ask.model(model.get("id"), context=context, native_tools=tools, size=size)


def _vllm(ask: ServerQuery) -> Iterator[Served]:
    """vLLM, or another server with OpenAI's protocol at its address; tools work only if it was started for them."""
    for model in _objects(ask.get("/v1/models", needed=True).get("data")):
        yield from ask.model(model.get("id"), context=_count(model.get("max_model_len")))


_PROGRAMS = (
    _Program(
        "Ollama",
        ("ollama_chat", "ollama"),
        "http://127.0.0.1:11434",
        "OLLAMA_HOST",
        "ollama serve",
        "ollama pull",
        _ollama,
    ),
    _Program(
        "LM Studio",
        ("lm_studio",),
        "http://127.0.0.1:1234/v1",
        "LM_STUDIO_API_BASE",
        "lms server start",
        "lms get",
        _lm_studio,
    ),
    _Program(
        "llama.cpp",
        ("llamafile",),
        "http://127.0.0.1:8080/v1",
        "LLAMAFILE_API_BASE",
        "llama-server -m FILE",
        "",
        _llama_cpp,
    ),
    _Program(
        "vLLM",
        ("hosted_vllm",),
        "http://127.0.0.1:8000/v1",
        "HOSTED_VLLM_API_BASE",
        "vllm serve MODEL",
        "",
        _vllm,
    ),
)
PROVIDERS = frozenset(provider for program in _PROGRAMS for provider in program.providers)
"""litellm's names of local model servers."""


def _program_of(provider: str) -> _Program | None:
    return next((program for program in _PROGRAMS if provider in program.providers), None)


def program_of(provider: str) -> tuple[str, str]:
    """The name of a provider's local server and the command that starts it; empty for other providers."""
    program = _program_of(provider)
    return (program.name, program.start) if program else ("", "")


def download_command(provider: str, model: str) -> str:
    """The command with which a provider's local server downloads a model; empty for other providers."""
    program = _program_of(provider)
    return f"{program.download} {model}" if program and program.download else ""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is loopback."""
    return _LOOPBACK.fullmatch(host) is not None


def _object(value: Any) -> Answer:
    return cast("Answer", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Answer]:
    """The objects in a list; none for other values."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [_object(item) for item in items[:_MAX_MODELS] if isinstance(item, dict)]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

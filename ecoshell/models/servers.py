"""Model servers that run on this machine: Ollama, LM Studio, llama.cpp and vLLM, found by asking on loopback.

A server's models are called by litellm's names, such as `ollama_chat/qwen3:4b`; the address comes from the program's
own environment variable, or is its usual one. Nothing beyond loopback is asked.
"""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlsplit

SECONDS = 0.2
"""What a server may take to tell all of its models; on loopback a thousandth of it is usual."""
_LARGEST_ANSWER = 4 << 20
_MOST_MODELS = 64
_LONGEST_NAME = 300
_OLLAMA_CONTEXT = 4096
"""Tokens with which Ollama loads a model that nobody said more of."""
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1", re.IGNORECASE)
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})
"""What a server is told so that it listens on every address; it is asked on loopback."""

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Served:
    """A model that a server on this machine has; unknown is None."""

    name: str
    """As litellm takes it."""
    program: str
    base_url: str
    context: int | None = None
    native_tools: bool | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Program:
    """One kind of server: what it is called, here and by litellm, where it listens, and how it tells its models."""

    name: str
    providers: tuple[str, ...]
    """litellm's names for it; models are listed under the first."""
    usual: str
    variable: str
    start: str
    """The command that starts it."""
    tell: "Callable[[Asking], Iterator[Served]]"

    def address(self, environ: Mapping[str, str]) -> str | None:
        """The base URL on loopback; None where the person's own is elsewhere, or cannot be read."""
        told = environ.get(self.variable, "").strip().rstrip("/")
        if not told:
            return self.usual
        try:
            parts = urlsplit(told if "://" in told else f"http://{told}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return None
        if host not in _ANYWHERE and not _LOOPBACK.fullmatch(host):
            return None
        usual = urlsplit(self.usual)
        shown = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
        return f"{parts.scheme}://{shown}:{port or usual.port}{parts.path or usual.path}"


class Servers:
    """The servers of this machine; one that is switched off is not asked again by the same object."""

    def __init__(self, environ: Mapping[str, str] | None = None, *, seconds: float | None = None) -> None:
        self._seconds = SECONDS if seconds is None else seconds
        self._environ = os.environ if environ is None else environ
        self._off: set[str] = set()
        self._known: dict[str, Served] = {}
        self._asking = threading.Lock()

    def models(self) -> list[Served]:
        """Every model of every server that answers now; all are asked at once, so this takes SECONDS at most."""
        found = self._ask(_PROGRAMS)
        return sorted(found, key=lambda model: (model.program, model.name))

    def served(self, name: str, *, ask: bool = True) -> Served | None:
        """What stands behind a name that begins with a server's; its server is asked unless it is known already.

        None where the name is no server's, or the server is not on loopback.
        """
        provider, slash, _ = name.partition("/")
        program = next((one for one in _PROGRAMS if provider in one.providers), None)
        address = program.address(self._environ) if program and slash else None
        if program is None or address is None:
            return None
        listed = f"{program.providers[0]}/{name.partition('/')[2]}"
        if ask and listed not in self._known:
            self._ask([program])
        known = self._known.get(listed)
        if known is None or provider != program.providers[0]:
            return Served(name, program.name, address, known.context if known else None)
        return known

    def _ask(self, programs: "Sequence[_Program]") -> list[Served]:
        import_module("http.client")  # before the clock starts
        with self._asking:
            asked = {
                program.name: Asking(program, address, time.monotonic() + self._seconds)
                for program in programs
                if program.name not in self._off and (address := program.address(self._environ))
            }
            threads = [threading.Thread(target=asking.run, daemon=True) for asking in asked.values()]
            for thread in threads:
                thread.start()
            for asking, thread in zip(asked.values(), threads, strict=True):
                thread.join(max(0.0, asking.deadline - time.monotonic()))
            found: list[Served] = []
            for name, asking in asked.items():
                if asking.off:
                    self._off.add(name)
                found += asking.found[:_MOST_MODELS]
            self._known.update((model.name, model) for model in found)
            return found


@dataclass(eq=False)
class Asking:
    """One server being asked what it has; what it has not told by the deadline stays unknown."""

    _program: _Program
    base_url: str
    deadline: float
    found: list[Served] = field(default_factory=list[Served])
    off: bool = False
    """Whether nobody listens there, or somebody else; one that is slow may be asked again."""

    def run(self) -> None:
        """Ask; never raises."""
        from http.client import HTTPException

        try:
            for model in self._program.tell(self):
                self.found.append(model)
        except TimeoutError:
            pass
        except (OSError, ValueError, HTTPException, RecursionError):
            self.off = not self.found

    def model(
        self, name: Any, *, context: int | None = None, native_tools: bool | None = None, size: int | None = None
    ) -> Iterator[Served]:
        """A model of this server, by the name it has there; none where that is no name."""
        if isinstance(name, str) and name.strip() == name and name.isprintable() and 0 < len(name) <= _LONGEST_NAME:
            provider = self._program.providers[0]
            yield Served(f"{provider}/{name}", self._program.name, self.base_url, context, native_tools, size)

    def get(self, path: str, body: Answer | None = None, *, needed: bool = False) -> Answer:
        """The JSON object at a path of the server, not of its base URL; empty where it does not tell.

        Where the answer is needed it raises OSError, ValueError or HTTPException in that case.
        """
        from http.client import OK, HTTPConnection, HTTPException, HTTPSConnection  # brings `email`: no start waits

        parts = urlsplit(self.base_url)
        left = self.deadline - time.monotonic()
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        line = kind(parts.hostname or "", parts.port, timeout=max(left, 0.001))
        try:
            sent = None if body is None else json.dumps(body)
            line.request("GET" if body is None else "POST", path, sent, {"Content-Type": "application/json"})
            response = line.getresponse()
            answer = json.loads(response.read(_LARGEST_ANSWER))
            if response.status != OK or not isinstance(answer, dict):
                raise ValueError(f"status {response.status}, or no JSON object")
            return cast("Answer", answer)
        except (OSError, ValueError, HTTPException):
            if needed:
                raise
            return {}
        finally:
            line.close()


def _ollama(ask: Asking) -> Iterator[Served]:
    """Ollama's own API; the context is the one a loaded model runs with, that its file sets, or else the usual one.

    Ollama cuts longer prompts without a word, so more than that is not assumed.
    """
    listed = _objects(ask.get("/api/tags", needed=True).get("models"))
    running = {str(one.get("name")): one for one in _objects(ask.get("/api/ps").get("models"))}
    for one in listed:
        name = one["name"] if isinstance(one.get("name"), str) else ""
        shown = ask.get("/api/show", {"model": name})
        can = shown.get("capabilities")
        abilities = cast("list[Any]", can) if isinstance(can, list) else None
        if abilities and "completion" not in abilities:
            continue  # made for embeddings
        set_in_file = re.search(r"^num_ctx\s+(\d+)\s*$", str(shown.get("parameters", "")), re.MULTILINE)
        context = _count(running.get(name, {}).get("context_length")) or (int(set_in_file[1]) if set_in_file else 0)
        yield from ask.model(
            name,
            context=context or _OLLAMA_CONTEXT,
            native_tools=None if abilities is None else "tools" in abilities,
            size=_count(one.get("size")),
        )


def _lm_studio(ask: Asking) -> Iterator[Served]:
    """LM Studio's own API tells what kind each model is, and with which context it is loaded; older ones do not."""
    own = _objects(ask.get("/api/v0/models").get("data"))
    for one in own or _objects(ask.get("/v1/models", needed=True).get("data")):
        name, kind, abilities = one.get("id"), one.get("type", "llm"), one.get("capabilities")
        if kind in ("llm", "vlm"):
            tools = "tool_use" in abilities if isinstance(abilities, list) else None
            yield from ask.model(name, context=_count(one.get("loaded_context_length")), native_tools=tools)


def _llama_cpp(ask: Asking) -> Iterator[Served]:
    """llama-server; whether it takes tools depends on the model's template, and it says so in its properties."""
    listed = _objects(ask.get("/v1/models", needed=True).get("data"))
    properties = ask.get("/props")
    running = properties.get("default_generation_settings")
    context = _count(cast("Answer", running).get("n_ctx")) if isinstance(running, dict) else None
    can = properties.get("chat_template_caps")
    tools = cast("Answer", can).get("supports_tool_calls") if isinstance(can, dict) else None
    for one in listed:
        facts = one.get("meta")
        size = _count(cast("Answer", facts).get("size")) if isinstance(facts, dict) else None
        yield from ask.model(one.get("id"), context=context, native_tools=True if tools is True else None, size=size)


def _vllm(ask: Asking) -> Iterator[Served]:
    """vLLM, or whatever else speaks OpenAI's protocol at its address; tools work only where it was started for them."""
    for one in _objects(ask.get("/v1/models", needed=True).get("data")):
        yield from ask.model(one.get("id"), context=_count(one.get("max_model_len")))


_PROGRAMS = (
    _Program("Ollama", ("ollama_chat", "ollama"), "http://127.0.0.1:11434", "OLLAMA_HOST", "ollama serve", _ollama),
    _Program(
        "LM Studio", ("lm_studio",), "http://127.0.0.1:1234/v1", "LM_STUDIO_API_BASE", "lms server start", _lm_studio
    ),
    _Program(
        "llama.cpp",
        ("llamafile",),
        "http://127.0.0.1:8080/v1",
        "LLAMAFILE_API_BASE",
        "llama-server -m FILE",
        _llama_cpp,
    ),
    _Program("vLLM", ("hosted_vllm",), "http://127.0.0.1:8000/v1", "HOSTED_VLLM_API_BASE", "vllm serve MODEL", _vllm),
)
PROVIDERS = frozenset(provider for program in _PROGRAMS for provider in program.providers)
"""litellm's names of what runs on a machine of the user's own."""


def program_of(provider: str) -> tuple[str, str]:
    """The server behind a provider's name and the command that starts it; both empty where it is none of these."""
    found = next((program for program in _PROGRAMS if provider in program.providers), None)
    return (found.name, found.start) if found else ("", "")


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine."""
    return _LOOPBACK.fullmatch(host) is not None


def _objects(value: Any) -> list[Answer]:
    """The objects of a list; none where it is no list."""
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Answer", one) for one in found[:_MOST_MODELS] if isinstance(one, dict)]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

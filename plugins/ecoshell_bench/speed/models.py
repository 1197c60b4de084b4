"""Local models: how quickly one writes beside llama.cpp itself and what it reads again; three roles on one of them."""

import asyncio
import ctypes
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ecoshell.messages import Call, Message, ToolDocument
from ecoshell.models import Delta, Reply, Request
from ecoshell.models.embedded import PACKAGE, embedded_path
from ecoshell_bench.speed.measuring import Measurement, compared, resident_mb, told

if TYPE_CHECKING:
    from ecoshell.models.local import LocalModel

STEPS = 10
"""Calls in the turn whose prompts grow."""
WRITTEN = 64
"""Tokens written for each figure of `decode`."""
CONTEXT = 4096
_TOOLS = tuple(
    ToolDocument(
        name,
        f"{name.replace('_', ' ').capitalize()} of the workspace.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    )
    for name in ("read_file", "list_files", "search_text", "count_text")
)
_COUNT = (
    Message("system", "You help in a folder of files."),
    Message("user", "Count from one to two hundred in words, separated by commas. Use no tool."),
)
_RESULT = "\n".join(f"line {number}: milk, bread and {number} eggs" for number in range(6))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one ask took: seconds to the first token, tokens a second after it, and tokens of the prompt."""

    first: float
    rate: float
    prompt: int
    evaluated: int


async def measure_local(path: Path, repeat: int) -> list[Measurement]:
    """Tokens a second, tokens, and milliseconds of a GGUF file, which is loaded a second time to be llama.cpp's own."""
    from ecoshell.models.engine import EngineOptions
    from ecoshell.models.local import LocalModel

    model, raw = LocalModel(path, options=EngineOptions(context=CONTEXT)), _Raw(path)
    try:
        await _ask(model, _COUNT, WRITTEN)
        raw.rate(_COUNT)
        pairs = [((await _ask(model, _COUNT, WRITTEN)).rate, raw.rate(_COUNT)) for _ in range(repeat)]
        prompts = list(_turn())
        asked = [await _ask(model, prompt, 4) for prompt in prompts]
        answered = (Message("assistant", "There are eggs in each."), Message("user", "And in the last one?"))
        second = await _ask(model, (*prompts[-1], *answered), 4)
    finally:
        await model.aclose()
        raw.close()
    evaluated, new = sum(one.evaluated for one in asked), asked[-1].prompt
    return [
        compared("local_decode", [pair[0] for pair in pairs], [pair[1] for pair in pairs], "tokens/s"),
        Measurement("local_evaluated", evaluated, "tokens", new, evaluated / new),
        Measurement(
            "local_second_turn", second.first * 1000, "ms", asked[0].first * 1000, second.first / asked[0].first
        ),
    ]


def _turn() -> Iterator[tuple[Message, ...]]:
    """The prompts of a turn, each with one more call and its result; nothing of it is like what was asked before."""
    said = (Message("system", "You read files and say what is in them."), Message("user", "What is in the ten files?"))
    yield said
    for step in range(STEPS):
        call = Call("read_file", {"path": f"list-{step}.txt"})
        result = Message("tool", f"List {step}\n{_RESULT}", (call,))
        said += (Message("assistant", f"I read list {step}.", (call,)), result)
        yield said


async def _ask(model: "LocalModel", messages: Sequence[Message], tokens: int) -> _Asked:
    request = Request(tuple(messages), _TOOLS, _TOOLS, max_tokens=tokens)
    began = time.perf_counter()
    heard: list[tuple[float, int]] = []
    reply: Reply | None = None
    async for piece in model.stream(request):
        if isinstance(piece, Delta) and piece.usage is not None and piece.usage.output:
            heard.append((time.perf_counter() - began, piece.usage.output))
        elif isinstance(piece, Reply):
            reply = piece
    usage = reply.usage if reply else None
    if usage is None or not heard:  # a model that says nothing at all took this long to do so
        return _Asked(time.perf_counter() - began, 0.0, model.size(request).count, usage.input if usage else 0)
    (first, one), (last, other) = heard[0], heard[-1]
    rate = (other - one) / (last - first) if last > first else 0.0
    return _Asked(first, rate, usage.input, usage.input - usage.cached)


class _Raw:
    """llama.cpp as its own functions have it: the same file, prompt, threads and context, and the likeliest token."""

    def __init__(self, path: Path) -> None:
        from ecoshell.models.chat_template import ChatTemplate
        from ecoshell.models.engine import default_threads
        from ecoshell.models.llama import Vocabulary, llama_library, load_model

        self._library: Any = llama_library()
        self._vocabulary = Vocabulary(path)
        self._template = ChatTemplate(self._vocabulary)
        self._model: Any = load_model(path, gpu_layers=999 if self._library.llama_supports_gpu_offload() else 0)
        params = self._library.llama_context_default_params()
        params.n_ctx, params.no_perf = CONTEXT, True
        params.n_threads = params.n_threads_batch = default_threads()
        self._context: Any = self._library.llama_init_from_model(self._model, params)
        self._sampler: Any = self._library.llama_sampler_init_greedy()

    def rate(self, messages: Sequence[Message]) -> float:
        """Tokens a second after the first."""
        from ecoshell.models.formats import GENERIC
        from ecoshell.models.protocol import as_plain_messages

        known = self._template.form is not GENERIC
        said = messages if known else as_plain_messages(Request(tuple(messages), _TOOLS))
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)
        self._decode(self._template.tokens(said, _TOOLS if known else ()))
        began, written = time.perf_counter(), 0
        token = self._library.llama_sampler_sample(self._sampler, self._context, -1)
        while written < WRITTEN - 1 and not self._vocabulary.ends(token):
            self._decode([token])
            token = self._library.llama_sampler_sample(self._sampler, self._context, -1)
            written += 1
        return written / (time.perf_counter() - began)

    def close(self) -> None:
        """Free the second copy."""
        self._library.llama_sampler_free(self._sampler)
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)
        self._vocabulary.close()

    def _decode(self, tokens: Sequence[int]) -> None:
        entries = (ctypes.c_int32 * len(tokens))(*tokens)
        self._library.llama_decode(self._context, self._library.llama_batch_get_one(entries, len(tokens)))


# Roles of one model

ROLES = ("planner", "caller", "summarizer")
PROMPT_WORDS = 1_400
"""Of each role, two tokens each: three such prompts do not fit the context together."""
_HELD = "from ecoshell_bench.speed.models import tell_memory; tell_memory({roles!r}, {words})"
"""A process in which these roles ask, and which then says how much memory it holds."""


def measure_roles(repeat: int, adapter: Path | None = None, words: int = PROMPT_WORDS) -> Iterator[Measurement]:
    """Megabytes, from /proc, and milliseconds where there is an adapter; nothing without the embedded model."""
    if find_spec("llama_cpp") is None or find_spec(PACKAGE) is None:
        return
    if Path("/proc/self/statm").exists():
        yield measure_roles_memory(words)
    if adapter is not None:
        yield asyncio.run(measure_switch(adapter, repeat))


def measure_roles_memory(words: int = PROMPT_WORDS) -> Measurement:
    """Megabytes of a process after three roles asked, each with a long prompt of its own; the baseline is one role."""
    three, one = (
        told((sys.executable, "-c", _HELD.format(roles=roles, words=words)), os.environ, "megabytes")()
        for roles in (ROLES, ROLES[:1])
    )
    return compared("three_roles_rss", [three], [one], "MB")


async def measure_switch(adapter: Path, repeat: int) -> Measurement:
    """Milliseconds by which a role's first token is later for having another adapter than the role before it."""
    from ecoshell.models.local import LocalModel

    models = [LocalModel(embedded_path()), LocalModel(embedded_path(), adapter=adapter)]
    request = _request(ROLES[0], 20)
    try:
        for model in models:
            await _seconds(model, request)
        later = [  # of two same requests, adapters are switched before the first
            await _seconds(model, request) - await _seconds(model, request) for _ in range(repeat) for model in models
        ]
    finally:
        for model in models:
            await model.aclose()
    return Measurement("adapter_switch", median(later) * 1000, "ms")


def tell_memory(roles: tuple[str, ...], words: int) -> None:
    """Ask the embedded model as each role, and print the memory of this process before it is let go."""
    from ecoshell.models.local import LocalModel

    async def asked_in_turn() -> None:
        model = LocalModel(embedded_path())
        try:
            for role in roles:
                await _seconds(model, _request(role, words))
            sys.stdout.write(json.dumps({"megabytes": resident_mb(os.getpid())}))
        finally:
            await model.aclose()

    asyncio.run(asked_in_turn())


def _request(role: str, words: int) -> Request:
    text = " ".join(str((place + len(role)) % 10) for place in range(words))
    return Request((Message("user", f"{role}: {text}"),), want="text", max_tokens=1, role=role)


async def _seconds(model: "LocalModel", request: Request) -> float:
    began = time.perf_counter()
    async for _ in model.stream(request):
        pass
    return time.perf_counter() - began

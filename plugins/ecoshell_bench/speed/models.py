"""Measure local models: speed compared with llama.cpp, prompt tokens read again, and three roles on one model."""

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

from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Delta, Reply, Request
from ecoshell.models.embedded import PACKAGE, embedded_path
from ecoshell_bench.speed.measuring import Measurement, compared, reported, resident_mb

if TYPE_CHECKING:
    from ecoshell.models.local import LocalModel

STEPS = 10
"""Tool calls in the measured turn."""
OUTPUT_TOKENS = 64
"""Tokens generated per measurement of the decoding speed."""
CONTEXT = 4096
_TOOLS = tuple(
    ToolSchema(
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
class _Timing:
    """Seconds to the first token, tokens per second after it, and total and evaluated tokens of the prompt."""

    first: float
    rate: float
    prompt: int
    evaluated: int


async def measure_local(path: Path, repeat: int) -> list[Measurement]:
    """Measure a GGUF file; it is loaded twice, the second time by llama.cpp's own functions."""
    from ecoshell.models.engine import EngineOptions
    from ecoshell.models.local import LocalModel

    model, raw = LocalModel(path, options=EngineOptions(context=CONTEXT)), _Raw(path)
    try:
        await _ask(model, _COUNT, OUTPUT_TOKENS)
        raw.rate(_COUNT)
        pairs = [
            ((await _ask(model, _COUNT, OUTPUT_TOKENS)).rate, raw.rate(_COUNT))
            for _ in range(repeat)
        ]
        prompts = list(_turn())
        timings = [await _ask(model, prompt, 4) for prompt in prompts]
        follow_up = (
            Message("assistant", "There are eggs in each."),
            Message("user", "And in the last one?"),
        )
        second = await _ask(model, (*prompts[-1], *follow_up), 4)
    finally:
        await model.aclose()
        raw.close()
    evaluated, total, first = (
        sum(timing.evaluated for timing in timings),
        timings[-1].prompt,
        timings[0].first,
    )
    return [
        compared(
            "local_decode", [pair[0] for pair in pairs], [pair[1] for pair in pairs], "tokens/s"
        ),
        Measurement("local_evaluated", evaluated, "tokens", total, evaluated / total),
        Measurement(
            "local_second_turn", second.first * 1000, "ms", first * 1000, second.first / first
        ),
    ]


def _turn() -> Iterator[tuple[Message, ...]]:
    """Yield the prompts of a turn, each with one more call and its result."""
    messages = (
        Message("system", "You read files and say what is in them."),
        Message("user", "What is in the ten files?"),
    )
    yield messages
    for step in range(STEPS):
        call = Call("read_file", {"path": f"list-{step}.txt"})
        result = Message("tool", f"List {step}\n{_RESULT}", (call,))
        messages += (Message("assistant", f"I read list {step}.", (call,)), result)
        yield messages


async def _ask(model: "LocalModel", messages: Sequence[Message], tokens: int) -> _Timing:
    request = Request(tuple(messages), _TOOLS, _TOOLS, max_tokens=tokens)
    started = time.perf_counter()
    progress: list[tuple[float, int]] = []
    reply: Reply | None = None
    async for piece in model.stream(request):
        if isinstance(piece, Delta) and piece.usage is not None and piece.usage.output:
            progress.append((time.perf_counter() - started, piece.usage.output))
        elif isinstance(piece, Reply):
            reply = piece
    usage = reply.usage if reply else None
    if usage is None or not progress:  # the model generated no text
        return _Timing(
            time.perf_counter() - started,
            0.0,
            model.size(request).count,
            usage.input if usage else 0,
        )
    (first, first_tokens), (last, last_tokens) = progress[0], progress[-1]
    rate = (last_tokens - first_tokens) / (last - first) if last > first else 0.0
    return _Timing(first, rate, usage.input, usage.input - usage.cached)


class _Raw:
    """llama.cpp without ecoshell's model class: the same file, prompt, threads and context, greedy sampling."""

    def __init__(self, path: Path) -> None:
        from ecoshell.models.chat_template import ChatTemplate
        from ecoshell.models.engine import default_threads
        from ecoshell.models.llama import Vocabulary, llama_library, load_model

        self._library: Any = llama_library()
        self._vocabulary = Vocabulary(path)
        self._template = ChatTemplate(self._vocabulary)
        self._model: Any = load_model(
            path, gpu_layers=999 if self._library.llama_supports_gpu_offload() else 0
        )
        params = self._library.llama_context_default_params()
        params.n_ctx, params.no_perf = CONTEXT, True
        params.n_threads = params.n_threads_batch = default_threads()
        self._context: Any = self._library.llama_init_from_model(self._model, params)
        self._sampler: Any = self._library.llama_sampler_init_greedy()

    def rate(self, messages: Sequence[Message]) -> float:
        """Return tokens per second after the first token."""
        from ecoshell.models.formats import GENERIC
        from ecoshell.models.protocol import as_plain_messages

        native = self._template.form is not GENERIC
        prompt = messages if native else as_plain_messages(Request(tuple(messages), _TOOLS))
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)
        self._decode(self._template.tokens(prompt, _TOOLS if native else ()))
        started, count = time.perf_counter(), 0
        token = self._library.llama_sampler_sample(self._sampler, self._context, -1)
        while count < OUTPUT_TOKENS - 1 and not self._vocabulary.ends(token):
            self._decode([token])
            token = self._library.llama_sampler_sample(self._sampler, self._context, -1)
            count += 1
        return count / (time.perf_counter() - started)

    def close(self) -> None:
        """Free the second copy."""
        self._library.llama_sampler_free(self._sampler)
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)
        self._vocabulary.close()

    def _decode(self, tokens: Sequence[int]) -> None:
        entries = (ctypes.c_int32 * len(tokens))(*tokens)
        self._library.llama_decode(
            self._context, self._library.llama_batch_get_one(entries, len(tokens))
        )


# Roles of one model

ROLES = ("planner", "caller", "summarizer")
PROMPT_WORDS = 1_400
"""The length of each role's prompt at two tokens per word; three such prompts exceed the context together."""
_MEMORY_PROGRAM = (
    "from ecoshell_bench.speed.models import print_memory; print_memory({roles!r}, {words})"
)


def measure_roles(
    repeat: int, adapter: Path | None = None, words: int = PROMPT_WORDS
) -> Iterator[Measurement]:
    """Measure memory from /proc, and switching with an adapter; yields nothing without the embedded model."""
    if find_spec("llama_cpp") is None or find_spec(PACKAGE) is None:
        return
    if Path("/proc/self/statm").exists():
        yield measure_roles_memory(words)
    if adapter is not None:
        yield asyncio.run(measure_switch(adapter, repeat))


def measure_roles_memory(words: int = PROMPT_WORDS) -> Measurement:
    """Measure the megabytes of a process after three roles used different long prompts; the baseline is one role."""
    three_roles, single_role = (
        reported(
            (sys.executable, "-c", _MEMORY_PROGRAM.format(roles=roles, words=words)),
            os.environ,
            "megabytes",
        )()
        for roles in (ROLES, ROLES[:1])
    )
    return compared("three_roles_rss", [three_roles], [single_role], "MB")


async def measure_switch(adapter: Path, repeat: int) -> Measurement:
    """Measure the milliseconds that switching the adapter adds to the first token."""
    from ecoshell.models.local import LocalModel

    models = [LocalModel(embedded_path()), LocalModel(embedded_path(), adapter=adapter)]
    request = _request(ROLES[0], 20)
    try:
        for model in models:
            await _seconds(model, request)
        delays = [  # only the first of two equal requests switches the adapter
            await _seconds(model, request) - await _seconds(model, request)
            for _ in range(repeat)
            for model in models
        ]
    finally:
        for model in models:
            await model.aclose()
    return Measurement("adapter_switch", median(delays) * 1000, "ms")


def print_memory(roles: tuple[str, ...], words: int) -> None:
    """Send a request for each role to the embedded model, and print the memory of this process."""
    from ecoshell.models.local import LocalModel

    async def ask_all_roles() -> None:
        model = LocalModel(embedded_path())
        try:
            for role in roles:
                await _seconds(model, _request(role, words))
            sys.stdout.write(json.dumps({"megabytes": resident_mb(os.getpid())}))
        finally:
            await model.aclose()

    asyncio.run(ask_all_roles())


def _request(role: str, words: int) -> Request:
    text = " ".join(str((place + len(role)) % 10) for place in range(words))
    return Request((Message("user", f"{role}: {text}"),), want="text", max_tokens=1, role=role)


async def _seconds(model: "LocalModel", request: Request) -> float:
    started = time.perf_counter()
    async for _ in model.stream(request):
        pass
    return time.perf_counter() - started

"""One local model: how quickly it writes beside llama.cpp itself, and how much of each prompt it reads again."""

import asyncio
import ctypes
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.evaluation.measurement import Measurement
from ecoshell.evaluation.speed.timing import compared
from ecoshell.messages import Call, Message, ToolDocument
from ecoshell.models.base import Delta, Reply, Request

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


def measure_local(path: Path, repeat: int) -> Iterator[Measurement]:
    """Tokens a second, tokens, and milliseconds of a GGUF file, which is loaded a second time to be llama.cpp's own."""
    yield from asyncio.run(_measured(path, repeat))


async def _measured(path: Path, repeat: int) -> list[Measurement]:
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
        said += (Message("assistant", f"I read list {step}.", call), Message("tool", f"List {step}\n{_RESULT}", call))
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
        from ecoshell.models.protocol import as_plain_messages

        known = self._template.form.known
        told = messages if known else as_plain_messages(Request(tuple(messages), _TOOLS))
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)
        self._decode(self._template.tokens(told, _TOOLS if known else ()))
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

"""One loaded llama.cpp model, used from one thread by all of its roles."""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Literal

from ecoshell.errors import ModelBroken
from ecoshell.messages import Usage
from ecoshell.models.choosing import Chooser
from ecoshell.models.kv_cache import SLOTS, CacheOwner, CacheSlot, KVCache
from ecoshell.models.llama import Vocabulary, llama_library, load_adapter, load_model

BATCH = 512  # maximum tokens evaluated at once
CHUNK_SECONDS = 0.2  # target time of one chunk of a prompt; cancellation waits for it


class Cancelled(Exception):  # a signal inside this package, not an error
    """The caller cancelled the call; `Progress` has the usage so far."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is loaded; None means automatic."""

    gpu_layers: int | Literal["auto"] = "auto"
    threads: int | None = None
    context: int | None = None
    idle: bool = False  # whether to run at low priority, if the system supports that


@dataclass(slots=True)
class Progress:
    """The exact usage of a running call, and its cancellation flag."""

    stop: Event = field(default_factory=Event)
    moved: Callable[[], None] = lambda: None  # called in the engine's thread after each chunk
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    cut: bool = False  # whether `max_tokens` or the context ended the generation

    def usage(self) -> Usage:
        return Usage(self.input, self.output, cached=self.cached, reasoning=self.reasoning)

    def check(self) -> None:
        """Raise Cancelled if the caller cancelled the call."""
        if self.stop.is_set():
            raise Cancelled


class Engine:
    """A model with its weights in memory."""

    def __init__(self, path: Path, vocabulary: Vocabulary, options: EngineOptions) -> None:
        """Load the weights (seconds); raises ModelMissing or ModelBroken."""
        self._library = llama_library()
        self._vocabulary = vocabulary
        self._options = options
        self._path = path
        layers = options.gpu_layers
        if layers == "auto":
            layers = 999 if self._library.llama_supports_gpu_offload() else 0
        self._model: Any = load_model(path, gpu_layers=999 if layers < 0 else layers)
        self._adapters: dict[Path, Any] = {}  # loaded adapters by file
        self.context = options.context or min(vocabulary.tokens_in("context_length") or 4096, 8192)
        self._batch = self._library.llama_batch_init(BATCH, 0, 1)
        self._context: Any = None
        self._cache: KVCache
        self._adapter: Path | None = None  # the active adapter
        self._chunk = 64
        try:
            self._open()
        except ModelBroken:
            self.close()
            raise

    def close(self) -> None:
        """Free all memory; the engine is unusable afterwards."""
        if self._context:
            self._library.llama_free(self._context)
            self._context = None
        if self._model:
            self._library.llama_batch_free(self._batch)
            self._library.llama_model_free(self._model)
            self._model = None
            self._adapters.clear()

    def drop_adapter(self, path: Path) -> None:
        """Free an adapter and its caches."""
        self._cache.clear(path)
        if self._adapter == path:
            self._apply(None)
        if path in self._adapters:
            self._library.llama_adapter_lora_free(self._adapters.pop(path))

    def generate(
        self,
        prompt: Sequence[int],
        chooser: Chooser,
        max_tokens: int,
        progress: Progress,
        owner: CacheOwner,
    ) -> Iterator[int]:
        """Yield tokens until the model ends its reply or `max_tokens` or the context is reached.

        The chooser may be changed between tokens. Raises Cancelled between tokens and between chunks of the prompt, and
        ModelBroken if the prompt does not fit.
        """
        self._check_fits(len(prompt) + 1)
        room = min(max_tokens, self.context - len(prompt))
        slot = self._evaluate(prompt, progress, owner)
        for _ in range(room):
            progress.check()
            token = chooser.choose(self._logits())
            progress.output += 1
            if self._vocabulary.ends(token):
                return
            yield token
            self._cache.make_room(slot, 1)
            self._decode(slot, [token], has_logits=True)
            self._cache.extend(slot, [token])
        progress.cut = True

    def read(self, prompt: Sequence[int], progress: Progress, owner: CacheOwner) -> None:
        """Evaluate a prompt ahead of time; the part evaluated before a cancellation stays cached. See `generate`."""
        self._check_fits(len(prompt) + 1)
        self._evaluate(prompt, progress, owner)

    def _logits(self) -> Any:
        """The last computed logits as a float32 view, one for each token of the vocabulary."""
        import numpy as np

        pointer = self._library.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, shape=(self._vocabulary.size,))

    # -- the cache

    def _evaluate(self, prompt: Sequence[int], progress: Progress, owner: CacheOwner) -> CacheSlot:
        """Evaluate the prompt in a slot of the owner, with logits after its last token."""
        self._apply(owner.adapter)
        slot = self._cache.take(owner, prompt)
        place = progress.cached = len(slot.tokens)
        progress.input += place
        while place < len(prompt):
            progress.check()
            chunk = list(prompt[place : place + self._chunk])
            self._cache.make_room(slot, len(chunk))
            began = time.perf_counter()
            self._decode(slot, chunk, has_logits=place + len(chunk) == len(prompt))
            seconds = time.perf_counter() - began
            self._cache.extend(slot, chunk)
            progress.input += len(chunk)
            place += len(chunk)
            progress.moved()
            self._chunk = max(16, min(BATCH, int(len(chunk) / seconds * CHUNK_SECONDS)))
        return slot

    def _apply(self, adapter: Path | None) -> None:
        """Switch the context to an adapter, or to the base model."""
        if adapter == self._adapter:
            return
        library = self._library
        if adapter and adapter not in self._adapters:
            self._adapters[adapter] = load_adapter(self._model, adapter, self._path)
        handles = [self._adapters[adapter]] if adapter else []
        count = len(handles)
        pointers = (library.llama_adapter_lora_p_ctypes * count)(*handles)
        scales = (ctypes.c_float * count)(*[1.0] * count)
        if library.llama_set_adapters_lora(self._context, pointers, count, scales) != 0:
            text = f"llama.cpp could not switch to {adapter}."
            raise ModelBroken(text, fix="Ask without the adapter.")
        self._adapter = adapter

    # -- llama.cpp

    def _open(self) -> None:
        library = self._library
        params = library.llama_context_default_params()
        params.n_ctx = self.context
        params.n_batch = BATCH
        params.n_ubatch = BATCH
        params.n_seq_max = SLOTS
        params.n_outputs_max_per_seq = 0
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = self._options.threads or default_threads()
        params.no_perf = True
        self._context = library.llama_init_from_model(self._model, params)
        if not self._context:
            raise ModelBroken(
                f"llama.cpp could not set up a context of {self.context} tokens for {self._path}.",
                fix="Set a smaller `context` under [local] in the settings.",
            )
        is_recurrent = library.llama_model_is_recurrent(self._model)
        is_recurrent = is_recurrent or library.llama_model_is_hybrid(self._model)
        memory = library.llama_get_memory(self._context)
        self._cache = KVCache(library, memory, self.context, rewinds=not is_recurrent)

    def _decode(self, slot: CacheSlot, tokens: Sequence[int], *, has_logits: bool) -> None:
        """Evaluate tokens after those of the slot (at most one batch), and the logits after the last if wanted."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = len(slot.tokens) + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = slot.number
            batch.logits[i] = has_logits and i == len(tokens) - 1
        status = self._library.llama_decode(self._context, batch)
        if status != 0:
            self._cache.clear()
            text = f"llama.cpp could not evaluate the prompt (status {status})."
            raise ModelBroken(text, fix="Ask again.")

    def _check_fits(self, tokens: int) -> None:
        if tokens > self.context:
            raise ModelBroken(
                f"The prompt is {tokens} tokens long; the model's context takes {self.context}.",
                fix="Start a new chat with /new, ask with less text, or set a larger `context` under [local].",
            )


def default_threads() -> int:
    """Threads for inference: all cores that this process may use, or half of more than four (hyper-threads)."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return cores if cores <= 4 else cores // 2

"""One loaded llama.cpp model with its KV cache, used from one thread: generate under a grammar, and score.

The cache holds several sequences ("slots") in one pool of cells, so that prompts that take turns (ranking, filling
arguments, answering) each find their own prefix again.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Literal

from ecoshell.errors import ModelBroken
from ecoshell.messages import Usage
from ecoshell.models.choosing import Chooser, Sampling
from ecoshell.models.gguf import Vocabulary, llama_library, load_model

SLOTS = 4
"""Prompts whose prefixes are kept at the same time."""
LANES = 12
"""Candidates scored in one batch."""
BATCH = 512
BITE_SECONDS = 0.2
"""A long prompt is evaluated in bites of about this time, so that it can be cancelled."""


Pair = tuple[list[int], list[int]]
"""A candidate for scoring: the tokens that precede it after the shared prefix, and the tokens to be scored."""


class Cancelled(Exception):  # a signal inside this room, not an error
    """The caller does not want the rest; what was done so far is in the `Progress`."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is loaded; None leaves the choice to ecoshell."""

    gpu_layers: int | Literal["auto"] = "auto"
    threads: int | None = None
    context: int | None = None


@dataclass(slots=True)
class Progress:
    """What a call has used so far, exact at every moment, and the wish to stop it."""

    stop: Event = field(default_factory=Event)
    moved: Callable[[], None] = lambda: None
    """Called when a bite of the prompt is done, from the engine's thread."""
    input: int = 0
    cached: int = 0
    output: int = 0
    cut: bool = False
    """Whether `max_tokens` or the context ended the generation."""

    def usage(self) -> Usage:
        """The usage as it stands."""
        return Usage(input=self.input, cached=self.cached, output=self.output)

    def check(self) -> None:
        """Raise Cancelled if the caller no longer wants the call."""
        if self.stop.is_set():
            raise Cancelled


class Engine:
    """A model with its weights in memory."""

    def __init__(self, path: Path, vocabulary: Vocabulary, options: EngineOptions) -> None:
        """Load the weights (seconds); raises ModelMissing or ModelBroken."""
        self._library = llama_library()
        self._vocabulary = vocabulary
        self._model = load_model(path, gpu_layers=self._gpu_layers(options))
        self.context = options.context or min(vocabulary.trained_context() or 4096, 8192)
        self._context: Any = self._library.llama_init_from_model(self._model, self._parameters(options))
        if not self._context:
            self._library.llama_model_free(self._model)
            raise ModelBroken(
                f"llama.cpp could not set up a context of {self.context} tokens for {path}.",
                fix="Set a smaller `context` under [local] in the settings.",
            )
        self._memory = self._library.llama_get_memory(self._context)
        self._batch = self._library.llama_batch_init(BATCH, 0, 1)
        whole = self._library.llama_model_is_recurrent(self._model) or self._library.llama_model_is_hybrid(self._model)
        self._rewinds = not whole
        """Whether part of a sequence can be dropped; recurrent states cannot go back."""
        self._slots: list[list[int]] = [[] for _ in range(SLOTS)]
        self._order = list(range(SLOTS))
        """Slots, the longest unused first."""
        self._bite = 64

    def close(self) -> None:
        """Free everything; the engine is of no use afterwards."""
        if self._context:
            self._library.llama_batch_free(self._batch)
            self._library.llama_free(self._context)
            self._library.llama_model_free(self._model)
            self._context = None

    def generate(self, prompt: Sequence[int], sampling: Sampling, progress: Progress) -> Iterator[int]:
        """Tokens that continue the prompt, until the model ends, `max_tokens` or the context is full.

        Raises Cancelled between tokens and between bites of the prompt, ModelBroken when the prompt does not fit.
        """
        self._check_fits(len(prompt) + 1)
        chooser = Chooser(self._vocabulary, sampling)
        try:
            slot = self._evaluate(prompt, progress)
            for _ in range(min(sampling.max_tokens, self.context - len(prompt))):
                progress.check()
                token = chooser.choose(self._logits(-1))
                progress.output += 1
                if self._vocabulary.ends(token):
                    return
                yield token
                self._make_room(slot, 1)
                self._decode([(token, len(self._slots[slot]), slot, True)])
                self._slots[slot].append(token)
            progress.cut = True
        finally:
            chooser.close()

    def score(self, prefix: Sequence[int], pairs: Sequence[Pair], progress: Progress) -> list[float]:
        """Natural-log probability of each pair's second part after `prefix` and the pair's first part.

        The prefix is evaluated once and kept. Raises ModelBroken when a candidate does not fit the context.
        """
        if not prefix:
            raise ValueError("scoring needs a prefix of at least one token")
        longest = max((len(context) + len(target) for context, target in pairs), default=0)
        self._check_fits(len(prefix) + longest + 1)
        slot = self._evaluate(prefix, progress) if pairs else 0
        lanes = [([prefix[-1], *context, *target], len(context)) for context, target in pairs]
        scores: list[float] = []
        while len(scores) < len(lanes):
            progress.check()
            chunk = self._chunk(lanes[len(scores) :], len(prefix))
            scores += self._score_chunk(slot, len(prefix) - 1, chunk)
            progress.input += sum(len(tokens) - 1 for tokens, _ in chunk)
        return scores

    # -- scoring

    def _chunk(self, lanes: list[tuple[list[int], int]], prefix: int) -> list[tuple[list[int], int]]:
        """As many lanes from the front as fit one batch and the context."""
        room = min(BATCH, self.context - prefix)
        chosen: list[tuple[list[int], int]] = []
        for lane in lanes[:LANES]:
            room -= len(lane[0])
            if chosen and room < 0:
                break
            chosen.append(lane)
        return chosen

    def _score_chunk(self, slot: int, start: int, lanes: list[tuple[list[int], int]]) -> list[float]:
        if sum(len(tokens) for tokens, _ in lanes) > BATCH:  # a single lane longer than a batch
            raise ModelBroken(f"A text to be scored is longer than {BATCH} tokens.", fix="Ask a shorter question.")
        self._make_room(slot, sum(len(tokens) for tokens, _ in lanes))
        entries: list[tuple[int, int, int, bool]] = []
        wanted: list[list[tuple[int, int]]] = []
        for number, (tokens, context) in enumerate(lanes):
            lane = SLOTS + number
            self._library.llama_memory_seq_cp(self._memory, slot, lane, 0, start)
            first = len(entries)
            last = len(tokens) - 1
            entries += [(token, start + i, lane, context <= i < last) for i, token in enumerate(tokens)]
            wanted.append([(first + i, tokens[i + 1]) for i in range(context, last)])
        try:
            self._decode(entries)
            return [sum(self._logprob(row, token) for row, token in rows) for rows in wanted]
        finally:
            for number in range(len(lanes)):
                self._library.llama_memory_seq_rm(self._memory, SLOTS + number, -1, -1)

    def _logprob(self, row: int, token: int) -> float:
        import numpy as np

        logits = self._logits(row).astype(np.float64)
        top = float(logits.max())
        return float(logits[token]) - top - float(np.log(np.exp(logits - top).sum()))

    def _logits(self, row: int) -> Any:
        """A view of the logits at a place of the last batch: float32, one for each token of the vocabulary."""
        import numpy as np

        pointer = self._library.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(pointer, shape=(self._vocabulary.size,))

    # -- the cache

    def _evaluate(self, prompt: Sequence[int], progress: Progress) -> int:
        """Bring a slot to hold exactly the prompt, its last logits fresh; the slot's number."""
        slot, reused = self._take_slot(prompt)
        progress.input += reused
        progress.cached += reused
        place = reused
        while place < len(prompt):
            progress.check()
            bite = list(prompt[place : place + self._bite])
            self._make_room(slot, len(bite))
            began = time.perf_counter()
            last = len(prompt) - 1
            self._decode([(token, place + i, slot, place + i == last) for i, token in enumerate(bite)])
            seconds = time.perf_counter() - began
            self._slots[slot] += bite
            progress.input += len(bite)
            place += len(bite)
            progress.moved()
            self._bite = max(16, min(BATCH, int(len(bite) / seconds * BITE_SECONDS)))
        return slot

    def _take_slot(self, prompt: Sequence[int]) -> tuple[int, int]:
        """A slot cut back to the longest prefix it shares with the prompt, and that prefix's length."""
        shared = [self._shared(held, prompt) for held in self._slots]
        best = max(range(SLOTS), key=shared.__getitem__)
        slot = best if shared[best] * 2 >= len(self._slots[best]) and self._slots[best] else self._order[0]
        keep = min(shared[best], len(prompt) - 1)
        if slot != best:
            self._clear(slot)
            if keep and self._rewinds:
                self._library.llama_memory_seq_cp(self._memory, best, slot, 0, keep)
                self._slots[slot] = list(prompt[:keep])
        elif keep < len(self._slots[slot]) and not self._rewind(slot, keep):
            self._clear(slot)
        self._order.remove(slot)
        self._order.append(slot)
        return slot, len(self._slots[slot])

    @staticmethod
    def _shared(held: Sequence[int], prompt: Sequence[int]) -> int:
        pairs = zip(held, prompt, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(held), len(prompt)))

    def _rewind(self, slot: int, length: int) -> bool:
        if not self._rewinds or not self._library.llama_memory_seq_rm(self._memory, slot, length, -1):
            return False
        del self._slots[slot][length:]
        return True

    def _clear(self, slot: int) -> None:
        self._library.llama_memory_seq_rm(self._memory, slot, -1, -1)
        self._slots[slot].clear()

    def _make_room(self, slot: int, tokens: int) -> None:
        """Forget the longest unused slots until so many cells are free; cells that slots share are counted twice."""
        for other in self._order:
            if sum(map(len, self._slots)) + tokens <= self.context:
                return
            if other != slot:
                self._clear(other)

    # -- llama.cpp

    def _decode(self, entries: Sequence[tuple[int, int, int, bool]]) -> None:
        """Evaluate (token, position, sequence, whether its logits are wanted) entries, one batch at most."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, logits) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits
        status = self._library.llama_decode(self._context, batch)
        if status != 0:
            for slot in range(SLOTS):
                self._clear(slot)
            raise ModelBroken(f"llama.cpp could not evaluate the prompt (status {status}).", fix="Ask again.")

    def _check_fits(self, tokens: int) -> None:
        if tokens > self.context:
            raise ModelBroken(
                f"The prompt is {tokens} tokens long; the model's context takes {self.context}.",
                fix="Start a new chat with /new, ask with less text, or set a larger `context` under [local].",
            )

    def _gpu_layers(self, options: EngineOptions) -> int:
        if options.gpu_layers == "auto":
            return 999 if self._library.llama_supports_gpu_offload() else 0
        return 999 if options.gpu_layers < 0 else options.gpu_layers

    def _parameters(self, options: EngineOptions) -> Any:
        params = self._library.llama_context_default_params()
        params.n_ctx = self.context
        params.n_batch = BATCH
        params.n_ubatch = BATCH
        params.n_seq_max = SLOTS + LANES
        params.n_outputs_max_per_seq = 0
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = options.threads or default_threads()
        params.no_perf = True
        return params


def default_threads() -> int:
    """Threads for inference: all cores of a small machine, half of a large one (the rest are mostly hyper-threads)."""
    cores = os.cpu_count() or 1
    return cores if cores <= 4 else cores // 2

"""Choosing the next token from logits, under a grammar where there is one.

llama.cpp's own chain puts all of the vocabulary through the grammar at every token, which takes longer than a small
model takes to think; here the grammar sees the likeliest tokens, and the rest only when it refuses all of those.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

from ecoshell.errors import ModelBroken
from ecoshell.models.gguf import Vocabulary, llama_library

FIRST_LOOK = 64
"""Likeliest tokens that are looked at first."""
MIN_SHARE = 0.05
"""Tokens less likely than this share of the likeliest are never drawn."""
REMEMBERED = 64
"""Tokens back to which repetition is penalised."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; temperature 0 takes the likeliest, `repeat_penalty` 1 leaves repetition alone."""

    max_tokens: int
    grammar: str = ""
    temperature: float = 0.0
    repeat_penalty: float = 1.0
    seed: int = 0


class Chooser:
    """Chooses the tokens of one generation; to be closed at its end."""

    def __init__(self, vocabulary: Vocabulary, sampling: Sampling) -> None:
        """Raises ModelBroken when the grammar does not compile."""
        import numpy as np

        self._numpy = np
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)
        self._recent: list[int] = []
        self._grammar = Grammar(vocabulary, sampling.grammar) if sampling.grammar else None

    def close(self) -> None:
        """Free the grammar."""
        if self._grammar is not None:
            self._grammar.close()

    def choose(self, logits: Any) -> int:
        """The next token, given the logits of the whole vocabulary (float32, not changed)."""
        np = self._numpy
        scores = self._penalised(logits)
        first = np.argpartition(scores, -FIRST_LOOK)[-FIRST_LOOK:]
        token = self._pick(scores, first)
        if token is None:
            token = self._pick(scores, np.arange(len(scores)))
        if token is None:
            raise ModelBroken("The grammar allows no further token.", fix="Ask again.")
        self._recent.append(token)
        if self._grammar is not None:
            self._grammar.accept(token)
        return token

    def _penalised(self, logits: Any) -> Any:
        if self._sampling.repeat_penalty == 1.0 or not self._recent:
            return logits
        scores = logits.copy()
        recent = list(set(self._recent[-REMEMBERED:]))
        held = scores[recent]
        penalty = self._sampling.repeat_penalty
        scores[recent] = self._numpy.where(held > 0, held / penalty, held * penalty)
        return scores

    def _pick(self, scores: Any, candidates: Any) -> int | None:
        """A token among the candidates the grammar allows; None if it allows none."""
        np = self._numpy
        if self._grammar is not None:
            candidates = candidates[self._grammar.allows(candidates.tolist())]
            if not len(candidates):
                return None
        values = scores[candidates]
        if self._sampling.temperature <= 0:
            return int(candidates[int(values.argmax())])
        weights = np.exp((values - values.max()) / self._sampling.temperature)
        weights[weights < MIN_SHARE] = 0.0
        place: int = np.searchsorted(np.cumsum(weights / weights.sum()), self._random.random()).item()
        return int(candidates[min(place, len(candidates) - 1)])


class Grammar:
    """A compiled grammar that follows the tokens of one text."""

    def __init__(self, vocabulary: Vocabulary, text: str) -> None:
        """Raises ModelBroken when the text is no grammar."""
        self._library = llama_library()
        data = text.encode("utf-8", "replace")
        self._sampler: Any = self._library.llama_sampler_init_grammar(vocabulary.handle, data, b"root")
        if not self._sampler:
            raise ModelBroken(
                "The grammar of the tools' arguments does not compile.", fix="Unregister a tool and retry."
            )

    def close(self) -> None:
        """Free the memory."""
        if self._sampler:
            self._library.llama_sampler_free(self._sampler)
            self._sampler = None

    def allows(self, tokens: list[int]) -> list[bool]:
        """Which of the tokens may come next."""
        entry = self._library.llama_token_data
        data = (entry * len(tokens))(*(entry(token, 0.0, 0.0) for token in tokens))
        array = self._library.llama_token_data_array(data, len(tokens), -1, False)
        self._library.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return [data[i].logit == 0.0 for i in range(len(tokens))]

    def accept(self, token: int) -> None:
        """Go one allowed token further."""
        self._library.llama_sampler_accept(self._sampler, token)

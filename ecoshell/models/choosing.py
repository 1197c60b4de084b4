"""Samples the next token from logits, optionally under a grammar.

llama.cpp's own sampler checks the whole vocabulary against the grammar at every token, which takes longer than a small
model takes to evaluate it. Here the grammar checks the likeliest tokens, and the rest only if it rejects all of those.
"""

import ctypes
from collections import deque
from dataclasses import dataclass
from typing import Any
from weakref import finalize

from ecoshell.errors import ModelBroken
from ecoshell.models.llama import Vocabulary, llama_library

FIRST_LOOK = 64  # number of likeliest tokens that are checked first
SECOND_LOOK = 4096  # number of tokens that are checked next; all would take almost a second
MIN_SHARE = 0.05
REMEMBERED = 64  # number of recent tokens whose repetition is penalised


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; temperature 0 selects the likeliest token, `repeat_penalty` 1 disables the penalty."""

    temperature: float = 0.0
    top_k: int = FIRST_LOOK
    top_p: float = 1.0
    min_p: float = MIN_SHARE  # minimum probability relative to the likeliest token
    repeat_penalty: float = 1.0
    seed: int = 0


_FAMILIES: tuple[tuple[str, Sampling], ...] = (
    ("qwen3", Sampling(0.6, top_k=20, top_p=0.95, min_p=0.0)),
    ("qwen2", Sampling(0.7, top_k=20, top_p=0.8, min_p=0.0, repeat_penalty=1.05)),
    ("gemma", Sampling(1.0, top_k=64, top_p=0.95, min_p=0.0)),
    ("phi", Sampling(0.0)),
    ("mistral", Sampling(0.15)),
    ("llama", Sampling(0.6, top_p=0.9)),
)
"""Recommendations of the publishers (`generation_config.json`), by the start of the architecture's name."""
_USUAL = Sampling(0.7, top_p=0.95)


def recommended(vocabulary: Vocabulary) -> Sampling:
    """The sampling parameters in a file's metadata (`general.sampling.*`), completed by those of its family."""
    family = vocabulary.metadata("general.architecture") or ""
    sampling = next((usual for name, usual in _FAMILIES if family.startswith(name)), _USUAL)

    def parameter(key: str, default: float) -> float:
        try:
            return float(vocabulary.metadata(f"general.sampling.{key}") or default)
        except ValueError:
            return default

    return Sampling(
        temperature=parameter("temp", sampling.temperature),
        top_k=int(parameter("top_k", sampling.top_k)) or FIRST_LOOK,
        top_p=parameter("top_p", sampling.top_p),
        min_p=parameter("min_p", sampling.min_p),
        repeat_penalty=parameter("penalty_repeat", sampling.repeat_penalty),
    )


class Chooser:
    """Samples the tokens of one generation."""

    def __init__(self, vocabulary: Vocabulary, sampling: Sampling, grammar: str = "") -> None:
        """Raises ModelBroken when the grammar does not compile."""
        import numpy as np

        self._numpy = np
        self._vocabulary = vocabulary
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)
        self._recent: list[int] = []
        self.forced: deque[int] = deque()  # tokens to output next, regardless of the model
        self.never: list[int] = []
        self.never_first: list[int] = []  # tokens excluded as the first; `never` always
        self._grammar = Grammar(vocabulary, grammar) if grammar else None

    def constrain(self, grammar: str, start: str = "") -> None:
        """Constrain further tokens to a grammar whose text starts with `start`; otherwise change nothing."""
        following = Grammar(self._vocabulary, grammar)
        for token in self._vocabulary.tokens(start, special=True) if start else ():
            if not following.allows([token])[0]:
                return
            following.accept(token)
        self._grammar = following

    def choose(self, logits: Any) -> int:
        """The next token, given the logits of the whole vocabulary (float32, not changed)."""
        if self.forced:
            return self.forced.popleft()
        np = self._numpy
        scores = logits
        if never := self.never if self._recent else self.never + self.never_first:
            scores = logits.copy()
            scores[never] = -np.inf
        penalty = self._sampling.repeat_penalty
        if penalty != 1.0 and self._recent and self._grammar is None:
            recent = list(set(self._recent[-REMEMBERED:]))
            penalised = scores[recent]
            scores = logits.copy() if scores is logits else scores
            scores[recent] = np.where(penalised > 0, penalised / penalty, penalised * penalty)
        greedy = self._sampling.temperature <= 0
        token = self._pick(scores, scores.argmax(keepdims=True)) if greedy else None
        for count in (FIRST_LOOK, SECOND_LOOK, len(scores)):
            if token is not None:
                break
            is_part = count < len(scores)
            candidates = np.argpartition(scores, -count)[-count:] if is_part else np.arange(count)
            token = self._pick(scores, candidates)
        if token is None:
            raise ModelBroken("The grammar allows no further token.", fix="Ask again.")
        self._recent.append(token)
        if self._grammar is not None:
            self._grammar.accept(token)
        return token

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
        order = np.argsort(values)[::-1][: self._sampling.top_k]
        weights = np.exp((values[order] - values[order[0]]) / self._sampling.temperature)
        weights[weights < self._sampling.min_p] = 0.0
        shares = weights / weights.sum()
        shares[np.cumsum(shares) - shares >= self._sampling.top_p] = 0.0
        place: int = np.searchsorted(np.cumsum(shares / shares.sum()), self._random.random()).item()
        return int(candidates[order[min(place, len(order) - 1)]])


class Grammar:
    """A compiled grammar and its state after some tokens."""

    def __init__(self, vocabulary: Vocabulary, text: str) -> None:
        """Raises ModelBroken if the text is not a valid grammar."""
        self._library = llama_library()
        data = text.encode("utf-8", "replace")
        init: Any = self._library.llama_sampler_init_grammar
        self._sampler: Any = init(vocabulary.handle, data, b"root")
        if not self._sampler:
            text = "The grammar of the tools' arguments does not compile."
            raise ModelBroken(text, fix="Unregister a tool and retry.")
        finalize(self, self._library.llama_sampler_free, self._sampler).atexit = False

    def allows(self, tokens: list[int]) -> list[bool]:
        """Which of the tokens may come next."""
        entry = self._library.llama_token_data
        data = (entry * len(tokens))(*(entry(token, 0.0, 0.0) for token in tokens))
        array = self._library.llama_token_data_array(data, len(tokens), -1, False)
        self._library.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return [data[i].logit == 0.0 for i in range(len(tokens))]

    def accept(self, token: int) -> None:
        self._library.llama_sampler_accept(self._sampler, token)

"""How alike questions are: by their words and parts of words, weighed by how rare these are (BTP §2.2, sim).

It needs no model and no network. On the 48 recorded runs of LiveMCPBench the vectors of all-MiniLM-L6-v2, which were
compared in their place, planned no better (docs/plan.md).
"""

import re
import unicodedata
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FEATURES = 1 << 16
"""How many features texts are hashed to: two of 250 features share one by chance, which moves a cosine by 0.004."""

_CHUNK = 10_000
"""Vectors that are sorted into the index at a time."""
_BLOCK = 1 << 12
"""Features whose postings are summed at a time, so that the sums stay small beside the index."""
_MOST_CHARACTERS = 4_000
"""A pasted file is a question's attachment: its beginning says what is wanted."""
_WIDE = "\u2e80-\U0003ffff"
"""Chinese, Japanese and Korean: no spaces between words, and a word is one to three signs."""
_RUN = re.compile(rf"[^\W_\u0000-\u2e7f]+|[^\W_{_WIDE}]+")
_FEATURE_BYTES = 2
"""Of each feature in a vector."""
_SIZES = (3, 4, 5)
_WIDE_SIZES = (1, 2, 3)


class WordEncoder:
    """Words and their character n-grams of 3 to 5 (1 to 3 where words have no spaces), hashed alike in every process.

    N-grams stay within words, as in scikit-learn's `char_wb`, so that `files` is near
    `file` and a typing error near its word.
    """

    name = "words-1"
    """Vectors that were kept under another name are not its own."""
    batch = 20_000
    """How many questions are encoded in about a second."""

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text, which can be kept; a text without words has the zero vector."""
        return [_features(text) for text in texts]

    def fits(self, vector: bytes) -> bool:
        """Whether this can be one of its vectors: what was damaged in the store cannot."""
        return len(vector) % _FEATURE_BYTES == 0


class FeatureIndex:
    """TF-IDF over sets of hashed features: for each feature, the rows that have it (an inverted index).

    A vector is the sorted numbers of its features, as little-endian uint16. A feature weighs
    `ln((1 + rows) / (1 + rows that have it)) + 1`, so the weights always are those of all rows together.
    """

    def __init__(self) -> None:
        import numpy as np

        self._count = 0
        self._rows = np.empty(0, np.int32)
        self._starts = np.zeros(FEATURES + 1, np.intp)
        """Where each feature's rows begin; the last is where all end."""
        self._squares: Floats = np.ones(FEATURES)
        self._norms: Floats | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, vectors: Sequence[bytes]) -> None:
        """Take in further vectors, as the encoder made them."""
        for first in range(0, len(vectors), _CHUNK):
            self._insert(vectors[first : first + _CHUNK])
        self._norms = None

    def _insert(self, vectors: Sequence[bytes]) -> None:
        import numpy as np

        features = np.frombuffer(b"".join(vectors), "<u2")
        numbers = np.arange(self._count, self._count + len(vectors), dtype=np.int32)
        rows = np.repeat(numbers, [len(vector) // 2 for vector in vectors])
        order = np.argsort(features, kind="stable")
        self._rows = np.insert(self._rows, self._starts[1:][features[order]], rows[order])
        self._starts[1:] += np.cumsum(np.bincount(features, minlength=FEATURES))
        self._count += len(vectors)

    def cosines(self, vector: bytes) -> "Floats":
        """The cosine of this vector and each that was added, in their order; 0 where either is the zero vector."""
        import numpy as np

        norms = self._weigh()
        features = np.frombuffer(vector, "<u2").astype(np.intp)
        squares = self._squares[features]
        begins, ends = self._starts[features], self._starts[features + 1]
        parts = (self._rows[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
        rows = np.concatenate([self._rows[:0], *parts])
        dots = np.bincount(rows, np.repeat(squares, ends - begins), minlength=self._count)
        lengths = norms * np.sqrt(squares.sum())
        return np.minimum(1.0, np.divide(dots, lengths, out=np.zeros(self._count), where=lengths > 0))

    def _weigh(self) -> "Floats":
        """The length of each row under the present weights, which change with every row that comes."""
        import numpy as np

        if self._norms is None:
            counts = np.diff(self._starts)
            self._squares = (np.log((1 + self._count) / (1 + counts)) + 1) ** 2
            sums = np.zeros(self._count)
            for first in range(0, FEATURES, _BLOCK):
                block = slice(first, first + _BLOCK)
                rows = self._rows[self._starts[first] : self._starts[first + _BLOCK]]
                sums += np.bincount(rows, np.repeat(self._squares[block], counts[block]), minlength=self._count)
            self._norms = np.sqrt(sums)
        return self._norms


def _features(text: str) -> bytes:
    """The text's features, sorted, each once, as little-endian uint16."""
    import numpy as np

    plain = unicodedata.normalize("NFKC", text[:_MOST_CHARACTERS]).casefold()
    found = b"".join(map(_word_features, set(_RUN.findall(plain))))
    return np.unique(np.frombuffer(found, "<u2")).tobytes()


@lru_cache(maxsize=50_000)
def _word_features(word: str) -> bytes:
    """The word and its n-grams, spaces marking its ends; remembered, as questions share most of their words."""
    sizes = _WIDE_SIZES if word[0] >= _WIDE[0] else _SIZES
    marked = f" {word} "
    grams = {marked[start : start + size] for size in sizes for start in range(len(marked) - size + 1)}
    features = (zlib.crc32(gram.encode("utf-8", "replace")) % FEATURES for gram in (*grams, f"={word}"))
    return b"".join(feature.to_bytes(2, "little") for feature in features)

"""Encoders: what a question is compared by, its words or the vector of a small model (BTP §2.2, sim)."""

import re
import unicodedata
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, Protocol

from ecoshell.planning.btp.embeddings import EmbeddingEncoder, installed
from ecoshell.planning.btp.similarity import FEATURES, FeatureIndex, Index

_MOST_CHARACTERS = 4_000
"""A pasted file is a question's attachment: its beginning says what is wanted."""
_WIDE = "\u2e80-\U0003ffff"
"""Chinese, Japanese and Korean: no spaces between words, and a word is one to three signs."""
_RUN = re.compile(rf"[^\W_\u0000-\u2e7f]+|[^\W_{_WIDE}]+")
_FEATURE_BYTES = 2
"""Of each feature in a vector."""
_SIZES = (3, 4, 5)
_WIDE_SIZES = (1, 2, 3)


class Encoder(Protocol):
    """Makes of a question a vector that can be kept, and an index that compares such vectors."""

    @property
    def name(self) -> str:
        """The encoder and its version; vectors kept under another name are not its own."""
        ...

    @property
    def batch(self) -> int:
        """How many questions are encoded in about a second."""
        ...

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text; a text without words has the zero vector."""
        ...

    def fits(self, vector: bytes) -> bool:
        """Whether this can be one of its vectors: what was damaged in the store cannot."""
        ...

    def index(self) -> Index:
        """An empty index for this encoder's vectors."""
        ...


class WordEncoder:
    """Words and their character n-grams of 3 to 5 (1 to 3 where words have no spaces), hashed alike in every process.

    Needs no model and no network. N-grams stay within words, as in scikit-learn's `char_wb`, so that `files` is near
    `file` and a typing error near its word.
    """

    name = "words-1"
    batch = 20_000

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        return [_features(text) for text in texts]

    def fits(self, vector: bytes) -> bool:
        return len(vector) % _FEATURE_BYTES == 0

    def index(self) -> Index:
        return FeatureIndex()


def encoder_for(similarity: Literal["auto", "words", "embeddings"]) -> Encoder:
    """The encoder of a setting; `auto` takes embeddings where they are installed.

    Raises UsageError when embeddings are asked for and not installed.
    """
    if similarity == "embeddings" or (similarity == "auto" and installed()):
        return EmbeddingEncoder()
    return WordEncoder()


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

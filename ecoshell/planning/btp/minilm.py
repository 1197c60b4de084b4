"""all-MiniLM-L6-v2, a sentence-transformers model, in numpy: torch takes ten seconds and a gigabyte to load.

Weights and tokenizer are read from the model's folder as Hugging Face lays it out; the result is that of
`SentenceTransformer.encode(text, normalize_embeddings=True)` to float32 accuracy.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

WIDTH = 384
_LAYERS = 6
_HEADS = 12
_MOST_TOKENS = 256
"""The model's `max_seq_length`."""
_EPSILON = 1e-12
"""Of its layer norms."""
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""Abramowitz and Stegun 7.1.26, within 1.5e-7 of the error function, which numpy does not have."""


class MiniLM:
    """A BERT encoder of 6 layers whose mean token vector stands for the text; any thread may ask."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError or ValueError when the folder holds no such model."""
        from tokenizers import Tokenizer

        self._weights = _tensors(folder / "model.safetensors")
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MOST_TOKENS)

    def vector(self, text: str) -> "Array":
        """The text's vector, of shape (384,) and length 1."""
        import numpy as np

        weights = self._weights
        tokens = self._tokenizer.encode(text).ids
        hidden = weights["embeddings.word_embeddings.weight"][tokens]
        hidden = hidden + weights["embeddings.position_embeddings.weight"][: len(tokens)]
        hidden = hidden + weights["embeddings.token_type_embeddings.weight"][0]
        hidden = self._norm("embeddings.LayerNorm", hidden)
        for layer in range(_LAYERS):
            hidden = self._layer(f"encoder.layer.{layer}", hidden)
        mean = hidden.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _layer(self, name: str, hidden: "Array") -> "Array":
        attended = self._dense(f"{name}.attention.output.dense", self._attention(f"{name}.attention.self", hidden))
        hidden = self._norm(f"{name}.attention.output.LayerNorm", hidden + attended)
        inner = _gelu(self._dense(f"{name}.intermediate.dense", hidden))
        return self._norm(f"{name}.output.LayerNorm", hidden + self._dense(f"{name}.output.dense", inner))

    def _attention(self, name: str, hidden: "Array") -> "Array":
        """Multi-head self-attention; heads stand first while they are apart: (heads, tokens, width of a head)."""
        import numpy as np

        tokens = len(hidden)
        query, key, value = (
            self._dense(f"{name}.{part}", hidden).reshape(tokens, _HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(np.float32(WIDTH // _HEADS))
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ value).transpose(1, 0, 2).reshape(tokens, WIDTH)

    def _dense(self, name: str, hidden: "Array") -> "Array":
        return hidden @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, name: str, hidden: "Array") -> "Array":
        import numpy as np

        centred = hidden - hidden.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _tensors(path: Path) -> "dict[str, Array]":
    """The float32 tensors of a safetensors file, mapped into memory: pages that are not used are not read."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r", offset=8 + length)
    tensors: dict[str, Array] = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = np.asarray(data[begin:end]).view("<f4").reshape(entry["shape"])
    return tensors


def _gelu(x: "Array") -> "Array":
    import numpy as np

    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.zeros_like(t)
    for coefficient in reversed(_ERF):
        series = (series + np.float32(coefficient)) * t
    erf = np.sign(x) * (1 - series * np.exp(-z * z))
    half = np.float32(0.5)
    return (half * x * (1 + erf)).astype(np.float32)

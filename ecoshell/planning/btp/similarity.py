"""How alike a question and each of many past ones are: cosines from an index that grows as questions come."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

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


class Index(Protocol):
    """Vectors of past questions, in the order they were added; not thread-safe."""

    def __len__(self) -> int: ...

    def add(self, vectors: Sequence[bytes]) -> None:
        """Take in further vectors, as their encoder made them."""
        ...

    def cosines(self, vector: bytes) -> "Floats":
        """The cosine of this vector and each that was added; 0 where either is the zero vector."""
        ...


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


class DenseIndex:
    """Vectors of one width, as little-endian float16 of length 1 or 0; one matrix product compares them all."""

    def __init__(self, width: int) -> None:
        import numpy as np

        self._count = 0
        self._matrix = np.empty((0, width), np.float32)

    def __len__(self) -> int:
        return self._count

    def add(self, vectors: Sequence[bytes]) -> None:
        import numpy as np

        end = self._count + len(vectors)
        if end > len(self._matrix):  # grown by a quarter, so that one more row seldom copies all
            grown = np.empty((end + end // 4, self._matrix.shape[1]), np.float32)
            grown[: self._count] = self._matrix[: self._count]
            self._matrix = grown
        rows = np.frombuffer(b"".join(vectors), "<f2").reshape(-1, self._matrix.shape[1])
        self._matrix[self._count : end] = np.where(np.isfinite(rows), rows, 0)  # damaged ones are like nothing
        self._count = end

    def cosines(self, vector: bytes) -> "Floats":
        import numpy as np

        products = self._matrix[: self._count] @ np.frombuffer(vector, "<f2").astype(np.float32)
        return np.clip(products, -1.0, 1.0).astype(np.float64)

"""Evidence for a new question: recorded uses, weighted by similarity of their questions (BTP §2.2).

`Past` follows the experience store and keeps it in memory as numeric columns. `Evidence` summarises a tool.
"""

import re
import threading
import unicodedata
import zlib
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from ecoshell.errors import StoreError
from ecoshell.planning.btp.experience import Columns

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.signedinteger[Any]]
    Truths = NDArray[np.bool_]

OTHER_SCHEMA_WEIGHT = 0.5
"""Weight of a use under another version of the tool's schema, relative to the present version."""
NEARNESS = 3
"""Exponent of the cosine that weights past tasks in the chance of use.

`exp(cos − 1)` hardly separates near from far: 40,000 tasks of another kind would outweigh an identical one. Together
with `value.RANKER_WEIGHT`, this is close to the best of 96 settings by the leave-one-out log-likelihood of the tools
used in 48 runs of LiveMCPBench: −548, against −625 for the ranker alone. With settings chosen without the run under
test, a power of the cosine reaches −550, and `exp(k·(cos − 1))` −579.
"""
_DAMAGE = (ValueError, TypeError, IndexError, AttributeError, OverflowError)
"""Exceptions raised by values of the wrong type in a column."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A running mean with its standard deviation; `count` is 0 without samples."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Past uses of a tool, each with weight `w = exp(cos(q, q_past) − 1)` for the new query (SPEC §2).

    Uses under another version of the tool's schema count with a part of their weight.
    """

    uses: int = 0
    """All recorded uses, of any weight."""
    weight: float = 0.0
    """Σ w over its judged uses."""
    helpful_weight: float = 0.0
    """Σ w·helpful over its judged uses."""
    query_weight: float = 0.0
    """Σ w over past queries that used it."""
    frequency_weight: float = 0.0
    """Σ w·F(q, t) over past queries that used it; F is at most one where it never helped."""
    chance: float = 0.0
    """Weighted share of past queries whose task used the tool, 0 to 1."""
    chance_weight: float = 0.0
    """The total weight of past queries: the amount of experience with similar tasks."""
    price: Figure = field(default_factory=Figure)
    """Nano-dollars of the tool itself."""
    seconds: Figure = field(default_factory=Figure)
    step_nano: Figure = field(default_factory=Figure)
    """Nano-dollars of the model step under the requested model."""
    step_tokens: Figure = field(default_factory=Figure)
    """Tokens of the model step under the requested model."""


NO_EVIDENCE = Evidence()


class Store(Protocol):
    """The readable part of an experience store; ids grow, and `after` selects later rows."""

    @property
    def generation(self) -> object:
        """Changes when existing rows are changed or removed."""
        ...

    def queries(self, after: int = 0) -> Sequence[tuple[int, str]]: ...
    def columns(self, after: int = 0) -> Columns: ...


class Past:
    """Past uses as evidence; follows all changes of the store. Blocking and thread-safe.

    Raises StoreError when the store cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._generation: object = None
        self._forget()

    def evidence(self, query: str, hashes: Mapping[str, str], model: str) -> dict[str, Evidence]:
        """Return the evidence of each tool in `hashes`, which maps tools to present schema hashes (BTP §2.2).

        Costs of model steps are those of `model`.
        """
        with self._followed():
            if self._questions is None or not self._last_use:
                return dict.fromkeys(hashes, NO_EVIDENCE)
            return self._history.evidence(self._questions.cosines(query), hashes, model)

    def _forget(self) -> None:
        self._last_use = 0
        self._history = _History()
        self._places: dict[int, int] = {}
        """The index in the cosines of each question, by its id."""
        self._questions: QuestionIndex | None = None
        """Created with the first use, because it loads numpy."""

    @contextmanager
    def _followed(self) -> Generator[None]:
        """Hold the lock with the state of the store read; raises StoreError for damaged data.

        Reads new rows only, or everything again after a change of existing rows.
        """
        with self._lock:
            try:
                # first, so that a change during the read is noticed next time
                generation = self._store.generation
                if generation != self._generation:
                    self._forget()
                self._generation = (
                    None  # until all is read: after a failure, the next call starts over
                )
                columns = self._store.columns(self._last_use)
                if columns.id:
                    # after the uses, so that they exist
                    fresh = self._store.queries(max(self._places, default=0))
                    self._places |= {
                        number: place for place, (number, _) in enumerate(fresh, len(self._places))
                    }
                    self._questions = self._questions or QuestionIndex()
                    self._questions.add([text for _, text in fresh])
                    self._history.add(columns, self._places)
                    self._last_use = max(columns.id)
                self._generation = generation
                yield
            except _DAMAGE as damage:  # SQLite accepts any value in any column
                self._generation = None
                raise StoreError(
                    f"The experience is damaged: {damage}.",
                    fix="Move experience.sqlite away; ecoshell creates a new one.",
                ) from damage


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Distinct pairs of past task and used tool, as parallel columns."""

    of_use: "Integers"
    """The index of the pair of each use."""
    tool: "Integers"
    query: "Integers"
    frequency: "Floats"
    """F(q, t): the uses in the task, or 1 if no use is known to have helped (SPEC §2)."""
    tasks: "Integers"
    """The question of each distinct task."""


@dataclass(frozen=True, slots=True)
class _Costs:
    """The part of the evidence that does not depend on the question."""

    hashes: Mapping[str, str]
    model: str
    current: "Truths"
    """Uses under the present schema of their tool."""
    by_tool: Sequence[Evidence]
    """Price, seconds, and step price and tokens under the model, by the tool's code."""


class _History:
    """All uses read so far; not thread-safe.

    A task is a question in one turn: the same question in two turns is two tasks.
    """

    def __init__(self) -> None:
        self._codes: dict[str, dict[Hashable, int]] = {
            "task": {},
            "tool": {},
            "document": {},
            "model": {},
        }
        """Codes for the values of these columns, in order of first appearance."""
        self._uses: dict[str, NDArray[Any]] = {}
        """Uses as parallel numeric columns; unknown is NaN.

        `query` is the index of the question in the cosines; `helpful` is −1 if not judged.
        """
        self._pairs: _Pairs | None = None
        self._costs: _Costs | None = None

    def add(self, columns: Columns, places: Mapping[int, int]) -> None:
        """Add uses; `places` maps queries to indices in the cosines.

        Skips a use whose query was removed between two reads. Raises ValueError, TypeError or OverflowError for
        values that are not numbers.
        """
        import numpy as np

        arrays: dict[str, NDArray[Any]] = {
            "query": np.array([places.get(query, -1) for query in columns.query], np.intp),
            "helpful": np.array(
                [-1 if helped is None else int(helped) for helped in columns.helpful], np.int8
            ),
            "price": np.array(columns.price_nano, np.float64),
            "seconds": np.array(columns.seconds, np.float64),
            "step_nano": np.array(
                [np.nan if nano is None else nano for nano in columns.step_nano], np.float64
            ),
            "step_tokens": np.array(columns.step_tokens, np.float64),
        }
        values: dict[str, Iterable[Hashable]] = {
            "task": zip(columns.query, columns.session, columns.turn, strict=True),
            "tool": columns.tool,
            "document": columns.document_hash,
            "model": columns.model,
        }
        for name, column in values.items():
            codes = self._codes[name]
            arrays[name] = np.array(
                [codes.setdefault(value, len(codes)) for value in column], np.int32
            )
        is_present = arrays["query"] >= 0
        arrays = {name: column[is_present] for name, column in arrays.items()}
        figures = np.stack([arrays["price"], arrays["seconds"], arrays["step_tokens"]])
        if not np.isfinite(figures).all() or np.isinf(arrays["step_nano"]).any():
            raise ValueError("a use has a price, time or length that is not a number")
        if self._uses:
            arrays = {
                name: np.concatenate((self._uses[name], column)) for name, column in arrays.items()
            }
        self._uses, self._pairs, self._costs = arrays, None, None

    def evidence(
        self, cosines: "Floats", hashes: Mapping[str, str], model: str
    ) -> dict[str, Evidence]:
        """Return the evidence of each tool in `hashes`, which maps tools to present schema hashes.

        Every use has the weight `exp(cos − 1)` (BTP §2.2, eq. 3 and 4; SPEC §2). Unjudged uses do not count towards
        the value, and schema versions do not affect the chance of use.
        """
        import numpy as np

        uses, codes = self._uses, self._codes["tool"]
        if not uses or not len(uses["tool"]):
            return dict.fromkeys(hashes, NO_EVIDENCE)
        if self._pairs is None:
            keys = uses["task"].astype(np.int64) * len(codes) + uses["tool"]
            _, first, of_use, counts = np.unique(
                keys, return_index=True, return_inverse=True, return_counts=True
            )
            helped = np.bincount(of_use, uses["helpful"] == 1) > 0
            _, first_of_task = np.unique(uses["task"], return_index=True)
            frequency = np.where(helped, counts, 1).astype(np.float64)
            query = uses["query"]
            self._pairs = _Pairs(
                of_use, uses["tool"][first], query[first], frequency, query[first_of_task]
            )
        if self._costs is None or self._costs.model != model or self._costs.hashes != hashes:
            self._costs = self._costs_of(hashes, model)
        pairs, costs = self._pairs, self._costs
        weights = np.exp(cosines - 1)
        of_use = weights[uses["query"]] * np.where(costs.current, 1.0, OTHER_SCHEMA_WEIGHT)
        of_pair = weights[pairs.query] * np.where(
            np.bincount(pairs.of_use, costs.current) > 0, 1.0, OTHER_SCHEMA_WEIGHT
        )
        nearness = np.maximum(cosines, 0.0) ** NEARNESS
        near = float(nearness[pairs.tasks].sum())
        used = np.bincount(pairs.tool, nearness[pairs.query], len(codes))
        sums = {
            "uses": np.bincount(uses["tool"], minlength=len(codes)),
            "weight": np.bincount(uses["tool"], of_use * (uses["helpful"] >= 0), len(codes)),
            "helpful_weight": np.bincount(
                uses["tool"], of_use * (uses["helpful"] == 1), len(codes)
            ),
            "query_weight": np.bincount(pairs.tool, of_pair, len(codes)),
            "frequency_weight": np.bincount(pairs.tool, of_pair * pairs.frequency, len(codes)),
            "chance": np.minimum(1.0, used / near) if near else np.zeros(len(codes)),
        }
        # reading single numpy values is slow
        rows = [*zip(*(column.tolist() for column in sums.values()), strict=True)]
        evidence = dict.fromkeys(hashes, Evidence(chance_weight=near))
        for name in hashes:
            code = codes.get(name)
            if code is not None and rows[code][0]:
                evidence[name] = replace(
                    costs.by_tool[code],
                    **dict(zip(sums, rows[code], strict=True)),
                    chance_weight=near,
                )
        return evidence

    def _costs_of(self, hashes: Mapping[str, str], model: str) -> _Costs:
        """Compute the figures that stay valid for a session's tools and model until the next use.

        Figures are weighted means and standard deviations of the known samples.
        """
        import numpy as np

        uses, codes, documents = self._uses, self._codes["tool"], self._codes["document"]
        present = np.full(len(codes), -1)
        for name, document in hashes.items():
            if name in codes:
                present[codes[name]] = documents.get(document, -1)
        current = present[uses["tool"]] == uses["document"]
        every, same = np.ones_like(current), uses["model"] == self._codes["model"].get(model, -1)
        figures: list[list[Figure]] = []
        for column, counts_at_all in (
            ("price", every),
            ("seconds", every),
            ("step_nano", same),
            ("step_tokens", same),
        ):
            has_sample = counts_at_all & ~np.isnan(uses[column])
            tool = uses["tool"][has_sample]
            samples = uses[column][has_sample]
            shares = np.where(current, 1.0, OTHER_SCHEMA_WEIGHT)[has_sample]
            total = np.maximum(np.bincount(tool, shares, len(codes)), np.finfo(np.float64).tiny)
            means = np.bincount(tool, shares * samples, len(codes)) / total
            squares = np.bincount(tool, shares * (samples - means[tool]) ** 2, len(codes))
            rows = (np.bincount(tool, minlength=len(codes)), means, np.sqrt(squares / total))
            figures.append(
                [Figure(*row) for row in zip(*(array.tolist() for array in rows), strict=True)]
            )
        of_tools = [
            Evidence(price=price, seconds=seconds, step_nano=nano, step_tokens=tokens)
            for price, seconds, nano, tokens in zip(*figures, strict=True)
        ]
        return _Costs(dict(hashes), model, current, of_tools)


# Similarity of questions: words and parts of words, weighted by rarity (BTP §2.2, sim), without a model or network. On
# the 48 recorded runs of LiveMCPBench, embeddings of all-MiniLM-L6-v2 planned no better.

FEATURES = 1 << 16
"""Hash buckets: in a text of 250 features, two collide by chance, which moves a cosine by 0.004."""

_BLOCK = 1 << 12
"""Features whose postings are summed at a time, to bound the memory of the sums."""
_MAX_CHARACTERS = 4_000
"""Longer questions contain pasted files; their beginning carries the request."""
_WIDE = "\u2e80-\U0003ffff"
"""Chinese, Japanese and Korean: no spaces between words, and words of one to three characters."""
_RUN = re.compile(rf"[^\W_\u0000-\u2e7f]+|[^\W_{_WIDE}]+")
_SIZES = (3, 4, 5)
_WIDE_SIZES = (1, 2, 3)


class QuestionIndex:
    """An inverted index with TF-IDF over words and character n-grams of 3 to 5 (1 to 3 in scripts without spaces).

    N-grams stay within words, as in scikit-learn's `char_wb`, so that `files` is near `file` and a typing error near
    its word. Hashes are the same in every process. The weight of a feature is `ln((1 + rows) / (1 + rows with it)) + 1`
    over all current rows.
    """

    def __init__(self) -> None:
        import numpy as np

        self._count = 0
        self._rows = np.empty(0, np.int32)
        self._starts = np.zeros(FEATURES + 1, np.intp)
        """Start of each feature's rows; the last entry is the end."""
        self._squares: Floats = np.ones(FEATURES)
        self._norms: Floats | None = None

    def add(self, texts: Sequence[str]) -> None:
        """Add texts, about 20,000 questions a second."""
        import numpy as np

        each = [_features(text) for text in texts]
        numbers = np.arange(self._count, self._count + len(each), dtype=np.int32)
        rows = np.repeat(numbers, [len(text_features) for text_features in each])
        features = np.concatenate([_features(""), *each])
        order = np.argsort(features, kind="stable")
        self._rows = np.insert(self._rows, self._starts[1:][features[order]], rows[order])
        self._starts[1:] += np.cumsum(np.bincount(features, minlength=FEATURES))
        self._count += len(each)
        self._norms = None

    def cosines(self, text: str) -> "Floats":
        """Return the cosine of this text and each added one, in order; 0 for texts without words."""
        import numpy as np

        if self._norms is None:  # weights, and so the norms, change with every added row
            counts = np.diff(self._starts)
            self._squares = (np.log((1 + self._count) / (1 + counts)) + 1) ** 2
            sums = np.zeros(self._count)
            for first in range(0, FEATURES, _BLOCK):
                block = slice(first, first + _BLOCK)
                rows = self._rows[self._starts[first] : self._starts[first + _BLOCK]]
                sums += np.bincount(
                    rows, np.repeat(self._squares[block], counts[block]), minlength=self._count
                )
            self._norms = np.sqrt(sums)
        features = _features(text).astype(np.intp)
        squares = self._squares[features]
        begins, ends = self._starts[features], self._starts[features + 1]
        parts = (
            self._rows[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        )
        rows = np.concatenate([self._rows[:0], *parts])
        dots = np.bincount(rows, np.repeat(squares, ends - begins), minlength=self._count)
        lengths = self._norms * np.sqrt(squares.sum())
        return np.minimum(
            1.0, np.divide(dots, lengths, out=np.zeros(self._count), where=lengths > 0)
        )


def _features(text: str) -> "NDArray[np.uint16]":
    """Return the distinct features of a text, sorted."""
    import numpy as np

    plain = unicodedata.normalize("NFKC", text[:_MAX_CHARACTERS]).casefold()
    packed = b"".join(map(_word_features, set(_RUN.findall(plain))))
    return np.unique(np.frombuffer(packed, "<u2"))


@lru_cache(maxsize=50_000)
def _word_features(word: str) -> bytes:
    """Return the features of a word and its n-grams, two bytes each, little-endian; spaces mark its ends."""
    sizes = _WIDE_SIZES if word[0] >= _WIDE[0] else _SIZES
    marked = f" {word} "
    grams = {
        marked[start : start + size] for size in sizes for start in range(len(marked) - size + 1)
    }
    features = (
        zlib.crc32(gram.encode("utf-8", "replace")) % FEATURES for gram in (*grams, f"={word}")
    )
    return b"".join(feature.to_bytes(2, "little") for feature in features)

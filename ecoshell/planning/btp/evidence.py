"""Evidence for a new question: recorded uses, weighted by similarity of their questions (BTP §2.2).

`Past` follows the experience store and keeps it in memory as numeric columns. `Evidence` summarises a tool.
"""

import re
import threading
import unicodedata
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from ecoshell.errors import StoreError
from ecoshell.planning.btp.experience import Columns

if TYPE_CHECKING:
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
    subagent_prices: Mapping[str, Figure] = field(default_factory=dict[str, Figure])
    """Nano-dollars of the subagents that it started, by their model."""
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
        with self._lock:
            try:
                self._follow()
                if self._questions is None or not self._last_use:
                    return dict.fromkeys(hashes, NO_EVIDENCE)
                return self._history.evidence(self._questions.cosines(query), hashes, model)
            except _DAMAGE as damage:  # SQLite accepts any value in any column
                self._generation = None
                raise StoreError(
                    f"The experience is damaged: {damage}.",
                    fix="Move experience.sqlite away; ecoshell creates a new one.",
                ) from damage

    def _forget(self) -> None:
        self._last_use = 0
        self._history = _History()
        self._places: dict[int, int] = {}
        """The index in the cosines of each question, by its id."""
        self._questions: QuestionIndex | None = None
        """Created with the first use, because it loads numpy."""

    def _follow(self) -> None:
        """Read new rows, or everything again after a change of existing rows."""
        # first, so that a change during the read is noticed next time
        generation = self._store.generation
        if generation != self._generation:
            self._forget()
        self._generation = None  # until all is read: after a failure, the next call starts over
        columns = self._store.columns(self._last_use)
        if columns.id:
            # after the uses, so that they exist
            fresh = self._store.queries(max(self._places, default=0))
            numbers = [number for number, _ in fresh]
            self._places |= {
                number: place for place, number in enumerate(numbers, len(self._places))
            }
            self._questions = self._questions or QuestionIndex()
            self._questions.add([text for _, text in fresh])
            self._history.add(columns, self._places)
            self._last_use = max(columns.id)
        self._generation = generation


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
            "subagent_model": {},
        }
        """Codes for the values of these columns, in order of first appearance."""
        self._uses: dict[str, NDArray[Any]] = {}
        """Uses as parallel numeric columns; unknown is NaN.

        `query` is the index of the question in the cosines; `helpful` is −1 if not judged.
        """

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
            "subagent_model": columns.subagent_model,
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
        self._uses = arrays

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
        is_current = self._is_current(hashes)
        shares = np.where(is_current, 1.0, OTHER_SCHEMA_WEIGHT)
        # Pairs are the distinct pairs of a past task and a used tool.
        keys = uses["task"].astype(np.int64) * len(codes) + uses["tool"]
        _, first, pair, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        pair_tool, pair_query = uses["tool"][first], uses["query"][first]
        has_helped = np.bincount(pair, uses["helpful"] == 1) > 0
        pair_shares = np.where(np.bincount(pair, is_current) > 0, 1.0, OTHER_SCHEMA_WEIGHT)
        weights = np.exp(cosines - 1)
        use_weights = weights[uses["query"]] * shares
        pair_weights = weights[pair_query] * pair_shares
        nearness = np.maximum(cosines, 0.0) ** NEARNESS
        _, first_of_task = np.unique(uses["task"], return_index=True)
        near = float(nearness[uses["query"][first_of_task]].sum())
        used = np.bincount(pair_tool, nearness[pair_query], len(codes))

        def by_tool(tools: "Integers", weights: "Floats") -> list[float]:
            return np.bincount(tools, weights, len(codes)).tolist()

        columns: dict[str, Sequence[object]] = {
            "uses": np.bincount(uses["tool"], minlength=len(codes)).tolist(),
            "weight": by_tool(uses["tool"], use_weights * (uses["helpful"] >= 0)),
            "helpful_weight": by_tool(uses["tool"], use_weights * (uses["helpful"] == 1)),
            "query_weight": by_tool(pair_tool, pair_weights),
            # F(q, t): the uses in the task, or 1 if no use is known to have helped (SPEC §2)
            "frequency_weight": by_tool(pair_tool, pair_weights * np.where(has_helped, counts, 1)),
            "chance": np.minimum(1.0, used / near).tolist() if near else [0.0] * len(codes),
            **self._figures(shares, model),
            "subagent_prices": self._subagent_prices(shares),
        }
        evidence = dict.fromkeys(hashes, Evidence(chance_weight=near))
        for name in hashes:
            code = codes.get(name)
            if code is not None and columns["uses"][code]:
                fields: dict[str, Any] = {field: column[code] for field, column in columns.items()}
                evidence[name] = Evidence(**fields, chance_weight=near)
        return evidence

    def _is_current(self, hashes: Mapping[str, str]) -> "Truths":
        """Return which uses were under the present schema of their tool."""
        import numpy as np

        codes, documents = self._codes["tool"], self._codes["document"]
        present = np.full(len(codes), -1)
        for name, document in hashes.items():
            if name in codes:
                present[codes[name]] = documents.get(document, -1)
        return present[self._uses["tool"]] == self._uses["document"]

    def _figures(self, shares: "Floats", model: str) -> dict[str, list[Figure]]:
        """Return the figures of all costs by the tool's code; those of steps are of `model`."""
        import numpy as np

        uses = self._uses
        with_model = uses["model"] == self._codes["model"].get(model, -1)
        figures: dict[str, list[Figure]] = {}
        for name in ("price", "seconds", "step_nano", "step_tokens"):
            has_sample = ~np.isnan(uses[name])
            if name.startswith("step"):
                has_sample &= with_model
            figures[name] = self._weighted(name, has_sample, shares)
        return figures

    def _subagent_prices(self, shares: "Floats") -> list[dict[str, Figure]]:
        """Return the prices of subagents by the tool's code and their model."""
        uses = self._uses
        prices: list[dict[str, Figure]] = [{} for _ in self._codes["tool"]]
        for model, code in self._codes["subagent_model"].items():
            if not model:
                continue
            figures = self._weighted("price", uses["subagent_model"] == code, shares)
            for tool, figure in enumerate(figures):
                if figure.count:
                    prices[tool][str(model)] = figure
        return prices

    def _weighted(self, name: str, has_sample: "Truths", shares: "Floats") -> list[Figure]:
        """Return the weighted means and standard deviations of a column's samples, by the tool's code."""
        import numpy as np

        uses, count = self._uses, len(self._codes["tool"])
        tool = uses["tool"][has_sample]
        samples, weights = uses[name][has_sample], shares[has_sample]
        total = np.maximum(np.bincount(tool, weights, count), np.finfo(np.float64).tiny)
        means = np.bincount(tool, weights * samples, count) / total
        squares = np.bincount(tool, weights * (samples - means[tool]) ** 2, count)
        rows = (np.bincount(tool, minlength=count), means, np.sqrt(squares / total))
        return [Figure(*row) for row in zip(*(row.tolist() for row in rows), strict=True)]


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

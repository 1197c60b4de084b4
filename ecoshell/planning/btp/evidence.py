"""What the past says of a new question: recorded uses and attempts, weighed by how near theirs are to it (BTP §2.2).

`Past` follows the experience store and keeps it in memory as columns of numbers; `Evidence` is what comes of them for
one tool, `ModeEvidence` for a mode: `choose` says which mode tries a question first.
"""

import math
import re
import threading
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Protocol

from ecoshell.budget import Unit, amount_text, rounded_up
from ecoshell.errors import StoreError
from ecoshell.planning.btp.experience import AttemptRow, Columns

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.signedinteger[Any]]
    Truths = NDArray[np.bool_]

OTHER_DOCUMENT = 0.5
"""What a use under another document of its tool weighs, beside one under the present document."""
NEARNESS = 3
"""The power of the cosine by which a past task counts towards the chance of use.

`exp(cos − 1)` hardly tells near from far: 40,000 tasks of another kind would outweigh one that is the same. With
`plan.RANKER_WEIGHT` near the best of 96 settings, by the log-likelihood of the tools that LiveMCPBench's 48 runs used,
each left out in turn: −548, against −625 of the ranker's chances alone. With a setting chosen without the run it is
tried on, a power of the cosine has −550, and `exp(k·(cos − 1))` −579.
"""
_DAMAGE = (ValueError, TypeError, IndexError, AttributeError, OverflowError)
"""How a value that is not what its column says shows itself."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A running mean with its standard deviation; `count` 0 says that nothing was seen yet."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What past uses say of one tool for a new query; `w = exp(cos(q, q_past) − 1)` weighs each (SPEC §2).

    A use under another document of the tool counts with a part of its weight.
    """

    uses: int = 0
    """All recorded uses of the tool, of any weight."""
    weight: float = 0.0
    """Σ w over its judged uses."""
    helpful_weight: float = 0.0
    """Σ w·helpful over its judged uses."""
    query_weight: float = 0.0
    """Σ w over past queries that used it."""
    frequency_weight: float = 0.0
    """Σ w·F(q, t) over past queries that used it; where it never helped, F counts as at most one."""
    chance: float = 0.0
    """Share of the weight of all past queries whose task used it, 0 to 1: near queries count most."""
    chance_weight: float = 0.0
    """That weight of all past queries: how much experience there is with tasks like the new one."""
    price: Figure = field(default_factory=Figure)
    """Nano-dollars of the tool itself."""
    seconds: Figure = field(default_factory=Figure)
    step_nano: Figure = field(default_factory=Figure)
    """Nano-dollars of the model step, under the model that is asked for."""
    step_tokens: Figure = field(default_factory=Figure)
    """Tokens of the model step, under the model that is asked for."""


NO_EVIDENCE = Evidence()


CANDIDATES = ("single", "umi")
"""The modes there are to choose from; the first takes the fewest calls, so it begins where nothing is known."""
PRIOR = 0.5
PRIOR_WEIGHT = 1.0
"""A mode begins as if half of one question just like this one had been answered."""

SHARPNESS = 4.0
"""k of `w = exp(k·(cos − 1))`: 1 for the same question, a seventh at a cosine of ½, a fiftieth at 0.

The plan's k of 1 (BTP §2.2) hardly tells near from far (`btp.evidence.NEARNESS`): there a tool's value should come
from all its uses, while here forty easy questions of another kind must not outvote five hard ones like the new one.
"""
_TELLING = {"answered": 1.0, "gave_up": 0.0}
"""Outcomes that say something of the mode: a limit, a failure and a stop come from elsewhere."""
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class ModeEvidence:
    """What past attempts in one mode say of a new question; near questions count most."""

    attempts: int = 0
    """Those that were answered or given up."""
    weight: float = 0.0
    """Σ w over them."""
    answered_weight: float = 0.0
    """Σ w·answered."""
    price_nano: float | None = None
    """The weighted mean; None when one is unknown, or nothing is."""
    tokens: float = 0.0
    """The weighted mean, as that of the seconds."""
    seconds: float = 0.0

    @property
    def success(self) -> float:
        """(Σ w·answered + ½) / (Σ w + 1), how likely the mode answers; in (0, 1)."""
        return (self.answered_weight + PRIOR * PRIOR_WEIGHT) / (self.weight + PRIOR_WEIGHT)


NOTHING_KNOWN = ModeEvidence()


class Store(Protocol):
    """What is read of an experience store; ids grow, and `after` gives what came later than one."""

    @property
    def generation(self) -> object:
        """Changes when what was there is changed or removed."""
        ...

    def queries(self, after: int = 0) -> Sequence[tuple[int, str]]: ...
    def columns(self, after: int = 0) -> Columns: ...
    def attempts_after(self, after: int = 0) -> Sequence[AttemptRow]: ...


class Past:
    """Past uses and attempts as evidence; follows the store, whoever writes to it. Blocks, and any thread may ask.

    Raises StoreError when the store cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._generation: object = None
        self._forget()

    def evidence(self, query: str, hashes: Mapping[str, str], model: str) -> dict[str, Evidence]:
        """What is known of each tool in `hashes`, which gives the hash of its present document (BTP §2.2).

        Steps are priced as those of `model`.
        """
        with self._followed():
            if self._questions is None or not self._last_use:
                return dict.fromkeys(hashes, NO_EVIDENCE)
            return self._history.evidence(self._questions.cosines(query), hashes, model)

    def modes(self, query: str, models: Mapping[str, str]) -> dict[str, ModeEvidence]:
        """What is known of each mode in `models`, which says who would play in it."""
        with self._followed():
            if self._questions is None or not self._last_attempt:
                return dict.fromkeys(models, NOTHING_KNOWN)
            return self._attempts.evidence(self._questions.cosines(query), models)

    def _forget(self) -> None:
        self._last_use = self._last_attempt = 0
        self._history = _History()
        self._attempts = PastAttempts()
        self._places: dict[int, int] = {}
        """Where each question, by its id, stands among the cosines."""
        self._questions: QuestionIndex | None = None
        """Made with the first use or attempt: it loads numpy, which a shell without experience need not."""

    @contextmanager
    def _followed(self) -> Generator[None]:
        """The state of the store at this moment; raises StoreError where it makes no sense.

        What is new is read, and all again when something that was read has changed.
        """
        with self._lock:
            try:
                generation = self._store.generation  # first, so that a change while reading is seen the next time
                if generation != self._generation:
                    self._forget()
                self._generation = None  # until all is read: where this fails midway, the next call begins anew
                columns, attempts = self._store.columns(self._last_use), self._store.attempts_after(self._last_attempt)
                if columns.id or attempts:  # after the uses and attempts, so that their questions are there
                    fresh = self._store.queries(max(self._places, default=0))
                    self._places |= {number: place for place, (number, _) in enumerate(fresh, len(self._places))}
                    self._questions = self._questions or QuestionIndex()
                    self._questions.add([text for _, text in fresh])
                if columns.id:
                    self._history.add(columns, self._places)
                    self._last_use = max(columns.id)
                if attempts:
                    self._attempts.add(attempts, self._places)
                    self._last_attempt = max(one.id for one in attempts)
                self._generation = generation
                yield
            except _DAMAGE as damage:  # a fence: SQLite keeps any value in any column
                self._generation = None
                raise StoreError(
                    f"The experience is damaged: {damage}.",
                    fix="`ecoshell experience export` may save it; then move experience.sqlite away.",
                ) from damage


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Each past task with each tool it used, once."""

    of_use: "Integers"
    """The pair each use belongs to."""
    tool: "Integers"
    query: "Integers"
    frequency: "Floats"
    """F(q, t): the uses in that task; one where none of them is known to have helped (SPEC §2)."""
    tasks: "Integers"
    """The question of each task, once."""


@dataclass(frozen=True, slots=True)
class _Costs:
    """What does not depend on the question: which uses count in full, and what each tool has cost, by its code."""

    hashes: Mapping[str, str]
    model: str
    current: "Truths"
    """Uses under the present document of their tool."""
    known: Sequence[Evidence]
    """Of each tool: its price, its seconds, and the step's price and tokens under the model."""


class _History:
    """All uses that were read so far; not thread-safe.

    A task is one asking of a question: the same question asked in two turns is two tasks.
    """

    def __init__(self) -> None:
        self._codes: dict[str, dict[Hashable, int]] = {"task": {}, "tool": {}, "document": {}, "model": {}}
        """Small numbers for the values of these columns, in the order in which they first came."""
        self._uses: dict[str, NDArray[Any]] = {}
        """Uses as parallel columns, of one number each; unknown is NaN.

        `query` is where the question stands among the cosines, and `helpful` −1 where nobody could tell.
        """
        self._pairs: _Pairs | None = None
        self._costs: _Costs | None = None

    def add(self, columns: Columns, places: Mapping[int, int]) -> None:
        """Take in further uses; `places` says where each query stands among the cosines.

        A use whose query was forgotten between two looks at the store has no place and is left out. Raises ValueError,
        TypeError or OverflowError for what is no number.
        """
        import numpy as np

        found: dict[str, NDArray[Any]] = {
            "query": np.array([places.get(query, -1) for query in columns.query], np.intp),
            "helpful": np.array([-1 if helped is None else int(helped) for helped in columns.helpful], np.int8),
            "price": np.array(columns.price_nano, np.float64),
            "seconds": np.array(columns.seconds, np.float64),
            "step_nano": np.array([np.nan if nano is None else nano for nano in columns.step_nano], np.float64),
            "step_tokens": np.array(columns.step_tokens, np.float64),
        }
        values: dict[str, Iterable[Hashable]] = {
            "task": zip(columns.query, columns.session, columns.turn, strict=True),
            "tool": columns.tool,
            "document": columns.document_hash,
            "model": columns.model,
        }
        for name, column in values.items():
            known = self._codes[name]
            found[name] = np.array([known.setdefault(value, len(known)) for value in column], np.int32)
        there = found["query"] >= 0
        found = {name: column[there] for name, column in found.items()}
        figures = np.stack([found["price"], found["seconds"], found["step_tokens"]])
        if not np.isfinite(figures).all() or np.isinf(found["step_nano"]).any():
            raise ValueError("a use has a price, a time or a length that is no number")
        if self._uses:
            found = {name: np.concatenate((self._uses[name], column)) for name, column in found.items()}
        self._uses, self._pairs, self._costs = found, None, None

    def evidence(self, cosines: "Floats", hashes: Mapping[str, str], model: str) -> dict[str, Evidence]:
        """What the uses say of each tool in `hashes`, which gives the hash of its present document.

        Every use is weighed by `exp(cos − 1)` (BTP §2.2, eq. 3 and 4; SPEC §2). One that nobody judged does not count
        towards the value; a tool's document has no say in how likely a task is to use it.
        """
        import numpy as np

        uses, codes = self._uses, self._codes["tool"]
        if not uses or not len(uses["tool"]):
            return dict.fromkeys(hashes, NO_EVIDENCE)
        if self._pairs is None:
            keys = uses["task"].astype(np.int64) * len(codes) + uses["tool"]
            _, first, of_use, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
            helped = np.bincount(of_use, uses["helpful"] == 1) > 0
            _, first_of_task = np.unique(uses["task"], return_index=True)
            frequency = np.where(helped, counts, 1).astype(np.float64)
            query = uses["query"]
            self._pairs = _Pairs(of_use, uses["tool"][first], query[first], frequency, query[first_of_task])
        if self._costs is None or self._costs.model != model or self._costs.hashes != hashes:
            self._costs = self._costs_of(hashes, model)
        pairs, costs = self._pairs, self._costs
        weights = np.exp(cosines - 1)
        of_use = weights[uses["query"]] * np.where(costs.current, 1.0, OTHER_DOCUMENT)
        of_pair = weights[pairs.query] * np.where(np.bincount(pairs.of_use, costs.current) > 0, 1.0, OTHER_DOCUMENT)
        nearness = np.maximum(cosines, 0.0) ** NEARNESS
        near = float(nearness[pairs.tasks].sum())
        used = np.bincount(pairs.tool, nearness[pairs.query], len(codes))
        sums = {
            "uses": np.bincount(uses["tool"], minlength=len(codes)),
            "weight": np.bincount(uses["tool"], of_use * (uses["helpful"] >= 0), len(codes)),
            "helpful_weight": np.bincount(uses["tool"], of_use * (uses["helpful"] == 1), len(codes)),
            "query_weight": np.bincount(pairs.tool, of_pair, len(codes)),
            "frequency_weight": np.bincount(pairs.tool, of_pair * pairs.frequency, len(codes)),
            "chance": np.minimum(1.0, used / near) if near else np.zeros(len(codes)),
        }
        rows = [*zip(*(column.tolist() for column in sums.values()), strict=True)]  # single numbers are slow to get
        evidence = dict.fromkeys(hashes, Evidence(chance_weight=near))
        for name in hashes:
            code = codes.get(name)
            if code is not None and rows[code][0]:
                evidence[name] = replace(
                    costs.known[code], **dict(zip(sums, rows[code], strict=True)), chance_weight=near
                )
        return evidence

    def _costs_of(self, hashes: Mapping[str, str], model: str) -> _Costs:
        """What is found once for the tools and the model of a session, as long as nothing was used since.

        Figures are the mean and the standard deviation of a tool's known samples, each counting by its share.
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
        for column, counts_at_all in (("price", every), ("seconds", every), ("step_nano", same), ("step_tokens", same)):
            known = counts_at_all & ~np.isnan(uses[column])
            tool, samples, shares = (
                uses["tool"][known],
                uses[column][known],
                np.where(current, 1.0, OTHER_DOCUMENT)[known],
            )
            total = np.maximum(np.bincount(tool, shares, len(codes)), np.finfo(np.float64).tiny)
            means = np.bincount(tool, shares * samples, len(codes)) / total
            squares = np.bincount(tool, shares * (samples - means[tool]) ** 2, len(codes))
            rows = (np.bincount(tool, minlength=len(codes)), means, np.sqrt(squares / total))
            figures.append([Figure(*row) for row in zip(*(one.tolist() for one in rows), strict=True)])
        of_tools = [
            Evidence(price=price, seconds=seconds, step_nano=nano, step_tokens=tokens)
            for price, seconds, nano, tokens in zip(*figures, strict=True)
        ]
        return _Costs(dict(hashes), model, current, of_tools)


# How alike questions are: by their words and parts of words, weighed by how rare these are (BTP §2.2, sim). It needs no
# model and no network. On the 48 recorded runs of LiveMCPBench the vectors of all-MiniLM-L6-v2, which were compared in
# their place, planned no better (docs/plan.md).

FEATURES = 1 << 16
"""How many features texts are hashed to: two of 250 features share one by chance, which moves a cosine by 0.004."""

_BLOCK = 1 << 12
"""Features whose postings are summed at a time, so that the sums stay small beside the index."""
_MOST_CHARACTERS = 4_000
"""A pasted file is a question's attachment: its beginning says what is wanted."""
_WIDE = "\u2e80-\U0003ffff"
"""Chinese, Japanese and Korean: no spaces between words, and a word is one to three signs."""
_RUN = re.compile(rf"[^\W_\u0000-\u2e7f]+|[^\W_{_WIDE}]+")
_SIZES = (3, 4, 5)
_WIDE_SIZES = (1, 2, 3)


class QuestionIndex:
    """TF-IDF over words and their character n-grams of 3 to 5 (1 to 3 where words have no spaces), an inverted index.

    N-grams stay within words, as in scikit-learn's `char_wb`, so that `files` is near `file` and a typing error near
    its word. They are hashed alike in every process. A feature weighs `ln((1 + rows) / (1 + rows that have it)) + 1`,
    so the weights always are those of all rows together.
    """

    def __init__(self) -> None:
        import numpy as np

        self._count = 0
        self._rows = np.empty(0, np.int32)
        self._starts = np.zeros(FEATURES + 1, np.intp)
        """Where each feature's rows begin; the last is where all end."""
        self._squares: Floats = np.ones(FEATURES)
        self._norms: Floats | None = None

    def add(self, texts: Sequence[str]) -> None:
        """Take in further texts, about 20,000 questions a second."""
        import numpy as np

        each = [_features(text) for text in texts]
        numbers = np.arange(self._count, self._count + len(each), dtype=np.int32)
        rows, features = np.repeat(numbers, [len(one) for one in each]), np.concatenate([_features(""), *each])
        order = np.argsort(features, kind="stable")
        self._rows = np.insert(self._rows, self._starts[1:][features[order]], rows[order])
        self._starts[1:] += np.cumsum(np.bincount(features, minlength=FEATURES))
        self._count += len(each)
        self._norms = None

    def cosines(self, text: str) -> "Floats":
        """The cosine of this text and each that was added, in their order; 0 where either has no words."""
        import numpy as np

        if self._norms is None:  # weights change with every row that comes, and so does the length of each row
            counts = np.diff(self._starts)
            self._squares = (np.log((1 + self._count) / (1 + counts)) + 1) ** 2
            sums = np.zeros(self._count)
            for first in range(0, FEATURES, _BLOCK):
                block = slice(first, first + _BLOCK)
                rows = self._rows[self._starts[first] : self._starts[first + _BLOCK]]
                sums += np.bincount(rows, np.repeat(self._squares[block], counts[block]), minlength=self._count)
            self._norms = np.sqrt(sums)
        features = _features(text).astype(np.intp)
        squares = self._squares[features]
        begins, ends = self._starts[features], self._starts[features + 1]
        parts = (self._rows[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
        rows = np.concatenate([self._rows[:0], *parts])
        dots = np.bincount(rows, np.repeat(squares, ends - begins), minlength=self._count)
        lengths = self._norms * np.sqrt(squares.sum())
        return np.minimum(1.0, np.divide(dots, lengths, out=np.zeros(self._count), where=lengths > 0))


def _features(text: str) -> "NDArray[np.uint16]":
    """The numbers of the text's features, sorted, each once."""
    import numpy as np

    plain = unicodedata.normalize("NFKC", text[:_MOST_CHARACTERS]).casefold()
    found = b"".join(map(_word_features, set(_RUN.findall(plain))))
    return np.unique(np.frombuffer(found, "<u2"))


@lru_cache(maxsize=50_000)
def _word_features(word: str) -> bytes:
    """The word and its n-grams, spaces marking its ends; remembered, as questions share most of their words.

    Each is two bytes, the lower first.
    """
    sizes = _WIDE_SIZES if word[0] >= _WIDE[0] else _SIZES
    marked = f" {word} "
    grams = {marked[start : start + size] for size in sizes for start in range(len(marked) - size + 1)}
    features = (zlib.crc32(gram.encode("utf-8", "replace")) % FEATURES for gram in (*grams, f"={word}"))
    return b"".join(feature.to_bytes(2, "little") for feature in features)


_Counted = tuple[int, float, AttemptRow]
"""Where the question stands among the cosines, 1 where it was answered and 0 where not, and the attempt."""


class PastAttempts:
    """All attempts that were read so far and that count; not thread-safe."""

    def __init__(self) -> None:
        self._counted: defaultdict[tuple[str, str], list[_Counted]] = defaultdict(list)

    def add(self, rows: Iterable[AttemptRow], places: Mapping[int, int]) -> None:
        """Take in further attempts; `places` says where each query stands among the cosines.

        One whose query was forgotten between two looks at the store is left out. Raises ValueError and TypeError for
        what is no number.
        """
        for row in rows:
            place, answered = places.get(row.query), _TELLING.get(row.outcome)
            if place is None or answered is None:
                continue
            if not all(map(math.isfinite, (row.price_nano or 0, row.tokens, row.seconds))):
                raise ValueError("an attempt has a price, a time or a length that is no number")
            self._counted[row.mode, row.models].append((place, answered, row))

    def evidence(self, cosines: "NDArray[np.float64]", models: Mapping[str, str]) -> dict[str, ModeEvidence]:
        """What is known of each mode in `models`, which says who would play in it: of others nothing follows."""
        found: dict[str, ModeEvidence] = {}
        for mode, played in models.items():
            counted = self._counted.get((mode, played))
            if not counted:
                found[mode] = NOTHING_KNOWN
                continue
            rows = [row for _, _, row in counted]
            weights = [math.exp(SHARPNESS * (float(cosines[place]) - 1)) for place, _, _ in counted]
            total = math.fsum(weights)
            prices = [row.price_nano for row in rows if row.price_nano is not None]
            found[mode] = ModeEvidence(
                attempts=len(rows),
                weight=total,
                answered_weight=math.fsum(map(mul, weights, (answered for _, answered, _ in counted))),
                price_nano=math.fsum(map(mul, weights, prices)) / total if len(prices) == len(rows) else None,
                tokens=math.fsum(map(mul, weights, (row.tokens for row in rows))) / total,
                seconds=math.fsum(map(mul, weights, (row.seconds for row in rows))) / total,
            )
        return found


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """The mode that tries first, and why in a sentence without its end."""

    mode: str
    why: str


def choose(evidence: Mapping[str, ModeEvidence], hour_nano: int = 0) -> ModeChoice:
    """The mode with the greatest success / cost; the earlier of CANDIDATES where two are alike.

    Where one mode goes on when the other gives up, both orders answer the same questions, and trying a before b costs
    c_a + (1 − s_a)·c_b on average, b before a c_b + (1 − s_b)·c_a. The first is less exactly where
    s_a / c_a > s_b / c_b: the rule for tests in a row (Mitten, *An analytic solution to the least cost testing sequence
    problem*, 1960). The cost is the price, with waiting at `hour_nano` an hour, and tokens where a price is unknown or
    nothing costs anything. A mode that was never tried is not tried first, but for the first of CANDIDATES: what it
    does not answer goes to the other, which is how that comes to be known.
    """
    first = CANDIDATES[0]
    known = {mode: evidence[mode] for mode in CANDIDATES if evidence.get(mode, NOTHING_KNOWN).attempts}
    if first not in known:
        return ModeChoice(first, f"nothing is known yet of {first} with these models, and it takes the fewest calls")
    if len(known) < len(CANDIDATES):
        others = " and ".join(mode for mode in CANDIDATES if mode not in known)
        return ModeChoice(first, f"{others} was not tried with these models yet, and is where {first} gives up")
    waiting = {mode: hour_nano * one.seconds / _HOUR for mode, one in known.items()}
    prices = {mode: one.price_nano for mode, one in known.items() if one.price_nano is not None}
    unit: Unit = "usd"
    if len(prices) == len(known) and any(prices[mode] + waiting[mode] > 0 for mode in known):
        costs = {mode: max(1.0, prices[mode] + waiting[mode]) for mode in known}
    else:
        costs, unit = {mode: max(1.0, one.tokens) for mode, one in known.items()}, "tokens"
    best = max(known, key=lambda mode: known[mode].success / costs[mode])
    ranked = (best, *(mode for mode in known if mode != best))
    shown = {mode: amount_text(rounded_up(round(costs[mode])), unit) for mode in ranked}
    told = (f"{mode} answers {known[mode].success:.0%} for about {shown[mode]}" for mode in ranked)
    return ModeChoice(best, f"of questions like this one {', '.join(told)}")

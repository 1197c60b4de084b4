"""What the past says of a new question: recorded uses and attempts, weighed by how near theirs are to it (BTP §2.2).

`Past` follows the experience store and keeps it in memory as columns of numbers; `Evidence` is what comes of them for
one tool. What comes of attempts is in `planning.mode_choice`.
"""

import threading
from array import array
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from ecoshell.errors import StoreError
from ecoshell.planning.btp.experience import Columns
from ecoshell.planning.btp.similarity import FeatureIndex, WordEncoder
from ecoshell.planning.mode_choice import NOTHING_KNOWN, AttemptRow, ModeEvidence, PastAttempts

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
_PAUSE = 60.0
"""Seconds until vectors that could not be kept are tried again: each attempt may wait for a lock."""
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


class Store(Protocol):
    """What is read of an experience store; ids grow, and `after` gives what came later than one."""

    @property
    def generation(self) -> object:
        """Changes when what was there is changed or removed."""
        ...

    def queries(self, after: int = 0) -> Sequence[tuple[int, str]]: ...
    def columns(self, after: int = 0) -> Columns: ...
    def attempts_after(self, after: int = 0) -> Sequence[AttemptRow]: ...
    def vectors(self, encoder: str, after: int = 0) -> Sequence[tuple[int, bytes]]: ...
    def keep_vectors(self, encoder: str, rows: Iterable[tuple[int, bytes]]) -> None: ...


class Past:
    """Past uses and attempts as evidence; follows the store, whoever writes to it. Blocks, and any thread may ask.

    Raises StoreError when the store cannot be read.
    """

    def __init__(self, store: Store, encoder: WordEncoder) -> None:
        self._store = store
        self._encoder = encoder
        self._lock = threading.Lock()
        self._generation: object = None
        self._unkept: dict[int, bytes] = {}
        """Vectors that are to be kept for other shells and the next start, and could not be yet."""
        self._not_before = 0.0
        self._forget()

    def evidence(self, query: str, hashes: Mapping[str, str], model: str) -> dict[str, Evidence]:
        """What is known of each tool in `hashes`, which gives the hash of its present document (BTP §2.2).

        Steps are priced as those of `model`.
        """
        with self._followed():
            if not self._last_use:
                return dict.fromkeys(hashes, NO_EVIDENCE)
            return self._history.evidence(self._questions.cosines(query), hashes, model)

    def modes(self, query: str, models: Mapping[str, str]) -> dict[str, ModeEvidence]:
        """What is known of each mode in `models`, which says who would play in it."""
        with self._followed():
            if not self._last_attempt:
                return dict.fromkeys(models, NOTHING_KNOWN)
            return self._attempts.evidence(self._questions.cosines(query), models)

    @contextmanager
    def _followed(self) -> Generator[None]:
        """The state of the store at this moment; raises StoreError where it makes no sense."""
        with self._lock:
            try:
                self._catch_up()
                yield
            except _DAMAGE as damage:  # a fence: SQLite keeps any value in any column
                self._generation = None
                raise StoreError(
                    f"The experience is damaged: {damage}.",
                    fix="`ecoshell experience export` may save it; then move experience.sqlite away.",
                ) from damage

    def _forget(self) -> None:
        self._last_use = self._last_attempt = 0
        self._history = _History()
        self._attempts = PastAttempts()
        self._questions = _Questions(self._encoder)

    def _catch_up(self) -> None:
        """Read what is new; read all again when something that was read has changed."""
        generation = self._store.generation  # first, so that a change while reading is seen the next time
        if generation != self._generation:
            self._forget()
        self._generation = None  # until all is read: where this fails midway, the next call begins anew
        columns, attempts = self._store.columns(self._last_use), self._store.attempts_after(self._last_attempt)
        questions = self._questions
        if columns.id or attempts:  # after the uses and attempts, so that their questions are there
            last = questions.last
            questions.read(self._store.queries(last))
            questions.take(self._store.vectors(self._encoder.name, last))
        if columns.id:
            self._history.add(columns, questions.places)
            self._last_use = max(columns.id)
        if attempts:
            self._attempts.add(attempts, questions.places)
            self._last_attempt = max(one.id for one in attempts)
        self._keep(questions.encode_some())
        self._generation = generation

    def _keep(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Keep these vectors with those that wait, unless this has failed a short while ago."""
        self._unkept.update(rows)
        if not self._unkept or monotonic() < self._not_before:
            return
        try:
            self._store.keep_vectors(self._encoder.name, self._unkept.items())
        except StoreError:
            self._not_before = monotonic() + _PAUSE
        else:
            self._unkept.clear()


class _Questions:
    """Past questions and the index of those that are encoded; one that is not yet has a cosine of 0 with all."""

    def __init__(self, encoder: WordEncoder) -> None:
        self.places: dict[int, int] = {}
        """Where each question, by its id, stands among the cosines."""
        self.last = 0
        """The id of the last question that was read."""
        self._encoder = encoder
        self._indexed = array("q")
        """The place of each vector in the index."""
        self._waiting: dict[int, str] = {}
        """Texts that are still to be encoded, the oldest first."""

    @cached_property
    def _index(self) -> FeatureIndex:
        """Made with the first vectors: it loads numpy, which a shell without experience need not."""
        return FeatureIndex()

    def read(self, queries: Iterable[tuple[int, str]]) -> None:
        """Take in further questions, which are to be encoded unless their vectors are taken as well."""
        for number, text in queries:
            self.places[number] = len(self.places)
            self._waiting[number] = text
        self.last = max(self.places, default=0)

    def take(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Take in vectors of questions that wait for theirs."""
        taken = [(number, row) for number, row in rows if number in self._waiting and self._encoder.fits(row)]
        self._index.add([vector for _, vector in taken])
        self._indexed.extend(self.places[number] for number, _ in taken)
        for number, _ in taken:
            del self._waiting[number]

    def encode_some(self) -> list[tuple[int, bytes]]:
        """Encode the latest for about a second, so that no answer waits for thousands; gives their vectors."""
        latest = [*islice(reversed(self._waiting.items()), self._encoder.batch)]
        rows = [*zip((number for number, _ in latest), self._encoder.encode([text for _, text in latest]), strict=True)]
        if rows:
            self.take(rows)
        return rows

    def cosines(self, text: str) -> "Floats":
        """The cosine of this text and each past question, by place."""
        import numpy as np

        cosines = np.zeros(len(self.places))
        cosines[np.frombuffer(self._indexed, np.int64)] = self._index.cosines(self._encoder.encode([text])[0])
        return cosines


@dataclass(frozen=True, slots=True)
class _Uses:
    """Uses as parallel columns, of one number each; unknown is NaN."""

    query: "Integers"
    """Where the question stands among the cosines."""
    task: "Integers"
    tool: "Integers"
    document: "Integers"
    model: "Integers"
    helpful: "Integers"
    """1, 0, or −1 where nobody could tell."""
    price: "Floats"
    seconds: "Floats"
    step_nano: "Floats"
    step_tokens: "Floats"


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
        self._tools, self._documents, self._models, self._tasks = _Codes(), _Codes(), _Codes(), _Codes()
        self._uses: _Uses | None = None
        self._pairs: _Pairs | None = None
        self._costs: _Costs | None = None

    def add(self, columns: Columns, places: Mapping[int, int]) -> None:
        """Take in further uses; `places` says where each query stands among the cosines.

        A use whose query was forgotten between two looks at the store has no place and is left out. Raises ValueError,
        TypeError or OverflowError for what is no number.
        """
        import numpy as np

        query = np.array([places.get(query, -1) for query in columns.query], np.intp)
        found = _Uses(
            query=query,
            task=self._tasks.of(zip(columns.query, columns.session, columns.turn, strict=True)),
            tool=self._tools.of(columns.tool),
            document=self._documents.of(columns.document_hash),
            model=self._models.of(columns.model),
            helpful=np.array([-1 if helped is None else int(helped) for helped in columns.helpful], np.int8),
            price=np.array(columns.price_nano, np.float64),
            seconds=np.array(columns.seconds, np.float64),
            step_nano=np.array([np.nan if nano is None else nano for nano in columns.step_nano], np.float64),
            step_tokens=np.array(columns.step_tokens, np.float64),
        )
        found = _Uses(*(getattr(found, one.name)[query >= 0] for one in fields(found)))
        known = np.stack([found.price, found.seconds, found.step_tokens])
        if not np.isfinite(known).all() or np.isinf(found.step_nano).any():
            raise ValueError("a use has a price, a time or a length that is no number")
        if self._uses is not None:
            pairs = ((getattr(self._uses, one.name), getattr(found, one.name)) for one in fields(found))
            found = _Uses(*(np.concatenate(pair) for pair in pairs))
        self._uses, self._pairs, self._costs = found, None, None

    def evidence(self, cosines: "Floats", hashes: Mapping[str, str], model: str) -> dict[str, Evidence]:
        """What the uses say of each tool in `hashes`, which gives the hash of its present document.

        Every use is weighed by `exp(cos − 1)` (BTP §2.2, eq. 3 and 4; SPEC §2). One that nobody judged does not count
        towards the value; a tool's document has no say in how likely a task is to use it.
        """
        import numpy as np

        uses, tools = self._uses, len(self._tools)
        if uses is None or not len(uses.tool):
            return dict.fromkeys(hashes, NO_EVIDENCE)
        pairs = self._pairs = self._pairs or _paired(uses, tools)
        costs = self._costs = self._costs_of(uses, hashes, model)

        def by_tool(part: _Uses | _Pairs, amounts: "Floats") -> "Floats":
            return np.bincount(part.tool, amounts, minlength=tools).astype(np.float64)

        weights = np.exp(cosines - 1)
        of_use = weights[uses.query] * np.where(costs.current, 1.0, OTHER_DOCUMENT)
        of_pair = weights[pairs.query] * np.where(np.bincount(pairs.of_use, costs.current) > 0, 1.0, OTHER_DOCUMENT)
        nearness = np.maximum(cosines, 0.0) ** NEARNESS
        near, used = float(nearness[pairs.tasks].sum()), by_tool(pairs, nearness[pairs.query])
        sums = (
            np.bincount(uses.tool, minlength=tools),
            by_tool(uses, of_use * (uses.helpful >= 0)),
            by_tool(uses, of_use * (uses.helpful == 1)),
            by_tool(pairs, of_pair),
            by_tool(pairs, of_pair * pairs.frequency),
            np.minimum(1.0, used / near) if near else np.zeros(tools),
        )
        names = ("uses", "weight", "helpful_weight", "query_weight", "frequency_weight", "chance")
        rows = [*zip(*(column.tolist() for column in sums), strict=True)]  # single numbers of an array are slow to get
        evidence = dict.fromkeys(hashes, Evidence(chance_weight=near))
        for name in hashes:
            code = self._tools.code(name)
            if code >= 0 and rows[code][0]:
                of_tool = dict(zip(names, rows[code], strict=True))
                evidence[name] = replace(costs.known[code], **of_tool, chance_weight=near)
        return evidence

    def _costs_of(self, uses: _Uses, hashes: Mapping[str, str], model: str) -> _Costs:
        """Found once for the tools and the model of a session, as long as nothing was used since."""
        import numpy as np

        if self._costs is not None and self._costs.model == model and self._costs.hashes == hashes:
            return self._costs
        present = np.full(len(self._tools), -1)
        for name, document in hashes.items():
            if (code := self._tools.code(name)) >= 0:
                present[code] = self._documents.code(document)
        current = present[uses.tool] == uses.document
        shares, same = np.where(current, 1.0, OTHER_DOCUMENT), uses.model == self._models.code(model)
        every = np.ones_like(same)

        def figures(column: "Floats", kept: "Truths") -> list[Figure]:
            return _figures(uses.tool[kept], column[kept], shares[kept], len(self._tools))

        prices, seconds = figures(uses.price, every), figures(uses.seconds, every)
        steps = figures(uses.step_nano, same), figures(uses.step_tokens, same)
        known = [
            Evidence(price=price, seconds=taken, step_nano=nano, step_tokens=tokens)
            for price, taken, nano, tokens in zip(prices, seconds, *steps, strict=True)
        ]
        return _Costs(dict(hashes), model, current, known)


class _Codes:
    """Small numbers for values, in the order in which these first came."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, values: Iterable[Hashable]) -> "Integers":
        """The number of each value; a new one gets the next."""
        import numpy as np

        known = self._known
        return np.array([known.setdefault(value, len(known)) for value in values], np.int32)

    def code(self, value: Hashable) -> int:
        """The value's number, −1 where it never came."""
        return self._known.get(value, -1)


def _paired(uses: _Uses, tools: int) -> _Pairs:
    """The tasks in these uses of so many different tools, each with its tools."""
    import numpy as np

    keys = uses.task.astype(np.int64) * tools + uses.tool
    _, first, of_use, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    helped = np.bincount(of_use, uses.helpful == 1) > 0
    _, first_of_task = np.unique(uses.task, return_index=True)
    frequency = np.where(helped, counts, 1).astype(np.float64)
    return _Pairs(of_use, uses.tool[first], uses.query[first], frequency, uses.query[first_of_task])


def _figures(tool: "Integers", samples: "Floats", shares: "Floats", tools: int) -> list[Figure]:
    """Mean and standard deviation of the known samples of each tool, each counting by its share."""
    import numpy as np

    known = ~np.isnan(samples)
    tool, samples, shares = tool[known], samples[known], shares[known]
    total = np.maximum(np.bincount(tool, shares, minlength=tools), np.finfo(np.float64).tiny)
    means = np.bincount(tool, shares * samples, minlength=tools) / total
    squares = np.bincount(tool, shares * (samples - means[tool]) ** 2, minlength=tools)
    counts = np.bincount(tool, minlength=tools)
    columns = (counts.tolist(), means.tolist(), np.sqrt(squares / total).tolist())
    return [Figure(*row) for row in zip(*columns, strict=True)]

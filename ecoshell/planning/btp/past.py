"""What the past says of a new question: the experience store, kept in memory as numbers (BTP §2.2)."""

import threading
from array import array
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from ecoshell.errors import StoreError
from ecoshell.planning.btp.attempts import AttemptRow, PastAttempts
from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence
from ecoshell.planning.btp.encoders import Encoder
from ecoshell.planning.btp.history import Columns, History
from ecoshell.planning.btp.similarity import Index
from ecoshell.planning.mode_choice import NOTHING_KNOWN, ModeEvidence

if TYPE_CHECKING:
    from ecoshell.planning.btp.weighing import Floats


_PAUSE = 60.0
"""Seconds until vectors that could not be kept are tried again: each attempt may wait for a lock."""


_DAMAGE = (ValueError, TypeError, IndexError, AttributeError, OverflowError)
"""How a value that is not what its column says shows itself."""


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

    def __init__(self, store: Store, encoder: Encoder) -> None:
        self._store = store
        self._encoder = encoder
        self._lock = threading.Lock()
        self._generation: object = None
        self._keeper = _Keeper(store, encoder.name)
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
        self._history = History()
        self._attempts = PastAttempts()
        self._questions = _Questions(self._store, self._encoder, self._keeper)

    def _catch_up(self) -> None:
        """Read what is new; read all again when something that was read has changed."""
        generation = self._store.generation  # first, so that a change while reading is seen the next time
        if generation != self._generation:
            self._forget()
        self._generation = None  # until all is read: where this fails midway, the next call begins anew
        columns, attempts = self._store.columns(self._last_use), self._store.attempts_after(self._last_attempt)
        if columns.id or attempts:
            self._questions.read()  # after the uses and attempts, so that their questions are there
        if columns.id:
            self._history.add(columns, self._questions.places)
            self._last_use = max(columns.id)
        if attempts:
            self._attempts.add(attempts, self._questions.places)
            self._last_attempt = max(one.id for one in attempts)
        self._questions.encode_some()
        self._generation = generation


class _Questions:
    """Past questions and the index of those that are encoded; one that is not yet has a cosine of 0 with all."""

    def __init__(self, store: Store, encoder: Encoder, keeper: "_Keeper") -> None:
        self.places: dict[int, int] = {}
        """Where each question, by its id, stands among the cosines."""
        self._store = store
        self._encoder = encoder
        self._keeper = keeper
        self._indexed = array("q")
        """The place of each vector in the index."""
        self._waiting: dict[int, str] = {}
        """Texts that are still to be encoded, the oldest first."""
        self._last = 0

    @cached_property
    def _index(self) -> Index:
        """Made with the first vectors: it loads numpy, which a shell without experience need not."""
        return self._encoder.index()

    def read(self) -> None:
        """Take in further questions, with the vectors that are kept of them."""
        for number, text in self._store.queries(self._last):
            self.places[number] = len(self.places)
            self._waiting[number] = text
        self._take(
            (number, vector)
            for number, vector in self._store.vectors(self._encoder.name, self._last)
            if number in self._waiting and self._encoder.fits(vector)
        )
        self._last = max(self.places, default=0)

    def encode_some(self) -> None:
        """Encode what is not kept, the latest first and for about a second, so that no answer waits for thousands."""
        latest = [*islice(reversed(self._waiting.items()), self._encoder.batch)]
        if not latest:
            return
        numbers, texts = zip(*latest, strict=True)
        rows = [*zip(numbers, self._encoder.encode(texts), strict=True)]
        self._take(rows)
        self._keeper.keep(rows)

    def cosines(self, text: str) -> "Floats":
        """The cosine of this text and each past question, by place."""
        import numpy as np

        cosines = np.zeros(len(self.places))
        cosines[np.frombuffer(self._indexed, np.int64)] = self._index.cosines(self._encoder.encode([text])[0])
        return cosines

    def _take(self, rows: Iterable[tuple[int, bytes]]) -> None:
        taken = [*rows]
        self._index.add([vector for _, vector in taken])
        self._indexed.extend(self.places[number] for number, _ in taken)
        for number, _ in taken:
            del self._waiting[number]


class _Keeper:
    """Keeps vectors for other shells and the next start; what cannot be kept now waits in memory."""

    def __init__(self, store: Store, encoder: str) -> None:
        self._store = store
        self._encoder = encoder
        self._waiting: dict[int, bytes] = {}
        self._not_before = 0.0

    def keep(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Keep these with those that wait, unless this has failed a short while ago."""
        self._waiting.update(rows)
        if monotonic() < self._not_before:
            return
        try:
            self._store.keep_vectors(self._encoder, self._waiting.items())
        except StoreError:
            self._not_before = monotonic() + _PAUSE
        else:
            self._waiting.clear()

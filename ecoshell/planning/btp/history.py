"""The history of tools: recorded uses as columns of numbers, read once and weighed for each new question (BTP §2.2)."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence, Figure
from ecoshell.planning.btp.weighing import OTHER_DOCUMENT, Pairs, Uses, figures, sums

if TYPE_CHECKING:
    from ecoshell.planning.btp.weighing import Floats, Integers, Truths


class Columns(Protocol):
    """Uses as parallel columns, as the experience store reads them."""

    @property
    def id(self) -> Sequence[int]: ...
    @property
    def query(self) -> Sequence[int]: ...
    @property
    def session(self) -> Sequence[str]: ...
    @property
    def turn(self) -> Sequence[int]: ...
    @property
    def tool(self) -> Sequence[str]: ...
    @property
    def document_hash(self) -> Sequence[str]: ...
    @property
    def helpful(self) -> Sequence[int | None]:
        """1, 0, or None where nobody could tell."""
        ...

    @property
    def price_nano(self) -> Sequence[int]: ...
    @property
    def step_nano(self) -> Sequence[int | None]: ...
    @property
    def step_tokens(self) -> Sequence[int]: ...
    @property
    def seconds(self) -> Sequence[float]: ...
    @property
    def model(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class _Costs:
    """What does not depend on the question: which uses count in full, and what each tool has cost, by its code."""

    hashes: Mapping[str, str]
    model: str
    current: "Truths"
    """Uses under the present document of their tool."""
    known: Sequence[Evidence]
    """Of each tool: its price, its seconds, and the step's price and tokens under the model."""


class History:
    """All uses that were read so far; not thread-safe.

    A task is one asking of a question: the same question asked in two turns is two tasks.
    """

    def __init__(self) -> None:
        self._tools, self._documents, self._models, self._tasks = _Codes(), _Codes(), _Codes(), _Codes()
        self._uses: Uses | None = None
        self._pairs: Pairs | None = None
        self._costs: _Costs | None = None

    def add(self, columns: Columns, places: Mapping[int, int]) -> None:
        """Take in further uses; `places` says where each query stands among the cosines.

        A use whose query was forgotten between two looks at the store has no place and is left out. Raises ValueError,
        TypeError or OverflowError for what is no number.
        """
        import numpy as np

        query = np.array([places.get(query, -1) for query in columns.query], np.intp)
        found = Uses(
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
        ).only(query >= 0)
        known = np.stack([found.price, found.seconds, found.step_tokens])
        if not np.isfinite(known).all() or np.isinf(found.step_nano).any():
            raise ValueError("a use has a price, a time or a length that is no number")
        self._uses = found if self._uses is None else self._uses.followed_by(found)
        self._pairs = self._costs = None

    def evidence(self, cosines: "Floats", hashes: Mapping[str, str], model: str) -> dict[str, Evidence]:
        """What the uses say of each tool in `hashes`, which gives the hash of its present document."""
        uses, tools = self._uses, len(self._tools)
        if uses is None or not len(uses.tool):
            return dict.fromkeys(hashes, NO_EVIDENCE)
        if self._pairs is None:
            self._pairs = Pairs.of(uses, tools)
        costs = self._costs_of(uses, hashes, model)
        found = sums(uses, self._pairs, cosines, costs.current, tools)
        evidence = dict.fromkeys(hashes, Evidence(chance_weight=found.near))
        columns = found.weight, found.helpful_weight, found.query_weight, found.frequency_weight, found.chance
        lists = [column.tolist() for column in columns]  # single numbers of an array are slow to get
        for name in hashes:
            code = self._tools.code(name)
            if code >= 0 and found.uses[code]:
                weight, helpful, of_queries, frequency, chance = (numbers[code] for numbers in lists)
                evidence[name] = replace(
                    costs.known[code],
                    uses=int(found.uses[code]),
                    weight=weight,
                    helpful_weight=helpful,
                    query_weight=of_queries,
                    frequency_weight=frequency,
                    chance=chance,
                    chance_weight=found.near,
                )
        return evidence

    def _costs_of(self, uses: Uses, hashes: Mapping[str, str], model: str) -> _Costs:
        """Found once for the tools and the model of a session, as long as nothing was used since."""
        known = self._costs
        if known is None or known.model != model or known.hashes != hashes:
            current = self._current(uses, hashes)
            known = self._costs = _Costs(dict(hashes), model, current, self._known(uses, current, model))
        return known

    def _current(self, uses: Uses, hashes: Mapping[str, str]) -> "Truths":
        """Which uses were under the present document of their tool."""
        import numpy as np

        present = np.full(len(self._tools), -1)
        for name, document in hashes.items():
            if (code := self._tools.code(name)) >= 0:
                present[code] = self._documents.code(document)
        return present[uses.tool] == uses.document

    def _known(self, uses: Uses, current: "Truths", model: str) -> list[Evidence]:
        """What each tool has cost: price, seconds, and the step's price and tokens under this model."""
        import numpy as np

        shares = np.where(current, 1.0, OTHER_DOCUMENT)
        same = uses.model == self._models.code(model)
        every = np.ones_like(same)

        def of(column: "Floats", kept: "Truths") -> list[Figure]:
            return figures(uses.tool[kept], column[kept], shares[kept], len(self._tools))

        steps = of(uses.step_nano, same), of(uses.step_tokens, same)
        columns = zip(of(uses.price, every), of(uses.seconds, every), *steps, strict=True)
        return [
            Evidence(price=price, seconds=seconds, step_nano=nano, step_tokens=tokens)
            for price, seconds, nano, tokens in columns
        ]


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

"""What the other recorded runs say of tools: leave-one-out, by what the shell itself asks its experience."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ecoshell.catalog.search import Ranker
from ecoshell.messages import ToolDocument
from ecoshell.planning.btp.attempts import AttemptRow
from ecoshell.planning.btp.encoders import WordEncoder
from ecoshell.planning.btp.past import Past
from ecoshell_bench.btp.measure import Outset
from ecoshell_bench.btp.recordings import Task


@dataclass(frozen=True, slots=True)
class UseColumns:
    """Recorded uses as parallel columns; each run is a session, and what it took was not recorded."""

    id: list[int] = field(default_factory=list[int])
    query: list[int] = field(default_factory=list[int])
    session: list[str] = field(default_factory=list[str])
    tool: list[str] = field(default_factory=list[str])
    helpful: list[int | None] = field(default_factory=list[int | None])

    @property
    def turn(self) -> list[int]:
        return [0] * len(self.id)

    @property
    def document_hash(self) -> list[str]:
        return [""] * len(self.id)

    @property
    def price_nano(self) -> list[int]:
        return [0] * len(self.id)

    @property
    def step_nano(self) -> list[int | None]:
        return [None] * len(self.id)

    @property
    def step_tokens(self) -> list[int]:
        return [0] * len(self.id)

    @property
    def seconds(self) -> list[float]:
        return [0.0] * len(self.id)

    @property
    def model(self) -> list[str]:
        return [""] * len(self.id)


class RecordedStore:
    """The uses of recorded runs as an experience store, in memory; without the runs that ask one question."""

    generation = 0

    def __init__(self, tasks: Sequence[Task], without: str) -> None:
        others = [task for task in tasks if task.query != without]
        self._numbers = {query: number for number, query in enumerate(dict.fromkeys(one.query for one in others), 1)}
        self._columns = UseColumns()
        for run, task in enumerate(others):
            for action in task.actions:
                self._columns.id.append(len(self._columns.id) + 1)
                self._columns.query.append(self._numbers[task.query])
                self._columns.session.append(str(run))
                self._columns.tool.append(action.call.name)
                self._columns.helpful.append(None if action.helpful is None else int(action.helpful))

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        return [(number, query) for query, number in self._numbers.items() if number > after]

    def columns(self, after: int = 0) -> UseColumns:
        return UseColumns() if after else self._columns

    def attempts_after(self, after: int = 0) -> list[AttemptRow]:
        return []

    def vectors(self, encoder: str, after: int = 0) -> list[tuple[int, bytes]]:
        return []

    def keep_vectors(self, encoder: str, rows: Iterable[tuple[int, bytes]]) -> None:
        """Each store is asked once: nothing would be read again."""


def leave_one_out(tasks: Sequence[Task], *, gold: bool, halves: bool = False) -> list[Outset]:
    """Each task beside what all runs of other questions say of the tools, as they were recorded.

    `gold`: what is to be replayed is the gold trajectory of each task. `halves`: only every second run is asked, those
    at even places for the odd ones and the other way round.
    """
    encoder, outsets = WordEncoder(), list[Outset]()
    tools = sorted({tool for task in tasks for tool in task.tools})
    ranker = Ranker(ToolDocument(tool, "", {}) for tool in tools)
    for place, task in enumerate(tasks):
        others = tasks[1 - place % 2 :: 2] if halves else tasks
        past = Past(RecordedStore(others, task.query), encoder)
        evidence = past.evidence(task.query, dict.fromkeys(tools, ""), "")
        outsets.append(Outset(task.as_gold() if gold else task, evidence, ranker.chances(task.query)))
    return outsets

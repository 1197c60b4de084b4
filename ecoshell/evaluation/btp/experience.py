"""What the other recorded runs say of tools: leave-one-out, by what the shell itself asks its experience."""

from collections.abc import Iterable, Sequence

from ecoshell.catalog.search import Ranker
from ecoshell.evaluation.btp.measure import Outset
from ecoshell.evaluation.btp.recordings import Task
from ecoshell.messages import ToolDocument
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import Columns
from ecoshell.planning.btp.similarity import WordEncoder
from ecoshell.planning.mode_choice import AttemptRow


class RecordedStore:
    """The uses of recorded runs as an experience store, in memory; without the runs that ask one question."""

    generation = 0

    def __init__(self, tasks: Sequence[Task], without: str) -> None:
        others = [task for task in tasks if task.query != without]
        self._numbers = {query: number for number, query in enumerate(dict.fromkeys(one.query for one in others), 1)}
        made = [(run, task.query, action) for run, task in enumerate(others) for action in task.actions]
        many = len(made)
        self._columns = Columns(  # each run is a session, and what it took was not recorded
            id=[*range(1, many + 1)],
            query=[self._numbers[query] for _, query, _ in made],
            session=[str(run) for run, _, _ in made],
            turn=[0] * many,
            tool=[action.call.name for _, _, action in made],
            document_hash=[""] * many,
            helpful=[None if action.helpful is None else int(action.helpful) for _, _, action in made],
            price_nano=[0] * many,
            step_nano=[None] * many,
            step_tokens=[0] * many,
            seconds=[0.0] * many,
            model=[""] * many,
        )

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        return [(number, query) for query, number in self._numbers.items() if number > after]

    def columns(self, after: int = 0) -> Columns:
        return Columns() if after else self._columns

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

"""Where a turn stands in the tree its strategy walks, and what has to be told when it goes back."""

from collections.abc import Sequence
from itertools import takewhile

from ecoshell.catalog.catalog import Catalog
from ecoshell.events import BranchLeft, Emit, Notice
from ecoshell.messages import TOOL_REGISTER
from ecoshell.strategies.base import Path, Step
from ecoshell.tools.base import LASTING


class Trail:
    """The path that is followed, and the best one seen; says so when another path is followed from now on."""

    def __init__(self, question: str, catalog: Catalog, emit: Emit) -> None:
        self.path = Path(question)
        self.best = self.path
        """The latest of the paths with the most results: what an answer is written from when the search is over."""
        self._catalog = catalog
        self._emit = emit

    def follow(self, path: Path) -> None:
        """Go on along this path."""
        self.path = path
        if path.results >= self.best.results:
            self.best = path

    def leave(self, to: Path, reason: str) -> None:
        """Go on from another path, if it is another."""
        shared = _shared(self.path, to)
        left = self.path.steps[shared:]
        if left or len(to.steps) > shared:
            gone = tuple(name for name in self.path.registered if name not in to.registered)
            calls = tuple(step.call.id for step in to.steps)
            self._emit(BranchLeft(calls, len(left), reason, gone))
            self._warn(left)
        self.follow(to)

    def _warn(self, left: Sequence[Step]) -> None:
        """Say which of the calls that are left behind had effects that stay."""
        lasting = dict.fromkeys(step.call.subject for step in left if self._lasts(step))
        if lasting:
            self._emit(Notice(f"What {', '.join(lasting)} did on the way that was left is not undone by going back."))

    def _lasts(self, step: Step) -> bool:
        if step.observation.refused or step.call.name == TOOL_REGISTER or step.call.subject not in self._catalog:
            return False
        return bool(self._catalog.tool(step.call.subject).effects & LASTING)


def _shared(one: Path, other: Path) -> int:
    """How many steps two branches have in common, from the first one on."""
    pairs = zip(one.steps, other.steps, strict=False)
    return len(list(takewhile(lambda pair: pair[0] is pair[1], pairs)))

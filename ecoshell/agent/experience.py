"""The experience that turns read and add to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ecoshell.errors import StoreError
from ecoshell.events import Emit, Notice
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import ExperienceStore, Use


@dataclass(slots=True, eq=False)
class Experience:
    """`records` stores uses; `past` evaluates them, may block, and raises StoreError."""

    records: ExperienceStore
    past: Past
    _is_failing: bool = False
    """Whether the last record could not be written."""

    async def remember(self, make: Callable[[], Use], emit: Emit) -> None:
        """Make and write a record in a thread; emits a notice for the first one in a row that cannot be written."""
        try:
            await asyncio.to_thread(lambda: self.records.add([make()]))
            self._is_failing = False
        except StoreError as failure:
            if not self._is_failing:
                emit(Notice(f"This turn's results are not recorded for planning. {failure}"))
            self._is_failing = True

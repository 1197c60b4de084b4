"""The experience that turns read and add to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock

from ecoshell.errors import StoreError
from ecoshell.events import Emit, Notice
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import ExperienceStore, Use

_PENDING_LIMIT = 200
"""Records that wait for a store that cannot be written; the oldest are dropped beyond that."""


@dataclass(slots=True, eq=False)
class Experience:
    """`records` stores uses; `past` evaluates them, may block, and raises StoreError."""

    records: ExperienceStore
    past: Past
    unkept: list[Use] = field(default_factory=list[Use])
    """Records that could not be written yet."""
    _writing: Lock = field(default_factory=Lock)

    def keep(self, *items: Use) -> None:
        """Write these records and those that wait; may block. Records that cannot be written wait for the next call.

        Raises StoreError only if no records were waiting before.
        """
        with self._writing:  # nodes of a tool graph finish concurrently
            was_waiting = bool(self.unkept)
            self.unkept = [*self.unkept, *items][-_PENDING_LIMIT:]
            if not self.unkept:
                return
            try:
                self.records.add(self.unkept)
                self.unkept = []
            except StoreError:
                if not was_waiting:
                    raise

    async def remember(self, make: Callable[[], Use], emit: Emit) -> None:
        """Make and write a record in a thread; emits a notice for the first record that cannot be written."""
        try:
            await asyncio.to_thread(lambda: self.keep(make()))
        except StoreError as failure:
            emit(Notice(f"This turn's results are not recorded for planning yet. {failure}"))


def now() -> str:
    """The current time in the format of experience records."""
    return datetime.now(UTC).isoformat(timespec="seconds")

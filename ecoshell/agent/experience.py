"""What was experienced of tools and modes before, and what a turn adds to that."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from threading import Lock
from typing import Protocol

from ecoshell.errors import StoreError
from ecoshell.events import Emit, Notice
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import Experienced

_MOST_UNKEPT = 200
"""Uses and attempts that wait for a store that cannot be written; of more, the earliest are given up."""


class Records(Protocol):
    """Where uses and attempts are kept; any method may block and raise StoreError."""

    def add(self, items: Iterable[Experienced]) -> None: ...

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool: ...

    def close(self) -> None: ...


class Experience:
    """`records` keep what happens; `past` says what it tells of tools and modes, may block, and raises StoreError."""

    def __init__(self, records: Records, past: Past) -> None:
        self.records = records
        self.past = past
        self.unkept: list[Experienced] = []
        """What could not be kept yet; it is with the next use or attempt."""
        self._keeping = Lock()

    def keep(self, *items: Experienced) -> None:
        """Remember these, and those that wait; may block. What cannot be kept waits for the next.

        Raises StoreError where it is the first that waits; those after it add nothing to that.
        """
        with self._keeping:  # branches of a plan finish at the same time
            others_wait = bool(self.unkept)
            self.unkept = [*self.unkept, *items][-_MOST_UNKEPT:]
            if not self.unkept:
                return
            try:
                self.records.add(self.unkept)
                self.unkept = []
            except StoreError:
                if not others_wait:
                    raise

    async def remember(self, made: Callable[[], Experienced], emit: Emit) -> None:
        """Keep what is made in a thread; that it cannot be kept yet is told when it is the first that waits."""
        try:
            await asyncio.to_thread(lambda: self.keep(made()))
        except StoreError as failure:
            emit(Notice(f"What this turn came to is not remembered for planning yet. {failure}"))


def now() -> str:
    """The time as experience keeps it."""
    return datetime.now(UTC).isoformat(timespec="seconds")

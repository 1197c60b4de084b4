"""What the KV cache of a local model holds: one prompt after another for each lane, in one pool of cells.

A lane is a role under an adapter. Roles' caches do not disturb one another: a prompt replaces one of its own lane, or
of a lane that has several, before it takes another lane's last one. What two prompts under the same adapter begin with
alike is evaluated once and stored once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

SLOTS = 8
"""Prompts whose prefixes are kept at the same time."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Whose cache: keys and values computed under one adapter are of no use under another."""

    role: str = ""
    adapter: Path | None = None


@dataclass(eq=False, slots=True)
class Slot:
    """A sequence of llama.cpp's cache, and the tokens it holds."""

    number: int
    lane: Lane | None = None
    """None while it is empty."""
    tokens: list[int] = field(default_factory=list[int])
    cells: list[int] = field(default_factory=list[int])
    """A number for each token's cell; slots that share a cell share its number."""
    used: int = 0
    """When it was last taken, counted in takings."""


class KVCache:
    """The slots of one llama.cpp context; not for use from two threads."""

    def __init__(self, library: ModuleType, memory: Any, cells: int, *, rewinds: bool) -> None:
        """`rewinds` says whether part of a sequence can be dropped; recurrent states cannot go back."""
        self._library = library
        self._memory = memory
        self._cells = cells
        self._rewinds = rewinds
        self._slots = [Slot(number) for number in range(SLOTS)]
        self._holders: Counter[int] = Counter()
        """How many slots hold each cell that is in use."""
        self._last_cell = 0
        self._takings = 0

    def crowded(self, lane: Lane, prompt: Sequence[int], room: int) -> bool:
        """Whether the prompt and `room` more tokens would cost another lane the last prompt it was asked with."""
        others = [slot for slot in self._slots if slot.lane not in (None, lane) and self._is_latest(slot)]
        kept = {cell for slot in others for cell in slot.cells}
        alike = max((_alike(slot.tokens, prompt) for slot in others if _adapter(slot) == lane.adapter), default=0)
        return bool(others) and len(kept) + len(prompt) - alike + room > self._cells

    def take(self, lane: Lane, prompt: Sequence[int]) -> Slot:
        """A slot that holds as much of the prompt's beginning as is known under this adapter, but not all of it."""
        known = [slot for slot in self._slots if slot.lane is not None and _adapter(slot) == lane.adapter]
        alike = {slot.number: min(_alike(slot.tokens, prompt), len(prompt) - 1) for slot in known}
        own = max((slot for slot in known if slot.lane == lane), key=lambda slot: alike[slot.number], default=None)
        goes_on = own is not None and alike[own.number] * 2 >= len(own.tokens)
        slot = own if own is not None and goes_on else self._spare(lane)
        sources = known if self._rewinds else []  # part of a recurrent state cannot be copied
        source = max(sources, key=lambda one: (alike[one.number], one is slot), default=slot)
        keep = alike.get(source.number, 0)
        if source is slot:
            self._cut(slot, keep)
        else:
            self._copy(source, slot, keep)
        self._takings += 1
        slot.lane, slot.used = lane, self._takings
        return slot

    def extend(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Note that these tokens were evaluated at the slot's end."""
        cells = range(self._last_cell + 1, self._last_cell + 1 + len(tokens))
        self._last_cell += len(tokens)
        slot.tokens += tokens
        slot.cells += cells
        self._holders.update(cells)

    def make_room(self, slot: Slot, tokens: int) -> None:
        """Forget what is needed least, this slot never, until so many cells are free."""
        if len(self._holders) + tokens <= self._cells:
            return
        for other in sorted(self._slots, key=lambda one: (self._is_latest(one), one.used)):
            if other is not slot:
                self._clear(other)
            if len(self._holders) + tokens <= self._cells:
                return

    def forget(self, adapter: Path | None) -> None:
        """Clear what was computed under an adapter."""
        for slot in self._slots:
            if _adapter(slot) == adapter:
                self._clear(slot)

    def clear(self) -> None:
        """Clear all slots."""
        for slot in self._slots:
            self._clear(slot)

    def _spare(self, lane: Lane) -> Slot:
        """An empty slot, else the longest unused of the lane that holds most, this one and its new prompt included."""
        empty = next((slot for slot in self._slots if slot.lane is None), None)
        held = Counter([lane, *(slot.lane for slot in self._slots)])
        return empty or max(self._slots, key=lambda slot: (held[slot.lane], -slot.used))

    def _is_latest(self, slot: Slot) -> bool:
        return all(other.used <= slot.used for other in self._slots if other.lane == slot.lane)

    def _copy(self, source: Slot, slot: Slot, length: int) -> None:
        self._clear(slot)
        if length and self._rewinds:
            self._library.llama_memory_seq_cp(self._memory, source.number, slot.number, 0, length)
            slot.tokens, slot.cells = source.tokens[:length], source.cells[:length]
            self._holders.update(slot.cells)

    def _cut(self, slot: Slot, length: int) -> None:
        """Cut a slot back; to nothing where the model cannot go back in part."""
        if length == len(slot.tokens):
            return
        if not self._rewinds or not self._library.llama_memory_seq_rm(self._memory, slot.number, length, -1):
            self._clear(slot)
            return
        self._release(slot.cells[length:])
        del slot.tokens[length:], slot.cells[length:]

    def _clear(self, slot: Slot) -> None:
        self._library.llama_memory_seq_rm(self._memory, slot.number, -1, -1)
        self._release(slot.cells)
        slot.lane = None
        slot.tokens.clear()
        slot.cells.clear()

    def _release(self, cells: Sequence[int]) -> None:
        for cell in cells:
            self._holders[cell] -= 1
            if not self._holders[cell]:
                del self._holders[cell]


def _adapter(slot: Slot) -> Path | None:
    return slot.lane.adapter if slot.lane else None


def _alike(held: Sequence[int], prompt: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    pairs = zip(held, prompt, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(held), len(prompt)))

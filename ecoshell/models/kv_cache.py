"""The prompts that one llama.cpp context keeps.

Each owner (a role with an adapter) has its own cache over the same weights. Caches are sequences of one context, which
share compute buffers. A new prompt replaces a cache of its owner, or of an owner that has several, before it takes
another owner's last one. Prompts under the same adapter share the evaluation and storage of a common prefix.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

SLOTS = 8  # number of prompts that are cached at the same time


@dataclass(frozen=True, slots=True)
class CacheOwner:
    """Owner of a cache; keys and values computed with one adapter are useless with another."""

    role: str = ""
    adapter: Path | None = None


@dataclass(eq=False, slots=True)
class CacheSlot:
    """A sequence of llama.cpp's cache and its tokens."""

    number: int
    owner: CacheOwner | None = None  # None if empty
    tokens: list[int] = field(default_factory=list[int])
    cells: list[int] = field(default_factory=list[int])  # of each token; slots may share cells
    used: int = 0  # sequence number of its last use

    def fits(self, adapter: Path | None) -> bool:
        """Whether it has tokens that were evaluated with this adapter."""
        return self.owner is not None and self.owner.adapter == adapter


class KVCache:
    """The slots of one llama.cpp context; not thread-safe."""

    def __init__(self, library: ModuleType, memory: Any, cells: int, *, rewinds: bool) -> None:
        """`rewinds` says whether sequences can be truncated; recurrent states cannot."""
        self._library = library
        self._memory = memory
        self._cells = cells
        self._rewinds = rewinds
        self._slots = [CacheSlot(number) for number in range(SLOTS)]
        self._holders: Counter[int] = Counter()  # number of slots for each used cell
        self._last_cell = 0
        self._takings = 0

    def take(self, owner: CacheOwner, prompt: Sequence[int]) -> CacheSlot:
        """A slot with the longest cached prefix of the prompt under this adapter, but not all of the prompt."""
        candidates = [slot for slot in self._slots if slot.fits(owner.adapter)]
        prefixes = {slot.number: _common_prefix(slot.tokens, prompt[:-1]) for slot in candidates}
        own_slots = (slot for slot in candidates if slot.owner == owner)
        own = max(own_slots, key=lambda slot: prefixes[slot.number], default=None)
        goes_on = own is not None and prefixes[own.number] * 2 >= len(own.tokens)
        if own is not None and goes_on:
            slot = own
        else:  # an empty slot, else the least recently used one of the owner with the most slots
            slot_counts = Counter([owner, *(slot.owner for slot in self._slots)])
            empty = next((slot for slot in self._slots if slot.owner is None), None)
            slot = empty or max(self._slots, key=lambda slot: (slot_counts[slot.owner], -slot.used))
        sources = candidates if self._rewinds else []  # part of a recurrent state cannot be copied
        source = max(
            sources, key=lambda other: (prefixes[other.number], other is slot), default=slot
        )
        keep = prefixes.get(source.number, 0)
        if source is slot:
            self._cut(slot, keep)
        else:
            self._clear(slot)
            if keep:
                self._library.llama_memory_seq_cp(self._memory, source.number, slot.number, 0, keep)
                slot.tokens, slot.cells = source.tokens[:keep], source.cells[:keep]
                self._holders.update(slot.cells)
        self._takings += 1
        slot.owner, slot.used = owner, self._takings
        return slot

    def extend(self, slot: CacheSlot, tokens: Sequence[int]) -> None:
        """Record tokens that were evaluated at the slot's end."""
        cells = range(self._last_cell + 1, self._last_cell + 1 + len(tokens))
        self._last_cell += len(tokens)
        slot.tokens += tokens
        slot.cells += cells
        self._holders.update(cells)

    def make_room(self, slot: CacheSlot, tokens: int) -> None:
        """Clear other slots, least recently used first, until this many cells are free."""
        if len(self._holders) + tokens <= self._cells:
            return
        for other in sorted(self._slots, key=lambda each: (self._is_latest(each), each.used)):
            if other is not slot:
                self._clear(other)
            if len(self._holders) + tokens <= self._cells:
                return

    def clear(self, adapter: Path | None = None) -> None:
        for slot in self._slots:
            if adapter is None or slot.fits(adapter):
                self._clear(slot)

    def _is_latest(self, slot: CacheSlot) -> bool:
        return all(other.used <= slot.used for other in self._slots if other.owner == slot.owner)

    def _cut(self, slot: CacheSlot, length: int) -> None:
        """Truncate a slot, or clear it if the model cannot truncate."""
        if length == len(slot.tokens):
            return
        remove = self._library.llama_memory_seq_rm
        if not self._rewinds or not remove(self._memory, slot.number, length, -1):
            self._clear(slot)
            return
        self._release(slot.cells[length:])
        del slot.tokens[length:], slot.cells[length:]

    def _clear(self, slot: CacheSlot) -> None:
        self._library.llama_memory_seq_rm(self._memory, slot.number, -1, -1)
        self._release(slot.cells)
        slot.owner = None
        slot.tokens.clear()
        slot.cells.clear()

    def _release(self, cells: Sequence[int]) -> None:
        for cell in cells:
            self._holders[cell] -= 1
            if not self._holders[cell]:
                del self._holders[cell]


def _common_prefix(cached: Sequence[int], prompt: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    pairs = zip(cached, prompt, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(cached), len(prompt)))

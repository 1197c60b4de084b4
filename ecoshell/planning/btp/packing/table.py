"""The best plan by dynamic programming over all budgets (BTP Algorithm 1, corrected), row by row in numpy."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

_BLOCK = 64
"""Rows whose decisions are packed into bits at once."""
_Kind = tuple[int, int]
"""Cost and value: tools of one kind are the same to a plan."""
_Pack = tuple[_Kind, int]
"""So many uses of a kind, which are taken together or not at all."""


def best_counts(
    values: Sequence[int], costs: Sequence[int], bounds: Sequence[int], budget: int, least: int = 0
) -> list[int]:
    """How often to use each tool for the greatest value, and of equal plans for the smallest cost.

    All numbers are whole, costs above zero, the values of all uses below 2⁵³ together. Plans that cost less than
    `least` are not looked at. Time and memory grow with the budget, which is at most some 10⁵ units.
    """
    kinds: defaultdict[_Kind, int] = defaultdict(int)
    for kind, bound in zip(zip(costs, values, strict=True), bounds, strict=True):
        kinds[kind] += bound
    packs = sorted(_packs(kinds, budget), key=_price, reverse=True)  # the dearest first: that keeps rows short
    left = _taken(packs, budget, least)
    counts = [0] * len(values)
    for place, kind in enumerate(zip(costs, values, strict=True)):
        counts[place] = min(bounds[place], left[kind])
        left[kind] -= counts[place]
    return counts


def _packs(kinds: Mapping[_Kind, int], budget: int) -> Iterator[_Pack]:
    """1, 2, 4 … uses of each kind, from which any count up to its bound adds up.

    Of the kinds of one cost, only as many uses as the budget pays for can be in a plan: those of the greatest value.
    """
    room: dict[int, int] = {}
    for kind in sorted(kinds, reverse=True):
        cost = kind[0]
        uses = min(kinds[kind], room.setdefault(cost, budget // cost))
        room[cost] -= uses
        size = 1
        while uses:
            size = min(size, uses)
            yield kind, size
            uses -= size
            size *= 2


def _price(pack: _Pack) -> int:
    (cost, _), uses = pack
    return cost * uses


def _value(pack: _Pack) -> int:
    (_, value), uses = pack
    return value * uses


def _taken(packs: Sequence[_Pack], budget: int, least: int) -> Counter[_Kind]:
    """How often each kind is used in the best plan.

    `best[j]` is the greatest value for a budget of j with the packs so far. Each pack reads the row before it,
    `V[i−1][j − c]`; were it `V[i]`, as Algorithm 1 is printed, a tool could be used more often than its bound.
    Only budgets are kept up from which the packs that follow can still reach `least`.
    """
    import numpy as np

    best, other = np.zeros(budget + 1), np.empty(budget + 1)
    block = np.zeros((_BLOCK, budget + 1), dtype=np.bool_)
    decisions = np.empty((len(packs), budget // 8 + 1), dtype=np.uint8)
    rest = sum(map(_price, packs))
    for row, pack in enumerate(packs):
        price, value = _price(pack), _value(pack)
        rest -= price
        start = max(price, least - rest)
        with_it, without = other[start:], best[start:]
        np.add(best[start - price : budget + 1 - price], value, out=with_it)
        block[row % _BLOCK, :start] = False
        np.greater(with_it, without, out=block[row % _BLOCK, start:])
        np.maximum(with_it, without, out=without)
        if row % _BLOCK == _BLOCK - 1 or row == len(packs) - 1:
            first = row - row % _BLOCK
            decisions[first : row + 1] = np.packbits(block[: row + 1 - first], axis=1)
    spent = least + int(np.argmax(best[least:] == best[-1]))
    return _traced(packs, decisions, spent)


def _traced(packs: Sequence[_Pack], decisions: "NDArray[uint8]", spent: int) -> Counter[_Kind]:
    """Follow the decisions back from the last row."""
    taken: Counter[_Kind] = Counter()
    for row in range(len(packs) - 1, -1, -1):
        if decisions.item(row, spent // 8) & 128 >> spent % 8:
            kind, uses = packs[row]
            taken[kind] += uses
            spent -= _price(packs[row])
    return taken

"""The heights of things that stand one below the other: where each begins, and which of them stands at a line."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Heights:
    """Heights in lines; where things begin is summed up again only from the first change on."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        self._tops: list[int] = [0]

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, at: int) -> int:
        return self._heights[at]

    def __setitem__(self, at: int, height: int) -> None:
        if self._heights[at] != height:
            self._heights[at] = height
            del self._tops[at + 1 :]

    def splice(self, start: int, end: int, heights: Iterable[int]) -> None:
        """Put these heights in the place of those from `start` up to `end`."""
        self._heights[start:end] = heights
        del self._tops[start + 1 :]

    @property
    def total(self) -> int:
        """All of them together."""
        return self.top(len(self._heights))

    def top(self, at: int) -> int:
        """The line at which one begins."""
        self._sum_up()
        return self._tops[at]

    def at(self, line: int) -> int:
        """Which one stands at a line; the last for a line below them all, and -1 when there is none."""
        self._sum_up()
        return min(bisect_right(self._tops, max(line, 0)), len(self._heights)) - 1

    def _sum_up(self) -> None:
        done = len(self._tops) - 1
        if done < len(self._heights):
            sums = accumulate(self._heights[done:], initial=self._tops[done])
            next(sums)
            self._tops.extend(sums)

"""What changed in a text, as a unified diff of bounded size."""

import bisect
import difflib
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ecoshell.errors import ToolError
from ecoshell.worker import in_worker

_TEXTS = 8_000_000
"""Characters of both texts together; of larger ones only the lines are counted."""
_SECONDS = 3.0
_LINES = 400
"""Of one diff."""
_CHARACTERS = 40_000
_LINE = 1_000
"""Characters of one line."""
_COMPARED = 2_000
"""Lines that are compared one with another; a larger change is shown as all of one text for all of the other."""
_PAIRS = 300_000
"""Equal lines, each of the old text with each of the new, among those compared: what difflib's time grows with."""

_CONTEXT = 3

Opcode = tuple[str, int, int, int, int]
"""A kind, and which lines of the old text it makes into which of the new, as difflib has it."""


def unified(name: str, before: str | None, after: str) -> str:
    """The diff from `before` (None: there was no file) to `after`; empty when they are the same.

    What is too large for it, or takes too long, is told by the number of its lines. May block.
    """
    if before == after:
        return ""
    head = [f"--- {'/dev/null' if before is None else f'a/{name}'}", f"+++ b/{name}"]
    if len(before or "") + len(after) <= _TEXTS:
        try:
            return in_worker(_shown, head, before or "", after, seconds=_SECONDS)
        except ToolError:
            pass
    # the lines between what both texts begin with and what both end with, of the one and of the other
    old, room = before or "", min(len(before or ""), len(after))
    start = _most(room, lambda size: old[:size] == after[:size])
    start = old.rfind("\n", 0, start) + 1
    tail = _most(room - start, lambda size: old[len(old) - size :] == after[len(after) - size :])
    removed, added = line_count(old[start : len(old) - tail]), line_count(after[start : len(after) - tail])
    return "\n".join((*head, f"[too large to show: +{added:,} −{removed:,} lines]"))


def _shown(head: Sequence[str], before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    body = list(itertools.islice(_body(old, new), _LINES + 1)) or ["\\ only line ends changed"]
    shown = [line if len(line) <= _LINE else f"{line[:_LINE]}…" for line in body[:_LINES]]
    fits = sum(1 for length in itertools.accumulate(len(line) + 1 for line in shown) if length <= _CHARACTERS)
    cut = fits < len(body)
    return "\n".join((*head, *shown[:fits], *(["[truncated: the diff goes on]"] if cut else [])))


def _most(room: int, holds: Callable[[int], bool]) -> int:
    """The largest size up to `room` for which it holds, as for all smaller ones."""
    return bisect.bisect_left(range(room), True, key=lambda size: not holds(size + 1))


def line_count(text: str) -> int:
    """How many lines a text has; the last needs no end."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def _body(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The hunks, line by line."""
    for group in _groups(old, new):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for kind, from_old, to_old, from_new, to_new in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[from_old:to_old])
            else:
                yield from (f"-{line}" for line in old[from_old:to_old])
                yield from (f"+{line}" for line in new[from_new:to_new])


def _groups(old: Sequence[str], new: Sequence[str]) -> Iterator[list[Opcode]]:
    """Changes with the lines around them; only what lies between the first and the last change is compared."""
    head = sum(1 for _ in itertools.takewhile(bool, map(operator.eq, old, new)))
    tail = sum(1 for _ in itertools.takewhile(bool, map(operator.eq, reversed(old[head:]), reversed(new[head:]))))
    begin, behind = min(head, _CONTEXT), min(tail, _CONTEXT)
    start, end_old, end_new = head - begin, len(old) - tail + behind, len(new) - tail + behind
    counts = Counter(old[start:end_old])
    if max(end_old, end_new) - start > _COMPARED or sum(counts[line] for line in new[start:end_new]) > _PAIRS:
        changed = ("replace", head, end_old - behind, head, end_new - behind)
        around = (("equal", start, head, start, head), ("equal", end_old - behind, end_old, end_new - behind, end_new))
        yield [around[0], changed, around[1]]
        return
    matcher = difflib.SequenceMatcher(None, old[start:end_old], new[start:end_new], autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield [(kind, i + start, j + start, k + start, m + start) for kind, i, j, k, m in group]


def _range(start: int, stop: int) -> str:
    """Lines from `start` to before `stop`, counted from 1, as a hunk's head says them."""
    count = stop - start
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1 if count else start},{count}"

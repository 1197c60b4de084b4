"""Unified diffs, bounded in time and size."""

import bisect
import difflib
import io
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ecoshell.errors import ToolError
from ecoshell.worker import in_worker

_MAX_TEXT_CHARS = 8_000_000
"""Maximum characters of both texts; for larger ones only lines are counted."""
_SECONDS = 3.0
_MAX_DIFF_LINES = 400
_MAX_DIFF_CHARS = 40_000
_MAX_LINE_CHARS = 1_000
_MAX_COMPARED_LINES = 2_000
"""Maximum number of lines that are compared; a larger change is shown as one replacement."""
_MAX_EQUAL_PAIRS = 300_000
"""Maximum number of pairs of equal lines, which determines difflib's time."""
_CONTEXT = 3

Opcode = tuple[str, int, int, int, int]
"""An opcode of difflib: kind, start and end in the old lines, start and end in the new lines."""


def unified(name: str, old: str | None, new: str) -> str:
    """Return the diff from `old` (None for a new file) to `new`; empty if they are equal.

    Large or slow comparisons return the number of changed lines instead. May block.
    """
    if old == new:
        return ""
    head = [f"--- {'/dev/null' if old is None else f'a/{name}'}", f"+++ b/{name}"]
    if len(old or "") + len(new) <= _MAX_TEXT_CHARS:
        try:
            return in_worker(_diff, head, old or "", new, seconds=_SECONDS)
        except ToolError:
            pass
    # Count the lines between the common beginning and the common end.
    text = old or ""
    room = min(len(text), len(new))
    start = _largest(room, lambda size: text[:size] == new[:size])
    start = text.rfind("\n", 0, start) + 1
    tail = _largest(room - start, lambda size: text[len(text) - size :] == new[len(new) - size :])
    removed, added = (
        line_count(text[start : len(text) - tail]),
        line_count(new[start : len(new) - tail]),
    )
    return "\n".join((*head, f"[too large to show: +{added:,} −{removed:,} lines]"))


def _diff(head: Sequence[str], old_text: str, new_text: str) -> str:
    old, new = (
        [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
        for text in (old_text, new_text)
    )
    note = "only line ends changed" if old else "the file is empty"
    body = list(itertools.islice(_body(old, new), _MAX_DIFF_LINES + 1)) or [f"\\ {note}"]
    lines = [
        line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…"
        for line in body[:_MAX_DIFF_LINES]
    ]
    fits = sum(
        1
        for length in itertools.accumulate(len(line) + 1 for line in lines)
        if length <= _MAX_DIFF_CHARS
    )
    return "\n".join(
        (*head, *lines[:fits], *(["[truncated: the diff continues]"] if fits < len(body) else []))
    )


def _largest(room: int, holds: Callable[[int], bool]) -> int:
    """Return the largest size up to `room` for which the condition holds; it holds for all smaller ones."""
    return bisect.bisect_left(range(room), True, key=lambda size: not holds(size + 1))


def line_count(text: str) -> int:
    """Count lines, including a last one without a line end."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def _body(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the lines of all hunks."""
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
    """Yield changes with their context; compares only the lines between the first and the last change."""
    head = sum(1 for _ in itertools.takewhile(bool, map(operator.eq, old, new)))
    tail = sum(
        1
        for _ in itertools.takewhile(
            bool, map(operator.eq, reversed(old[head:]), reversed(new[head:]))
        )
    )
    context_before, context_after = min(head, _CONTEXT), min(tail, _CONTEXT)
    old_stop, new_stop = len(old) - tail, len(new) - tail
    start, old_end, new_end = (
        head - context_before,
        old_stop + context_after,
        new_stop + context_after,
    )
    counts = Counter(old[start:old_end])
    equal_pairs = sum(counts[line] for line in new[start:new_end])
    if max(old_end, new_end) - start > _MAX_COMPARED_LINES or equal_pairs > _MAX_EQUAL_PAIRS:
        change = ("replace", head, old_stop, head, new_stop)
        yield [
            ("equal", start, head, start, head),
            change,
            ("equal", old_stop, old_end, new_stop, new_end),
        ]
        return
    matcher = difflib.SequenceMatcher(None, old[start:old_end], new[start:new_end], autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield [(kind, i + start, j + start, k + start, m + start) for kind, i, j, k, m in group]


def _range(start: int, stop: int) -> str:
    """Return a range of lines as in the header of a hunk, counted from 1."""
    count = stop - start
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1 if count else start},{count}"

"""Unified diffs, bounded in time and size."""

import difflib
import io
from collections.abc import Sequence
from itertools import accumulate, islice

from ecoshell.errors import ToolError
from ecoshell.worker import in_worker

_SECONDS = 3.0
_MAX_DIFF_LINES = 400
_MAX_DIFF_CHARS = 40_000
_MAX_LINE_CHARS = 1_000


def unified(name: str, old: str | None, new: str) -> str:
    """Return the diff from `old` (None for a new file) to `new`; empty if they are equal.

    A comparison that takes too long or too much memory returns a note instead. May block.
    """
    if old == new:
        return ""
    head = [f"--- {'/dev/null' if old is None else f'a/{name}'}", f"+++ b/{name}"]
    try:
        body = in_worker(_body, old or "", new, seconds=_SECONDS)
    except ToolError:
        body = ["[too large to show]"]
    return "\n".join(head + body)


def line_count(text: str) -> int:
    """Count lines, including a last one without a line end."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def _body(old_text: str, new_text: str) -> list[str]:
    """Return the lines of all hunks, as many as are shown."""
    old, new = _lines(old_text), _lines(new_text)
    diff = islice(difflib.unified_diff(old, new, lineterm=""), 2, None)
    lines = [
        line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…"
        for line in islice(diff, _MAX_DIFF_LINES + 1)
    ]
    if not lines:
        return ["\\ only line ends changed" if old else "\\ the file is empty"]
    ends = accumulate(len(line) + 1 for line in lines[:_MAX_DIFF_LINES])
    fits = sum(end <= _MAX_DIFF_CHARS for end in ends)
    return lines if fits == len(lines) else [*lines[:fits], "[truncated: the diff continues]"]


def _lines(text: str) -> Sequence[str]:
    return [line.rstrip("\n") for line in io.StringIO(text, newline=None)]

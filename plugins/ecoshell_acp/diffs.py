"""The hunks of unified diffs."""

import re
from collections.abc import Sequence

from ecoshell.messages import visible

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def hunks_of(lines: Sequence[str]) -> list[tuple[str, str]] | None:
    """Return the old and the new text of each hunk, in whole lines; None for an incomplete diff."""
    hunks: list[tuple[str, str]] = []
    index = 0
    while index < len(lines):
        head = _HUNK.match(lines[index])
        if head is None:
            return None
        old, new, remaining = list[str](), list[str](), [int(count or 1) for count in head.groups()]
        while any(remaining):
            index += 1
            sign = lines[index][:1] if index < len(lines) else ""
            if sign not in (" ", "-", "+"):
                return None
            for side, (text, other) in enumerate(((old, "+"), (new, "-"))):
                if sign != other:
                    text.append(lines[index][1:])
                    remaining[side] -= 1
        before, after = ("".join(f"{visible(line)}\n" for line in side) for side in (old, new))
        hunks.append((before, after))
        index += 1
    return hunks

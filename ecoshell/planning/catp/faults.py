"""What is wrong with a plan, and where."""

from collections.abc import Sequence

from ecoshell.errors import UsageError
from ecoshell.untrusted import visible_line

BOM = "\ufeff"
"""The byte order mark that some programs put before a text; no editor counts it as a column."""
_SHOWN = 60
"""Characters of what was written that a message repeats."""
_LISTED = 5
"""Faults that one message tells."""


class PlanFault(UsageError):
    """A plan cannot be taken.

    `line`, `column` (from 1) and `position` (characters from 0) tell where in its text, `node` the label of the node;
    each is None where it does not apply.
    """

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        line: int | None = None,
        column: int | None = None,
        node: str | None = None,
        fix: str = "",
    ) -> None:
        super().__init__(message, fix=fix)
        self.position = position
        self.line = line
        self.column = column
        self.node = node

    @classmethod
    def at(cls, text: str, position: int, message: str, node: str | None = None) -> "PlanFault":
        """A fault in a text: the message begins with its line and column."""
        line = text.count("\n", 0, position) + 1
        begun = max(text.rfind("\n", 0, position) + 1, int(text.startswith(BOM)))
        column = position - begun + 1
        said = f"line {line}, column {column}: {message}"
        return cls(said, position=position, line=line, column=column, node=node)

    @classmethod
    def of(cls, faults: Sequence["PlanFault"]) -> "PlanFault":
        """Several faults as one, which has the place of the first."""
        first, more = faults[0], len(faults) - _LISTED
        said = " ".join(fault.message for fault in faults[:_LISTED]) + (f" And {more} more." if more > 0 else "")
        return cls(said, position=first.position, line=first.line, column=first.column, node=first.node)


def shown(text: str) -> str:
    """What a model or a person wrote, as a message may repeat it: on one line, and not too long."""
    line = visible_line(text[: 2 * _SHOWN])
    return f"`{line[:_SHOWN]}…`" if len(line) > _SHOWN or len(text) > 2 * _SHOWN else f"`{line}`"

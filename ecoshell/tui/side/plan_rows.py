"""A plan's rows, each in a line, in the columns that there is room for."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.cells import cell_len

from ecoshell.budget.money import Unit, amount_text
from ecoshell.events import PlanChanged, PlanRow
from ecoshell.tui.figures import tokens
from ecoshell.tui.side.sheet import Line, Piece, Tone, fit, fit_middle, left, right
from ecoshell.untrusted import visible_line

_WIDE_FROM, _ROOMY_FROM = 76, 54
"""Columns from which on every number has a column of its own, and from which on amounts are written in full."""
_LEAST_NAME = 8
_SLIM, _LEAST_TAIL = 23, 18
"""Columns that a narrow row keeps for its numbers, and up to which it has no room for what a use costs."""
_SAID = {
    "value": "worth its price",
    "new": "new, to be tried",
    "budget": "beyond what is left",
    "quota": "that is its quota",
    "blacklist": "has not helped",
    "below τ": "has seldom helped",
}


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    width: int
    written: Callable[[PlanRow], str]


class Columns:
    """The columns of one plan at one width."""

    def __init__(self, plan: PlanChanged, width: int) -> None:
        self._unit: Unit = plan.unit
        self._enforced = plan.enforced
        self._width = width
        self._columns = self._fitting()
        longest = max((cell_len(visible_line(row.tool)) for row in plan.rows), default=0)
        most = width - 2 - (sum(column.width for column in self._columns) or _SLIM)
        self._name = max(_LEAST_NAME, most if self._columns else min(longest, most))

    @property
    def head(self) -> Line:
        """What stands above the columns."""
        name = left("  tool", 2 + self._name)
        if self._columns:
            return ((name + "".join(right(one.head, one.width) for one in self._columns), "muted"),)
        room = self._width - 2 - self._name
        numbers = f" val cost {'$' if self._unit == 'usd' else 'tok'}" if room > _LEAST_TAIL else " val"
        return ((f"{name}{left(numbers, room - 4)}used", "muted"),)

    def line(self, row: PlanRow) -> Line:
        """One tool: its state by a sign and a word, its value, what a use costs, how often it was used and may be."""
        sign, word, tone = state_of(row, enforced=self._enforced)
        name = left(fit_middle(visible_line(row.tool), self._name), self._name)
        start: tuple[Piece, ...] = ((f"{sign} ", tone), (name, "muted" if row.state == "unplanned" else "text"))
        if not self._columns:
            return (*start, *self._tail(row, word, tone))
        *numbers, last = self._columns
        cells = "".join(right(one.written(row), one.width) for one in numbers)
        return (*start, (cells, "muted"), (right(word, last.width), tone))

    def _fitting(self) -> tuple[_Column, ...]:
        """Columns for every number; none where they do not fit, and every row makes do for itself."""
        value = _Column("value", 6, lambda row: f"{row.value:.2f}")
        cost = _Column("cost", 20, lambda row: _cost(row, self._unit))
        state = _Column("state", 10, lambda _: "")
        if self._width >= _WIDE_FROM:
            counts = (
                _Column("planned", 9, lambda row: str(row.planned)),
                _Column("used", 6, lambda row: str(row.used)),
                _Column("left", 6, lambda row: str(row.left)),
            )
            return (value, cost, *counts, state)
        if self._width >= _ROOMY_FROM:
            return (value, cost, _Column("used", 7, _used), state)
        return ()

    def _tail(self, row: PlanRow, word: str, tone: Tone) -> tuple[Piece, ...]:
        """What is behind the name: as much as there is room for; the state is told first, then the uses, the value."""
        room = self._width - 2 - self._name
        value, cost = _short(f"{row.value:.2f}"), self._short_cost(row.cost)
        spread = f"±{self._short_cost(row.spread)}" if row.spread else ""
        end = f"{_used(row)} {word}"
        choices = ((f" {value} {cost}{spread} ", end), (f" {value} {cost} ", end), (f" {value} ", end), (" ", end))
        start, end = next((one for one in choices if cell_len("".join(one)) <= room), (" ", fit(word, room - 1)))
        return ((left(start, room - cell_len(end)), "muted"), (end, tone))

    def _short_cost(self, value: int) -> str:
        return tokens(value) if self._unit == "tokens" else _short(_expected(value, "usd").replace("$", ""))


def state_of(row: PlanRow, *, enforced: bool) -> tuple[str, str, Tone]:
    """The sign, the word and the tone of a row's state; where nothing is forbidden, it is advised against."""
    if row.state == "planned":
        return "√", "new" if row.why == "new" else "ok", "good"
    if row.state == "unplanned":
        return "·", row.why, "muted"
    return ("×", row.why, "reached") if enforced else ("!", row.why, "near")


def about(row: PlanRow, unit: Unit, width: int) -> list[Line]:
    """Everything a row says, in three lines."""
    worth = f"value {row.value:.2f} · chance {row.chance:.2f} · {_used(row)} used"
    return [
        ((fit_middle(visible_line(row.tool), width), "accent"),),
        ((fit(worth, width), "muted"),),
        ((fit(f"{_cost(row, unit)}: {_SAID[row.why]}", width), "muted"),),
    ]


def _cost(row: PlanRow, unit: Unit) -> str:
    spread = f" ± {_expected(row.spread, unit)}" if row.spread else ""
    return f"{_expected(row.cost, unit)}{spread}"


def _expected(value: int, unit: Unit) -> str:
    """A cost that is only expected, in as few digits as it is worth."""
    return f"{tokens(value)} tok" if unit == "tokens" else amount_text(value, "usd", digits=2)


def _used(row: PlanRow) -> str:
    return f"{row.used}/{row.planned}"


def _short(number: str) -> str:
    """A decimal without what is no news: `.91`, `1.0`, `.0012`, `<.0001`."""
    if number == "1.00":
        return "1.0"
    return number.replace("0.", ".", 1) if number.startswith(("0.", "<0.")) else number

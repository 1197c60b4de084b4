"""The roles panel: who thinks, with which model, what that has cost, and which share of the turn each role has."""

from collections.abc import Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from ecoshell.budget.money import about
from ecoshell.models.local_models import name_parts
from ecoshell.tui.figures import duration, money, tokens
from ecoshell.tui.side.board import Board
from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.role_use import RoleUse, Shares, Thinker, shares
from ecoshell.tui.side.sheet import Line, Piece, ends, fit, fit_middle, left, model_name, right
from ecoshell.untrusted import visible_line

_TABLE_FROM = 72
"""Columns from which on the numbers of all roles stand below each other."""
_ROOMY_FROM = 34
"""Columns from which on it is said why shares are not of the price."""
_HEADS = (("calls", 6), ("in", 7), ("cached", 8), ("out", 7), ("price", 10), ("time", 11), ("share", 7))
_SIGNS: Mapping[str, str] = {"planner": "◊", "caller": "►", "summarizer": "√", "single": "◊"}
"""As the transcript shows what comes of them: a thought, a call, an answer."""
_THINKS, _SIGN_OF_WHO_THINKS = "thinking", "◦"
_NOT_ASKED, _NONE_PAID = "not asked yet", "no call is paid yet"


def roles_lines(board: Board, width: int, *, session: bool = False) -> list[Line]:
    """Who has thought in the turn or in the session, and who will; who does now is marked by a sign and a word."""
    uses = board.uses(session=session)
    if not uses:
        return [(("nobody has thought yet", "muted"),)]
    shared = shares(uses)
    parts = shared.percent if shared else (0,) * len(uses)
    percent = [f"{part} %" if shared and use.calls else "" for use, part in zip(uses, parts, strict=True)]
    lines = [_caption(board, shared, width, session=session)] if board.turn else []
    if width >= _TABLE_FROM:
        return [*lines, *_table(board, list(zip(uses, percent, strict=True)), width)]
    entries = (_entry(use, part, width, board.thinking) for use, part in zip(uses, percent, strict=True))
    return [*lines, *(line for entry in entries for line in entry)]


def _caption(board: Board, shared: Shares | None, width: int, *, session: bool) -> Line:
    """Of what the numbers are, and of what the shares."""
    of = "session" if session else f"turn {board.turn}"
    if shared is None:
        return ends((of, "strong"), (_NONE_PAID, "muted"), width)
    why = f", {shared.why}" if shared.why and width >= _ROOMY_FROM else ""
    return ends((of, "strong"), (f"% of {shared.basis}{why}", "muted"), width)


def _entry(use: RoleUse, percent: str, width: int, thinking: Thinker | None) -> list[Line]:
    """A role in a few lines: its model and share, its adapter, its calls and their price, its tokens."""
    thinks = use.thinker == thinking
    role = visible_line(use.role)
    model, adapter = (visible_line(part) for part in name_parts(use.model))
    share = f" {percent:>5}" if percent else ""
    room = width - 2 - cell_len(role) - len(share)
    name = left(f"  {model_name(model, room - 2)}", room)
    lines: list[Line] = [(_sign(use, thinks=thinks), (role, "strong"), (name, "text"), (share, "text"))]
    if adapter:
        lines.append(((f"  {_adapter(adapter, width - 2)}", "muted"),))
    return [*lines, *_used(use, width, thinks=thinks)]


def _used(use: RoleUse, width: int, *, thinks: bool) -> list[Line]:
    """A role's calls and their price, and its tokens; a word before them says who thinks."""
    word: tuple[Piece, ...] = (("  ", "text"), (_THINKS, "near")) if thinks else ()
    room = width - sum(cell_len(text) for text, _ in word)
    if not use.calls:
        return [(*word, (fit(f"  {_NONE_PAID if thinks else _NOT_ASKED}", room), "muted"))]
    calls = "1 call" if use.calls == 1 else f"{use.calls} calls"
    used = use.usage
    cached = f" ({tokens(used.cached)} cached)" if used.cached else ""
    amounts = f"{tokens(used.input)} in{cached} · {tokens(used.output)} out"
    return [
        (*word, *ends((f"  {calls}  {duration(use.seconds)}", "text"), (_price(use), "text"), room)),
        ((fit(f"  {about(amounts, estimated=use.estimated)}", width), "muted"),),
    ]


def _table(board: Board, rows: list[tuple[RoleUse, str]], width: int) -> list[Line]:
    """Two lines for each role: its numbers below each other, and its model and adapter."""
    room = width - 2 - sum(columns for _, columns in _HEADS)
    lines: list[Line] = [((f"  {left('role', room)}{''.join(right(text, size) for text, size in _HEADS)}", "muted"),)]
    for use, percent in rows:
        thinks = use.thinker == board.thinking
        numbers = _numbers(use, percent, thinks=thinks)
        lines.append((_sign(use, thinks=thinks), (left(visible_line(use.role), room), "strong"), *numbers))
        model, adapter = (visible_line(part) for part in name_parts(use.model))
        behind = f"  {_adapter(adapter, width // 2 - 4)}" if adapter else ""
        lines.append(((f"  {model_name(model, width - 2 - cell_len(behind))}{behind}", "muted"),))
    return lines


def _numbers(use: RoleUse, percent: str, *, thinks: bool) -> tuple[Piece, ...]:
    """What stands in the columns; a word in the place of the time says who thinks."""
    *_, (_, time), (_, share) = _HEADS
    before = sum(columns for _, columns in _HEADS) - time - share
    taken: Piece = (right(_THINKS, time), "near") if thinks else (right(duration(use.seconds), time), "text")
    if not use.calls:
        rest = right("", time + share)
        return ((right("", before), "text"), taken) if thinks else ((f"{right(_NOT_ASKED, before)}{rest}", "muted"),)
    used = use.usage
    read, written = (about(tokens(count), estimated=use.estimated) for count in (used.input, used.output))
    price = "unknown" if use.spent_nano is None else _price(use)
    cells = (str(use.calls), read, tokens(used.cached), written, price)
    numbers = "".join(right(cell, size) for cell, (_, size) in zip(cells, _HEADS, strict=False))
    return ((numbers, "text"), taken, (right(percent, share), "text"))


def _price(use: RoleUse) -> str:
    return about(money(use.spent_nano), estimated=use.estimated_nano)


def _sign(use: RoleUse, *, thinks: bool) -> Piece:
    return (f"{_SIGN_OF_WHO_THINKS} ", "near") if thinks else (f"{_SIGNS.get(use.role, '·')} ", "muted")


def _adapter(file: str, width: int) -> str:
    """An adapter by its file's name."""
    return fit_middle(f"+{file.rpartition('/')[2]}", width)


class RolesPanel(Panel):
    """Every role with its model, adapter, calls, tokens, price, seconds and share."""

    NAME = "roles"
    HELP = (
        "Who thinks: ◦ marks who does now. ◊ thinks ahead, ► makes the calls, √ writes the answer. "
        "Numbers are those of the last turn; t shows the session's. Enter folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "scope", "scope")]

    def __init__(self, board: Board) -> None:
        self._session = False
        """Whether numbers are of the whole session."""
        super().__init__(board)

    def lines(self, width: int) -> list[Line]:
        return roles_lines(self.board, width, session=self._session)

    def gist(self) -> str:
        return f"{visible_line(self.board.thinking[0])} is thinking" if self.board.thinking else ""

    def action_scope(self) -> None:
        """Show the numbers of the whole session in the place of the turn's, or the other way round."""
        self._session = not self._session
        self.show()

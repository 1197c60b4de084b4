"""The roles panel: who thinks, with which model, and what that has cost."""

from ecoshell.tui.figures import duration, money, tokens
from ecoshell.tui.side.board import Board, RoleUse
from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.sheet import Line, Piece, ends, fit, left, model_name, right
from ecoshell.untrusted import visible_line

_TABLE_FROM = 72
"""Columns from which on every role has one line."""
_THINKS = "thinking"
_HEADS = (("calls", 6), ("in", 6), ("cached", 7), ("out", 6), ("price", 10), ("time", 11))


def roles_lines(board: Board, width: int) -> list[Line]:
    """Who has thought in this session; who does at this moment is marked by a sign and a word."""
    if not board.roles:
        return [(("nobody has thought yet", "muted"),)]
    if width >= _TABLE_FROM:
        return _table(board, width)
    return [line for thinker, use in board.roles.items() for line in _two_lines(use, width, thinker == board.thinking)]


def _two_lines(use: RoleUse, width: int, thinks: bool) -> list[Line]:
    role = visible_line(use.role)
    sign: Piece = ("◇ ", "near") if thinks else ("  ", "text")
    word: Piece = (_THINKS, "near") if thinks else ("", "text")
    model = model_name(visible_line(use.model), width - len(role) - len(word[0]) - 5)
    first = ends((f"{role}  {model}", "strong"), word, width - 2)
    if not use.calls:
        return [(sign, *first), (("  no call is paid yet", "muted"),)]
    used = use.usage
    calls = "1 call" if use.calls == 1 else f"{use.calls} calls"
    cached = f" ({tokens(used.cached)} cached)" if used.cached else ""
    return [
        (sign, *first),
        ends((f"  {calls}  {duration(use.seconds)}", "text"), (money(use.spent_nano), "text"), width),
        ((fit(f"  {tokens(used.input)} in{cached} · {tokens(used.output)} out", width), "muted"),),
    ]


def _table(board: Board, width: int) -> list[Line]:
    room = width - 2 - sum(columns for _, columns in _HEADS)
    roles = min(room // 3, max(6, *(len(visible_line(use.role)) + 2 for use in board.roles.values())))
    head = left("role", roles) + left("model", room - roles) + "".join(right(text, size) for text, size in _HEADS)
    lines: list[Line] = [((f"  {head}", "muted"),)]
    for thinker, use in board.roles.items():
        thinks = thinker == board.thinking
        used = use.usage
        cells = (
            str(use.calls),
            tokens(used.input),
            tokens(used.cached),
            tokens(used.output),
            "unknown" if use.spent_nano is None else money(use.spent_nano),
            _THINKS if thinks else duration(use.seconds),
        )
        numbers = "".join(right(cell, size) for cell, (_, size) in zip(cells, _HEADS, strict=True))
        model = left(model_name(visible_line(use.model), room - roles - 1), room - roles)
        lines.append(
            (
                ("◇ ", "near") if thinks else ("  ", "text"),
                (left(visible_line(use.role), roles), "strong"),
                (f"{model}{numbers}", "text"),
            )
        )
    return lines


class RolesPanel(Panel):
    """Every role with its model, calls, tokens, price and seconds."""

    NAME = "roles"
    HELP = "Who thinks: ◇ marks who does now. Calls, tokens, price and time are this session's; enter folds the panel."

    def lines(self, width: int) -> list[Line]:
        return roles_lines(self.board, width)

    def gist(self) -> str:
        return f"{visible_line(self.board.thinking[0])} is thinking" if self.board.thinking else ""

"""The budget panel: what may be spent, what is, and what the next step could cost."""

from typing import TYPE_CHECKING

from ecoshell.budget.caps import CapState
from ecoshell.budget.money import about
from ecoshell.tui.figures import amount, money, tokens
from ecoshell.tui.side.board import Board
from ecoshell.tui.side.closeness import cap_word, tightest
from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.sheet import Line, Tone, bar, ends, fit, percent, row
from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing

_WORDS = 8
_TONES: dict[str, Tone] = {"": "good", "near": "near", "reached": "reached"}


def cap_lines(cap: CapState, width: int) -> list[Line]:
    """One cap: what is left of it, a bar (full blocks are spent, half-toned ones held), and the amounts."""
    word = cap_word(cap)
    used = percent(cap.spent + cap.held, cap.limit)
    drawn = bar(((cap.spent, "█"), (cap.held, "▒")), cap.limit, max(0, width - len(used) - 1 - _WORDS))
    left = tokens(cap.left) if cap.unit == "tokens" else money(cap.left)
    return [
        ends((visible_line(cap.scope), "strong"), (f"{left} left of {amount(cap.limit, cap.unit)}", "text"), width),
        ((drawn, _TONES[word]), (f" {used}", "text"), (f" {word}", _TONES[word])),
        ((fit(f"spent {amount(cap.spent, cap.unit)} · held {amount(cap.held, cap.unit)}", width), "muted"),),
    ]


def budget_lines(board: Board, width: int) -> list[Line]:
    """Every cap, and what the session has cost."""
    standing = board.standing
    if standing is None:
        return [(("known once the session is open", "muted"),)]
    lines: list[Line] = [line for cap in board.caps for line in cap_lines(cap, width)]
    if not lines:
        lines = [(("no cap set", "strong"), (" — /budget 0.50 sets one", "muted"))]
    held = _both(board.held_nano, board.held_tokens) if board.held_tokens or board.held_nano else "nothing"
    return [
        *lines,
        row("next step", _next_step(standing.next_nano, standing.next_tokens), width),
        row("held now", held, width),
        row("so far", _so_far(standing), width),
    ]


def _so_far(standing: "Standing") -> str:
    """What the session took; caps count more of it where calls reported no usage."""
    spent = about(money(standing.spent_nano), estimated=standing.estimated_nano)
    return f"{spent} · {about(tokens(standing.used_tokens), estimated=standing.estimated)} tok"


def _next_step(nano: int | None, most: int | None) -> str:
    if most is None:
        return "not known yet"
    return f"≤ {tokens(most)} tok, price unknown" if nano is None else f"≤ {_both(nano, most)}"


def _both(nano: int | None, used: int) -> str:
    return f"{money(nano)} · {tokens(used)} tok"


class BudgetPanel(Panel):
    """Every cap with what is spent, held and left of it, and what the session has cost."""

    NAME = "budget"
    HELP = (
        "What may be spent, and what is. Held is reserved for a call that runs. "
        "/budget sets caps, /cost shows what was paid for; enter folds the panel."
    )

    def lines(self, width: int) -> list[Line]:
        return budget_lines(self.board, width)

    def gist(self) -> str:
        if not self.folded or self.board.standing is None:
            return ""
        cap = tightest(self.board.caps)
        if cap is None:
            return "no cap"
        word = cap_word(cap)
        return f"{amount(cap.left, cap.unit)} left{f' · {word}' if word else ''}"

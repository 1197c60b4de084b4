"""The budget panel and the roles panel: what may be spent and is, who thinks, and what that has cost."""

from collections.abc import Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from ecoshell.budget.holds import CapState
from ecoshell.budget.money import about, counted
from ecoshell.events.describe import duration
from ecoshell.models.local_models import name_parts
from ecoshell.tui.side.bars import cap_word, tightest
from ecoshell.tui.side.panel import Line, Panel, Piece, Tone, bar, ends, percent, row
from ecoshell.tui.side.panel_state import PanelState, RoleUse, Thinker, shares
from ecoshell.tui.text import amount, fit, fit_middle, left, model_name, money, right, tokens
from ecoshell.untrusted import visible_line

_WORDS = 8
_TONES: dict[str, Tone] = {"": "good", "near": "warning", "reached": "error"}
_TABLE_FROM = 72
"""Columns from which on the numbers of all roles stand below each other."""
_ROOMY_FROM = 34
"""Columns from which on it is said why shares are not of the price."""
_HEADS = (("calls", 6), ("in", 7), ("cached", 8), ("out", 7), ("price", 10), ("time", 11), ("share", 7))
_SIGNS: Mapping[str, str] = {"planner": "◊", "caller": "►", "summarizer": "√", "single": "◊"}
"""As the transcript shows what comes of them: a thought, a call, an answer."""
_THINKS, _SIGN_OF_WHO_THINKS = "thinking", "◦"
_NOT_ASKED, _NONE_PAID = "not asked yet", "no call is paid yet"


def cap_lines(cap: CapState, width: int) -> list[Line]:
    """One cap: what is left of it, a bar (full blocks are spent, half-toned ones held), and the amounts."""
    word = cap_word(cap)
    used = percent(cap.spent + cap.held, cap.limit)
    drawn = bar(((cap.spent, "█"), (cap.held, "▒")), cap.limit, max(0, width - len(used) - 1 - _WORDS))
    left = tokens(cap.left) if cap.unit == "tokens" else money(cap.left)
    amounts = f"spent {amount(cap.spent, cap.unit)} · held {amount(cap.held, cap.unit)}"
    if cap.own is not None:
        amounts += f" · by you {amount(cap.own, cap.unit)}"
    return [
        ends((visible_line(cap.scope), "strong"), (f"{left} left of {amount(cap.limit, cap.unit)}", "text"), width),
        ((drawn, _TONES[word]), (f" {used}", "text"), (f" {word}", _TONES[word])),
        ((fit(amounts, width), "muted"),),
    ]


def budget_lines(state: PanelState, width: int) -> list[Line]:
    """Every cap, and what the session has cost."""
    standing = state.standing
    if standing is None:
        return [(("known once the session is open", "muted"),)]
    lines: list[Line] = [line for cap in state.caps for line in cap_lines(cap, width)]
    if not lines:
        lines = [(("no cap set", "strong"), (" — /budget 0.50 sets one", "muted"))]
    held = _both(state.held_nano, state.held_tokens) if state.held_tokens or state.held_nano else "nothing"
    nano, most = standing.next_nano, standing.next_tokens
    step = "not known yet" if most is None else f"≤ {tokens(most)} tok, price unknown"
    if most is not None and nano is not None:
        step = f"≤ {_both(nano, most)}"
    spent = about(money(standing.spent_nano), estimated=standing.estimated_nano)
    used = about(tokens(standing.used_tokens), estimated=standing.estimated)
    return [
        *lines,
        row("next step", step, width),
        row("held now", held, width),
        row("so far", f"{spent} · {used} tok", width),
    ]


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
        return budget_lines(self.state, width)

    def gist(self) -> str:
        if not self.folded or self.state.standing is None:
            return ""
        cap = tightest(self.state.caps)
        if cap is None:
            return "no cap"
        word = cap_word(cap)
        return f"{amount(cap.left, cap.unit)} left{f' · {word}' if word else ''}"


def roles_lines(state: PanelState, width: int, *, session: bool = False) -> list[Line]:
    """Who has thought in the turn or in the session, and who will; who does now is marked by a sign and a word."""
    uses = state.uses(session=session)
    if not uses:
        return [(("nobody has thought yet", "muted"),)]
    shared = shares(uses)
    parts = shared.percent if shared else (0,) * len(uses)
    percents = [f"{part} %" if shared and use.calls else "" for use, part in zip(uses, parts, strict=True)]
    lines: list[Line] = []
    if state.turn:
        of: Piece = ("session" if session else f"turn {state.turn}", "strong")
        why = f", {shared.why}" if shared and shared.why and width >= _ROOMY_FROM else ""
        lines.append(ends(of, (f"% of {shared.basis}{why}" if shared else _NONE_PAID, "muted"), width))
    if width >= _TABLE_FROM:
        return [*lines, *_table(state, list(zip(uses, percents, strict=True)), width)]
    entries = (_entry(use, part, width, state.thinking) for use, part in zip(uses, percents, strict=True))
    return [*lines, *(line for entry in entries for line in entry)]


def _entry(use: RoleUse, part: str, width: int, thinking: Thinker | None) -> list[Line]:
    """A role in a few lines: its model and share, its adapter, its calls and their price, its tokens.

    A word before the calls says who thinks.
    """
    thinks = use.thinker == thinking
    role = visible_line(use.role)
    model, adapter = (visible_line(part) for part in name_parts(use.model))
    share = f" {part:>5}" if part else ""
    room = width - 2 - cell_len(role) - len(share)
    name = left(f"  {model_name(model, room - 2)}", room)
    lines: list[Line] = [(_sign(use, thinks=thinks), (role, "strong"), (name, "text"), (share, "text"))]
    if adapter:
        lines.append(((f"  {_adapter(adapter, width - 2)}", "muted"),))
    word: tuple[Piece, ...] = (("  ", "text"), (_THINKS, "warning")) if thinks else ()
    room = width - sum(cell_len(text) for text, _ in word)
    if not use.calls:
        return [*lines, (*word, (fit(f"  {_NONE_PAID if thinks else _NOT_ASKED}", room), "muted"))]
    calls = counted(use.calls, "call")
    used = use.taken.usage
    cached = f" ({tokens(used.cached)} cached)" if used.cached else ""
    amounts = f"{tokens(used.input)} in{cached} · {tokens(used.output)} out"
    return [
        *lines,
        (*word, *ends((f"  {calls}  {duration(use.seconds)}", "text"), (_price(use), "text"), room)),
        ((fit(f"  {about(amounts, estimated=use.taken.estimated)}", width), "muted"),),
    ]


def _table(state: PanelState, rows: list[tuple[RoleUse, str]], width: int) -> list[Line]:
    """Two lines for each role: its numbers below each other, and its model and adapter."""
    room = width - 2 - sum(columns for _, columns in _HEADS)
    lines: list[Line] = [((f"  {left('role', room)}{''.join(right(text, size) for text, size in _HEADS)}", "muted"),)]
    for use, part in rows:
        thinks = use.thinker == state.thinking
        numbers = _numbers(use, part, thinks=thinks)
        lines.append((_sign(use, thinks=thinks), (left(visible_line(use.role), room), "strong"), *numbers))
        model, adapter = (visible_line(part) for part in name_parts(use.model))
        behind = f"  {_adapter(adapter, width // 2 - 4)}" if adapter else ""
        lines.append(((f"  {model_name(model, width - 2 - cell_len(behind))}{behind}", "muted"),))
    return lines


def _numbers(use: RoleUse, part: str, *, thinks: bool) -> tuple[Piece, ...]:
    """What stands in the columns; a word in the place of the time says who thinks."""
    *_, (_, time), (_, share) = _HEADS
    before = sum(columns for _, columns in _HEADS) - time - share
    taken: Piece = (right(_THINKS, time), "warning") if thinks else (right(duration(use.seconds), time), "text")
    if not use.calls:
        rest = right("", time + share)
        return ((right("", before), "text"), taken) if thinks else ((f"{right(_NOT_ASKED, before)}{rest}", "muted"),)
    used = use.taken.usage
    read, written = (about(tokens(count), estimated=use.taken.estimated) for count in (used.input, used.output))
    price = "unknown" if use.taken.nano is None else _price(use)
    cells = (str(use.calls), read, tokens(used.cached), written, price)
    numbers = "".join(right(cell, size) for cell, (_, size) in zip(cells, _HEADS, strict=False))
    return ((numbers, "text"), taken, (right(part, share), "text"))


def _price(use: RoleUse) -> str:
    return about(money(use.taken.nano), estimated=use.taken.estimated_nano)


def _sign(use: RoleUse, *, thinks: bool) -> Piece:
    return (f"{_SIGN_OF_WHO_THINKS} ", "warning") if thinks else (f"{_SIGNS.get(use.role, '·')} ", "muted")


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

    def __init__(self, state: PanelState) -> None:
        self._session = False
        super().__init__(state)

    def lines(self, width: int) -> list[Line]:
        return roles_lines(self.state, width, session=self._session)

    def gist(self) -> str:
        return f"{visible_line(self.state.thinking[0])} is thinking" if self.state.thinking else ""

    def action_scope(self) -> None:
        self._session = not self._session
        self.show()

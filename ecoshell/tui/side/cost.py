"""The budget panel and the roles panel: what may be spent and is, who thinks, and what that has cost."""

from collections.abc import Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from ecoshell.budget import about, counted
from ecoshell.events.describe import duration
from ecoshell.messages import visible_line
from ecoshell.models.local_models import name_parts
from ecoshell.tui.side.bars import cap_word, tightest
from ecoshell.tui.side.panel import Line, Panel, Piece, Tone, bar, ends, percent, row
from ecoshell.tui.side.panel_state import RoleUse, shares
from ecoshell.tui.text import amount, fit, fit_middle, left, model_name, money, right, tokens

_WORDS = 8
_TONES: dict[str, Tone] = {"": "good", "near": "warning", "reached": "error"}
_TABLE_FROM = 72
"""Columns from which on the numbers of all roles stand below each other."""
_ROOMY_FROM = 34
"""Columns from which on it is said why shares are not of the price."""
_HEADS = (("calls", 6), ("in", 7), ("cached", 8), ("out", 7), ("price", 10), ("time", 11), ("share", 7))
_SIGNS: Mapping[str, str] = {"planner": "◊", "caller": "►", "summarizer": "√", "single": "◊"}
"""As the transcript shows what comes of them: a thought, a call, an answer."""
_THINKS = "thinking"
_WHO_THINKS: Piece = ("◦ ", "warning")
_NOT_ASKED, _NONE_PAID = "not asked yet", "no call is paid yet"


class BudgetPanel(Panel):
    """Every cap with what is spent, held and left of it, and what the session has cost."""

    NAME = "budget"
    HELP = (
        "What may be spent, and what is. Held is reserved for a call that runs. "
        "/budget sets caps, /cost shows what was paid for; enter folds the panel."
    )

    def lines(self, width: int) -> list[Line]:
        standing = self.state.standing
        self.gist = ""
        if standing is None:
            return [(("known once the session is open", "muted"),)]
        if self.folded:
            self.gist = "caps not known" if standing.away else "no cap"
            if (cap := tightest(self.state.caps)) is not None:
                word = cap_word(cap)
                self.gist = f"{amount(cap.left, cap.unit)} left{f' · {word}' if word else ''}"
        lines: list[Line] = []
        for cap in self.state.caps:  # what is left, a bar (full blocks are spent, half-toned ones held), the amounts
            word, used = cap_word(cap), percent(cap.spent + cap.held, cap.limit)
            drawn = bar(((cap.spent, "█"), (cap.held, "▒")), cap.limit, max(0, width - len(used) - 1 - _WORDS))
            left = tokens(cap.left) if cap.unit == "tokens" else money(cap.left)
            amounts = f"spent {amount(cap.spent, cap.unit)} · held {amount(cap.held, cap.unit)}"
            if cap.own is not None:
                amounts += f" · by you {amount(cap.own, cap.unit)}"
            of: Piece = (f"{left} left of {amount(cap.limit, cap.unit)}", "text")
            entry: tuple[Line, ...] = (
                ends((visible_line(cap.scope), "strong"), of, width),
                ((drawn, _TONES[word]), (f" {used}", "text"), (f" {word}", _TONES[word])),
                ((fit(amounts, width), "muted"),),
            )
            lines += entry
        if standing.away:
            lines.append((("the team's caps are not known", "warning"),))
        elif not lines:
            lines = [(("no cap set", "strong"), (" — /budget 0.50 sets one", "muted"))]
        nano, most = standing.next_nano, standing.next_tokens
        step = "not known yet" if most is None else f"≤ {tokens(most)} tok, price unknown"
        if most is not None and nano is not None:
            step = f"≤ {money(nano)} · {tokens(most)} tok"
        held_nano, held = self.state.held
        spent = about(money(standing.spent_nano), estimated=standing.estimated_nano)
        used = about(tokens(standing.used_tokens), estimated=standing.estimated)
        return [
            *lines,
            row("next step", step, width),
            row("held now", f"{money(held_nano)} · {tokens(held)} tok" if held or held_nano else "nothing", width),
            row("so far", f"{spent} · {used} tok", width),
        ]


class RolesPanel(Panel):
    """Every role with its model, adapter, calls, tokens, price, seconds and share."""

    NAME = "roles"
    HELP = (
        "Who thinks: ◦ marks who does now. ◊ thinks ahead, ► makes the calls, √ writes the answer. "
        "Numbers are those of the last turn; t shows the session's. Enter folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "scope", "scope")]

    session = False
    """Whether the numbers are those of the session."""

    def lines(self, width: int) -> list[Line]:
        """Who has thought in the turn or in the session, and who will; who does now has a sign and a word."""
        self.gist = f"{visible_line(self.state.thinking[0])} is thinking" if self.state.thinking else ""
        uses = self.state.uses(session=self.session)
        if not uses:
            return [(("nobody has thought yet", "muted"),)]
        shared = shares(uses)
        lines: list[Line] = []
        if self.state.turn:
            of: Piece = ("session" if self.session else f"turn {self.state.turn}", "strong")
            why = f", {shared.why}" if shared and shared.why and width >= _ROOMY_FROM else ""
            lines.append(ends(of, (f"% of {shared.basis}{why}" if shared else _NONE_PAID, "muted"), width))
        drawn = _table_lines if width >= _TABLE_FROM else _entry_lines
        if width >= _TABLE_FROM:
            room = width - 2 - sum(columns for _, columns in _HEADS)
            heads = "".join(right(text, size) for text, size in _HEADS)
            lines.append(((f"  {left('role', room)}{heads}", "muted"),))
        for use, part in zip(uses, shared.percent if shared else [0] * len(uses), strict=True):
            thinks = (use.role, use.model) == self.state.thinking
            model, file = (visible_line(part) for part in name_parts(use.model))
            adapter = f"+{file.rpartition('/')[2]}" if file else ""
            share = f"{part} %" if shared and use.calls else ""
            sign: Piece = (f"{_SIGNS.get(use.role, '·')} ", "muted")
            first, *others = drawn(use, model, adapter, share, width, thinks=thinks)
            lines += [(_WHO_THINKS if thinks else sign, *first), *others]
        return lines

    def action_scope(self) -> None:
        self.session = not self.session
        self.show()


def _entry_lines(use: RoleUse, model: str, adapter: str, part: str, width: int, *, thinks: bool) -> list[Line]:
    """A role in a few lines, the sign before them left out: its model, its share, its adapter, its calls, its tokens.

    A word before the calls says who thinks.
    """
    role = visible_line(use.role)
    share = f" {part:>5}" if part else ""
    room = width - 2 - cell_len(role) - len(share)
    name = left(f"  {model_name(model, room - 2)}", room)
    lines: list[Line] = [((role, "strong"), (name, "text"), (share, "text"))]
    if adapter:
        lines.append(((f"  {fit_middle(adapter, width - 2)}", "muted"),))
    word: tuple[Piece, ...] = (("  ", "text"), (_THINKS, "warning")) if thinks else ()
    room = width - sum(cell_len(text) for text, _ in word)
    if not use.calls:
        return [*lines, (*word, (fit(f"  {_NONE_PAID if thinks else _NOT_ASKED}", room), "muted"))]
    used, price = use.consumption.usage, about(money(use.consumption.nano), estimated=use.consumption.estimated_nano)
    cached = f" ({tokens(used.cached)} cached)" if used.cached else ""
    amounts = about(f"{tokens(used.input)} in{cached} · {tokens(used.output)} out", estimated=use.consumption.estimated)
    calls = f"  {counted(use.calls, 'call')}  {duration(use.seconds)}"
    return [*lines, (*word, *ends((calls, "text"), (price, "text"), room)), ((fit(f"  {amounts}", width), "muted"),)]


def _table_lines(use: RoleUse, model: str, adapter: str, part: str, width: int, *, thinks: bool) -> list[Line]:
    """Two lines for a role, the sign before them left out: its numbers in columns, and its model and adapter.

    A word in the place of the time says who thinks.
    """
    *_, (_, time), (_, share) = _HEADS
    before = sum(columns for _, columns in _HEADS) - time - share
    spent: Piece = (right(_THINKS, time), "warning") if thinks else (right(duration(use.seconds), time), "text")
    numbers: tuple[Piece, ...]
    if use.calls:
        used, price = (
            use.consumption.usage,
            about(money(use.consumption.nano), estimated=use.consumption.estimated_nano),
        )
        read, written = (
            about(tokens(count), estimated=use.consumption.estimated) for count in (used.input, used.output)
        )
        price = "unknown" if use.consumption.nano is None else price
        cells = (str(use.calls), read, tokens(used.cached), written, price)
        listed = "".join(right(cell, size) for cell, (_, size) in zip(cells, _HEADS, strict=False))
        numbers = ((listed, "text"), spent, (right(part, share), "text"))
    elif thinks:
        numbers = ((right("", before), "text"), spent)
    else:
        numbers = ((f"{right(_NOT_ASKED, before)}{right('', time + share)}", "muted"),)
    role = left(visible_line(use.role), width - 2 - before - time - share)
    behind = f"  {fit_middle(adapter, width // 2 - 4)}" if adapter else ""
    name = f"  {model_name(model, width - 2 - cell_len(behind))}{behind}"
    return [((role, "strong"), *numbers), ((name, "muted"),)]

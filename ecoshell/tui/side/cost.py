"""The budget panel (caps and spending) and the roles panel (models with their calls, tokens and price)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from ecoshell.budget import CapState, about, binding_cap, counted, duration_text
from ecoshell.events.figures import duration
from ecoshell.messages import visible_line
from ecoshell.models.local_models import name_parts
from ecoshell.tui.side.bars import cap_word, unspent
from ecoshell.tui.side.panel import Line, Panel, Piece, Tone, bar_line, justify, percent, row
from ecoshell.tui.side.panel_state import RoleUse, shares
from ecoshell.tui.text import (
    align_left,
    align_right,
    amount,
    fit,
    fit_middle,
    model_name,
    money,
    tokens,
)

if TYPE_CHECKING:
    from ecoshell.agent.shell_status import ShellStatus

_TONES: dict[str, Tone] = {"": "good", "near": "warning", "reached": "error"}
_TABLE_MIN_WIDTH = 72
_HEADS = (
    ("calls", 6), ("in", 7), ("cached", 8), ("out", 7), ("price", 10), ("time", 11), ("share", 7),
)  # fmt: skip
_SIGNS: Mapping[str, str] = {"planner": "◊", "caller": "►", "summarizer": "√", "single": "◊"}
"""The transcript's signs of a thought, a call and an answer."""
_THINKING = "thinking"
_THINKING_SIGN: Piece = ("◦ ", "warning")
_NO_CALLS, _UNPAID = "no calls yet", "no paid call yet"


class BudgetPanel(Panel):
    """Every cap with its spent, reserved and remaining amounts, and the session's cost."""

    NAME = "budget"
    HELP = (
        "Caps and spending. Held is reserved for running calls and the answer, and mostly released. "
        "/budget sets caps, /cost shows what was paid for; enter folds the panel."
    )

    def lines(self, width: int) -> list[Line]:
        status = self.state.status
        self.gist = ""
        if status is None:
            return [(("available once the session is open", "muted"),)]
        if self.folded:
            self.gist = "caps unknown" if status.away else "no cap"
            if (cap := binding_cap(self.state.caps, unspent)) is not None:
                word = cap_word(cap)
                self.gist = f"{amount(unspent(cap), cap.unit)} left{f' · {word}' if word else ''}"
        lines: list[Line] = [line for cap in self.state.caps for line in _cap_lines(cap, width)]
        if status.away:
            lines.append((("team caps unknown", "warning"),))
        elif not lines:
            hint = f"/budget {status.token_cap} or 2min"
            hint = "/budget 0.50 sets one" if status.is_priced else hint
            state = "no cap" if status.is_free else "no cap set"
            lines = [((state, "strong"), (f" — {hint}", "muted"))]
        is_timed = status.is_free or any(cap.unit == "ms" for cap in self.state.caps)
        held_nano, held_tokens, held_ms = self.state.held
        parts = (
            "" if status.is_free else money(held_nano),
            f"{tokens(held_tokens)} tok",
            duration_text(held_ms) if is_timed and held_ms else "",
        )
        working = [counted(len(self.state.subagents), "subagent")] if self.state.subagents else []
        calls = [*filter(None, parts)] if held_tokens or held_nano else []
        running = " · ".join([*calls, *working]) or "no call"
        return [
            *lines,
            row("next step", _next_step(status, is_timed=is_timed), width),
            row("running", running, width),
            row("so far", _used(status, is_timed=is_timed), width),
        ]


def _cap_lines(cap: CapState, width: int) -> tuple[Line, ...]:
    """The remaining amount, a bar, and the amounts of a cap."""
    word, used = cap_word(cap), percent(cap.spent, cap.limit)
    note: Piece = (f"{used} {word}".rstrip(), _TONES[word] if word else "text")
    amount_left = tokens(unspent(cap)) if cap.unit == "tokens" else amount(unspent(cap), cap.unit)
    amounts = f"spent {amount(cap.spent, cap.unit)} · held {amount(cap.held, cap.unit)}"
    if cap.own is not None:
        amounts += f" · by you {amount(cap.own, cap.unit)}"
    remaining: Piece = (f"{amount_left} left of {amount(cap.limit, cap.unit)}", "text")
    return (
        justify((visible_line(cap.scope), "strong"), remaining, width),
        bar_line(cap.spent, cap.held, cap.limit, _TONES[word], note, width),
        ((fit(amounts, width), "muted"),),
    )


def _next_step(status: "ShellStatus", *, is_timed: bool) -> str:
    """The most that the next step reserves and, if time matters, how long it is expected to take."""
    nano, token_limit = status.next_nano, status.next_tokens
    if token_limit is None:
        return "unknown"
    step = f"≤ {tokens(token_limit)} tok, price unknown"
    if status.is_free:
        step = f"≤ {tokens(token_limit)} tok"
    elif nano is not None:
        step = f"≤ {money(nano)} · {tokens(token_limit)} tok"
    if not is_timed or status.next_ms is None:
        return step
    return f"{step} · ≈ {_whole_seconds(status.next_ms)}"


def _used(status: "ShellStatus", *, is_timed: bool) -> str:
    """What the session has used; the price only if the models have one."""
    spent = about(money(status.spent_nano), estimated=status.estimated_nano)
    parts = [] if status.is_free and not status.spent_nano else [spent]
    parts.append(about(f"{tokens(status.used_tokens)} tok", estimated=status.estimated))
    if is_timed and status.used_ms is not None:
        parts.append(_whole_seconds(status.used_ms))
    return " · ".join(parts)


def _whole_seconds(ms: int) -> str:
    """A duration without tenths, which would change with every glance."""
    return duration_text(round(ms, -3))


class RolesPanel(Panel):
    """Every role with its model, adapter, calls, tokens, price, time and share."""

    NAME = "roles"
    HELP = (
        "Roles and their models; ◦ marks the one that is thinking. ◊ plans, ► makes the calls, √ writes the answer. "
        "The numbers are those of the last turn; t switches to the session's. Enter folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "scope", "scope")]

    session = False
    """Whether to show the session's numbers instead of the turn's."""

    def lines(self, width: int) -> list[Line]:
        """Roles used in the turn or session, and those assigned now."""
        thinking = self.state.thinking
        self.gist = f"{visible_line(thinking[0])} is thinking" if thinking else ""
        uses = self.state.uses(session=self.session)
        if not uses:
            return [(("no role used yet", "muted"),)]
        shared = shares(uses)
        lines: list[Line] = []
        if self.state.turn:
            scope: Piece = ("session" if self.session else f"turn {self.state.turn}", "strong")
            why = f", {shared.why}" if shared and shared.why else ""
            basis = f"% of {shared.basis}{why}" if shared else _UNPAID
            lines.append(justify(scope, (basis, "muted"), width))
        draw = _table_lines if width >= _TABLE_MIN_WIDTH else _entry_lines
        if width >= _TABLE_MIN_WIDTH:
            room = width - 2 - sum(columns for _, columns in _HEADS)
            heads = "".join(align_right(text, size) for text, size in _HEADS)
            lines.append(((f"  {align_left('role', room)}{heads}", "muted"),))
        for use, part in zip(uses, shared.percent if shared else [0] * len(uses), strict=True):
            thinks = (use.role, use.model) == thinking
            model, file = (visible_line(part) for part in name_parts(use.model))
            adapter = f"+{file.rpartition('/')[2]}" if file else ""
            share = f"{part} %" if shared and use.calls else ""
            sign: Piece = (f"{_SIGNS.get(use.role, '·')} ", "muted")
            first, *more = draw(use, model, adapter, share, width, thinks=thinks)
            lines += [(_THINKING_SIGN if thinks else sign, *first), *more]
        return lines

    def action_scope(self) -> None:
        self.session = not self.session
        self.show()


def _entry_lines(
    use: RoleUse, model: str, adapter: str, part: str, width: int, *, thinks: bool
) -> list[Line]:
    """A role in a few lines, without its sign: model, share, adapter, calls and tokens."""
    role = visible_line(use.role)
    share = f" {part:>5}" if part else ""
    room = width - 2 - cell_len(role) - len(share)
    name = align_left(f"  {model_name(model, room - 2)}", room)
    lines: list[Line] = [((role, "strong"), (name, "text"), (share, "text"))]
    if adapter:
        lines.append(((f"  {fit_middle(adapter, width - 2)}", "muted"),))
    word: tuple[Piece, ...] = (("  ", "text"), (_THINKING, "warning")) if thinks else ()
    room = width - sum(cell_len(text) for text, _ in word)
    if not use.calls:
        return [*lines, (*word, (fit(f"  {_UNPAID if thinks else _NO_CALLS}", room), "muted"))]
    consumption, used = use.consumption, use.consumption.usage
    price = about(money(consumption.nano), estimated=consumption.estimated_nano)
    cached = f" ({tokens(used.cached)} cached)" if used.cached else ""
    counts = f"{tokens(used.input)} in{cached} · {tokens(used.output)} out"
    amounts = about(counts, estimated=consumption.estimated)
    calls = f"  {counted(use.calls, 'call')}  {duration(use.seconds)}"
    numbers = (*word, *justify((calls, "text"), (price, "text"), room))
    return [*lines, numbers, ((fit(f"  {amounts}", width), "muted"),)]


def _table_lines(
    use: RoleUse, model: str, adapter: str, part: str, width: int, *, thinks: bool
) -> list[Line]:
    """Two lines for a role, without its sign: its numbers in columns, and its model and adapter."""
    *_, (_, time), (_, share) = _HEADS
    number_cells = sum(columns for _, columns in _HEADS) - time - share
    spent: Piece = (align_right(duration(use.seconds), time), "text")
    if thinks:
        spent = (align_right(_THINKING, time), "warning")
    numbers: tuple[Piece, ...]
    if use.calls:
        consumption, used = use.consumption, use.consumption.usage
        sent, received = (
            about(tokens(count), estimated=consumption.estimated)
            for count in (used.input, used.output)
        )
        price = "unknown"
        if consumption.nano is not None:
            price = about(money(consumption.nano), estimated=consumption.estimated_nano)
        cells = (str(use.calls), sent, tokens(used.cached), received, price)
        pairs = zip(cells, _HEADS, strict=False)
        listed = "".join(align_right(cell, size) for cell, (_, size) in pairs)
        numbers = ((listed, "text"), spent, (align_right(part, share), "text"))
    elif thinks:
        numbers = ((align_right("", number_cells), "text"), spent)
    else:
        numbers = ((align_right(_NO_CALLS, number_cells) + " " * (time + share), "muted"),)
    role = align_left(visible_line(use.role), width - 2 - number_cells - time - share)
    suffix = f"  {fit_middle(adapter, width // 2 - 4)}" if adapter else ""
    name = f"  {model_name(model, width - 2 - cell_len(suffix))}{suffix}"
    return [((role, "strong"), *numbers), ((name, "muted"),)]

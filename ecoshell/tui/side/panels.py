"""The side panels: what may be spent and what is, which tools are known and what they take of the context."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ecoshell.budget.caps import CapState
from ecoshell.tui.figures import amount, money, tokens
from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing, ToolRow

_NO_CAP = "no cap set — /budget 0.50 sets one"
_BAR = 16
_NEAR = 0.8
_TONES = {"": "$success", "near": "$warning", "reached": "$error"}
_WIDEST_NAME = 20


def bar(cap: CapState, width: int = _BAR) -> str:
    """A cap's use as a bar: full blocks are spent, half-toned ones are held."""
    spent = min(width, -(-cap.spent * width // cap.limit))
    held = min(width - spent, -(-cap.held * width // cap.limit))
    return "█" * spent + "▒" * held + "░" * (width - spent - held)


def cap_word(cap: CapState) -> str:
    """How a cap stands, in a word: the colour of the bar says no more than this."""
    if cap.left == 0:
        return "reached"
    return "near" if cap.spent + cap.held >= _NEAR * cap.limit else ""


def cap_lines(cap: CapState) -> list[str]:
    """One cap in plain words."""
    percent = min(100, 100 * (cap.spent + cap.held) // cap.limit)
    word = cap_word(cap)
    return [
        f"{cap.scope}  {amount(cap.limit, cap.unit)}",
        f"{bar(cap)} {percent} %{f'  {word}' if word else ''}",
        f"spent {amount(cap.spent, cap.unit)} · held {amount(cap.held, cap.unit)}",
        f"left {amount(cap.left, cap.unit)}",
    ]


def summary(standing: "Standing", caps: Iterable[CapState]) -> str:
    """Both panels in one line, for narrow screens; the tightest cap stands for all."""
    tightest = min(caps, key=lambda cap: cap.left / cap.limit, default=None)
    tools = f"tools {_registered(standing.tools)}/{len(standing.tools)}"
    context = f"context {tokens(standing.context_tokens)} of {tokens(standing.everything_tokens)}"
    if tightest is None:
        return f"no cap · spent {money(standing.spent_nano)} │ {tools} · {context}"
    left, limit = amount(tightest.left, tightest.unit), amount(tightest.limit, tightest.unit)
    word = cap_word(tightest)
    return f"{tightest.scope}: {left} of {limit} left{f' ({word})' if word else ''} │ {tools} · {context}"


class BudgetPanel(VerticalScroll, can_focus=True):
    """Every cap with what is spent, held and left of it."""

    BORDER_TITLE = "BUDGET"
    HELP = "What may be spent. Held is reserved for a call that runs. /budget sets caps, /cost shows what was paid for."
    DEFAULT_CSS = """
    BudgetPanel { height: auto; max-height: 50%; }
    """

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(_NO_CAP, markup=False)

    def show(self, standing: "Standing", caps: Sequence[CapState]) -> None:
        """Show these caps and what the session has cost."""
        self.query_one(Static).update(self._text(standing, caps))

    def _text(self, standing: "Standing", caps: Sequence[CapState]) -> Content:
        parts: list[tuple[str, str]] = []
        for cap in caps:
            head, line, *rest = cap_lines(cap)
            parts += [(f"{head}\n", "bold"), (f"{line}\n", _TONES[cap_word(cap)]), ("\n".join([*rest, ""]), "")]
        if not caps:
            parts.append((f"{_NO_CAP}\n", ""))
        spent = f"this session: {money(standing.spent_nano)} · {tokens(standing.used_tokens)} tok"
        return Content.assemble(*parts, (spent, "dim"))


class ToolsPanel(VerticalScroll, can_focus=True):
    """Every known tool with the tokens its document takes; those that are only known by name are dim."""

    BORDER_TITLE = "TOOLS"
    HELP = "● is registered: its document is in the context. ○ is known by name. /register and /unregister change it."
    DEFAULT_CSS = """
    ToolsPanel { height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static("", markup=False)

    def show(self, standing: "Standing") -> None:
        """Show these tools."""
        self.query_one(Static).update(self._text(standing))

    def _text(self, standing: "Standing") -> Content:
        approx = "" if standing.exact else "≈ "
        now, everything = tokens(standing.context_tokens), tokens(standing.everything_tokens)
        rows = [_tool_row(tool) for tool in sorted(standing.tools, key=lambda tool: not tool.registered)]
        head = Content.styled(f"{_registered(standing.tools)} of {len(standing.tools)} registered", "bold")
        context = Content.styled(f"context {approx}{now} tok, all {everything}", "dim")
        return Content("\n").join([head, context, *rows])


def _tool_row(tool: "ToolRow") -> Content:
    size = f"{tokens(tool.tokens):>6}"
    if not tool.registered:
        return Content.styled(f"○ {_name(tool.name)}{size}", "dim")
    by = "  you" if tool.by == "user" else ""
    return Content.assemble(("● ", "$success"), f"{_name(tool.name)}{size}", (by, "dim"))


def _registered(tools: "Sequence[ToolRow]") -> int:
    return sum(tool.registered for tool in tools)


def _name(name: str) -> str:
    shown = visible_line(name)
    return (shown if len(shown) <= _WIDEST_NAME else shown[: _WIDEST_NAME - 1] + "…").ljust(_WIDEST_NAME)

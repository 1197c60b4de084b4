"""The title bar above the transcript, and the summary line shown while the panels are hidden."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ecoshell.budget import NEAR_CAP_SHARE, CapState, about
from ecoshell.messages import visible_line
from ecoshell.options import EMBEDDED
from ecoshell.tui.text import align_left, amount, fit, model_name, money, tokens

if TYPE_CHECKING:
    from ecoshell.agent.shell_status import ShellStatus


_DEMO_NOTE = ", demo model (f7 changes it)"
_MIN_TITLE_CELLS = 24
_MODEL_CELLS = 28
_MODES = {"single": "one model", "umi": "three roles"}
_STRATEGIES = {
    "react": "",
    "dfsdt": "backtracking",
    "tot": "comparing steps",
    "graph": "tool graph",
}


def cap_word(cap: CapState) -> str:
    """The state of a cap as a word: `reached`, `near` or nothing.

    Of time only the spent part counts, since a running call reserves much more than it usually takes.
    """
    if cap.unit == "ms":
        left, used = cap.limit - cap.spent, cap.spent
    else:
        left, used = cap.left, cap.spent + cap.held
    if left <= 0:
        return "reached"
    return "near" if used >= NEAR_CAP_SHARE * cap.limit else ""


def tightest(caps: Sequence[CapState]) -> CapState | None:
    """The cap with the smallest share left."""
    return min(caps, key=lambda cap: cap.left / max(1, cap.limit), default=None)


class TitleBar(Widget):
    """Session title, state, remaining cap, mode, strategy and model."""

    DEFAULT_CSS = """
    TitleBar { height: 1; padding: 0 1; background: $panel; color: $foreground; text-wrap: nowrap; }
    """
    state = reactive("")
    """A lasting state, such as `not ready` or `read-only`."""
    _title = reactive("")
    _mode_and_model = reactive(("", ""))
    _cap: reactive[CapState | None] = reactive(None)
    _note = reactive("")

    def __init__(self, state: str) -> None:
        """`state` is shown until a session is open: `opening embedded …`."""
        super().__init__()
        self.state = state

    def show(self, status: "ShellStatus", caps: Sequence[CapState]) -> None:
        if not self._title:
            self.state = ""
        self._cap = tightest(caps)
        self._title = visible_line(status.title) or "new session"
        how = (
            _MODES.get(status.mode, status.mode),
            _STRATEGIES.get(status.strategy, status.strategy),
        )
        self._mode_and_model = (", ".join(filter(None, how)), visible_line(status.model))
        effort = "" if status.effort == "auto" else f" ({status.effort})"
        self._note = effort + (_DEMO_NOTE if status.model == EMBEDDED else "")

    def render(self) -> Content:
        """The title on the left; state, cap, mode and model on the right, as far as they fit."""
        width, state = self.content_size.width, visible_line(self.state)
        start = f"ecoshell · {self._title}" if self._title else "ecoshell"
        room = width - 1 - min(cell_len(start), _MIN_TITLE_CELLS, width // 2)
        how, model = self._mode_and_model
        short, model = model_name(model, _MODEL_CELLS) + self._note, model and model + self._note
        cap = f"{amount(self._cap.left, self._cap.unit)} left" if self._cap else ""
        rows = (cap, how, model), (cap, how, short), (cap, short), (how, short), (short,)
        names = [" · ".join(filter(None, row)) for row in rows] if model else [""]
        ends = ("  ".join(word for word in (state, name) if word) for name in names)
        end = next(
            (text for text in ends if cell_len(text) <= room), fit(state or short, max(0, room))
        )
        shown_start = align_left(start, width - 1 - cell_len(end))
        line = Content(f"{shown_start} {end}").stylize("bold", 0, len(shown_start))
        at = line.plain.rfind(cap) if cap and self._cap and cap_word(self._cap) else -1
        return line.stylize("bold $warning", at, at + len(cap)) if at >= 0 else line


class SummaryLine(Widget):
    """The panels in one line, shown while they are hidden; parts that do not fit are dropped."""

    DEFAULT_CSS = """
    SummaryLine { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    _parts = reactive(("", "", "", ""))

    def show(self, status: "ShellStatus", caps: Sequence[CapState], plan: str) -> None:
        """Show the tightest cap, the planned tools (`plan 3 of 13`, or empty) and the number of registered tools."""
        registered = sum(tool.registered for tool in status.tools)
        schemas = (
            f"schemas {tokens(status.context_tokens)} of {tokens(status.everything_tokens)} tok"
        )
        if (cap := tightest(caps)) is None:
            spent = about(money(status.spent_nano), estimated=status.estimated_nano)
            cap_text = "caps unknown" if status.away else "no cap"
            cap_text += f", {'' if status.spent_nano is None else 'spent '}{spent}"
        else:
            word = f" ({cap_word(cap)})" if cap_word(cap) else ""
            amounts = f"{amount(cap.left, cap.unit)} of {amount(cap.limit, cap.unit)} left"
            cap_text = f"{visible_line(cap.scope)}: {amounts}{word}"
        self._parts = (cap_text, plan, f"tools {registered}/{len(status.tools)}", schemas)

    def render(self) -> Content:
        width = self.content_size.width
        line, *parts = self._parts
        for part in parts:
            longer = f"{line} · {part}"
            if part and cell_len(longer) <= width:
                line = longer
        return Content(line)

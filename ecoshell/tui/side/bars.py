"""The title bar above the transcript, and the summary line shown while the panels are hidden."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ecoshell.budget import NEAR_CAP_SHARE, CapState, about, binding_cap
from ecoshell.messages import visible_line
from ecoshell.options import EMBEDDED
from ecoshell.tui.text import align_left, amount, fit, model_name, money, tokens

if TYPE_CHECKING:
    from ecoshell.agent.shell_status import ShellStatus


_DEMO_NOTE = ", demo model (f7 changes it)"
_SHORT_DEMO_NOTE, _SHORTEST_DEMO = " demo (f7)", "demo (f7)"
_MIN_TITLE_CELLS = 24
_SHORT_TITLE_CELLS = 12
"""Cells of the title where the cap and the model would not fit next to a longer one."""
_MODEL_CELLS = 28
_MIN_MODEL_CELLS = 10
_MODES = {"single": "one model", "umi": "three roles"}
_STRATEGIES = {
    "react": "", "dfsdt": "backtracking", "tot": "comparing steps", "graph": "tool graph",
}  # fmt: skip


def unspent(cap: CapState) -> int:
    """The rest of a cap, with the amount held for running calls, which usually take much less."""
    return max(0, cap.limit - cap.spent)


def cap_word(cap: CapState) -> str:
    """The state of a cap as a word: `reached`, `near` or nothing."""
    if not unspent(cap):
        return "reached"
    return "near" if cap.spent >= NEAR_CAP_SHARE * cap.limit else ""


def _joined(state: str, *parts: str) -> str:
    return "  ".join(filter(None, (state, " · ".join(filter(None, parts)))))


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
    _effort = reactive("")

    def __init__(self, state: str) -> None:
        """`state` is shown until a session is open: `opening embedded …`."""
        super().__init__()
        self.state = state

    def show(self, status: "ShellStatus", caps: Sequence[CapState]) -> None:
        if not self._title:
            self.state = ""
        self._cap = binding_cap(caps, unspent)
        self._title = visible_line(status.title) or "new session"
        strategy = _STRATEGIES.get(status.strategy, status.strategy)
        how = (_MODES.get(status.mode, status.mode), strategy)
        self._mode_and_model = (", ".join(filter(None, how)), visible_line(status.model))
        self._effort = "" if status.effort == "auto" else f" ({status.effort})"

    def render(self) -> Content:
        """The title on the left; state, cap, mode and model on the right, as far as they fit."""
        width, state = self.content_size.width, visible_line(self.state)
        start = f"ecoshell · {self._title}" if self._title else "ecoshell"
        room = width - 1 - min(cell_len(start), _MIN_TITLE_CELLS, width // 2)
        cap = f"{amount(unspent(self._cap), self._cap.unit)} left" if self._cap else ""
        most = max(room, width - 1 - min(cell_len(start), _SHORT_TITLE_CELLS))
        end = self._end(state, cap, room, most)
        shown_start = align_left(start, width - 1 - cell_len(end))
        line = Content(f"{shown_start} {end}").stylize("bold", 0, len(shown_start))
        at = line.plain.rfind(cap) if cap and self._cap and cap_word(self._cap) else -1
        return line.stylize("bold $warning", at, at + len(cap)) if at >= 0 else line

    def _end(self, state: str, cap: str, room: int, most: int) -> str:
        """State, cap, mode and model in `room` cells; the state, then the cap and the key for the demo stay longest.

        Without a state, the cap and the shortest model may take `most` cells.
        """
        how, model = self._mode_and_model
        if not model:
            return fit(state, max(0, room))
        full, short, shortest = self._model_texts(room - cell_len(_joined(state, cap, " ")))
        names = (full,) if model == EMBEDDED else (full, short)
        rows = [*((cap, how, name) for name in names), *((cap, name) for name in (full, short))]
        ends = [(_joined(state, *row), room) for row in (*rows, (cap, shortest))]
        ends += [(_joined("", cap, shortest), 0 if state else most)]
        ends += [(_joined(state, word), room) for word in (cap, shortest) if word]
        fallback = fit(state or shortest, max(0, room))
        return next((text for text, cells in ends if cell_len(text) <= cells), fallback)

    def _model_texts(self, cells: int) -> tuple[str, str, str]:
        """The model and its effort in full and shortened, and the model alone in about so many cells."""
        _, model = self._mode_and_model
        if model == EMBEDDED:
            named = model + self._effort
            return named + _DEMO_NOTE, named + _SHORT_DEMO_NOTE, _SHORTEST_DEMO
        short = model_name(model, _MODEL_CELLS)
        shortest = model_name(model, min(max(_MIN_MODEL_CELLS, cells), _MODEL_CELLS))
        return model + self._effort, short + self._effort, shortest


class SummaryLine(Widget):
    """The panels in one line, shown while they are hidden; parts that do not fit are dropped."""

    DEFAULT_CSS = """
    SummaryLine { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    _parts = reactive(("", "", "", ""))

    def show(self, status: "ShellStatus", caps: Sequence[CapState], plan: str) -> None:
        """Show the binding cap, the planned tools (`plan 3 of 13`, or empty) and the number of loaded tools."""
        loaded = sum(tool.loaded for tool in status.tools)
        everything = tokens(status.everything_tokens)
        schemas = f"schemas {tokens(status.context_tokens)} of {everything} tok"
        if (cap := binding_cap(caps, unspent)) is None:
            spent = about(money(status.spent_nano), estimated=status.estimated_nano)
            cap_text = "caps unknown" if status.away else "no cap"
            cap_text += f", {'' if status.spent_nano is None else 'spent '}{spent}"
        else:
            word = f" ({cap_word(cap)})" if cap_word(cap) else ""
            amounts = f"{amount(unspent(cap), cap.unit)} of {amount(cap.limit, cap.unit)} left"
            cap_text = f"{visible_line(cap.scope)}: {amounts}{word}"
        self._parts = (cap_text, plan, f"tools {loaded}/{len(status.tools)}", schemas)

    def render(self) -> Content:
        width = self.content_size.width
        line, *parts = self._parts
        for part in parts:
            longer = f"{line} · {part}"
            if part and cell_len(longer) <= width:
                line = longer
        return Content(line)

"""The line above the transcript and the line that stands for the panels where they are not shown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ecoshell.budget import CapState, about
from ecoshell.messages import visible_line
from ecoshell.tui.text import amount, fit, left, model_name, money, tokens

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing


NEAR = 0.8
"""The share of a cap from which on it is called near."""
_TITLE = 24
"""Cells that the session's title keeps beside what stands on the right."""
_MODEL = 28
_MODES = {"single": "one model", "umi": "three roles", "auto": "one model or three roles"}
_STRATEGIES = {
    "react": "step by step",
    "dfsdt": "trying again from earlier steps",
    "tot": "comparing steps",
    "graph": "a parallel plan",
}
"""What the names of modes and strategies mean; others stand as they are."""


def cap_word(cap: CapState) -> str:
    """How a cap stands, in a word: the colour of its bar says no more than this."""
    if cap.left == 0:
        return "reached"
    return "near" if cap.spent + cap.held >= NEAR * cap.limit else ""


def tightest(caps: Sequence[CapState]) -> CapState | None:
    """The cap of which the smallest share is left."""
    return min(caps, key=lambda cap: cap.left / max(1, cap.limit), default=None)


class TitleBar(Widget):
    """Which session this is and how it stands; who thinks in it, and with which model."""

    DEFAULT_CSS = """
    TitleBar { height: 1; padding: 0 1; background: $panel; color: $foreground; text-wrap: nowrap; }
    """
    state = reactive("")
    """What lasts, such as `not ready` or `read-only`; empty shows none."""
    _title = reactive("")
    _who = reactive(("", ""))
    _effort = reactive("")

    def __init__(self, state: str) -> None:
        """`state` is said until there is a session: `opening embedded …`."""
        super().__init__()
        self.state = state

    def show(self, standing: "Standing") -> None:
        if not self._title:
            self.state = ""  # it is open now
        self._title = visible_line(standing.title) or "new session"
        how = f"{_MODES.get(standing.mode, standing.mode)}, {_STRATEGIES.get(standing.strategy, standing.strategy)}"
        self._who = (how, visible_line(standing.model))
        self._effort = "" if standing.effort == "auto" else f" ({standing.effort})"

    def render(self) -> Content:
        """The title at the left edge; at the right how it stands, who thinks and with which model.

        Where there is not room for all, first the mode goes.
        """
        width, state = self.content_size.width, visible_line(self.state)
        start = f"ecoshell · {self._title}" if self._title else "ecoshell"
        room = width - 1 - min(cell_len(start), _TITLE, width // 2)
        how, model = self._who
        short, model = model_name(model, _MODEL) + self._effort, model and model + self._effort
        whos = (f"{how} ─ {model}", f"{how} ─ {short}", short) if model else ("",)
        said = ("  ".join(word for word in (state, who) if word) for who in whos)
        end = next((one for one in said if cell_len(one) <= room), fit(state or short, max(0, room)))
        return Content(f"{left(start, width - 1 - cell_len(end))} {end}")


class SummaryLine(Widget):
    """The panels in one line, for where they are not shown; what does not fit is left out."""

    DEFAULT_CSS = """
    SummaryLine { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    _parts = reactive(("", "", "", ""))

    def show(self, standing: "Standing", caps: Sequence[CapState], plan: str) -> None:
        """Show what is left, how many tools are planned (`plan 3 of 13`, or nothing) and how many are registered."""
        registered = sum(tool.registered for tool in standing.tools)
        context = f"context {tokens(standing.context_tokens)} of {tokens(standing.everything_tokens)}"
        if (cap := tightest(caps)) is None:
            spent = about(money(standing.spent_nano), estimated=standing.estimated_nano)
            most = "caps not known" if standing.away else "no cap"
            most += f", {'' if standing.spent_nano is None else 'spent '}{spent}"
        else:  # the tightest stands for all
            word = f" ({cap_word(cap)})" if cap_word(cap) else ""
            most = (
                f"{visible_line(cap.scope)}: {amount(cap.left, cap.unit)} of {amount(cap.limit, cap.unit)} left{word}"
            )
        self._parts = (most, plan, f"tools {registered}/{len(standing.tools)}", context)

    def render(self) -> Content:
        width = self.content_size.width
        line, *others = self._parts
        for part in others:
            longer = f"{line} · {part}"
            if part and cell_len(longer) <= width:
                line = longer
        return Content(line)

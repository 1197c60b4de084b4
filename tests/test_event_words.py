"""Every event is put into words once, and every interface shows these words."""

import re
import typing
from dataclasses import dataclass
from typing import ClassVar

import pytest
from rich.style import Style
from spoken_events import SPOKEN
from telling import printed

from ecoshell.events import (
    EVENTS,
    BudgetChanged,
    BudgetReconciled,
    CallArriving,
    CallFinished,
    CallStarted,
    Event,
    ModelReplied,
    Quote,
    StepStarted,
    SubagentProgressed,
    TextArrived,
    TurnFinished,
)
from ecoshell.events.lines import Line
from ecoshell.messages import Usage
from ecoshell.sessions.export import as_markdown
from ecoshell.tui.transcript.blocks import TONES
from ecoshell.tui.transcript.column import BlockColumn
from ecoshell.tui.transcript.painting import Painter
from ecoshell.tui.transcript.presenter import EventPresenter

WIDTH = 400
SILENT = {
    BudgetChanged, BudgetReconciled, CallArriving, ModelReplied, StepStarted, SubagentProgressed,
    TextArrived,
}  # fmt: skip
"""Events that panels show, or whose content other events repeat."""
FINISHED = TurnFinished(1, "answered", "", 0, Usage(), 1, (), 0.1)


def transcript(*events: Event) -> str:
    """The transcript with every fold open."""
    column = BlockColumn()
    column.repaint(Painter(dict.fromkeys(TONES, Style()), WIDTH))
    presenter = EventPresenter(column)
    for event in events:
        presenter.show(event)
    return "\n".join(item.block.text(opened=True) for item in column.items)


def line_shell(*events: Event) -> str:
    return "\n".join(printed(*events)).replace(" | ", " · ")


def export(*events: Event) -> str:
    """The exported Markdown without its escapes and bold type."""
    text = as_markdown([(0.0, event) for event in events]).replace("**", "")
    return re.sub(r"\\(\W|_)", r"\1", text)


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_every_event_has_words_or_is_silent_on_purpose(kind: type[Event]) -> None:
    assert "render" in vars(kind), f"{kind.__name__} does not define render()"
    is_silent = typing.get_type_hints(kind.render)["return"] is type(None)
    assert is_silent == (kind in SILENT)


@pytest.mark.parametrize("interface", [transcript, line_shell, export])
@pytest.mark.parametrize(
    ("event", "words"),
    SPOKEN,
    ids=[f"{number}-{event.type}" for number, (event, _) in enumerate(SPOKEN)],
)
def test_all_interfaces_say_the_same(interface, event: Event, words: str) -> None:
    text = interface(event, FINISHED)
    assert words in text
    assert "\x1b" not in text


@dataclass(frozen=True, slots=True)
class Rained(Event):
    """An event that no interface knows."""

    type: ClassVar[str] = "rained"
    millimeters: int

    def render(self) -> Line:
        return Line("info", "·", "it rained", f"{self.millimeters} mm")


@pytest.mark.parametrize("interface", [transcript, line_shell, export])
def test_a_new_event_is_shown_without_a_change_to_the_interfaces(interface) -> None:
    assert "it rained · 3 mm" in interface(Rained(3))


@pytest.mark.parametrize("interface", [transcript, line_shell, export])
@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ({"ok": True}, "12 ms"),
        ({"ok": False}, "failed after 12 ms"),
        (
            {"ok": True, "spent_nano": 3_100_000, "truncated": True},
            "$0.0031 · 12 ms · output truncated",
        ),
        ({"ok": False, "refused": "unregistered"}, "refused: unregistered"),
        ({"ok": False, "refused": "hook"}, "blocked by a hook"),
    ],
)
def test_all_interfaces_say_how_a_call_ended(interface, ending, words: str) -> None:
    fields = {"observation": "1,204 words", "truncated": False, "seconds": 0.012} | ending
    call = CallStarted("c1", "count_text", {"path": "a.txt"})
    text = interface(call, CallFinished("c1", "count_text", **fields))
    assert re.search(rf"(?<!\w){re.escape(words)}", text)
    assert "1,204 words" in text


@pytest.mark.parametrize("interface", [transcript, line_shell, export])
def test_all_interfaces_say_how_a_turn_ended(interface) -> None:
    ended = TurnFinished(
        *(1, "limit", "", 3_100_000, Usage(1_200, 30, 200), 3, (), 2.1), saved_tokens=4_200
    )
    words = "limit reached · $0.0031 · 3 steps · 2.1 s · saved 4.2k tok of schemas"
    assert words in interface(ended)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.000000001, 0.02, "up to $0.02"),
        (0.0, 0.02, "up to $0.02"),
        (0.001, 0.02, "$0.001 to $0.02"),
        (0.02, 0.02, "$0.02"),
        (0.0, 0.0, "free"),
    ],
)
def test_a_quote_states_no_negligible_lower_bound(low: float, high: float, words: str) -> None:
    quote = Quote("1.1", "tasks", 2, low, high / 2, high, 1.0, 2.0, 4.0)
    text = f"quote for 2 subagents: {words}, 1.0 s to 4.0 s (estimated, without experience)"
    assert quote.render().text == text

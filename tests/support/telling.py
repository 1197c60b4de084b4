"""The lines of events in the transcript and in the line shell."""

import io

from rich.style import Style

from ecoshell.cli.event_lines import EventLines
from ecoshell.cli.printer import Printer
from ecoshell.events import Event
from ecoshell.tui.transcript.blocks import TONES
from ecoshell.tui.transcript.column import BlockColumn
from ecoshell.tui.transcript.painting import Painter
from ecoshell.tui.transcript.presenter import EventPresenter


def told(*events: Event, width: int = 80) -> list[str]:
    column = BlockColumn()
    column.repaint(Painter(dict.fromkeys(TONES, Style()), width))
    presenter = EventPresenter(column)
    for event in events:
        presenter.show(event)
    return [line.strip() for line in column.plain.splitlines() if line.strip()]


def printed(*events: Event, streaming: bool = True) -> list[str]:
    out = io.StringIO()
    lines = EventLines(Printer(out), streaming=streaming)
    for event in events:
        lines.show(event)
    return [line for line in out.getvalue().splitlines() if line]

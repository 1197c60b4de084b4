"""What `ask` prints: the answer alone, or every event as a line of JSON."""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from ecoshell.api import Result
from ecoshell.events import (
    CapNear,
    ErrorHappened,
    Event,
    HookRan,
    LimitHit,
    Notice,
    Quote,
    QuoteChosen,
    Reasoned,
    SubagentLimited,
    TextArrived,
    TurnFinished,
    to_json,
)
from ecoshell.messages import visible

if TYPE_CHECKING:  # imported only if progress is shown
    from ecoshell.cli.event_lines import EventLines


def print_json_line(event: Event, *, file: TextIO | None = None) -> None:
    """Print an event or the result as a line of JSON, in ASCII so that no terminal or encoding can damage it.

    The data of images is left empty.
    """
    record = to_json(event)
    for image in (
        *(attachment["image"] for attachment in record.get("attachments", ())),
        *record.get("images", ()),
    ):
        if image:
            image["data"] = ""
    print(json.dumps(record), file=file, flush=True)


class AnswerOutput:
    """Prints the answer on standard output, warnings and errors on standard error, progress only on a terminal.

    On a terminal the answer is streamed; a pipe gets the final answer alone.
    """

    def __init__(self, session: Callable[[], str | None], *, quiet: bool = False) -> None:
        """`session` returns the ID of the open session; `quiet` prints only errors on standard error."""
        self._session = session
        self._lines: EventLines | None = None
        self._shows_progress = sys.stderr.isatty() and not quiet
        self._quiet = quiet
        self._output = sys.stdout
        self._streams = self._output.isatty()
        self._streamed = ""
        """The part of the answer that was printed while it arrived."""
        self._line_is_open = False
        self._reasoning: list[str] = []
        """Reasoning of the arriving reply; its length is printed before the answer."""

    def show(self, event: Event) -> None:
        """Print an event or the result, if it concerns the reader."""
        if isinstance(event, TextArrived):
            if self._streams and event.channel == "answer":
                self._end_reasoning(event.role)
                self._stream(event.text)
            elif self._streams and event.channel == "reasoning":
                self._reasoning.append(event.text)
            return
        if isinstance(event, Reasoned) and self._line_is_open:
            return  # printed before the answer
        self._reasoning.clear()
        if self._line_is_open:
            print(file=self._output, flush=True)
            self._line_is_open = False
        if isinstance(event, Result):
            if event.answer and event.answer.strip() != self._streamed.strip():
                print(visible(event.answer), file=self._output, flush=True)
        elif self._shows_progress or self._is_problem(event):
            self._show_line(event)

    def _show_line(self, event: Event) -> None:
        if self._lines is None:
            from ecoshell.cli.event_lines import EventLines
            from ecoshell.cli.printer import Printer

            hint = f"ecoshell --resume {self._session()}, then /plan accept"
            printer = Printer(sys.stderr)
            self._lines = EventLines(printer, streaming=False, answers=False, plan_hint=hint)
        self._lines.show(event)

    def _end_reasoning(self, role: str) -> None:
        """Print the length of the reasoning that has arrived."""
        if self._reasoning and self._shows_progress:
            self._show_line(Reasoned("".join(self._reasoning), role))
        self._reasoning.clear()

    def _stream(self, text: str) -> None:
        if not self._line_is_open:
            self._streamed, text = "", text.lstrip()
        if text:
            print(visible(text), end="", file=self._output, flush=True)
            self._streamed += text
            self._line_is_open = True

    def _is_problem(self, event: Event) -> bool:
        if isinstance(event, Notice | CapNear):
            return not self._quiet
        if isinstance(event, Quote):
            return not self._quiet and (event.kind == "plan" or event.is_beyond)
        if isinstance(event, HookRan | QuoteChosen):  # renders if it failed or did not start
            return not self._quiet and event.render() is not None
        if isinstance(event, TurnFinished):
            return event.status != "answered"
        return isinstance(event, ErrorHappened | LimitHit | SubagentLimited)

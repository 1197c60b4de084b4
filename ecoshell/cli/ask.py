"""`ecoshell ask`: one question, one answer, and an exit status that says how it went."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from ecoshell.api import Agent
from ecoshell.cli import piped
from ecoshell.cli.arguments import add_shared_options, options_to_run
from ecoshell.cli.interrupts import Interrupted, hangups_interrupt, stopping
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.events import ErrorHappened, Event, LimitHit, Notice, TextArrived, TurnFinished
from ecoshell.events.outcome import Outcome
from ecoshell.events.record import to_json
from ecoshell.messages import Attachment
from ecoshell.options import Options
from ecoshell.untrusted import visible

if TYPE_CHECKING:  # all that is only needed where somebody looks on
    from ecoshell.cli.person import LinePerson
    from ecoshell.cli.render import EventLines

_HOW_TO_ALLOW = "--yes allows what no rule forbids, [approval] allow in the settings this one."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_shared_options(parser)
    asked = "the question, with which standard input goes along, or - to read it from there"
    parser.add_argument("question", nargs="+", help=asked)
    parser.add_argument("--json", action="store_true", help="print every event, and the result, as JSON lines")
    parser.add_argument("--quiet", action="store_true", help="print the answer alone, and nothing else but errors")
    parser.add_argument("--force", action="store_true", help="with --yes: also write less over a file than it held")


def run(args: argparse.Namespace) -> int:
    """Ask the question of the command line and return the exit status."""
    return ask_once(options_to_run(args), args.question, json=args.json, quiet=args.quiet)


def ask_once(options: Options, words: Sequence[str], *, json: bool, quiet: bool = False) -> int:
    """Ask the question that `words` are (`-` alone reads it from standard input) and return the exit status.

    Standard input that is no terminal goes along with the question; with `-` as the last word it is waited for. Raises
    EcoshellError when no turn could begin, unless `json`, where it is told as an event. When `quiet`, nobody is asked,
    and only errors are told beside the answer.
    """
    report = JsonLines() if json else AnswerOnly(quiet=quiet)
    person = None
    if not (json or quiet or words[-1:] == ["-"]) and all(one and one.isatty() for one in (sys.stdin, sys.stderr)):
        from ecoshell.cli.inputs import Keyboard
        from ecoshell.cli.person import LinePerson

        # asked on standard error, so that the answer alone is on standard output
        person = LinePerson(Keyboard(output=sys.stderr).word, partial(print, file=sys.stderr))
    agent = Agent(user=person, options=options)
    with hangups_interrupt():
        try:
            question, attached = read_question(words, (lambda _: None) if quiet else _complain)
            asyncio.run(follow(agent, question, attached, report=report, person=person))
        except EcoshellError as error:
            if not json:
                raise
            report.show(ErrorHappened.of(error))
            report.end(agent.outcome)
            return error.exit_status
        except KeyboardInterrupt:
            agent.outcome.status = "interrupted"
    outcome = agent.outcome
    report.end(outcome)
    for call in outcome.refused:
        _complain(f"{call} was not run: it needs an approval, and nobody was there to ask. {_HOW_TO_ALLOW}")
    return outcome.exit_status


def read_question(words: Sequence[str], warn: Callable[[str], None]) -> tuple[str, Sequence[Attachment]]:
    """The question as text, without bytes that are not UTF-8, and what goes along with it.

    Raises UsageError when it is empty, and for a standard input that is no text.
    """
    alone, waited_for = [*words] == ["-"], len(words) > 1 and words[-1] == "-"
    typed = " ".join(words[:-1] if waited_for else words)
    raw = piped.question() if alone else typed.encode("utf-8", errors="surrogateescape")
    text = piped.decoded(raw, warn).strip()
    if not text:
        raise UsageError("The question is empty.", fix='Try: ecoshell ask "What is 17 * 23?"')
    attached = None if alone else piped.context(warn, promised=waited_for)
    return text, () if attached is None else (attached,)


async def follow(
    agent: Agent,
    question: str,
    attachments: Sequence[Attachment],
    *,
    report: "JsonLines | AnswerOnly",
    person: "LinePerson | None",
) -> None:
    """Put the question and follow the turn to its last event; raises EcoshellError when no turn could begin."""
    stops: list[asyncio.Task[None]] = []

    def stop() -> None:
        stops.append(asyncio.ensure_future(agent.stop()))

    async with agent:
        if agent.resumed is not None:
            report.show(agent.resumed)
        with stopping(stop):
            async with aclosing(agent.stream(question, attachments)) as events:
                async for event in events:
                    report.show(event)
                    try:
                        if person is not None:
                            await person.meet(event)
                    except Interrupted:
                        stop()


class JsonLines:
    """Every event as a line of JSON, and the result as the last; in ASCII, which no terminal or encoding can spoil."""

    def show(self, event: Event) -> None:
        print(json.dumps(to_json(event)), flush=True)

    def end(self, outcome: Outcome) -> None:
        self.show(outcome.result())


class AnswerOnly:
    """The answer on standard output; progress on standard error if that is a terminal, and warnings in any case.

    On a terminal the answer is printed while it is written; a program that reads it gets the one that counts, alone.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        """When `quiet`, only errors are on standard error."""
        self._lines: EventLines | None = None
        self._talkative = sys.stderr.isatty() and not quiet
        self._quiet = quiet
        self._growing = sys.stdout.isatty()
        self._printed = ""
        """What of the answer was printed while it arrived."""
        self._open = False
        """Whether its line has not ended."""

    def show(self, event: Event) -> None:
        if isinstance(event, TextArrived):
            if self._growing and event.channel == "answer":
                text = event.text
                if not self._open:
                    self._printed, text = "", text.lstrip()
                if text:
                    print(visible(text), end="", flush=True)
                    self._printed += text
                    self._open = True
            return
        if self._open:
            print(flush=True)
            self._open = False
        warning = isinstance(event, Notice) and not self._quiet
        wrong = isinstance(event, TurnFinished) and event.status != "answered"
        if self._talkative or warning or wrong or isinstance(event, ErrorHappened | LimitHit):
            if self._lines is None:
                from ecoshell.cli.render import EventLines, Printer

                self._lines = EventLines(Printer(sys.stderr), streaming=False, answers=False)
            self._lines.show(event)

    def end(self, outcome: Outcome) -> None:
        if self._open:
            print(flush=True)
        if outcome.answer and outcome.answer.strip() != self._printed.strip():
            print(visible(outcome.answer), flush=True)


def _complain(text: str) -> None:
    print(f"ecoshell: {text}", file=sys.stderr)

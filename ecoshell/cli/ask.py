"""`ecoshell ask`: one question, one answer, and an exit status that says how it went."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from ecoshell.agent.shell import Shell
from ecoshell.agent.user_interface import NonInteractive, UserInterface
from ecoshell.cli import piped
from ecoshell.cli.decoding import decoded
from ecoshell.cli.interrupts import Interrupted, hangups_interrupt, stopping
from ecoshell.cli.outcome import Outcome
from ecoshell.cli.person import LinePerson
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.events import ErrorHappened, Event, LimitHit, Notice, TextArrived, TurnFinished, to_json
from ecoshell.messages import Attachment
from ecoshell.options import Options
from ecoshell.untrusted import visible

_HOW_TO_ALLOW = "--yes allows what no rule forbids, [approval] allow in the settings this one."


class Report(Protocol):
    """How a one-shot question is told to whoever asked."""

    def show(self, event: Event) -> None:
        """Tell one event."""
        ...

    def end(self, outcome: Outcome) -> None:
        """Tell what it all came to."""
        ...


def run(options: Options, words: Sequence[str], json: bool) -> int:
    """Ask the question that `words` are (`-` alone reads it from standard input) and return the exit status.

    Standard input that is no terminal goes along with the question; with `-` as the last word it is waited for. Raises
    EcoshellError when no turn could begin, unless `json`, where it is told as an event.
    """
    report: Report = JsonLines() if json else AnswerOnly()
    person = None if json or words[-1:] == ["-"] else _person_at_the_terminal()
    outcome = Outcome()
    with hangups_interrupt():
        try:
            question, attached = read_question(words, _complain)
            shot = OneShot(question, attached, report=report, outcome=outcome, person=person)
            asyncio.run(shot.run(options))
        except EcoshellError as error:
            if not json:
                raise
            report.show(ErrorHappened.of(error))
            report.end(outcome)
            return error.exit_status
        except KeyboardInterrupt:
            outcome.status = "interrupted"
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
    text = decoded(raw, warn).strip()
    if not text:
        raise UsageError("The question is empty.", fix='Try: ecoshell ask "What is 17 * 23?"')
    attached = None if alone else piped.context(warn, promised=waited_for)
    return text, () if attached is None else (attached,)


class OneShot:
    """One question on its way to an outcome."""

    def __init__(
        self,
        question: str,
        attachments: Sequence[Attachment] = (),
        *,
        report: Report,
        outcome: Outcome,
        person: LinePerson | None,
    ) -> None:
        """`person` is None when nobody can be asked; then nothing that needs approval runs."""
        self._question = question
        self._attachments = attachments
        self._report = report
        self._outcome = outcome
        self._person = person
        self._stop: asyncio.Task[None] | None = None

    async def run(self, options: Options) -> None:
        """Assemble a shell and ask; raises EcoshellError when no turn could begin."""
        from ecoshell.assembly.shell import assemble  # builds everything, so it comes when everything is wanted

        person: UserInterface = self._person or NonInteractive()
        shell = await assemble(options, person)
        try:
            await shell.warm()
            if shell.resumed is not None:
                self._report.show(shell.resumed)
            await self.ask(shell)
        finally:
            await shell.aclose()

    async def ask(self, shell: Shell) -> None:
        """Put the question and follow the turn to its last event."""
        self._outcome.session = shell.session

        def stop() -> None:
            self._stop = asyncio.ensure_future(shell.stop())

        with stopping(stop):
            async with aclosing(shell.ask(self._question, self._attachments)) as events:
                async for event in events:
                    self._outcome.see(event)
                    self._report.show(event)
                    await self._meet(event, stop)

    async def _meet(self, event: Event, stop: Callable[[], None]) -> None:
        if self._person is None:
            return
        try:
            await self._person.meet(event)
        except Interrupted:
            stop()


class JsonLines:
    """Every event as a line of JSON, and the result as the last; in ASCII, which no terminal or encoding can spoil."""

    def show(self, event: Event) -> None:
        self._line(to_json(event))

    def end(self, outcome: Outcome) -> None:
        self._line(outcome.to_json())

    def _line(self, record: dict[str, object]) -> None:
        print(json.dumps(record), flush=True)


class AnswerOnly:
    """The answer on standard output; progress on standard error if that is a terminal, and warnings in any case.

    On a terminal the answer is printed while it is written; a program that reads it gets the one that counts, alone.
    """

    def __init__(self) -> None:
        from ecoshell.cli.render import EventLines, Printer

        printer = Printer(sys.stderr)
        self._lines = EventLines(printer, streaming=False, answers=False)
        self._talkative = printer.terminal
        self._growing = sys.stdout.isatty()
        self._printed = ""
        """What of the answer was printed while it arrived."""
        self._open = False
        """Whether its line has not ended."""

    def show(self, event: Event) -> None:
        if isinstance(event, TextArrived):
            if self._growing and event.channel == "answer":
                self._grow(event.text)
            return
        if self._open:
            print(flush=True)
            self._open = False
        if self._talkative or isinstance(event, ErrorHappened | Notice | LimitHit) or _went_wrong(event):
            self._lines.show(event)

    def end(self, outcome: Outcome) -> None:
        if self._open:
            print(flush=True)
        if outcome.answer and outcome.answer.strip() != self._printed.strip():
            print(visible(outcome.answer), flush=True)

    def _grow(self, text: str) -> None:
        if not self._open:
            self._printed, text = "", text.lstrip()
        if text:
            print(visible(text), end="", flush=True)
            self._printed += text
            self._open = True


def _went_wrong(event: Event) -> bool:
    return isinstance(event, TurnFinished) and event.status != "answered"


def _person_at_the_terminal() -> LinePerson | None:
    """Whoever sits at the terminal, asked on standard error so that the answer alone is on standard output."""
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return None
    from ecoshell.cli.inputs import Keyboard

    return LinePerson(Keyboard(output=sys.stderr).word, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _complain(text: str) -> None:
    _say(f"ecoshell: {text}")

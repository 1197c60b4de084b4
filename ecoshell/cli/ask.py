"""`ecoshell ask`: one question, with what is piped in; one answer; and an exit status that says how it went."""

import argparse
import asyncio
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ecoshell.agent.mentions import FILE_BYTES
from ecoshell.api import Agent, Result
from ecoshell.budget import counted
from ecoshell.cli.parser import Interrupted, add_shared_options, hangups_interrupt, options_to_run, stopping
from ecoshell.errors import EcoshellError, ToolError, UsageError
from ecoshell.events import ErrorHappened, Event, LimitHit, Notice, TextArrived, TurnFinished, to_json
from ecoshell.images import MAX_IMAGES, attached, open_image
from ecoshell.messages import Attachment, visible

NAME = "standard input"
MOST = 16_000_000
"""Bytes that are read at all."""
_BEGINS, _ENDS = 3.0, 60.0
"""Seconds within which an input that nobody promised has to begin and to end: services are often started with an open
pipe that nobody writes to."""
_CHUNK = 65_536
_WHEN_SLOW = "Put - after the question to wait for its end, or < /dev/null to go without."


def decoded(raw: bytes, warn: Callable[[str], None]) -> str:
    """The bytes as text; what is not UTF-8 is replaced, and that is said."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        warn("the input is not valid UTF-8; what could not be read was replaced by \N{REPLACEMENT CHARACTER}")
        return raw.decode("utf-8", errors="replace")


def context(say: Callable[[str], None], *, promised: bool) -> Attachment | None:
    """What was piped in, to go along with a question; `say` tells how much it was. None where nothing was.

    A terminal is not read unless it is `promised`, which also takes the time limits away. Raises UsageError for what is
    no text.
    """
    if sys.stdin.isatty() and not promised:
        return None
    limits = (None, None) if promised else (_BEGINS, _ENDS)
    try:
        head, size, ended = _hear(FILE_BYTES, begins=limits[0], ends=limits[1])
    except OSError as error:  # as after nohup, which leaves an input that cannot be read
        if promised:
            raise unreadable(error) from error
        return None
    if not size and not ended:
        say(f"nothing came on standard input for {_BEGINS:.0f} s, so the question goes without it. {_WHEN_SLOW}")
    if b"\0" in head:
        raise UsageError(
            "Standard input is binary (it contains NUL bytes), not text, so nothing was asked.",
            fix="Pipe text, or give the question < /dev/null.",
        )
    if not head.strip():
        return None
    whole = counted(size, "byte") if ended else f"more than {min(size, MOST):,} bytes"
    if len(head) < size:
        try:
            head.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":  # a character that was cut in two goes
                head = head[: error.start]
    text = decoded(head, say)
    if len(head) == size and ended:
        say(f"{NAME} goes along with the question: {whole}.")
        return Attachment(NAME, text)
    part = f"the first {len(head):,} of {whole}"
    if ended or size >= MOST:
        say(f"{NAME} goes along with the question, cut: {part}.")
    else:
        say(f"{NAME} had not ended after {_ENDS:.0f} s; {part} go along with the question. {_WHEN_SLOW}")
    return Attachment(NAME, f"{text}\n[cut: {part}]")


def unreadable(error: OSError) -> UsageError:
    """What is told where standard input is there and cannot be read, as after nohup."""
    return UsageError(f"Standard input cannot be read ({error.strerror}).", fix="Pipe text, or give the question.")


def _hear(kept: int, *, begins: float | None, ends: float | None) -> tuple[bytes, int, bool]:
    """Read to the end, to MOST bytes or to the time limits, of which None is none; raises OSError.

    Gives the beginning of what came in, as much as is `kept`, how much it was, and whether it has ended.
    """
    head, size, ended, began, limit = b"", 0, False, time.monotonic(), begins
    arrived: queue.Queue[bytes | OSError] = queue.Queue(maxsize=4)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        chunk = b"more"
        while chunk:
            try:
                try:
                    chunk = os.read(descriptor, _CHUNK)
                except BlockingIOError:  # whoever started this may have left the input without waiting
                    import select

                    select.select([descriptor], [], [])
                    continue
            except OSError as error:
                arrived.put(error)
                return
            arrived.put(chunk)

    # a thread reads, as not every system can wait for a pipe; it ends with us
    threading.Thread(target=read, daemon=True).start()
    while size <= MOST and not ended:
        left = None if limit is None else max(0.0, began + limit - time.monotonic())
        try:
            chunk = arrived.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(chunk, OSError):
            raise chunk
        limit = ends
        head += chunk[: kept - len(head)]
        size += len(chunk)
        ended = not chunk
    return head, size, ended


if TYPE_CHECKING:  # all that is only needed where somebody looks on
    from ecoshell.cli.person import LinePerson
    from ecoshell.cli.render import EventLines

_HOW_TO_ALLOW = "--yes allows what no rule forbids, [approval] allow in the settings this one."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_shared_options(parser)
    asked = "the question, with which standard input goes along, or - to read it from there"
    parser.add_argument("question", nargs="+", help=asked)
    parser.add_argument(
        "--image", action="append", default=[], metavar="FILE", type=Path, help="attach an image; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print every event, and the result, as JSON lines")
    parser.add_argument("--quiet", action="store_true", help="print the answer alone, and nothing else but errors")
    parser.add_argument("--force", action="store_true", help="with --yes: also write less over a file than it held")


def run(args: argparse.Namespace) -> int:
    """Ask the question of the command line (`-` alone reads it from standard input) and return the exit status.

    Standard input that is no terminal goes along with the question; with `-` as the last word it is waited for. Raises
    EcoshellError when no turn could begin, unless `--json`, where it is told as an event. When `--quiet`, nobody is
    asked, and only errors are told beside the answer.
    """
    options, words = options_to_run(args), args.question
    json: bool = args.json
    quiet: bool = args.quiet
    complain = partial(print, "ecoshell:", file=sys.stderr)
    report = partial(print_line, file=sys.stdout) if json else AnswerOnly(quiet=quiet).show
    person = None
    if not (json or quiet or words[-1:] == ["-"]) and all(one and one.isatty() for one in (sys.stdin, sys.stderr)):
        from ecoshell.cli.inputs import Keyboard
        from ecoshell.cli.person import LinePerson

        # asked on standard error, so that the answer alone is on standard output
        person = LinePerson(Keyboard(output=sys.stderr).word, partial(print, file=sys.stderr))
    agent = Agent(user=person, options=options)
    with hangups_interrupt(), redirect_stdout(sys.stderr):  # what a plugin's tool prints is no part of the answer
        try:
            images = read_images(args.image)
            question, along = read_question(words, (lambda _: None) if quiet else complain)
            asyncio.run(follow(agent, question, (*images, *along), report=report, person=person))
        except EcoshellError as error:
            if not json:
                raise
            report(ErrorHappened.of(error))
            report(agent.outcome.result())
            return error.exit_status
        except KeyboardInterrupt:
            agent.outcome.status = "interrupted"
    outcome = agent.outcome
    report(outcome.result())
    for call in outcome.refused:
        if options.yes:
            complain(f"{call} was not run: it needs an approval also with --yes, and nobody was there to ask.")
        else:
            complain(f"{call} was not run: it needs an approval, and nobody was there to ask. {_HOW_TO_ALLOW}")
    return outcome.exit_status


def read_images(files: Sequence[Path]) -> tuple[Attachment, ...]:
    """The images to attach; raises UsageError for a file that is none, and for too many."""
    if len(files) > MAX_IMAGES:
        message = f"The question has {len(files)} images; the limit is {MAX_IMAGES}."
        raise UsageError(message, kept="Nothing was asked.", fix="Ask about fewer images.")
    try:
        return tuple(attached(open_image(file)) for file in files)
    except ToolError as error:
        raise UsageError(
            f"--image: {error.message}", kept="Nothing was asked.", fix="Give a PNG, JPEG, GIF or WebP file."
        ) from error


def read_question(words: Sequence[str], warn: Callable[[str], None]) -> tuple[str, Sequence[Attachment]]:
    """The question as text, without bytes that are not UTF-8, and what goes along with it.

    Raises UsageError when it is empty, and for a standard input that is no text.
    """
    alone, waited_for = [*words] == ["-"], len(words) > 1 and words[-1] == "-"
    typed = " ".join(words[:-1] if waited_for else words)
    raw, ended = typed.encode("utf-8", errors="surrogateescape"), True
    if alone:
        try:
            raw, _, ended = _hear(MOST, begins=None, ends=None)
        except OSError as error:
            raise unreadable(error) from error
    if not ended:
        raise UsageError(f"The question on standard input has more than {MOST:,} bytes.", fix="Ask a shorter one.")
    text = decoded(raw, warn).strip()
    if not text:
        raise UsageError("The question is empty.", fix='Try: ecoshell ask "What is 17 * 23?"')
    attached = None if alone else context(warn, promised=waited_for)
    return text, () if attached is None else (attached,)


async def follow(
    agent: Agent,
    question: str,
    attachments: Sequence[Attachment],
    *,
    report: Callable[[Event], None],
    person: "LinePerson | None",
) -> None:
    """Put the question and follow the turn to its last event; raises EcoshellError when no turn could begin."""
    stops: list[asyncio.Task[None]] = []

    def stop() -> None:
        stops.append(asyncio.ensure_future(agent.stop()))

    async with agent:
        if agent.resumed is not None:
            report(agent.resumed)
        with stopping(stop):
            async with aclosing(agent.stream(question, attachments)) as events:
                async for event in events:
                    report(event)
                    try:
                        if person is not None:
                            await person.meet(event)
                    except Interrupted:
                        stop()


def print_line(event: Event, *, file: TextIO | None = None) -> None:
    """Print an event, the result too, as a line of JSON; in ASCII, which no terminal or encoding can spoil.

    The data of images is left empty.
    """
    record = to_json(event)
    for image in (*(one["image"] for one in record.get("attachments", ())), *record.get("images", ())):
        if image:
            image["data"] = ""
    print(json.dumps(record), file=file, flush=True)


class AnswerOnly:
    """The answer on standard output; progress on standard error if that is a terminal, and warnings in any case.

    On a terminal the answer is printed while it is written; a program that reads it gets the one that counts, alone.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        """When `quiet`, only errors are on standard error."""
        self._lines: EventLines | None = None
        self._talkative = sys.stderr.isatty() and not quiet
        self._quiet = quiet
        self._output = sys.stdout
        self._growing = self._output.isatty()
        self._printed = ""
        """What of the answer was printed while it arrived."""
        self._open = False
        """Whether its line has not ended."""

    def show(self, event: Event) -> None:
        """Print what there is to say about an event, the result too."""
        if isinstance(event, TextArrived):
            if self._growing and event.channel == "answer":
                text = event.text
                if not self._open:
                    self._printed, text = "", text.lstrip()
                if text:
                    print(visible(text), end="", file=self._output, flush=True)
                    self._printed += text
                    self._open = True
            return
        if self._open:
            print(file=self._output, flush=True)
            self._open = False
        if isinstance(event, Result):
            if event.answer and event.answer.strip() != self._printed.strip():
                print(visible(event.answer), file=self._output, flush=True)
            return
        warning = isinstance(event, Notice) and not self._quiet
        wrong = isinstance(event, TurnFinished) and event.status != "answered"
        if self._talkative or warning or wrong or isinstance(event, ErrorHappened | LimitHit):
            if self._lines is None:
                from ecoshell.cli.render import EventLines, Printer

                self._lines = EventLines(Printer(sys.stderr), streaming=False, answers=False)
            self._lines.show(event)

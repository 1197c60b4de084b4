"""`ecoshell line`: the chat as a line shell, for dumb terminals, pipes and screen readers."""

import argparse
import asyncio
import functools
import sys
from collections.abc import Sequence
from contextlib import aclosing

from ecoshell import __version__
from ecoshell.agent import NonInteractive
from ecoshell.agent.commands import dollars
from ecoshell.agent.shell import Shell
from ecoshell.agent.shell_status import ShellStatus
from ecoshell.api import EXIT_STATUS
from ecoshell.budget import about, amount_text
from ecoshell.cli.inputs import KeptHistory, Keyboard, Lines, SlashCompleter
from ecoshell.cli.parser import Interrupted, add_shared_options, hangups_interrupt, options_to_run, stopping
from ecoshell.cli.person import LinePerson
from ecoshell.cli.render import EventLines, Printer
from ecoshell.errors import EcoshellError, ToolError
from ecoshell.events import (
    ApprovalWanted,
    CostWanted,
    ErrorHappened,
    LimitHit,
    TextArrived,
    TrustWanted,
    TurnFinished,
    TurnStarted,
)
from ecoshell.images import attached, open_image, pasted_paths
from ecoshell.messages import Attachment, visible, visible_line
from ecoshell.options import Options
from ecoshell.paths import user_paths

add_arguments = add_shared_options


def run(args: argparse.Namespace) -> int:
    """Chat until the input ends or `/quit`; from a pipe, the exit status is that of the last turn not answered."""
    options = options_to_run(args)
    with hangups_interrupt():
        return asyncio.run(_chat(options))


async def _chat(options: Options) -> int:
    from ecoshell.assembly.shell import assemble  # builds everything, so it comes when everything is wanted

    printer = Printer(sys.stdout)
    talking, drawn = sys.stdin.isatty(), sys.stdout.isatty()
    source: Keyboard | Lines
    if talking and drawn and printer.steerable:
        source = Keyboard()
    else:  # plain lines where the terminal cannot move its cursor
        prompts = (sys.stdout if drawn else sys.stderr) if talking else None
        warn = functools.partial(print, "ecoshell:", file=sys.stderr)
        source = Lines(sys.stdin.buffer, prompts=prompts, warn=warn)
    person = LinePerson(source.word, printer.line) if talking else None
    shell = await assemble(options, person or NonInteractive())
    try:
        await shell.warm()
        line_shell = LineShell(shell, source=source, printer=printer, person=person)
        if isinstance(source, Keyboard):
            history = KeptHistory(user_paths().history_file, line_shell.note)
            completer = SlashCompleter(shell.complete, shell.values)
            source.equip(history=history, completer=completer, toolbar=lambda: toolbar_text(line_shell.shell_status))
            shell.read_ahead()
        return await line_shell.run()
    finally:
        await shell.aclose()


class LineShell:
    """The loop of the line shell: read a line, carry it out, print what happens."""

    def __init__(self, shell: Shell, *, source: Keyboard | Lines, printer: Printer, person: LinePerson | None) -> None:
        """`person` is None when nobody is there to be asked, as with a pipe."""
        self._shell = shell
        self._source = source
        self._printer = printer
        self._prompt = f"{printer.signs.question} "
        self._person = person
        self.shell_status: ShellStatus | None = None
        self._stops: set[asyncio.Task[None]] = set()
        self._status = 0
        self._ahead: list[str] = []
        """What was typed during a turn, to be asked after it."""

    async def run(self) -> int:
        """Chat until the end; the exit status."""
        if self._person is not None:
            status = await self._shell.status()
            self._printer.line(f"ecoshell {__version__}, {visible_line(status.model)}", "bold")
            self._printer.line("Ask, or type /help. Ctrl-C stops a turn, Ctrl-D leaves.", "dim")
            if not self._shell.past:
                self._printer.line(visible_line(await self._shell.introduction()), "dim")
            await self._show_past()
        try:
            while await self._once():
                pass
        except EOFError:
            pass
        if self._person is not None and (kept := self._shell.resume_hint) and await self._shell.flush() is None:
            self._printer.line(kept, "dim")
        return self._status if self._person is None else 0

    def note(self, text: str) -> None:
        """Tell the person something that stops nothing."""
        self._printer.line(f"{self._printer.signs.dot} note: {visible_line(text)}", "yellow")

    async def _once(self) -> bool:
        """Take one line; False when the person wants to leave."""
        if self._person is not None:
            try:
                self.shell_status = await self._shell.status()
            except EcoshellError as error:  # while nobody can say where the session stands, what was last known stays
                EventLines(self._printer).show(ErrorHappened.of(error))
        try:
            if self._ahead:
                typed = self._ahead.pop(0).strip()
                self._printer.line(f"{self._prompt}{visible(typed)}", "bold")
            else:
                typed = (await self._source.question(self._prompt)).strip()
        except Interrupted:
            if self._person is None:
                self._status = EXIT_STATUS["interrupted"]
                return False
            self._printer.line("Ctrl-D or /quit leaves; /help lists the commands.", "dim")
            return True
        try:
            if typed.startswith("/"):
                return await self._command(typed)
            if typed.startswith("!"):
                with stopping(self._stop):
                    ran = await self._shell.run(typed.removeprefix("!").strip())
                EventLines(self._printer).show(ran)
            elif typed:
                return await self._turn(typed, await asyncio.to_thread(self._pasted, typed))
        except BrokenPipeError:
            raise  # nobody reads any more
        except Exception as error:  # noqa: BLE001 - the edge of the shell: not even a defect in a command ends it
            self._status = error.exit_status if isinstance(error, EcoshellError) else EXIT_STATUS["error"]
            EventLines(self._printer).show(ErrorHappened.of(error))
        return True

    def _pasted(self, typed: str) -> list[Attachment]:
        """The images that a line names by absolute paths, as a terminal pastes a file that is dropped on it."""
        found: list[Attachment] = []
        for path in pasted_paths(typed):
            try:
                found.append(attached(open_image(path)))
            except ToolError as error:
                self.note(f"{path.name} was not attached: {error.message}")
        return found

    async def _turn(self, question: str, attachments: Sequence[Attachment] = ()) -> bool:
        """Ask and follow the turn to its last event; False when it was stopped and nobody is there to go on."""
        lines = EventLines(self._printer, streaming=self._person is not None)
        with stopping(self._stop):
            async with aclosing(self._shell.ask(question, attachments)) as events:
                async for event in events:
                    lines.show(event)
                    if isinstance(event, TurnFinished):
                        self._status = EXIT_STATUS[event.status] or self._status
                    elif self._person is not None:
                        if isinstance(event, (ApprovalWanted, CostWanted, LimitHit, TrustWanted)):
                            self._ahead += self._source.ahead()
                        try:
                            await self._person.meet(event)
                        except Interrupted:
                            await self._shell.stop()
        if self._person is None:
            return self._status != EXIT_STATUS["interrupted"]
        self._person.forget()
        return True

    async def _command(self, typed: str) -> bool:
        """Carry out a slash command; False when it is the one that leaves."""
        running = asyncio.ensure_future(self._shell.command(typed))
        with stopping(running.cancel):
            try:
                printed = await running
            except asyncio.CancelledError:
                self._printer.line("Stopped.", "yellow")
                return True
        if printed.effect == "clear":
            self._printer.clear()
        if printed.effect == "copy" and not self._printer.copy(printed.value):
            self._printer.line("Nothing was copied: only a terminal has a clipboard.", "yellow")
            return True
        if printed.text:
            self._printer.line(visible(printed.text))
        if printed.effect == "session":
            await self._show_past()
        if printed.effect == "ask":
            self._printer.line(f"{self._printer.signs.question} {visible(printed.value)}", "bold")
            return await self._turn(printed.value, printed.attachments)
        return printed.effect != "quit"

    async def _show_past(self) -> None:
        """Print the session so far, as after `/resume`."""
        lines = EventLines(self._printer, streaming=False)
        for event in self._shell.past:
            if isinstance(event, TurnStarted):
                self._printer.line(f"{self._prompt}{visible(event.question)}", "bold")
            if not isinstance(event, TextArrived):  # whole texts follow the pieces
                lines.show(event)

    def _stop(self) -> None:
        """Stop the turn that runs; the reader goes on to its last event."""
        stop = asyncio.ensure_future(self._shell.stop())
        self._stops.add(stop)
        stop.add_done_callback(self._stops.discard)


def toolbar_text(status: ShellStatus | None) -> str:
    """What is spent, held and left of each cap, and the model, on one line."""
    if status is None:
        return ""
    parts: list[str] = []
    for cap in status.caps:
        spent, held, left = (amount_text(value, cap.unit) for value in (cap.spent, cap.held, cap.left))
        parts.append(f"{cap.scope}: spent {spent}, held {held}, left {left}")
    if not status.caps:
        parts.append(f"no cap, spent {about(dollars(status.spent_nano), estimated=status.estimated_nano)}")
    known = sum(tool.registered for tool in status.tools)
    effort = "" if status.effort == "auto" else f" ({status.effort})"
    parts += (f"{known} of {len(status.tools)} tools", f"{visible_line(status.model)}{effort}")
    return f" {' | '.join(parts)} "

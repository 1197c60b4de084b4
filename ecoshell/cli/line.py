"""`ecoshell line`: the chat as a line shell, for dumb terminals, pipes and screen readers."""

import argparse
import asyncio
import functools
import sys
from collections.abc import Sequence
from contextlib import aclosing

from ecoshell import __version__
from ecoshell.agent import NonInteractive
from ecoshell.agent.command_table import dollars
from ecoshell.agent.shell import Shell
from ecoshell.agent.shell_status import ShellStatus
from ecoshell.api import EXIT_STATUS
from ecoshell.budget import CapState, about, amount_text, counted
from ecoshell.cli.event_lines import EventLines
from ecoshell.cli.inputs import Keyboard, Lines, PrivateHistory, SlashCompleter
from ecoshell.cli.line_user import QUESTIONS, LineUser
from ecoshell.cli.printer import Printer
from ecoshell.cli.run_options import add_run_options, prepared_options
from ecoshell.cli.signals import Interrupted, hangups_interrupt, stopping
from ecoshell.errors import EcoshellError, ToolError
from ecoshell.events import (
    ErrorHappened,
    Event,
    PlanWritten,
    Quote,
    TextArrived,
    TurnFinished,
    TurnStarted,
)
from ecoshell.images import attached, open_image, pasted_paths
from ecoshell.messages import Attachment, visible, visible_line
from ecoshell.options import Options
from ecoshell.paths import user_paths

add_arguments = add_run_options


def run(args: argparse.Namespace) -> int:
    """Chat until the input ends or `/quit`; a pipe's exit status is that of the last unanswered turn."""
    options = prepared_options(args)
    with hangups_interrupt():
        return asyncio.run(_chat(options))


async def _chat(options: Options) -> int:
    from ecoshell.assembly.shell import assemble  # imports the whole core

    printer = Printer(sys.stdout)
    is_interactive, has_screen = sys.stdin.isatty(), sys.stdout.isatty()
    source: Keyboard | Lines
    if is_interactive and has_screen and printer.is_full_terminal:
        source = Keyboard()
    else:
        prompts = (sys.stdout if has_screen else sys.stderr) if is_interactive else None
        warn = functools.partial(print, "ecoshell:", file=sys.stderr)
        source = Lines(sys.stdin.buffer, prompts=prompts, warn=warn)
    user = LineUser(source.word, printer.line) if is_interactive else None
    shell = await assemble(options, user or NonInteractive())
    line_shell = LineShell(shell, source=source, printer=printer, user=user)
    try:
        await shell.warm()
        if isinstance(source, Keyboard):
            source.equip(
                history=PrivateHistory(user_paths().history_file, line_shell.note),
                completer=SlashCompleter(shell.complete, shell.values),
                toolbar=lambda: toolbar_text(line_shell.shell_status),
            )
            shell.read_ahead()
        return await line_shell.run()
    finally:
        try:
            await shell.aclose()
        finally:
            line_shell.show_events()


class LineShell:
    """The loop of the line shell: read a line, run it, print what happens."""

    def __init__(
        self, shell: Shell, *, source: Keyboard | Lines, printer: Printer, user: LineUser | None
    ) -> None:
        """`user` is None if the input is not a terminal."""
        self._shell = shell
        self._source = source
        self._printer = printer
        self._prompt = f"{printer.sign('›')} "
        self._user = user
        self.shell_status: ShellStatus | None = None
        self._stop_tasks: set[asyncio.Task[None]] = set()
        self._status = 0
        self._events: list[Event] = []
        """Events between turns, which would break the line that is being typed."""
        shell.on_event = self._events.append
        shell.on_progress = lambda text: printer.progress(visible_line(text))
        self._queue: list[str] = []
        """Lines typed during a turn, to run after it."""

    async def run(self) -> int:
        """Chat until the end and return the exit status."""
        if self._user is not None:
            status = await self._shell.status()
            heading = f"ecoshell {__version__}, {visible_line(status.model)}"
            for cap in status.caps:
                heading += f", {amount_text(cap.left, cap.unit)} left of the {cap.scope} cap"
            self._printer.line(heading, "bold")
            self._printer.line("Ask, or type /help. Ctrl-C stops a turn, Ctrl-D quits.", "dim")
            if not self._shell.past:
                self._printer.line(visible_line(await self._shell.introduction()), "dim")
            await self._show_past()
        try:
            while await self._run_line():
                pass
        except EOFError:
            pass
        if self._user is None:
            return self._status
        if (hint := self._shell.resume_hint) and await self._shell.flush() is None:
            self._printer.line(hint, "dim")
        return 0

    def note(self, text: str) -> None:
        """Print a note."""
        self._printer.line(f"{self._printer.sign('!')} note: {visible_line(text)}", "yellow")

    async def _run_line(self) -> bool:
        """Read and run one line; False ends the chat."""
        self.show_events()
        if self._user is not None:
            try:
                self.shell_status = await self._shell.status()
            except EcoshellError as error:  # the toolbar keeps its previous content
                EventLines(self._printer).show(ErrorHappened.of(error))
        try:
            line = await self._next_line()
        except Interrupted:
            if self._user is None:
                self._status = EXIT_STATUS["interrupted"]
                return False
            self._printer.line("Ctrl-D or /quit quits; /help lists the commands.", "dim")
            return True
        self.show_events()
        try:
            if line.startswith("/"):
                return await self._command(line)
            if line.startswith("!"):
                with stopping(self._stop):
                    command_ran = await self._shell.run(line.removeprefix("!").strip())
                EventLines(self._printer).show(command_ran)
            elif line:
                return await self._turn(line, await asyncio.to_thread(self._pasted_images, line))
        except BrokenPipeError:
            raise  # the reader of the output is gone
        except Exception as error:  # noqa: BLE001 - the boundary of the shell: not even a defect in a command ends it
            self._status = (
                error.exit_status if isinstance(error, EcoshellError) else EXIT_STATUS["error"]
            )
            EventLines(self._printer).show(ErrorHappened.of(error))
        return True

    def show_events(self) -> None:
        """Print the events that happened between turns and at the end."""
        lines = EventLines(self._printer)
        while self._events:
            lines.show(self._events.pop(0))

    async def _next_line(self) -> str:
        if not self._queue:
            return (await self._source.question(self._prompt)).strip()
        line = self._queue.pop(0).strip()
        self._printer.line(f"{self._prompt}{visible(line)}", "bold")
        return line

    def _pasted_images(self, line: str) -> list[Attachment]:
        """Open the images a line names by absolute path, as a terminal pastes a dropped file."""
        images: list[Attachment] = []
        for path in pasted_paths(line):
            try:
                images.append(attached(open_image(path)))
            except ToolError as error:
                self.note(f"{path.name} was not attached: {error.message}")
        return images

    async def _turn(self, question: str, attachments: Sequence[Attachment] = ()) -> bool:
        """Ask and print the turn to its last event; False if it was stopped without a user who could continue."""
        lines, plan = EventLines(self._printer, streaming=self._user is not None), None
        with stopping(self._stop):
            async with aclosing(self._shell.ask(question, attachments)) as events:
                async for event in events:
                    lines.show(event)
                    plan = event if isinstance(event, PlanWritten) else plan
                    if isinstance(event, TurnFinished):
                        self._status = EXIT_STATUS[event.status] or self._status
                    elif self._user is not None:
                        is_quote = isinstance(event, Quote) and bool(event.reason)
                        if is_quote or isinstance(event, QUESTIONS):
                            self._queue += self._source.typeahead()
                        try:
                            await self._user.answer(event)
                        except Interrupted:
                            await self._shell.stop()
        if self._user is None:
            return self._status != EXIT_STATUS["interrupted"]
        self._user.reset()
        return True if plan is None else await self._review_plan(self._user, plan)

    async def _review_plan(self, user: LineUser, plan: PlanWritten) -> bool:
        """Ask whether a plan that the turn has written is carried out; returns as `_turn` does."""
        try:
            argument = await user.review_plan(plan)
        except Interrupted:
            argument = None
        return True if argument is None else await self._command(f"/plan accept {argument}")

    async def _command(self, line: str) -> bool:
        """Run a slash command; False if it ends the chat."""
        command = asyncio.ensure_future(self._shell.command(line))
        with stopping(command.cancel):
            try:
                printed = await command
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
            if printed.value != line.strip():
                self._printer.line(f"{self._prompt}{visible(printed.value)}", "bold")
            return await self._turn(printed.value, printed.attachments)
        return printed.effect != "quit"

    async def _show_past(self) -> None:
        """Print the session so far, as after `/resume`."""
        lines = EventLines(self._printer, streaming=False)
        for event in self._shell.past:
            if isinstance(event, TurnStarted):
                self._printer.line(f"{self._prompt}{visible(event.question)}", "bold")
            if not isinstance(event, TextArrived):  # the complete texts follow
                lines.show(event)

    def _stop(self) -> None:
        """Stop the running turn; its last events still arrive."""
        task = asyncio.ensure_future(self._shell.stop())
        self._stop_tasks.add(task)
        task.add_done_callback(self._stop_tasks.discard)


def toolbar_text(status: ShellStatus | None) -> str:
    """Return one line with the caps, the tools and the model."""
    if status is None:
        return ""
    parts = [_cap_text(cap) for cap in status.caps]
    if not parts:
        used = about(counted(status.used_tokens, "token"), estimated=status.estimated)
        spent = about(dollars(status.spent_nano), estimated=status.estimated_nano)
        parts.append(f"no cap, used {used}" if status.is_free else f"no cap, spent {spent}")
    loaded = sum(tool.loaded for tool in status.tools)
    effort = "" if status.effort == "auto" else f" ({status.effort})"
    parts += {"plan": ("plan mode",), "edits": ("edits accepted",)}.get(status.approval_mode, ())
    if status.background:
        parts.append(counted(status.background, "background command"))
    parts += (f"{loaded} of {len(status.tools)} tools", f"{visible_line(status.model)}{effort}")
    return f" {' | '.join(parts)} "


def _cap_text(cap: CapState) -> str:
    spent, held, left = (amount_text(value, cap.unit) for value in (cap.spent, cap.held, cap.left))
    return f"{cap.scope}: spent {spent}, held {held}, left {left}"

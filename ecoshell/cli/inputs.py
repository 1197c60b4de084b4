"""Sources of the line shell's input: a terminal with editing and completion, or a plain stream."""

import errno
import os
import signal
import sys
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as PromptCompletion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.output import create_output

from ecoshell.agent.command_table import Completion
from ecoshell.cli.signals import HANGUPS, Handler, Interrupted, handling, interrupt
from ecoshell.cli.standard_input import decode, unreadable
from ecoshell.paths import is_special, make_private

_MAX_TYPEAHEAD_BYTES = 64 * 1024


class Keyboard:
    """A terminal through prompt-toolkit: editing, history, completion of slash commands, a bottom toolbar."""

    def __init__(self, *, output: TextIO = sys.stdout) -> None:
        self._output = create_output(stdout=output)
        self._words: PromptSession[str] = PromptSession(
            output=self._output, history=InMemoryHistory(), interrupt_exception=Interrupted
        )
        self._questions: PromptSession[str] = self._words
        self._partial_line = ""
        """The start of a line that was typed while no prompt was open."""

    def equip(
        self, *, history: FileHistory, completer: Completer, toolbar: Callable[[], str]
    ) -> None:
        """Give questions a history, completion and a toolbar."""
        self._questions = PromptSession(
            output=self._output,
            history=history,
            completer=completer,
            bottom_toolbar=lambda: [("", toolbar())],
            interrupt_exception=Interrupted,
        )

    async def question(self, prompt: str) -> str:
        """Read a question or command, which enters the history; raises Interrupted and, at the end, EOFError."""
        partial_line, self._partial_line = self._partial_line, ""
        return await self._questions.prompt_async(prompt, default=partial_line)

    async def word(self, prompt: str) -> str:
        """Read a short decision, which does not enter the history; raises Interrupted and EOFError."""
        return await self._words.prompt_async(prompt)

    def typeahead(self) -> list[str]:
        """Return lines typed while no prompt was open: they are messages, not answers to the next prompt."""
        keys = "".join(key.data for key in get_typeahead(self._words.app.input))
        typed = self._partial_line + keys + _read_waiting(sys.stdin.fileno())
        *lines, self._partial_line = typed.replace("\r", "\n").split("\n")
        return [line for line in lines if line.strip()]


@dataclass(frozen=True, slots=True)
class Lines:
    """A plain stream, such as a pipe or a dumb terminal; prompts go to `prompts` unless it is None."""

    stream: BinaryIO
    prompts: TextIO | None
    warn: Callable[[str], None]

    async def question(self, prompt: str) -> str:
        """Read one line; raises Interrupted at Ctrl-C, EOFError at the end and UsageError if reading fails.

        It blocks the event loop, which has nothing else to do meanwhile.
        """
        if self.prompts is not None:
            self.prompts.write(prompt)
            self.prompts.flush()
        handlers: dict[int, Handler] = dict.fromkeys(HANGUPS, _end_input)
        try:
            with handling({signal.SIGINT: interrupt, **handlers}):
                line = self.stream.readline()
        except KeyboardInterrupt:
            raise Interrupted from None
        except OSError as error:
            raise unreadable(error) from error
        if not line:
            raise EOFError
        return decode(line, self.warn).rstrip("\r\n")

    word = question

    def typeahead(self) -> list[str]:
        return []


@dataclass(frozen=True)
class SlashCompleter(Completer):
    """Completes slash commands; `values` looks up names that take time, such as those of servers."""

    complete: Callable[[str], list[Completion]]
    values: Callable[[str], Awaitable[list[Completion]]]

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[PromptCompletion]:
        typed = document.text_before_cursor
        if typed.startswith("/"):
            yield from (_whole_line(completion, typed) for completion in self.complete(typed))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[PromptCompletion, None]:
        for completion in self.get_completions(document, complete_event):
            yield completion
        typed = document.text_before_cursor
        if typed.startswith("/"):
            for completion in await self.values(typed):
                yield _whole_line(completion, typed)


class PrivateHistory(FileHistory):
    """A history file readable only by its owner; if it cannot be used, one warning is shown."""

    def __init__(self, file: Path, warn: Callable[[str], None]) -> None:
        super().__init__(file)
        self._file = file
        self._warn = warn
        self._has_warned = False

    def load_history_strings(self) -> Iterable[str]:
        try:
            self._require_file()
            return list(super().load_history_strings())
        except OSError as error:
            self._report(error)
            return []

    def store_string(self, string: str) -> None:
        try:
            self._require_file()
            make_private(self._file.parent)
            self._file.touch(mode=0o600)
            super().store_string(string)
        except OSError as error:
            self._report(error)

    def _require_file(self) -> None:
        if is_special(self._file):
            raise OSError(errno.EINVAL, "it is not a file")

    def _report(self, error: OSError) -> None:
        if not self._has_warned:
            self._warn(f"the input history is not saved: {error.strerror or error}")
            self._has_warned = True


def _whole_line(completion: Completion, typed: str) -> PromptCompletion:
    return PromptCompletion(
        completion.text, start_position=-len(typed), display_meta=completion.help
    )


def _read_waiting(terminal: int) -> str:
    """Read what waits in the terminal, including an unfinished line."""
    attributes = termios.tcgetattr(terminal)
    without_waiting = termios.tcgetattr(terminal)
    without_waiting[3] &= ~termios.ICANON
    without_waiting[6][termios.VMIN] = without_waiting[6][termios.VTIME] = 0
    termios.tcsetattr(terminal, termios.TCSANOW, without_waiting)
    try:
        return os.read(terminal, _MAX_TYPEAHEAD_BYTES).decode(errors="replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _end_input(number: int, frame: FrameType | None) -> NoReturn:
    raise EOFError

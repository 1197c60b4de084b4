"""Where the line shell's lines come from: a terminal with editing and completion, or a plain stream."""

import errno
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Offered
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.output import create_output

from ecoshell.agent.commands import Completion
from ecoshell.cli.ask import decoded, unreadable
from ecoshell.cli.parser import HANGUPS, Handler, Interrupted, handling, interrupt
from ecoshell.paths import is_special, make_private

_LONGEST = 64 * 1024
"""Bytes that are taken of what was typed while nobody read."""


class Keyboard:
    """A terminal through prompt-toolkit: editing, history, completion of slash commands, a bottom toolbar."""

    def __init__(self, *, output: TextIO = sys.stdout) -> None:
        self._output = create_output(stdout=output)
        self._words: PromptSession[str] = PromptSession(
            output=self._output, history=InMemoryHistory(), interrupt_exception=Interrupted
        )
        self._questions: PromptSession[str] = self._words
        self._begun = ""
        """The beginning of a line that was typed while nobody read."""

    def equip(self, *, history: FileHistory, completer: Completer, toolbar: Callable[[], str]) -> None:
        """Give questions a history, completion and a toolbar."""
        self._questions = PromptSession(
            output=self._output,
            history=history,
            completer=completer,
            bottom_toolbar=lambda: [("", toolbar())],
            interrupt_exception=Interrupted,
        )

    async def question(self, prompt: str) -> str:
        """A question or a command; kept in the history. Raises Interrupted at Ctrl-C and EOFError at the end."""
        begun, self._begun = self._begun, ""
        return await self._questions.prompt_async(prompt, default=begun)

    async def word(self, prompt: str) -> str:
        """A short decision; not kept. Raises Interrupted and EOFError."""
        return await self._words.prompt_async(prompt)

    def ahead(self) -> list[str]:
        """Lines that were typed while nobody read: they are messages, and no answer to what is asked next."""
        typed = self._begun + "".join(key.data for key in get_typeahead(self._words.app.input))
        if sys.platform != "win32":  # what waits in the terminal, also of a line that is not ended
            import termios

            terminal = sys.stdin.fileno()
            before = termios.tcgetattr(terminal)
            at_once = [*before[:3], before[3] & ~termios.ICANON, *before[4:6], [*before[6]]]
            at_once[6][termios.VMIN] = at_once[6][termios.VTIME] = 0
            termios.tcsetattr(terminal, termios.TCSANOW, at_once)
            try:
                typed += os.read(terminal, _LONGEST).decode(errors="replace")
            finally:
                termios.tcsetattr(terminal, termios.TCSANOW, before)
        *lines, self._begun = typed.replace("\r", "\n").split("\n")
        return [line for line in lines if line.strip()]


@dataclass(frozen=True, slots=True)
class Lines:
    """A plain stream, such as a pipe or a terminal that can only print; `prompts` is where prompts go, if anywhere."""

    stream: BinaryIO
    prompts: TextIO | None
    warn: Callable[[str], None]

    async def question(self, prompt: str) -> str:
        """One line; raises Interrupted at Ctrl-C, EOFError at the end and UsageError where nothing can be read.

        It blocks, since nothing goes on while a person or a script is waited for.
        """
        if self.prompts is not None:
            self.prompts.write(prompt)
            self.prompts.flush()
        handlers: dict[int, Handler] = {signal.SIGINT: interrupt, **dict.fromkeys(HANGUPS, _end_of_input)}
        try:
            with handling(handlers):
                raw = self.stream.readline()
        except KeyboardInterrupt:
            raise Interrupted from None
        except OSError as error:
            raise unreadable(error) from error
        if not raw:
            raise EOFError
        return decoded(raw, self.warn).rstrip("\r\n")

    word = question

    def ahead(self) -> list[str]:
        return []


@dataclass(frozen=True)
class SlashCompleter(Completer):
    """Completes lines that begin with a slash: by what is at hand, and then by what has to be asked for."""

    complete: Callable[[str], list[Completion]]
    values: Callable[[str], Awaitable[list[Completion]]]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Offered]:
        typed = document.text_before_cursor
        if not typed.startswith("/"):
            return
        for found in self.complete(typed):
            yield Offered(found.text, start_position=-len(typed), display_meta=found.help)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Offered, None]:
        for offered in self.get_completions(document, complete_event):
            yield offered
        typed = document.text_before_cursor
        if typed.startswith("/"):
            for found in await self.values(typed):
                yield Offered(found.text, start_position=-len(typed), display_meta=found.help)


class KeptHistory(FileHistory):
    """A history file only its owner can read; when it cannot be kept, that is said once and nothing else is lost."""

    def __init__(self, file: Path, warn: Callable[[str], None]) -> None:
        super().__init__(file)
        self._file = file
        self._warn = warn
        self._complained = False

    def load_history_strings(self) -> Iterable[str]:
        try:
            if is_special(self._file):
                raise OSError(errno.EINVAL, "it is not a file")
            return list(super().load_history_strings())
        except OSError as error:
            self._complain(error)
            return []

    def store_string(self, string: str) -> None:
        try:
            if is_special(self._file):
                raise OSError(errno.EINVAL, "it is not a file")
            make_private(self._file.parent)
            self._file.touch(mode=0o600)
            super().store_string(string)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._warn(f"the history of what you typed is not kept: {error.strerror or error}")
            self._complained = True


def _end_of_input(number: int, frame: FrameType | None) -> NoReturn:
    raise EOFError

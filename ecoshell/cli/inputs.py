"""Where the line shell's lines come from: a terminal with editing and completion, or a plain stream."""

import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn, Protocol, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Offered
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.output import create_output

from ecoshell.agent.commands import Completion
from ecoshell.cli.decoding import decoded
from ecoshell.cli.interrupts import HANGUPS, Handler, Interrupted, handling, interrupt
from ecoshell.paths import make_private


class Input(Protocol):
    """A source of lines. Both calls raise Interrupted at Ctrl-C and EOFError at the end."""

    async def question(self, prompt: str) -> str:
        """A question or a command; kept in the history."""
        ...

    async def word(self, prompt: str) -> str:
        """A short decision; not kept."""
        ...


class Keyboard:
    """A terminal through prompt-toolkit: editing, history, completion of slash commands, a bottom toolbar."""

    def __init__(self, *, output: TextIO = sys.stdout) -> None:
        self._output = create_output(stdout=output)
        self._words: PromptSession[str] = PromptSession(
            output=self._output, history=InMemoryHistory(), interrupt_exception=Interrupted
        )
        self._questions: PromptSession[str] = self._words

    def equip(
        self, *, history: FileHistory, complete: Callable[[str], list[Completion]], toolbar: Callable[[], str]
    ) -> None:
        """Give questions a history, completion and a toolbar."""

        def bottom() -> StyleAndTextTuples:
            return [("", toolbar())]

        self._questions = PromptSession(
            output=self._output,
            history=history,
            completer=SlashCompleter(complete),
            bottom_toolbar=bottom,
            interrupt_exception=Interrupted,
        )

    async def question(self, prompt: str) -> str:
        return await self._questions.prompt_async(prompt)

    async def word(self, prompt: str) -> str:
        return await self._words.prompt_async(prompt)


class Lines:
    """A plain stream, such as a pipe or a terminal that can only print; `prompts` is where prompts go, if anywhere."""

    def __init__(self, stream: BinaryIO, *, prompts: TextIO | None, warn: Callable[[str], None]) -> None:
        self._stream = stream
        self._prompts = prompts
        self._warn = warn

    async def question(self, prompt: str) -> str:
        return self._read(prompt)

    async def word(self, prompt: str) -> str:
        return self._read(prompt)

    def _read(self, prompt: str) -> str:
        """One line. It blocks, since nothing goes on while a person or a script is waited for."""
        if self._prompts is not None:
            self._prompts.write(prompt)
            self._prompts.flush()
        handlers: dict[int, Handler] = {signal.SIGINT: interrupt, **dict.fromkeys(HANGUPS, _end_of_input)}
        try:
            with handling(handlers):
                raw = self._stream.readline()
        except KeyboardInterrupt:
            raise Interrupted from None
        if not raw:
            raise EOFError
        return decoded(raw, self._warn).rstrip("\r\n")


class SlashCompleter(Completer):
    """Completes lines that begin with a slash."""

    def __init__(self, complete: Callable[[str], list[Completion]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Offered]:
        typed = document.text_before_cursor
        if not typed.startswith("/"):
            return
        for found in self._complete(typed):
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
            return list(super().load_history_strings())
        except OSError as error:
            self._complain(error)
            return []

    def store_string(self, string: str) -> None:
        try:
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

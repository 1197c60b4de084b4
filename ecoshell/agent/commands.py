"""Slash commands: what a person can say in a chat besides a question. Both chats run these same commands."""

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ecoshell.errors import UsageError
from ecoshell.messages import Attachment

Host = TypeVar("Host")
"""What the commands act on."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole line to offer, and what it does."""

    text: str
    help: str


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command came to: plain text, and what else the interface has to do."""

    text: str
    effect: Literal["", "quit", "clear", "session", "ask", "copy"] = ""
    """`ask`: put `value` as the next question; `copy`: `value` belongs on the clipboard."""
    value: str = ""
    attachments: tuple[Attachment, ...] = ()
    """What goes along with the question to ask."""


Run = Callable[[Host, str], Awaitable[Printed]]
"""Carries a command out, with what was typed after its name."""


@dataclass(frozen=True, slots=True)
class Command(Generic[Host]):
    """One slash command; `choices` completes its argument."""

    name: str
    usage: str
    help: str
    run: Run[Host]
    choices: Callable[[Host], Iterable[str]] = lambda _: ()


class CommandTable(Generic[Host]):
    """Commands by name."""

    def __init__(self, commands: Iterable[Command[Host]] = ()) -> None:
        self._commands = {command.name: command for command in commands}

    def add(
        self, name: str, usage: str, about: str, choices: Callable[[Host], Iterable[str]] = lambda _: ()
    ) -> Callable[[Run[Host]], Run[Host]]:
        """Make the function below a command, after those before it."""

        def added(run: Run[Host]) -> Run[Host]:
            self.include(Command(name, usage, about, run, choices))
            return run

        return added

    def include(self, command: Command[Host]) -> None:
        """Take a command in, after those before it."""
        self._commands[command.name] = command

    def knows(self, line: str) -> bool:
        """Whether a line is one of these commands, with or without an argument."""
        return line.strip().removeprefix("/").partition(" ")[0].lower() in self._commands

    async def run(self, host: Host, line: str) -> Printed:
        """Carry out `/name argument`; raises UsageError when there is no such command."""
        name, _, argument = line.strip().removeprefix("/").partition(" ")
        command = self._commands.get(name.lower())
        if command is None:
            near = difflib.get_close_matches(name.lower(), self._commands, n=1, cutoff=0.5)
            fix = f"Did you mean /{near[0]}?" if near else "/help lists them all."
            raise UsageError(f"There is no command /{name}.", fix=fix)
        return await command.run(host, argument.strip())

    def complete(self, host: Host, text: str) -> list[Completion]:
        """What the line could become: commands while the first word is typed, then the command's choices."""
        name, blank, argument = text.removeprefix("/").partition(" ")
        if not blank:
            found = (command for command in self._commands.values() if command.name.startswith(name.lower()))
            return [Completion(f"/{command.name}", f"{command.usage}  {command.help}".strip()) for command in found]
        command = self._commands.get(name.lower())
        choices = command.choices(host) if command else ()
        return [
            Completion(f"/{name} {choice}", command.help if command else "")
            for choice in choices
            if choice.lower().startswith(argument.lower())
        ]

    def overview(self) -> list[tuple[str, str]]:
        """Each command as it is typed, and what it does."""
        return [(f"/{command.name} {command.usage}".strip(), command.help) for command in self._commands.values()]

"""Slash commands and their plain-text output; the TUI and the line shell run the same commands."""

import difflib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ecoshell.budget import CapState, about, amount_text
from ecoshell.budget.costs import CostRow
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.messages import Attachment

SCREEN_COMMANDS = frozenset({"settings", "theme", "search", "exit"})
"""Commands that only the screen has."""
Host = TypeVar("Host")


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete line, and what it does."""

    text: str
    help: str


@dataclass(frozen=True, slots=True)
class Printed:
    """The result of a command: plain text, and what else the interface must do."""

    text: str
    effect: Literal["", "quit", "clear", "session", "ask", "copy"] = ""
    """`ask`: ask `value` as the next question; `copy`: copy `value` to the clipboard."""
    value: str = ""
    attachments: tuple[Attachment, ...] = ()


def split_first_word(text: str) -> tuple[str, str]:
    """The first word, which any whitespace ends, and the rest with its line breaks; both empty without a word."""
    word, rest, *_ = *text.strip().split(maxsplit=1), "", ""
    return word, rest


Run = Callable[[Host, str], Awaitable[Printed]]
"""Runs a command with the text after its name."""
Choices = Callable[[Host], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Command(Generic[Host]):
    """One slash command; `choices` completes its argument."""

    name: str
    usage: str
    help: str
    run: Run[Host]
    choices: Choices[Host] = lambda _: ()


class CommandTable(dict[str, Command[Host]]):
    """Commands by name."""

    def add(
        self, name: str, usage: str, about: str, choices: Choices[Host] = lambda _: ()
    ) -> Callable[[Run[Host]], Run[Host]]:
        """A decorator that adds a function as a command."""

        def decorate(run: Run[Host]) -> Run[Host]:
            self[name] = Command(name, usage, about, run, choices)
            return run

        return decorate

    def knows(self, line: str) -> bool:
        """Whether a line is one of these commands, with or without an argument."""
        return split_first_word(line)[0].removeprefix("/").lower() in self

    async def run(self, host: Host, line: str) -> Printed:
        """Run `/name argument`; raises UsageError for an unknown command."""
        word, argument = split_first_word(line)
        name = word.removeprefix("/")
        command = self.get(name.lower())
        if command is None:
            near = difflib.get_close_matches(name.lower(), self, n=1, cutoff=0.5)
            fix = f"Did you mean /{near[0]}?" if near else "/help lists all commands."
            raise UsageError(f"Unknown command /{name}.", fix=fix)
        return await command.run(host, argument)

    def complete(self, host: Host, text: str) -> list[Completion]:
        """Completions of the line: commands for the first word, then the command's choices."""
        name, blank, argument = text.removeprefix("/").partition(" ")
        if not blank:
            return [
                Completion(f"/{command.name}", menu_text(command.help, command.usage))
                for command in self.values()
                if command.name.startswith(name.lower())
            ]
        command = self.get(name.lower())
        if command is None:
            return []
        choices = (
            each for each in command.choices(host) if each.lower().startswith(argument.lower())
        )
        return [Completion(f"/{name} {choice}", command.help) for choice in choices]

    def overview(self) -> list[tuple[str, str]]:
        """The usage and description of each command."""
        return [(f"/{each.name} {each.usage}".strip(), each.help) for each in self.values()]


def menu_text(about: str, usage: str) -> str:
    """A command's line in a menu, after its name."""
    return f"{about} · {usage}" if usage else about


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded to their widest cell."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def dollars(nano: int | None) -> str:
    """Nano-dollars as text; "unknown" for None."""
    return "unknown" if nano is None else amount_text(nano, "usd")


def spent_text(row: CostRow) -> str:
    """The amount spent, marked if it is partly an estimate, with the number of calls of unknown price."""
    spent = about(dollars(row.shown_nano), estimated=row.estimate_nano is not None)
    is_mixed = row.unpriced and row.shown_nano is not None
    return f"{spent} + {row.unpriced} unknown" if is_mixed else spent


def caps_table(caps: Iterable[CapState], away: EcoshellError | None) -> str:
    """The caps and their use; `away` is the reason why a team's caps are unknown."""
    states = list(caps)
    head = ["cap", "limit", "spent", "held", "left"]
    rows: list[list[str]] = []
    for cap in states:
        amounts = (cap.limit, cap.spent, cap.held, cap.left)
        rows.append([cap.scope, *(amount_text(amount, cap.unit) for amount in amounts)])
    if any(cap.own is not None for cap in states):
        head.append("spent by you")
        for row, cap in zip(rows, states, strict=True):
            row.append("" if cap.own is None else amount_text(cap.own, cap.unit))
    lines = [table(head, rows)] if rows else []
    if away:
        lines.append(f"The team's caps are unknown. {away}")
    return "\n".join(lines)


def required(argument: str, example: str) -> str:
    """The argument; raises UsageError without one."""
    if not argument:
        raise UsageError("A name is missing.", fix=f"For example: {example}")
    return argument

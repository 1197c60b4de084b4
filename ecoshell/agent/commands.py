"""Slash commands: what a person can say in a chat besides a question, and the plain text that they print.

Both chats run these same commands.
"""

import difflib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ecoshell.budget import CapState, about, amount_text
from ecoshell.budget.ledger import CostRow
from ecoshell.errors import EcoshellError, UsageError
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


class CommandTable(dict[str, Command[Host]]):
    """Commands by name."""

    def add(
        self, name: str, usage: str, about: str, choices: Callable[[Host], Iterable[str]] = lambda _: ()
    ) -> Callable[[Run[Host]], Run[Host]]:
        """Make the function below a command, after those before it."""

        def added(run: Run[Host]) -> Run[Host]:
            self[name] = Command(name, usage, about, run, choices)
            return run

        return added

    def knows(self, line: str) -> bool:
        """Whether a line is one of these commands, with or without an argument."""
        return line.strip().removeprefix("/").partition(" ")[0].lower() in self

    async def run(self, host: Host, line: str) -> Printed:
        """Carry out `/name argument`; raises UsageError when there is no such command."""
        name, _, argument = line.strip().removeprefix("/").partition(" ")
        command = self.get(name.lower())
        if command is None:
            near = difflib.get_close_matches(name.lower(), self, n=1, cutoff=0.5)
            fix = f"Did you mean /{near[0]}?" if near else "/help lists them all."
            raise UsageError(f"There is no command /{name}.", fix=fix)
        return await command.run(host, argument.strip())

    def complete(self, host: Host, text: str) -> list[Completion]:
        """What the line could become: commands while the first word is typed, then the command's choices."""
        name, blank, argument = text.removeprefix("/").partition(" ")
        if not blank:
            found = (command for command in self.values() if command.name.startswith(name.lower()))
            return [Completion(f"/{command.name}", f"{command.usage}  {command.help}".strip()) for command in found]
        command = self.get(name.lower())
        choices = command.choices(host) if command else ()
        return [
            Completion(f"/{name} {choice}", command.help if command else "")
            for choice in choices
            if choice.lower().startswith(argument.lower())
        ]

    def overview(self) -> list[tuple[str, str]]:
        """Each command as it is typed, and what it does."""
        return [(f"/{command.name} {command.usage}".strip(), command.help) for command in self.values()]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded to their widest cell."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def dollars(nano: int | None) -> str:
    """An amount for people; what is not known says so."""
    return "unknown" if nano is None else amount_text(nano, "usd")


def amount(value: int, unit: str) -> str:
    """Nano-dollars or tokens for people."""
    return amount_text(value, "usd" if unit == "usd" else "tokens")


def spent_text(row: CostRow) -> str:
    """What was spent, marked where calls reported no usage, and of how many calls nobody knows the price."""
    spent = about(dollars(row.shown_nano), estimated=row.estimate_nano is not None)
    return spent if not row.unpriced or row.shown_nano is None else f"{spent} + {row.unpriced} unknown"


def caps_table(caps: Iterable[CapState], away: EcoshellError | None) -> str:
    """The caps with what is used of them; says how to set one when there is none, and why a team's are not known."""
    found = list(caps)
    if not found and away is None:
        return "No cap is set. /budget 0.50 caps this session at 50 cents, /budget 20000tok at 20,000 tokens."
    own = any(cap.own is not None for cap in found)
    rows: list[list[str]] = []
    for cap in found:
        amounts = (cap.limit, cap.spent, cap.held, cap.left, *((cap.own,) if own else ()))
        rows.append([cap.scope, *("" if value is None else amount(value, cap.unit) for value in amounts)])
    head = ("cap", "limit", "spent", "held", "left", *(("spent by you",) if own else ()))
    parts = (table(head, rows) if rows else "", f"The team's caps are not known. {away}" if away else "")
    return "\n".join(part for part in parts if part)

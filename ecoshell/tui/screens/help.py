"""F1: the keys of every place on the screen, the slash commands, and how to copy; all of it can be searched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from ecoshell.tui.screens.columns import Column
from ecoshell.tui.screens.picker import Picker, Row
from ecoshell.tui.screens.places import Place, copying, places

_HERE = "· these work now"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the help: a heading, a key, or a command that can be typed from here."""

    place: str
    what: str
    key: str = ""
    words: str = ""
    command: str = ""
    common: bool = True


class HelpScreen(Picker[Line]):
    """Gives back the slash command that was picked, to be typed, or None."""

    HEADING = "help"
    COLUMNS = (Column("what it does"), Column("key", right=True))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "type the command"),
        Binding("f1", "dismiss(None)", "close", show=False),
    ]
    HELP = "Type to search. Enter on a command types it for you, esc closes the help."

    def __init__(self, over: Sequence[Place], commands: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._places = [*over, copying()]
        self._commands = commands

    @classmethod
    def of(cls, screen: Screen[Any], commands: Sequence[tuple[str, str]] = ()) -> "HelpScreen":
        """Help for the screen that is on, and for these slash commands as they are typed, with their words."""
        return cls(places(screen), commands)

    async def load(self) -> Sequence[Line]:
        """The places with their keys, those of the focus first, and the commands before the copying."""
        *over, last = self._places
        return [*(line for place in over for line in _lines(place)), *self._command_lines(), *_lines(last)]

    def key(self, item: Line) -> str:
        return f"{item.place}\n{item.what}\n{item.key}"

    def row(self, item: Line) -> Row:
        """What is done, and by which key."""
        return Row((item.what, item.key), also=f"{item.key} {item.place}", common=item.common)

    def detail(self, item: Line) -> str:
        """The whole line, and what is said of its place."""
        return item.words

    def result(self, item: Line) -> str | None:
        """The command to type; a key has to be pressed where it works."""
        if not item.command:
            self.complain("Close the help with esc, then press the key.")
        return item.command or None

    def _command_lines(self) -> list[Line]:
        if not self._commands:
            return []
        lines = [Line("commands", "── commands ──", words="Typed in the prompt; tab completes them.")]
        for usage, does in self._commands:
            name = usage.split()[0]
            lines.append(Line("commands", does, name, words=f"{usage}\n{does}", command=f"{name} "))
        return lines


def _lines(place: Place) -> list[Line]:
    heading = f"── {place.title} ──{f' {_HERE}' if place.here else ''}"
    lines = [Line(place.title, heading, words=place.words)]
    for key in place.keys:
        words = f"{key.keys}  {key.does}\n{place.words}"
        lines.append(Line(place.title, key.does, key.keys, words=words, common=key.own))
    return lines

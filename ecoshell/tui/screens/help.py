"""F1: the keys of every place on the screen, read from the bindings that are really there, and the slash commands.

All of it can be searched; how to copy is told below.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from ecoshell.tui.screens.picker import Picker, PickerColumn, PickerRow

_HERE = "· these work now"
_OURS = "ecoshell."
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that keys do in a place; `own` tells a key of ecoshell from one that every such widget has."""

    keys: str
    does: str
    own: bool = True
    usage: str = ""
    """Of a slash command, which stands among the keys by its name, how it is typed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where keys mean something: a widget, the screen, or everywhere; `words` is its help."""

    title: str
    words: str
    keys: tuple[Key, ...]
    here: bool = False
    """Whether the keys work at this moment, because the focus is there."""


def places(screen: Screen[Any]) -> list[Place]:
    """The places that can be seen, those where the keys work now first; each kind of widget stands there once."""
    app: App[Any] = screen.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    active, focused = screen.active_bindings, screen.focused
    here: list[DOMNode] = [*(focused or screen).ancestors_with_self]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    can = (node for node in screen.walk_children(Widget) if node.can_focus or node.can_focus_children)
    others: list[DOMNode] = [node for node in can if node.display and node not in here]
    found: list[Place] = []
    seen: set[type[DOMNode]] = set()
    for node in [*here, *others]:
        if type(node) in seen or not type(node).__module__.startswith(_OURS):
            continue
        seen.add(type(node))
        does: dict[tuple[str, str], tuple[list[str], bool]] = {}
        """The keys for each thing that they do, its own and those it inherits, and whether they are ecoshell's."""
        known: set[str] = set()
        for base in type(node).__mro__:
            for binding in Binding.make_bindings(vars(base).get("BINDINGS", ())):
                if binding.key in known or not binding.description or binding.system:
                    continue
                known.add(binding.key)
                # where the focus is, only those that work now
                if node not in here or (binding.key in active and active[binding.key].node is node):
                    what = binding.action, binding.description
                    shown, _ = does.setdefault(what, ([], base.__module__.startswith(_OURS)))
                    key = app.get_key_display(binding)
                    shown += [key] if key not in shown else []
        keys = tuple(Key(" ".join(shown), did[:1].lower() + did[1:], own) for (_, did), (shown, own) in does.items())
        words = next((vars(cls)["HELP"] for cls in type(node).__mro__ if "HELP" in vars(cls)), None)
        if keys or words:
            title = _WORDS.sub(" ", type(node).__name__).lower().removesuffix(" panel")
            if isinstance(node, App | Screen):
                title = "everywhere" if isinstance(node, App) else "this screen"
            found.append(Place(title, words or "", keys, node in here))
    return found


_COPYING = Place(
    "copying",
    "The mouse selects in the transcript. The terminal's own selection takes whole lines of the screen, as ever.",
    (
        Key("drag", "select in the transcript"),
        Key("^c", "copy what is selected, also over ssh (OSC 52)"),
        Key("shift+drag", "the terminal's own selection"),
        Key("option+drag", "the same in iTerm2; fn+drag in Terminal"),
    ),
)
"""How text gets out of the terminal."""


class HelpScreen(Picker[str]):
    """Gives back the slash command that was picked, to be typed, or None."""

    heading = "help"
    COLUMNS = (PickerColumn("what it does"), PickerColumn("key", right=True))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "type the command"),
        Binding("f1", "dismiss(None)", "close", show=False),
    ]
    HELP = "Type to search. Enter on a command types it for you, esc closes the help."
    DEFAULT_CSS = """
    HelpScreen #detail { height: 8; }
    """

    def __init__(self, over: Sequence[Place], commands: Sequence[tuple[str, str]] = ()) -> None:
        """Help for these places, and for slash commands as they are typed, with their words."""
        super().__init__()
        typed = tuple(Key(usage.split()[0], does, usage=usage) for usage, does in commands)
        listed = [Place("commands", "Typed in the prompt; tab completes them.", typed)] if typed else []
        self._places = [*over, *listed, _COPYING]

    async def load(self) -> Sequence[PickerRow[str]]:
        """The places with their keys, those of the focus first, and the commands before the copying."""
        rows: list[PickerRow[str]] = []
        for place in self._places:
            heading = f"── {place.title} ──{f' {_HERE}' if place.here else ''}"
            for key in (Key("", heading), *place.keys):
                words = f"{key.keys}  {key.does}\n{place.words}" if key.keys else place.words
                told = f"{key.usage}\n{key.does}" if key.usage else words
                known, also = f"{place.title}\n{key.does}\n{key.keys}", f"{key.keys} {place.title}"
                typed = f"{key.keys} " if key.usage else ""
                rows.append(PickerRow(typed, known, (key.does, key.keys), also, key.own, told))
        return rows

    def result(self, item: str) -> str | None:
        """The command to type; a key has to be pressed where it works."""
        if not item:
            self.complain("Close the help with esc, then press the key.")
        return item or None

"""The help screen (f1): the keys of every visible widget, read from its bindings, and the slash commands."""

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

_FOCUSED_NOTE = "· active now"
_OURS = "ecoshell."
_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Key:
    """An action of some keys; `own` is False for keys every such widget has."""

    keys: str
    does: str
    own: bool = True
    usage: str = ""
    """For a slash command, its syntax."""


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """The keys of a widget, the screen or the app, with its help text."""

    title: str
    help: str
    keys: tuple[Key, ...]
    is_active: bool = False
    """Whether the keys work now, because the focus is there."""


def key_groups(screen: Screen[Any]) -> list[KeyGroup]:
    """The keys of all visible widgets, active ones first, one group per widget class."""
    app: App[Any] = screen.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    active, focused = screen.active_bindings, screen.focused
    here: list[DOMNode] = [*(focused or screen).ancestors_with_self]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    focusable = (
        node for node in screen.walk_children(Widget) if node.can_focus or node.can_focus_children
    )
    elsewhere: list[DOMNode] = [node for node in focusable if node.display and node not in here]
    groups: list[KeyGroup] = []
    classes: set[type[DOMNode]] = set()
    for node in [*here, *elsewhere]:
        if type(node) in classes or not type(node).__module__.startswith(_OURS):
            continue
        classes.add(type(node))
        actions: dict[tuple[str, str], tuple[list[str], bool]] = {}
        """The keys of each action, and whether ecoshell defines them."""
        bound_keys: set[str] = set()
        for base in type(node).__mro__:
            for binding in Binding.make_bindings(vars(base).get("BINDINGS", ())):
                if binding.key in bound_keys or not binding.description or binding.system:
                    continue
                bound_keys.add(binding.key)
                # in the focused widget and its ancestors, only keys that work now
                if node not in here or (binding.key in active and active[binding.key].node is node):
                    action = binding.action, binding.description
                    names, _ = actions.setdefault(action, ([], base.__module__.startswith(_OURS)))
                    key = app.get_key_display(binding)
                    names += [key] if key not in names else []
        keys = tuple(
            Key(" ".join(names), text[:1].lower() + text[1:], own)
            for (_, text), (names, own) in actions.items()
        )
        words = next((vars(cls)["HELP"] for cls in type(node).__mro__ if "HELP" in vars(cls)), None)
        if keys or words:
            title = _WORD_BOUNDARY.sub(" ", type(node).__name__).lower().removesuffix(" panel")
            if isinstance(node, App | Screen):
                title = "everywhere" if isinstance(node, App) else "this screen"
            groups.append(KeyGroup(title, words or "", keys, node in here))
    return groups


_COPYING = KeyGroup(
    "copying",
    "The mouse selects text in the transcript. The terminal's own selection takes whole screen lines.",
    (
        Key("drag", "select in the transcript"),
        Key("^c", "copy the selection, also over ssh (OSC 52)"),
        Key("shift+drag", "the terminal's own selection"),
        Key("option+drag", "the same in iTerm2; fn+drag in Terminal"),
    ),
)


class HelpScreen(Picker[str]):
    """Returns the selected slash command, to be typed, or None."""

    heading = "help"
    COLUMNS = (PickerColumn("action"), PickerColumn("key", right=True))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "type the command"),
        Binding("f1", "dismiss(None)", "close", show=False),
    ]
    HELP = "Type to search. Enter on a command types it, esc closes the help."
    DEFAULT_CSS = """
    HelpScreen #detail { height: 8; }
    """

    def __init__(
        self, groups: Sequence[KeyGroup], commands: Sequence[tuple[str, str]] = ()
    ) -> None:
        """`commands` are slash commands: syntax and description."""
        super().__init__()
        keys = tuple(Key(usage.split()[0], does, usage=usage) for usage, does in commands)
        typed = KeyGroup("commands", "Typed in the prompt; tab completes them.", keys)
        self._groups = [*groups, *([typed] if keys else []), _COPYING]

    async def load(self) -> Sequence[PickerRow[str]]:
        """The groups with their keys, the focused widget's first, then the commands and copying."""
        rows: list[PickerRow[str]] = []
        for group in self._groups:
            heading = f"── {group.title} ──{f' {_FOCUSED_NOTE}' if group.is_active else ''}"
            for key in (Key("", heading), *group.keys):
                detail = f"{key.keys}  {key.does}\n{group.help}" if key.keys else group.help
                detail = f"{key.usage}\n{key.does}" if key.usage else detail
                row_key = f"{group.title}\n{key.does}\n{key.keys}"
                also = f"{key.keys} {group.title}"
                typed = f"{key.keys} " if key.usage else ""
                rows.append(PickerRow(typed, row_key, (key.does, key.keys), also, key.own, detail))
        return rows

    def result(self, item: str) -> str | None:
        """The command to type; keys cannot be selected."""
        if not item:
            self.complain("Close the help with esc, then press the key.")
        return item or None

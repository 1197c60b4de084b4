"""The command palette: keys, slash commands, tools, sessions, models and themes by name."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from textual import on
from textual.command import CommandPalette, DiscoveryHit, Hit, Provider
from textual.content import Content, Span
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, OptionList

from ecoshell.errors import EcoshellError
from ecoshell.messages import visible_line
from ecoshell.tui.commands import PICKER_COMMANDS, THEME
from ecoshell.tui.fuzzy import best, places, score
from ecoshell.tui.screens.overlay import ClosedOnce

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell
    from ecoshell.tui.chat import ChatScreen

_MAX_PER_KIND = 12
_OWN_ACTION = "command_palette"
_RECENT_SESSIONS = 5
"""Sessions listed before anything is typed."""


class Palette(CommandPalette, ClosedOnce[None]):  # pyright: ignore[reportIncompatibleMethodOverride] - of Textual itself
    """Textual's palette, ignoring input after it is closed."""

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):  # a hidden list has no pages
            super()._action_command_list(action)

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def ignore_when_closed(self, event: Message) -> None:
        """Ignore keys pressed after the choice."""
        if not self.is_active:
            event.prevent_default()


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """An entry; both texts are plain."""

    text: str
    help: str
    act: Callable[[], object]


Kind = Literal["tools", "sessions", "themes", "models"]


class ChatCommands(Provider):
    """Everything the chat can do; over other screens, the actions of their keys.

    What has to be read is read once while the palette is open.
    """

    def __init__(self, screen: Screen[Any], match_style: Any = None) -> None:
        super().__init__(screen, match_style)
        self._target = cast("ChatScreen", screen) if hasattr(screen, "overview") else None
        self._reading: dict[Kind, asyncio.Task[list[PaletteEntry]]] = {}

    async def discover(self) -> AsyncIterator[DiscoveryHit | Hit]:
        """Keys, commands and recent sessions."""
        for entry in (*self._actions(), *(await self._read("sessions"))[:_RECENT_SESSIONS]):
            yield DiscoveryHit(Content(entry.text), entry.act, entry.text, _plain(entry.help))

    async def search(self, query: str) -> AsyncIterator[DiscoveryHit | Hit]:
        words = query.lower().split()
        kinds: tuple[Kind | None, ...] = (None, "tools", "sessions", "themes", "models")
        for kind in kinds:
            entries = await self._read(kind) if kind else list(self._actions())
            limit = _MAX_PER_KIND if kind else len(entries)
            matches, _ = best(query, ((entry.text.lower(), entry) for entry in entries), limit)
            for entry in matches:
                text = entry.text.lower()
                label = Content(
                    entry.text, [Span(at, at + 1, "bold underline") for at in places(words, text)]
                )
                yield Hit(score(words, text), label, entry.act, entry.text, _plain(entry.help))

    async def shutdown(self) -> None:
        for task in self._reading.values():
            task.cancel()

    def _actions(self) -> Iterator[PaletteEntry]:
        """The keys of the screen and the app that have a footer entry or a tooltip, and the commands."""
        own = (self.screen, self.app)
        for bound in self.screen.active_bindings.values():
            binding = bound.binding
            is_listed = binding.description and (binding.show or binding.tooltip)
            if is_listed and bound.node in own and bound.enabled and binding.action != _OWN_ACTION:
                act = partial(self.app.run_action, binding.action, default_namespace=bound.node)
                about = f"{binding.tooltip} · " if binding.tooltip else ""
                yield PaletteEntry(
                    binding.description, f"{about}{self.app.get_key_display(binding)}", act
                )
        if (target := self._target) is None:
            return
        for usage, about in target.overview:
            name, _, argument = usage.partition(" ")
            is_complete = not argument or argument.startswith("[") or name in PICKER_COMMANDS
            act = partial(target.begin, f"{name} ")
            if is_complete:
                act = partial(target.action_run, name)
            yield PaletteEntry(usage, about, act)

    async def _read(self, kind: Kind) -> list[PaletteEntry]:
        """The entries of a kind; none before the shell is open, or if they cannot be read."""
        target = self._target
        if target is None or target.shell is None:
            return []
        if kind not in self._reading:
            self._reading[kind] = asyncio.ensure_future(_entries(kind, target.shell, target))
        with suppress(EcoshellError):  # the picker of this kind reports the error
            return await asyncio.shield(self._reading[kind])
        return []


async def _entries(kind: Kind, shell: "Shell", target: "ChatScreen") -> list[PaletteEntry]:
    """All entries of a kind with their slash commands."""
    run, entries = target.action_run, list[PaletteEntry]()
    match kind:
        case "tools":
            for tool in (await shell.status()).tools:
                name, about = visible_line(tool.name), visible_line(tool.description)
                verb = "unregister" if tool.registered else "register"
                switch = partial(run, f"/{verb} {tool.name}")
                schema = partial(target.action_show_tool, tool.name)
                entries.append(PaletteEntry(f"{verb} {name}", about, switch))
                entries.append(PaletteEntry(f"schema of {name}", about, schema))
        case "sessions":
            for info in [row.info for row in await shell.archive.rows() if not row.current]:
                text = f"resume “{visible_line(info.title or info.id)}”"
                about = f"{info.updated_text} · {info.id}"
                entries.append(PaletteEntry(text, about, partial(run, f"/resume {info.id}")))
        case "themes":
            for name in THEME.choices(target.app):
                text, act = f"theme {visible_line(name)}", partial(run, f"/theme {name}")
                entries.append(PaletteEntry(text, THEME.help, act))
        case "models":
            for row in [row for row in await shell.models() if row.ready is not False]:
                about = f"{row.price.summary() if row.price else 'price unknown'} · {row.state}"
                text, act = f"model {visible_line(row.name)}", partial(run, f"/model {row.name}")
                entries.append(PaletteEntry(text, about, act))
    return entries


def _plain(text: str) -> str:
    """The text as content: the palette would read a string as markup."""
    return cast("str", Content(text))

"""What the command palette finds: keys, slash commands, tools, sessions, models and themes, all by name."""

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
from ecoshell.tui.commands import OPENING, THEME
from ecoshell.tui.fuzzy import best, places, score
from ecoshell.tui.screens.picker import ClosedOnce

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell
    from ecoshell.tui.chat import ChatScreen

_OF_A_KIND = 12
"""Tools, sessions, models and themes that are shown of each at once."""
_OURSELVES = "command_palette"
_RECENT = 5
"""Sessions that are shown before anything is typed."""


class Palette(CommandPalette, ClosedOnce[None]):  # pyright: ignore[reportIncompatibleMethodOverride] - of Textual itself
    """Textual's palette; what still arrives for one that is closed runs nothing again."""

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):  # a list that is not in sight has no pages
            super()._action_command_list(action)

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def ignore_when_closed(self, event: Message) -> None:
        """Keep from Textual what was pressed after the choice."""
        if not self.is_active:
            event.prevent_default()


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """One thing that can be done; both texts are plain."""

    text: str
    help: str
    act: Callable[[], object]


Kind = Literal["tools", "sessions", "themes", "models"]


class ChatCommands(Provider):
    """Everything the chat can do, and over any other screen what its keys do.

    What must be read first is read once for each time the palette is open.
    """

    def __init__(self, screen: Screen[Any], match_style: Any = None) -> None:
        super().__init__(screen, match_style)
        self._target = cast("ChatScreen", screen) if hasattr(screen, "overview") else None
        self._reading: dict[Kind, asyncio.Task[list[PaletteEntry]]] = {}

    async def discover(self) -> AsyncIterator[DiscoveryHit | Hit]:
        """Keys and commands, and the sessions that were used last."""
        for offer in (*self._at_once(), *(await self._read("sessions"))[:_RECENT]):
            yield DiscoveryHit(Content(offer.text), offer.act, offer.text, _plain(offer.help))

    async def search(self, query: str) -> AsyncIterator[DiscoveryHit | Hit]:
        words = query.lower().split()
        kinds: tuple[Kind | None, ...] = (None, "tools", "sessions", "themes", "models")
        for kind in kinds:
            offers = await self._read(kind) if kind else list(self._at_once())
            limit = _OF_A_KIND if kind else len(offers)
            found, _ = best(query, ((offer.text.lower(), offer) for offer in offers), limit)
            for offer in found:
                text = offer.text.lower()
                shown = Content(offer.text, [Span(at, at + 1, "bold underline") for at in places(words, text)])
                yield Hit(score(words, text), shown, offer.act, offer.text, _plain(offer.help))

    async def shutdown(self) -> None:
        for task in self._reading.values():
            task.cancel()

    def _at_once(self) -> Iterator[PaletteEntry]:
        """What is known without reading anything: what the keys of the screen and of the app do, and the commands.

        A key that is not in the footer has to have a tooltip.
        """
        own = (self.screen, self.app)
        for bound in self.screen.active_bindings.values():
            binding = bound.binding
            told = binding.description and (binding.show or binding.tooltip)
            if told and bound.node in own and bound.enabled and binding.action != _OURSELVES:
                act = partial(self.app.run_action, binding.action, default_namespace=bound.node)
                about = f"{binding.tooltip} · " if binding.tooltip else ""
                yield PaletteEntry(binding.description, f"{about}{self.app.get_key_display(binding)}", act)
        if (target := self._target) is None:
            return
        for usage, about in target.overview:
            name, _, argument = usage.partition(" ")
            needs_more = bool(argument) and not argument.startswith("[") and name not in OPENING
            act = partial(target.begin, f"{name} ") if needs_more else partial(target.action_run, name)
            yield PaletteEntry(usage, about, act)

    async def _read(self, kind: Kind) -> list[PaletteEntry]:
        """The offers that have to be read; none while there is no shell, or when they cannot be read."""
        target = self._target
        if target is None or target.shell is None:
            return []
        if kind not in self._reading:
            self._reading[kind] = asyncio.ensure_future(_entries(kind, target.shell, target))
        with suppress(EcoshellError):  # the screen for them tells why
            return await asyncio.shield(self._reading[kind])
        return []


async def _entries(kind: Kind, shell: "Shell", target: "ChatScreen") -> list[PaletteEntry]:
    """Everything of a kind, and the slash command that each of it stands for."""
    run, offers = target.action_run, list[PaletteEntry]()
    match kind:
        case "tools":
            for tool in (await shell.standing()).tools:
                name, about = visible_line(tool.name), visible_line(tool.description)
                verb = "unregister" if tool.registered else "register"
                offers.append(PaletteEntry(f"{verb} {name}", about, partial(run, f"/{verb} {tool.name}")))
                document = partial(target.action_document, tool.name)
                offers.append(PaletteEntry(f"schema of {name}", about, document))
        case "sessions":
            for info in [row.info for row in await shell.archive.rows() if not row.current]:
                text, about = f"go on with “{visible_line(info.title or info.id)}”", f"{info.updated_text} · {info.id}"
                offers.append(PaletteEntry(text, about, partial(run, f"/resume {info.id}")))
        case "themes":
            for name in THEME.choices(target.app):
                offers.append(PaletteEntry(f"theme {visible_line(name)}", THEME.help, partial(run, f"/theme {name}")))
        case "models":
            for row in [row for row in await shell.models() if row.ready is not False]:
                about = f"{row.price.summary() if row.price else 'price unknown'} · {row.state}"
                offers.append(
                    PaletteEntry(f"model {visible_line(row.name)}", about, partial(run, f"/model {row.name}"))
                )
    return offers


def _plain(text: str) -> str:
    """The text as content, which the palette takes as it is: a text would be read as markup."""
    return cast("str", Content(text))

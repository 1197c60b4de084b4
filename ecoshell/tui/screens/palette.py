"""What the command palette finds: keys, slash commands, tools, sessions, models and themes, all by name."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Provider
from textual.content import Content, Span
from textual.screen import Screen

from ecoshell.errors import EcoshellError
from ecoshell.tui.commands import OPENING, THEME
from ecoshell.tui.fuzzy import best, places, score
from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell
    from ecoshell.tui.chat import ChatScreen

_OF_A_KIND = 12
"""Tools, sessions, models and themes that are shown of each at once."""
_OURSELVES = "command_palette"
_RECENT = 5
"""Sessions that are shown before anything is typed."""


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """One thing that can be done; both texts are plain."""

    text: str
    help: str
    act: Callable[[], object]


Load = Callable[["Shell", "ChatScreen"], Awaitable[list[PaletteEntry]]]


class ChatCommands(Provider):
    """Everything the chat can do, and over any other screen what its keys do.

    What must be read first is read once for each time the palette is open.
    """

    def __init__(self, screen: Screen[Any], match_style: Any = None) -> None:
        super().__init__(screen, match_style)
        self._target = cast("ChatScreen", screen) if hasattr(screen, "overview") else None
        self._reading: dict[Load, asyncio.Task[list[PaletteEntry]]] = {}

    async def discover(self) -> AsyncIterator[DiscoveryHit | Hit]:
        """Keys and commands, and the sessions that were used last."""
        for offer in (*self._at_once(), *(await self._read(_sessions))[:_RECENT]):
            yield DiscoveryHit(_display(offer.text), offer.act, offer.text, _plain(offer.help))

    async def search(self, query: str) -> AsyncIterator[DiscoveryHit | Hit]:
        at_once = list(self._at_once())
        for hit in _hits(query, at_once, len(at_once)):
            yield hit
        for load in (_tools, _sessions, _themes, _models):
            for hit in _hits(query, await self._read(load), _OF_A_KIND):
                yield hit

    async def shutdown(self) -> None:
        for task in self._reading.values():
            task.cancel()

    def _at_once(self) -> Iterator[PaletteEntry]:
        """What is known without reading anything."""
        yield from self._keys()
        if (target := self._target) is None:
            return
        for usage, about in target.overview:
            name, _, argument = usage.partition(" ")
            needs_more = bool(argument) and not argument.startswith("[") and name not in OPENING
            act = partial(target.begin, f"{name} ") if needs_more else partial(target.action_run, name)
            yield PaletteEntry(usage, about, act)

    def _keys(self) -> Iterator[PaletteEntry]:
        """What the keys of the screen and of the app do; a key that is not in the footer has to have a tooltip."""
        own = (self.screen, self.app)
        for bound in self.screen.active_bindings.values():
            binding = bound.binding
            told = binding.description and (binding.show or binding.tooltip)
            if told and bound.node in own and bound.enabled and binding.action != _OURSELVES:
                act = partial(self.app.run_action, binding.action, default_namespace=bound.node)
                about = f"{binding.tooltip} · " if binding.tooltip else ""
                yield PaletteEntry(binding.description, f"{about}{self.app.get_key_display(binding)}", act)

    async def _read(self, load: Load) -> list[PaletteEntry]:
        """The offers that have to be read; none while there is no shell, or when they cannot be read."""
        target = self._target
        if target is None or target.shell is None:
            return []
        if load not in self._reading:
            self._reading[load] = asyncio.ensure_future(load(target.shell, target))
        with suppress(EcoshellError):  # the screen for them tells why
            return await asyncio.shield(self._reading[load])
        return []


async def _themes(shell: "Shell", target: "ChatScreen") -> list[PaletteEntry]:
    return [
        PaletteEntry(f"theme {visible_line(name)}", THEME.help, partial(target.action_run, f"/theme {name}"))
        for name in THEME.choices(target.app)
    ]


async def _tools(shell: "Shell", target: "ChatScreen") -> list[PaletteEntry]:
    offers: list[PaletteEntry] = []
    for tool in (await shell.standing()).tools:
        name, about = visible_line(tool.name), visible_line(tool.description)
        verb = "unregister" if tool.registered else "register"
        offers += (
            PaletteEntry(f"{verb} {name}", about, partial(target.action_run, f"/{verb} {tool.name}")),
            PaletteEntry(f"schema of {name}", about, partial(target.action_document, tool.name)),
        )
    return offers


async def _sessions(shell: "Shell", target: "ChatScreen") -> list[PaletteEntry]:
    return [
        PaletteEntry(
            f"go on with “{visible_line(row.info.title or row.info.id)}”",
            f"{row.info.updated_text} · {row.info.id}",
            partial(target.action_run, f"/resume {row.info.id}"),
        )
        for row in await shell.archive.rows()
        if not row.current
    ]


async def _models(shell: "Shell", target: "ChatScreen") -> list[PaletteEntry]:
    return [
        PaletteEntry(
            f"model {visible_line(row.name)}",
            f"{row.price.summary() if row.price else 'price unknown'} · {row.state}",
            partial(target.action_run, f"/model {row.name}"),
        )
        for row in await shell.models()
        if row.ready is not False
    ]


def _hits(query: str, offers: Sequence[PaletteEntry], limit: int) -> Iterator[Hit]:
    words = query.lower().split()
    found, _ = best(query, ((offer.text.lower(), offer) for offer in offers), limit)
    for offer in found:
        text = offer.text.lower()
        shown = _display(offer.text, places(words, text))
        yield Hit(score(words, text), shown, offer.act, offer.text, _plain(offer.help))


def _display(text: str, found: Sequence[int] = ()) -> Content:
    return Content(text, [Span(at, at + 1, "bold underline") for at in found])


def _plain(text: str) -> str:
    """The text as content, which the palette takes as it is: a text would be read as markup."""
    return cast("str", Content(text))

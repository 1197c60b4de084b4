"""What comes and goes with the providers of tools, taken up between turns."""

import asyncio
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress

from ecoshell.catalog.catalog import Catalog, CatalogNews
from ecoshell.catalog.search import Ranker
from ecoshell.errors import ToolError
from ecoshell.events import Emit, Notice
from ecoshell.tools.base import ToolProvider

FIRST_CONNECTION = 30.0
"""Seconds a turn waits for providers that have never said which tools they have; what comes later is for later ones."""
_NAMED = 6
"""Tools that are named where some have come or gone."""


class ProviderFollower:
    """Keeps the catalog and what ranks it up to date; a provider that fails is told of once, and so is a plugin."""

    def __init__(self, catalog: Catalog, ranker: Ranker, complaints: list[str] | None = None) -> None:
        """`complaints` of plugins are told with the next turn, and taken out."""
        self._complaints = [] if complaints is None else complaints
        self._catalog = catalog
        self._ranker = ranker
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()

    @property
    def all(self) -> Sequence[ToolProvider]:
        """Every provider."""
        return self._catalog.providers

    def ask_unknown(self) -> None:
        """Begin to ask the providers that have never said which tools they have, each once."""
        for one in self.all:
            if not one.known and one.name not in self._asked:
                self._asked[one.name] = asyncio.create_task(_connect(one))

    async def follow(self, kept: Container[str], emit: Emit) -> None:
        """Take up what has changed, and tell it; waits for providers that are asked for the first time."""
        self.ask_unknown()
        waiting = {name: task for name, task in self._asked.items() if not task.done()}
        if waiting:
            emit(Notice(f"Connecting for the first time to {', '.join(waiting)}."))
            await asyncio.wait(waiting.values(), timeout=FIRST_CONNECTION)
            if late := [name for name, task in waiting.items() if not task.done()]:
                emit(Notice(f"This goes on without {', '.join(late)}, which may be there for the next question."))
        for notice in (*self._complaints, *self._failures()):
            emit(Notice(notice))
        self._complaints.clear()
        for said in _said(self.take_up(kept)):
            emit(Notice(said))

    def take_up(self, kept: Container[str]) -> CatalogNews:
        """Have what has changed in the catalog, and ranked; no turn may be under way."""
        news = self._catalog.follow(kept)
        if news:
            self._ranker.follow(self._catalog.documents)
        return news

    async def aclose(self) -> None:
        """Close all providers."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        await asyncio.gather(*(one.aclose() for one in self.all))

    def _failures(self) -> Iterator[str]:
        for one in self.all:
            task = self._asked.get(one.name)
            if task is not None and task.done() and not one.known and one.name not in self._told:
                self._told.add(one.name)
                yield f"{one.name} {one.status}. This goes on without its tools; /mcp {one.name} tries it again."


async def _connect(provider: ToolProvider) -> None:
    with suppress(ToolError):  # its status says so
        await provider.connect()


def _said(news: CatalogNews) -> Iterator[str]:
    for names, what in ((news.added, "can be used now"), (news.changed, "changed"), (news.gone, "gone")):
        if names:
            yield f"Tools {what}: {_listed(names)}."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

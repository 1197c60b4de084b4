"""`@file` mentions: where one is being typed, and which files it could name."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ecoshell.errors import EcoshellError
from ecoshell.tui.fuzzy import score

Files = Callable[[], Awaitable[Sequence[str]]]
_MOST = 50
_PATIENCE = 0.3
"""Seconds that a key which takes a completion waits for the names it would take it from."""
_BEGUN = re.compile(r'(?<![\w@/.+-])@(?:"(?P<quoted>[^"]*)|(?P<plain>[^\s"]*))$')
_PLAIN = re.compile(r"[^\s\"'`@<>()\[\]{},;|&$*?!#]+")
_IN_THE_NAME = 10.0
"""More than a match is worth elsewhere in a path."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention that is being typed: line and column of its `@`, and what stands between that and the cursor."""

    start: tuple[int, int]
    query: str


def mention_at(line: str, row: int, column: int) -> Mention | None:
    """The mention that the cursor stands at the end of, if any."""
    begun = _BEGUN.search(line[:column])
    if begun is None:
        return None
    quoted: str | None = begun["quoted"]
    return Mention((row, begun.start()), begun["plain"] if quoted is None else quoted)


def written(path: str) -> str:
    """The path as a mention: `@notes.txt`, in quotes where it has blanks or signs."""
    return f"@{path}" if _PLAIN.fullmatch(path) else f'@"{path}"'


class Names:
    """The files that can be mentioned, searched letter by letter; each search looks through what the last one left."""

    def __init__(self, names: Iterable[str]) -> None:
        self._all = [(name.lower(), name) for name in sorted(names, key=len)]
        self._left = self._all
        self._query = ""

    def best(self, query: str) -> list[str]:
        """The likeliest names; a match in a file's own name goes before one in its folders, the shorter path first."""
        wanted = query.lower()
        among = self._left if wanted.startswith(self._query) else self._all
        fits = re.compile("".join(f"[^{letter}]*{letter}" for letter in map(re.escape, wanted))).match
        self._left = [pair for pair in among if fits(pair[0])]
        self._query = wanted
        if not wanted:
            return [name for _, name in self._left[:_MOST]]
        ranked = sorted(self._left, key=lambda pair: _worth(wanted, pair[0]), reverse=True)
        return [name for _, name in ranked[:_MOST]]


def _worth(wanted: str, path: str) -> float:
    inside = score((wanted,), path.rstrip("/").rpartition("/")[2])
    return _IN_THE_NAME + inside if inside else score((wanted,), path)


class MentionSearch:
    """Finds the names for the mention of the moment, off the event loop; an older one's are never shown."""

    def __init__(self, show: Callable[[Mention, list[str]], None]) -> None:
        self.files: Files = _none
        self._show = show
        self._wanted: Mention | None = None
        self._names = Names(())
        self._named_for: tuple[int, int] | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, mention: Mention | None) -> None:
        """Find what this could name; None when nothing is being mentioned any more."""
        self._wanted = mention
        if mention is None:
            self._named_for = None
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._search())

    async def settle(self) -> None:
        """Wait a little for what is being looked for."""
        if self._wanted is not None and self._task is not None:
            await asyncio.wait([self._task], timeout=_PATIENCE)

    async def _search(self) -> None:
        found_for: Mention | None = None
        while (wanted := self._wanted) is not None and wanted != found_for:
            if wanted.start != self._named_for:  # a new mention: files may have come and gone
                self._named_for = wanted.start
                names: Sequence[str] = ()
                with suppress(EcoshellError, OSError):  # nothing can be completed then; what is typed is as good
                    names = await self.files()
                self._names = await asyncio.to_thread(Names, names)
            found = await asyncio.to_thread(self._names.best, wanted.query)
            found_for = wanted
            if wanted == self._wanted:
                self._show(wanted, found)


async def _none() -> Sequence[str]:
    return ()

"""What comes and goes with the providers of tools, taken up between turns."""

import asyncio
import re
import shlex
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent.mentions import FILE_BYTES, Mentioned, without_code
from ecoshell.catalog import Catalog, CatalogChanges
from ecoshell.catalog.search import Ranker
from ecoshell.errors import ToolError, UsageError
from ecoshell.events import Emit, Notice
from ecoshell.messages import Attachment, visible_line
from ecoshell.tools import ToolProvider
from ecoshell.tools.running import clip

if TYPE_CHECKING:  # loaded where there is a server
    from ecoshell.tools.mcp.provider import McpServer
    from ecoshell.tools.mcp.servers import Prompt

FIRST_CONNECTION = 30.0
"""Seconds a turn waits for providers that have never said which tools they have; what comes later is for later ones."""
_RESOURCE = re.compile(
    r"(?<![\w@/.+-])@(?:\"(?P<quoted_server>[\w-]+):(?P<quoted>[^\"\n]+)\"|(?P<server>[\w-]+):(?P<plain>[^\s\"]+))"
)
_TRAILING = ".,;:!?)]}'"
"""Signs that end a sentence more often than an address."""
_NAMED = 6
"""Tools that are named where some have come or gone."""


class ProviderFollower:
    """Keeps the catalog and what ranks it up to date; a provider that fails is told of once, and so is a plugin."""

    def __init__(self, catalog: Catalog, ranker: Ranker, files: Path, complaints: list[str] | None = None) -> None:
        """In `files` each session has a folder for what came with results and is no text; `complaints` of plugins are
        told with the next turn, and taken out.
        """
        self._files = files
        self._complaints = [] if complaints is None else complaints
        self._catalog = catalog
        self._ranker = ranker
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()

    def ask_unknown(self) -> None:
        """Begin to ask the providers that have never said which tools they have, each once."""
        for one in self._catalog.providers:
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
        for complaint in self._complaints:
            emit(Notice(complaint))
        self._complaints.clear()
        for one in self._catalog.providers:
            task = self._asked.get(one.name)
            if task is not None and task.done() and not one.known and one.name not in self._told:
                self._told.add(one.name)
                failed = f"{one.name} {one.status}. This goes on without its tools; /mcp {one.name} tries it again."
                emit(Notice(failed))
        for server in self.servers.values():
            for address in server.updates():
                said = visible_line(f"@{server.name}:{address}")
                emit(Notice(f"{said} has changed since it was attached; mention it again to attach it as it is now."))
        news = self.take_up(kept)
        for names, what in ((news.added, "can be used now"), (news.changed, "changed"), (news.removed, "gone")):
            if names:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                emit(Notice(f"Tools {what}: {', '.join(names[:_NAMED])}{more}."))

    def take_up(self, kept: Container[str]) -> CatalogChanges:
        """Have what has changed in the catalog, and ranked; no turn may be under way."""
        news = self._catalog.update(kept)
        if news:
            self._ranker.update(self._catalog.schemas)
        return news

    @property
    def servers(self) -> "Mapping[str, McpServer]":
        """Those that may have resources and prompts, by name."""
        if not self._catalog.providers:
            return {}
        from ecoshell.tools.mcp.provider import McpServer

        return {one.name: one for one in self._catalog.providers if isinstance(one, McpServer)}

    def mentions(self, question: str) -> Sequence[re.Match[str]]:
        """Where the question has the resource of a server: `@server:address`."""
        found = _RESOURCE.finditer(without_code(question)) if "@" in question else ()
        return [one for one in found if (one["server"] or one["quoted_server"]) in self.servers]

    async def attach(self, question: str) -> Mentioned:
        """Read the resources the question mentions, each once."""
        found = Mentioned()
        for match in self.mentions(question):
            server = match["server"] or match["quoted_server"]
            address = match["quoted"] or match["plain"]
            if address not in self.servers[server].lists.resources:
                address = match["quoted"] or address.rstrip(_TRAILING)
            name = f"{server}:{address}"
            if any(one.name.startswith(f"{name} ") for one in found.attachments):
                continue
            try:
                if address in self.servers[server].lists.templates:
                    raise ToolError(f"it has places to fill in, such as {address[address.find('{') :]}")
                seen = await self.servers[server].read(address)
                if not seen.ok:
                    raise ToolError(seen.text)
            except ToolError as failure:
                found.notices.append(f"@{name} was not attached: {visible_line(failure.message)}")
                continue
            text, cut = clip(seen.text, FILE_BYTES)
            if cut:
                found.notices.append(f"@{name} was cut: the first {FILE_BYTES:,} characters are attached.")
            found.attachments.append(Attachment(f"{name} (as the server {server} gave it)", text))
        return found

    def prompt_names(self) -> "Iterator[tuple[str, Prompt]]":
        """The questions that servers have ready, as they are asked: `/server:prompt`."""
        for server in self.servers.values():
            for prompt in server.lists.prompts:
                yield f"/{server.name}:{prompt.name}", prompt

    async def prompted(self, line: str) -> str | None:
        """The question that `/server:prompt arguments` stands for; None for a line that is none.

        Raises UsageError and ToolError.
        """
        called, _, rest = line.strip().partition(" ")
        server, colon, name = called.removeprefix("/").partition(":")
        if not colon or server not in self.servers:
            return None
        if not self.servers[server].known:
            await self.servers[server].connect()
        prompt = dict(self.prompt_names()).get(called)
        if prompt is None:
            raise UsageError(f"{server} has no prompt {name!r}.", fix=f"/mcp {server} shows what it has.")
        given = _given(prompt, rest)
        if missing := [one for one, needed in prompt.arguments.items() if needed and one not in given]:
            typed = (f"{one}=…" if needed else f"[{one}=…]" for one, needed in prompt.arguments.items())
            raise UsageError(f"{called} needs {', '.join(missing)}.", fix=f"Say {' '.join((called, *typed))}.")
        seen = await self.servers[server].prompt(name, given)
        if not seen.ok or not seen.text.strip():
            raise ToolError(f"{server} gave no question: {visible_line(seen.text) or 'it is empty'}")
        return seen.text

    async def values(self, line: str) -> Sequence[str]:
        """Whole lines that `/server:prompt arguments` could become, by what the server knows of its last argument."""
        called, blank, typed = line.partition(" ")
        prompt = dict(self.prompt_names()).get(called)
        if prompt is None or not blank:
            return ()
        before, _, last = typed.rpartition(" ")
        name, sign, begun = last.partition("=")
        with suppress(ToolError, UsageError):  # what is typed is as good
            given = _given(prompt, before)
            if not sign or name not in prompt.arguments:
                name, sign, begun = next((one for one in prompt.arguments if one not in given), ""), "", last
            if name:
                server = self.servers[called[1:].partition(":")[0]]
                stem = line[: len(line) - len(begun)]
                return [stem + shlex.quote(one) for one in await server.values(prompt.name, name, begun, given)]
        return ()

    def forget_session(self, session: str) -> None:
        """Remove the files of a session; may block."""
        shutil.rmtree(self._files / session, ignore_errors=True)

    async def aclose(self) -> None:
        """Close all providers."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        await asyncio.gather(*(one.aclose() for one in self._catalog.providers))


def _given(prompt: "Prompt", typed: str) -> dict[str, str]:
    """What was typed for a prompt, as `name=value` or in order; the last one takes the rest. Raises UsageError."""
    try:
        words = shlex.split(typed)
    except ValueError as wrong:
        raise UsageError(f"{typed!r} cannot be read: {wrong}.", fix="Close the quotes.") from wrong
    given: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        free = [one for one in prompt.arguments if one not in given]
        if sign and name in prompt.arguments:
            given[name] = value
        elif free:
            given[free[0]] = word
        elif given:
            given[[*given][-1]] += f" {word}"
    return given


async def _connect(provider: ToolProvider) -> None:
    with suppress(ToolError):  # its status says so
        await provider.connect()

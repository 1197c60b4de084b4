"""Providers of tools: their connections, their changing tools, and the resources and prompts of servers."""

import asyncio
import re
import shlex
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent.mentions import FILE_BYTES, Mentioned, without_code
from ecoshell.catalog import Catalog, CatalogChanges
from ecoshell.catalog.search import Ranker
from ecoshell.errors import ToolError, UsageError
from ecoshell.events import Emit, Notice
from ecoshell.images import attached
from ecoshell.messages import Attachment, visible_line
from ecoshell.tools import ToolProvider
from ecoshell.tools.running import clip

if TYPE_CHECKING:  # loaded with the first server
    from ecoshell.tools.mcp.provider import McpServer
    from ecoshell.tools.mcp.servers import Prompt

FIRST_CONNECTION = 30.0
"""Seconds that a turn waits for providers with unknown tools; slower ones are available from a later turn on."""
_RESOURCE = re.compile(
    r"(?<![\w@/.+-])@(?P<quote>\")?(?P<server>[\w-]+):(?(quote)(?P<quoted>[^\"\n]+)\"|(?P<plain>[^\s\"]+))"
)
_SENTENCE_SIGNS = ".,;:!?)]}'"
"""Signs at the end of an address that more likely belong to the sentence."""
_MAX_TOOL_NAMES = 6
"""Changed tools that a notice lists by name."""


class ProviderFollower:
    """Keeps the catalog and its ranker up to date, and reports failing providers and plugins once."""

    def __init__(
        self, catalog: Catalog, ranker: Ranker, files: Path, complaints: list[str] | None = None
    ) -> None:
        """`files` has a folder per session for binary results; `complaints` of plugins are emitted with the next turn,
        and then removed.
        """
        self._files = files
        self._complaints = [] if complaints is None else complaints
        self._catalog = catalog
        self._ranker = ranker
        self._connecting: dict[str, asyncio.Task[None]] = {}
        self._reported: set[str] = set()
        """Providers whose failure was reported."""

    def following(self, catalog: Catalog, ranker: Ranker) -> "ProviderFollower":
        """A follower of another catalog."""
        return ProviderFollower(catalog, ranker, self._files)

    def connect_unknown(self) -> None:
        """Start to connect to providers with unknown tools, each once."""
        for provider in self._catalog.providers:
            if not provider.known and provider.name not in self._connecting:
                self._connecting[provider.name] = asyncio.create_task(_connect(provider))

    async def follow(self, registered: Container[str], emit: Emit) -> None:
        """Apply and report changes; waits for first connections. Registered tools stay in the catalog."""
        await self._wait(emit)
        for complaint in self._complaints:
            emit(Notice(complaint))
        self._complaints.clear()
        for provider in self._catalog.providers:
            name, task = provider.name, self._connecting.get(provider.name)
            has_failed = task is not None and task.done() and not provider.known
            if has_failed and name not in self._reported:
                self._reported.add(name)
                fix = f"Continuing without its tools; retry with /mcp {name}."
                emit(Notice(f"{name} {provider.status}. {fix}"))
        changes = self.update_catalog(registered)
        for names, change in (
            (changes.added, "available now"),
            (changes.changed, "changed"),
            (changes.removed, "gone"),
        ):
            if names:
                hidden = len(names) - _MAX_TOOL_NAMES
                more = f" and {hidden} more" if hidden > 0 else ""
                emit(Notice(f"Tools {change}: {', '.join(names[:_MAX_TOOL_NAMES])}{more}."))

    async def _wait(self, emit: Emit) -> None:
        self.connect_unknown()
        waiting = {name: task for name, task in self._connecting.items() if not task.done()}
        if waiting:
            emit(Notice(f"Connecting for the first time to {', '.join(waiting)}."))
            await asyncio.wait(waiting.values(), timeout=FIRST_CONNECTION)
            if late := ", ".join(name for name, task in waiting.items() if not task.done()):
                text = f"Continuing without {late}, which may be available for the next question."
                emit(Notice(text))

    def update_catalog(self, registered: Container[str]) -> CatalogChanges:
        """Apply changes to the catalog and its ranker; only between turns."""
        changes = self._catalog.update(registered)
        if changes:
            self._ranker.update(self._catalog.schemas)
        return changes

    @property
    def servers(self) -> "Mapping[str, McpServer]":
        """The providers with resources and prompts, by name."""
        if not self._catalog.providers:
            return {}
        from ecoshell.tools.mcp.provider import McpServer

        return {
            provider.name: provider
            for provider in self._catalog.providers
            if isinstance(provider, McpServer)
        }

    def mentions(self, question: str) -> Sequence[re.Match[str]]:
        """The mentions of server resources in a question: `@server:address`."""
        matches = _RESOURCE.finditer(without_code(question)) if "@" in question else ()
        return [match for match in matches if match["server"] in self.servers]

    async def attach(self, question: str) -> Mentioned:
        """Read the resources that the question mentions, each once."""
        mentioned = Mentioned()
        for match in self.mentions(question):
            server, address = match["server"], match["quoted"] or match["plain"]
            if address not in self.servers[server].lists.resources:
                address = match["quoted"] or address.rstrip(_SENTENCE_SIGNS)
            name = f"{server}:{address}"
            if any(attachment.name.startswith(f"{name} ") for attachment in mentioned.attachments):
                continue
            try:
                if address in self.servers[server].lists.templates:
                    raise ToolError(f"it is a template; fill in {address[address.find('{') :]}")
                resource = await self.servers[server].read(address)
                if not resource.ok:
                    raise ToolError(resource.text)
            except ToolError as failure:
                reason = visible_line(failure.message)
                mentioned.notices.append(f"@{name} was not attached: {reason}")
                continue
            text, is_cut = clip(resource.text, FILE_BYTES)
            if is_cut:
                part = f"the first {FILE_BYTES:,} characters are attached"
                mentioned.notices.append(f"@{name} was cut: {part}.")
            images = [attached(replace(image, name=name)) for image in resource.images]
            text = Attachment(f"{name} (as the server {server} gave it)", text)
            mentioned.attachments += [text, *images]
        return mentioned

    def prompt_names(self) -> "Iterator[tuple[str, Prompt]]":
        """The prompts of all servers with their commands: `/server:prompt`."""
        for server in self.servers.values():
            for prompt in server.lists.prompts:
                yield f"/{server.name}:{prompt.name}", prompt

    async def expand_prompt(self, line: str) -> str | None:
        """The text of the prompt in `/server:prompt arguments`; None for any other line.

        Raises UsageError and ToolError.
        """
        from ecoshell.agent.command_table import split_first_word

        command, typed = split_first_word(line)
        server, colon, name = command.removeprefix("/").partition(":")
        if not colon or server not in self.servers:
            return None
        if not self.servers[server].known:
            await self.servers[server].connect()
        prompt = dict(self.prompt_names()).get(command)
        if prompt is None:
            raise UsageError(
                f"{server} has no prompt {name!r}.", fix=f"/mcp {server} lists its prompts."
            )
        values = _parse_arguments(prompt, typed)
        needed = [name for name, is_required in prompt.arguments.items() if is_required]
        if missing := ", ".join(name for name in needed if name not in values):
            usage = (f"{name}=…" if name in needed else f"[{name}=…]" for name in prompt.arguments)
            fix = f"Usage: {' '.join((command, *usage))}"
            raise UsageError(f"{command} needs {missing}.", fix=fix)
        reply = await self.servers[server].prompt(prompt.name, values)
        if not reply.ok or not reply.text.strip():
            reason = visible_line(reply.text) or "its text is empty"
            raise ToolError(f"{server} returned no prompt: {reason}")
        return reply.text

    async def values(self, line: str) -> Sequence[str]:
        """Completions of the last argument in `/server:prompt arguments` from the server, as complete lines."""
        command, blank, typed = line.partition(" ")
        prompt = dict(self.prompt_names()).get(command)
        if prompt is None or not blank:
            return ()
        earlier, _, last = typed.rpartition(" ")
        name, sign, prefix = last.partition("=")
        with suppress(ToolError, UsageError):  # the line stays as typed
            values = _parse_arguments(prompt, earlier)
            if not sign or name not in prompt.arguments:
                free = (argument for argument in prompt.arguments if argument not in values)
                name, prefix = next(free, ""), last
            if name:
                server = self.servers[command[1:].partition(":")[0]]
                stem = line[: len(line) - len(prefix)]
                completions = await server.values(prompt.name, name, prefix, values)
                return [stem + shlex.quote(completion) for completion in completions]
        return ()

    def forget_session(self, session: str) -> None:
        """Delete the files of a session; may block."""
        shutil.rmtree(self._files / session, ignore_errors=True)

    async def aclose(self) -> None:
        for task in self._connecting.values():
            task.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        await asyncio.gather(*(provider.aclose() for provider in self._catalog.providers))


def _parse_arguments(prompt: "Prompt", typed: str) -> dict[str, str]:
    """A prompt's arguments, typed as `name=value` or in order; further words extend the last. Raises UsageError."""
    try:
        words = shlex.split(typed)
    except ValueError as wrong:
        raise UsageError(f"{typed!r} cannot be read: {wrong}.", fix="Close the quotes.") from wrong
    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        free = [argument for argument in prompt.arguments if argument not in values]
        if sign and name in prompt.arguments:
            values[name] = value
        elif free:
            values[free[0]] = word
        elif values:
            values[[*values][-1]] += f" {word}"
    return values


async def _connect(provider: ToolProvider) -> None:
    with suppress(ToolError):  # reported by its status
        await provider.connect()

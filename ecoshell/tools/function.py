"""A function as a tool: its signature is the schema, its docstring's first line the description."""

import asyncio
import contextvars
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, partial
from typing import Any, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Observation, ToolDocument
from ecoshell.tools.arguments import Arguments
from ecoshell.tools.limits import Leash, Limits, clip, leash
from ecoshell.tools.schema import parameters_of

_AT_ONCE = 32
"""Plain functions that can run at the same time; asyncio's own threads are fewer on few cores, and shared by all."""


class FunctionTool:
    """A tool made of an annotated function, plain or `async`.

    A plain function runs in a thread; its long loops call `limits.checkpoint()`, so that a cancelled call ends there
    too. The function returns a text, an Observation, or anything JSON can say; it raises ToolError for what the model
    must know.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        effects: Iterable[Effect],
        limits: Limits | None = None,
        name: str = "",
        price_nano: int = 0,
        preview: Callable[..., str] | None = None,
    ) -> None:
        """`preview` takes the function's arguments and gives, as a unified diff, what a run would change in files."""
        self._function = function
        self._preview = preview
        self._limits = limits or Limits()
        self.name = name or function.__name__
        self.effects: frozenset[Effect] = frozenset(effects)
        self.price_nano = price_nano

    @property
    def description(self) -> str:
        """What the tool does, in one line."""
        return (inspect.getdoc(self._function) or "").partition("\n")[0]

    @property
    def document(self) -> ToolDocument:
        """What registering the tool tells a model."""
        return self._document

    @cached_property
    def _document(self) -> ToolDocument:
        return ToolDocument(self.name, self.description, parameters_of(self._function))

    def preview(self, arguments: Mapping[str, Any]) -> str:
        """What a run would change in files; empty when it cannot be told, as when the run would fail."""
        if self._preview is None:
            return ""
        try:
            return self._preview(**self._checked(arguments))
        except ToolError:
            return ""

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Run with these arguments within the limits; what goes wrong is an observation, only cancelling is raised."""
        started = time.monotonic()
        held = Leash(started + self._limits.seconds)
        limit = asyncio.timeout(self._limits.seconds)
        try:
            async with limit:
                found = _observation(await self._outcome(arguments, held))
        except ToolError as error:
            found = Observation(str(error), ok=False)
        except Exception as error:  # noqa: BLE001 - a fence: whatever a tool raises is an observation, never the end of a turn
            found = Observation(f"{self.name} failed: {type(error).__name__}: {error}", ok=False)
        finally:
            held.let_go.set()
        if limit.expired():
            found = Observation(f"{self.name} was stopped: it took longer than {self._limits.seconds:g} s.", ok=False)
        return self._bounded(found, time.monotonic() - started)

    async def _outcome(self, arguments: Mapping[str, Any], held: Leash) -> Any:
        checked = await asyncio.to_thread(self._checked, arguments)
        if inspect.iscoroutinefunction(self._function):
            return await cast("Awaitable[Any]", self._function(**checked))
        context = contextvars.copy_context()
        context.run(leash.set, held)
        work = partial(context.run, self._function, **checked)
        return await asyncio.get_running_loop().run_in_executor(_threads(), work)

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._arguments.check(arguments)
        except ToolError as error:
            raise ToolError(f"{self.name} was not run: {error}") from error

    @cached_property
    def _arguments(self) -> Arguments:
        return Arguments(self._function, self.document.parameters)

    def _bounded(self, found: Observation, seconds: float) -> Observation:
        storable = found.text.encode(
            "utf-8", "backslashreplace"
        ).decode()  # half a surrogate pair cannot be sent or stored
        text, clipped = clip(storable, self._limits.characters)
        changes = found.changes.encode("utf-8", "backslashreplace").decode()
        return Observation(text, found.ok, found.truncated or clipped, seconds, changes=changes)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tool")


def _observation(outcome: Any) -> Observation:
    if isinstance(outcome, Observation):
        return outcome
    return Observation(outcome if isinstance(outcome, str) else json.dumps(outcome, ensure_ascii=False, default=str))

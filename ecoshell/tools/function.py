"""A function as a tool: its signature is the schema, its docstring's first line the description."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Observation, ToolDocument
from ecoshell.tools.arguments import Arguments
from ecoshell.tools.base import LASTING, Subject
from ecoshell.tools.limits import Limits, stopped
from ecoshell.tools.measuring import forget_peak, peak_mb, worked
from ecoshell.tools.results import failed, told
from ecoshell.tools.schema import parameters_of, subjects_in
from ecoshell.tools.threads import in_thread
from ecoshell.worker import Leash, in_worker, leash


class FunctionTool:
    """A tool made of an annotated function, plain or `async`.

    A plain function runs in a thread; its long loops call `worker.checkpoint()`, so that a cancelled call ends there
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
        self.limits = limits or Limits()
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

    @cached_property
    def subjects(self) -> Mapping[str, Subject]:
        """The arguments that approval rules look at."""
        return subjects_in(self._function)

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
        held = Leash(started + self.limits.seconds)
        before = leash.set(held)
        limit = asyncio.timeout(self.limits.seconds)
        try:
            async with limit:
                found = await self._outcome(arguments)
        except Exception as error:  # noqa: BLE001 - a fence: whatever a tool raises is an observation, never the end of a turn
            found = failed(self.name, error, self.limits)
        finally:
            held.let_go.set()
            leash.reset(before)
        if limit.expired():
            text = stopped(self.name, self.limits.seconds, lasting=bool(self.effects & LASTING))
            found = Observation(text, ok=False)
        return replace(found, seconds=time.monotonic() - started)

    async def _outcome(self, arguments: Mapping[str, Any]) -> Observation:
        if not inspect.iscoroutinefunction(self._function):
            return await in_thread(lambda: told(self.name, self._function(**self._checked(arguments)), self.limits))
        checked = await in_thread(lambda: self._checked(arguments))
        outcome = await cast("Awaitable[Any]", self._function(**checked))
        return await in_thread(lambda: told(self.name, outcome, self.limits))

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._arguments.check(arguments)
        except ToolError as error:
            raise ToolError(f"{self.name} was not run: {error}") from error

    @cached_property
    def _arguments(self) -> Arguments:
        return Arguments(self._function, self.document.parameters)


class WorkerTool(FunctionTool):
    """A tool made of a plain function that works on patterns, queries or the like, and changes nothing.

    It runs in a worker process, where the limits hold whatever it does; so function and arguments must be picklable.
    """

    async def _outcome(self, arguments: Mapping[str, Any]) -> Observation:
        return await in_thread(lambda: self._in_worker(self._checked(arguments)))

    def _in_worker(self, checked: dict[str, Any]) -> Observation:
        found, start_mb, most_mb = in_worker(_told, self.name, self._function, checked, self.limits)
        worked(start_mb, most_mb)
        return found


def _told(
    name: str, function: Callable[..., Any], arguments: Mapping[str, Any], limits: Limits
) -> tuple[Observation, float | None, float | None]:
    """What a worker says of a call: the observation, what the process held before, and its peak, in MB."""
    start_mb = forget_peak()
    return told(name, function(**arguments), limits), start_mb, peak_mb("self")

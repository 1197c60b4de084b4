"""From a call to its observation: the guards stand in a row, each a wrapper round the next.

Order: told → meta-tools → known → registered → affordable → approved → the tool itself.
"""

import time
from dataclasses import dataclass, replace
from typing import Protocol

from ecoshell.agent.approval import Approvals
from ecoshell.agent.purse import Purse
from ecoshell.catalog.catalog import Catalog
from ecoshell.errors import BudgetError
from ecoshell.events import CallFinished, CallStarted, Emit
from ecoshell.messages import Call, Observation
from ecoshell.strategies.base import Path


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a call is made: the path it stands on, what that path may call, and who is told."""

    path: Path
    registered: frozenset[str]
    emit: Emit

    @property
    def step(self) -> int:
        """The number of the step this call belongs to, from 1."""
        return len(self.path.steps) + 1


class Source(Protocol):
    """Whatever turns a call into an observation."""

    async def act(self, call: Call, scene: Scene) -> Observation: ...


def refuse(why: str, text: str) -> Observation:
    """A call that was not executed; `why` names the guard."""
    return Observation(text, ok=False, refused=why)


class Told:
    """Says when a call starts and how it ended, also when the turn ends first."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    async def act(self, call: Call, scene: Scene) -> Observation:
        scene.emit(CallStarted(call.id, call.name, call.arguments))
        start = time.monotonic()
        try:
            seen = await self._inner.act(call, scene)
        except BaseException:
            stopped = f"The turn ended before {call.name} did."
            seconds = time.monotonic() - start
            scene.emit(
                CallFinished(call.id, call.name, ok=False, observation=stopped, truncated=False, seconds=seconds)
            )
            raise
        scene.emit(CallFinished(call.id, call.name, seen.ok, seen.text, seen.truncated, seen.seconds, seen.refused))
        return seen


class Known:
    """Refuses names the catalog does not have, with the closest ones it has."""

    def __init__(self, inner: Source, catalog: Catalog) -> None:
        self._inner = inner
        self._catalog = catalog

    async def act(self, call: Call, scene: Scene) -> Observation:
        if call.name not in self._catalog:
            return refuse("unknown", unknown_tool(call.name, self._catalog))
        return await self._inner.act(call, scene)


class Registered:
    """Refuses tools this path has not registered (SPEC §1)."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    async def act(self, call: Call, scene: Scene) -> Observation:
        if call.name not in scene.registered:
            why = f"{call.name} is not registered, so it was not run."
            return refuse("unregistered", f"{why} Register it first: tool_register(tool_name={call.name}).")
        return await self._inner.act(call, scene)


class Affordable:
    """Charges a tool that has a price of its own before it runs; refuses it when no cap has room."""

    def __init__(self, inner: Source, catalog: Catalog, purse: Purse) -> None:
        self._inner = inner
        self._catalog = catalog
        self._purse = purse

    async def act(self, call: Call, scene: Scene) -> Observation:
        price = self._catalog.tool(call.name).price_nano
        if price:
            try:
                await self._purse.charge_tool(call.name, price)
            except BudgetError as limit:
                return refuse("unaffordable", f"{call.name} was not run: {limit.message}")
        return await self._inner.act(call, scene)


class Approved:
    """Asks before anything but reading happens."""

    def __init__(self, inner: Source, catalog: Catalog, approvals: Approvals) -> None:
        self._inner = inner
        self._catalog = catalog
        self._approvals = approvals

    async def act(self, call: Call, scene: Scene) -> Observation:
        refusal = await self._approvals.refusal(call, self._catalog.tool(call.name).effects, scene.emit)
        if refusal:
            return refuse("unapproved", refusal)
        return await self._inner.act(call, scene)


class Runner:
    """The end of the row: the tool runs."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def act(self, call: Call, scene: Scene) -> Observation:
        start = time.monotonic()
        try:
            seen = await self._catalog.tool(call.name).run(call.arguments)
        except Exception as failure:  # noqa: BLE001 - a tool may be anybody's code; the model reads how it failed
            seen = Observation(f"{call.name} failed: {type(failure).__name__}: {failure}", ok=False)
        return replace(seen, seconds=time.monotonic() - start)


def unknown_tool(name: str, catalog: Catalog) -> str:
    """What the model reads when it names a tool that is not there."""
    closest = catalog.closest(name)
    hint = f" The closest names are {', '.join(closest)}." if closest else ""
    return f"There is no tool called {name!r}.{hint}"

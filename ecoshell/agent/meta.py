"""The meta-tools: registering, searching, and the one call of the `stable` presentation (SPEC §1)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from ecoshell.agent.guards import Scene, Source, refuse, unknown_tool, unwrap
from ecoshell.agent.plan_checks import Planned
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.presentation import Presentation
from ecoshell.catalog.search import Ranker
from ecoshell.events import CallFinished, CallStarted, ToolRegistered
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, Call, Observation, ToolDocument

SEARCH_RESULTS = 10


class Meta:
    """Answers the meta-tools itself and passes every other call on."""

    def __init__(
        self,
        inner: Source,
        *,
        catalog: Catalog,
        ranker: Ranker,
        presentation: Presentation,
        measure: Callable[[ToolDocument], tuple[int, bool]],
        plan: Planned,
    ) -> None:
        """`measure` counts the tokens of a document and says whether the count is exact."""
        self._plan = plan
        self._inner = inner
        self._catalog = catalog
        self._ranker = ranker
        self._presentation = presentation
        self._measure = measure

    async def act(self, call: Call, scene: Scene) -> Observation:
        if call.name == TOOL_REGISTER:
            return await self._register(call, scene)
        if call.name == TOOL_SEARCH:
            found = await asyncio.to_thread(self._search, str(call.arguments.get("query", "")))
            return self._told(call, scene, found)
        if call.name == TOOL_CALL:
            return await self._inner.act(unwrap(call), replace(scene, through=TOOL_CALL))
        return await self._inner.act(call, scene)

    async def _register(self, call: Call, scene: Scene) -> Observation:
        name = str(call.arguments.get("tool_name", ""))
        if name not in self._catalog:
            return self._told(call, scene, refuse("unknown", unknown_tool(name, self._catalog)))
        if name in scene.registered:
            return self._told(call, scene, Observation(f"{name} is registered already; call it."))
        if refusal := await self._plan.refusal(name, scene):
            return self._told(call, scene, refuse("forbidden", refusal))
        document = self._catalog.document(name)
        tokens, exact = self._measure(document)
        scene.emit(ToolRegistered(name, tokens, exact, scene.step, "agent", call.id))
        return Observation(self._presentation.registration_result(document))

    def _search(self, query: str) -> Observation:
        forbidden = self._plan.forbidden
        ranked = (name for name, _ in self._ranker.rank(query) if name not in forbidden)
        found = list(islice(ranked, SEARCH_RESULTS))
        if not found:
            return Observation(f"No tool fits {query!r}.", ok=False)
        return Observation("Tools that fit, best first: " + ", ".join(found))

    def _told(self, call: Call, scene: Scene, seen: Observation) -> Observation:
        scene.emit(CallStarted(call.id, call.name, call.arguments, role=scene.role))
        scene.emit(CallFinished(call.id, call.name, seen.ok, seen.text, seen.truncated, seen.seconds, seen.refused))
        return seen

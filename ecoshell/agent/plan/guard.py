"""How a plan stands in the way of a call: it bars what may not be used, and has every result judged and counted."""

import asyncio
from collections.abc import Mapping

from ecoshell.agent.guards import AskForMoney, Scene, Source, refuse
from ecoshell.agent.plan.choices import Judge
from ecoshell.agent.plan.live import LivePlan
from ecoshell.agent.plan.recording import Recorder
from ecoshell.events import CallJudged
from ecoshell.messages import Call, Observation
from ecoshell.planning.judging.judges import Verdict

_STOPPED = Observation("The turn was stopped while the tool ran.", ok=False)
_UNJUDGED = Verdict(None, "", "the turn was stopped")


class Planned:
    """Refuses tools the plan does not allow now (BTP §2.3, SPEC §2); where that is for money, the person is asked."""

    def __init__(self, inner: Source, plan: LivePlan, ask: AskForMoney) -> None:
        self._inner = inner
        self._plan = plan
        self._ask = ask

    async def act(self, call: Call, scene: Scene) -> Observation:
        if refusal := await self.refusal(call.name, scene):
            return refuse("forbidden", refusal)
        return await self._inner.act(call, scene)

    async def refusal(self, tool: str, scene: Scene) -> str:
        """Why a tool may not be used, or registered, now; empty where it may, also because the person has made room."""
        while refusal := await asyncio.to_thread(self._plan.refusal, tool):
            short = None if scene.node else self._plan.shortage(tool)
            if short is None or not await self._ask(short, scene.emit):
                return refusal
            await self._plan.follow(scene.emit)
        return ""

    @property
    def forbidden(self) -> Mapping[str, str]:
        """Tools that may not be used now, whoever asks."""
        return self._plan.forbidden


class Judged:
    """Has the result of every call that ran judged, counted, recorded and planned for."""

    def __init__(self, inner: Source, *, plan: LivePlan, judge: Judge, recorder: Recorder) -> None:
        self._inner = inner
        self._plan = plan
        self._judge = judge
        self._recorder = recorder

    async def act(self, call: Call, scene: Scene) -> Observation:
        thought = scene.thought or self._plan.thought
        try:
            seen = await self._inner.act(call, scene)
        except asyncio.CancelledError:
            if scene.bill.made is not None:
                await self._recorder.record(scene.bill.made, _STOPPED, _UNJUDGED, thought=thought, scene=scene)
            raise
        if seen.refused:
            return seen
        call = scene.bill.made or call
        verdict = await self._judge.judge(self._plan.outset.question, call, seen, scene.emit)
        note = await self._plan.count(
            call, thought, price=scene.bill.spent_nano, seconds=seen.seconds, helpful=verdict.helpful
        )
        scene.emit(CallJudged(call.id, call.name, verdict.helpful, verdict.by, verdict.reason, note))
        await self._recorder.record(call, seen, verdict, thought=thought, scene=scene)
        self._plan.tell(scene.emit, f"{call.name} was used")
        return seen.noted(note)

"""How a plan stands in the way of a call: it bars what may not be used, and has every result judged and counted."""

import asyncio

from ecoshell.agent.guards import Scene, Source, refuse
from ecoshell.agent.plan.choices import Judge
from ecoshell.agent.plan.live import LivePlan
from ecoshell.agent.plan.recording import Recorder
from ecoshell.agent.steering import Steering
from ecoshell.events import CallJudged
from ecoshell.messages import Call, Observation
from ecoshell.planning.judging.judges import Verdict

_STOPPED = Observation("The turn was stopped while the tool ran.", ok=False)
_UNJUDGED = Verdict(None, "", "the turn was stopped")


class Planned:
    """Refuses tools the plan does not allow now (BTP §2.3, SPEC §2)."""

    def __init__(self, inner: Source, plan: Steering) -> None:
        self._inner = inner
        self._plan = plan

    async def act(self, call: Call, scene: Scene) -> Observation:
        refusal = await asyncio.to_thread(self._plan.refusal, call.name)
        if refusal:
            return refuse("forbidden", refusal)
        return await self._inner.act(call, scene)


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

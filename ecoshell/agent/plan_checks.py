"""How a plan stands in the way of a call: it blocks what may not be used, and has every result judged and recorded."""

import asyncio
import json
from collections.abc import Mapping

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import AskForMoney, CallContext, ToolExecutor, refuse
from ecoshell.agent.planning import Judge, now, remember
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.events import CallJudged
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.btp.experience import Use, document_hash
from ecoshell.planning.btp.redaction import ARGUMENTS, QUERY, RESULT, beginning, digest, redacted_json, size_level
from ecoshell.planning.judging.rules import Verdict
from ecoshell.secrecy import environ

_STOPPED = Observation("The turn was stopped while the tool ran.", ok=False)
_UNJUDGED = Verdict(None, "", "the turn was stopped")


class Recorder:
    """Keeps the uses of one turn; that one cannot be kept ends nothing."""

    def __init__(self, deps: Dependencies, session: str, turn: int, question: str) -> None:
        self._deps = deps
        self._session = session
        self._turn = turn
        self._question = question

    async def record(
        self, call: Call, seen: Observation, verdict: Verdict, *, thought: StepCost, context: CallContext
    ) -> None:
        """Keep one use."""
        spent = context.bill.spent_nano
        await remember(self._deps.planning, lambda: self._use(call, seen, verdict, thought, spent), context.emit)

    def _use(self, call: Call, seen: Observation, verdict: Verdict, thought: StepCost, price_nano: int) -> Use:
        size = len(json.dumps(dict(call.arguments), ensure_ascii=False, default=str))
        return Use(
            query=beginning(self._question, environ, QUERY),
            tool=call.name,
            document_hash=document_hash(self._deps.catalog.document(call.name)),
            arguments=redacted_json(call.arguments, environ, ARGUMENTS),
            result=beginning(seen.text, environ, RESULT),
            result_hash=digest(seen.text, environ),
            ok=seen.ok,
            helpful=verdict.helpful,
            judged_by=verdict.by,
            model=self._deps.models.name,
            price_nano=price_nano,
            step_nano=thought.nano,
            step_tokens=thought.tokens,
            seconds=seen.seconds + thought.seconds,
            size_level=size_level(size),
            session=self._session,
            turn=self._turn,
            call=call.id,
            at=now(),
        )


class Planned:
    """Refuses tools the plan does not allow now (BTP §2.3, SPEC §2); where that is for money, the person is asked."""

    def __init__(self, inner: ToolExecutor, plan: TurnPlan, ask: AskForMoney) -> None:
        self._inner = inner
        self._plan = plan
        self._ask = ask

    async def execute(self, call: Call, context: CallContext) -> Observation:
        if refusal := await self.refusal(call.name, context):
            return refuse("forbidden", refusal)
        return await self._inner.execute(call, context)

    async def refusal(self, tool: str, context: CallContext) -> str:
        """Why a tool may not be used, or registered, now; empty where it may, also because the person has made room."""
        while refusal := await asyncio.to_thread(self._plan.refusal, tool):
            short = None if context.node else self._plan.shortage(tool)
            if short is None or not await self._ask(short, context.emit):
                return refusal
            await self._plan.follow(context.emit)
        return ""

    @property
    def forbidden(self) -> Mapping[str, str]:
        """Tools that may not be used now, whoever asks."""
        return self._plan.forbidden


class Judged:
    """Has the result of every call that ran judged, counted, recorded and planned for."""

    def __init__(self, inner: ToolExecutor, *, plan: TurnPlan, judge: Judge, recorder: Recorder) -> None:
        self._inner = inner
        self._plan = plan
        self._judge = judge
        self._recorder = recorder

    async def execute(self, call: Call, context: CallContext) -> Observation:
        thought = context.thought or self._plan.thought
        try:
            seen = await self._inner.execute(call, context)
        except asyncio.CancelledError:
            if context.bill.made is not None:
                await self._recorder.record(context.bill.made, _STOPPED, _UNJUDGED, thought=thought, context=context)
            raise
        if seen.refused:
            return seen
        call = context.bill.made or call
        verdict = await self._judge.judge(self._plan.inputs.question, call, seen, context.emit)
        note = await self._plan.count(
            call, thought, price=context.bill.spent_nano, seconds=seen.seconds, helpful=verdict.helpful
        )
        context.emit(CallJudged(call.id, call.name, verdict.helpful, verdict.by, verdict.reason, note))
        await self._recorder.record(call, seen, verdict, thought=thought, context=context)
        self._plan.tell(context.emit, f"{call.name} was used")
        return seen.noted(note)

"""What is remembered of a turn and of each use of a tool: redacted, shortened, and kept on this machine."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import Scene
from ecoshell.agent.plan.choices import Planning
from ecoshell.agent.plan.tool_costs import Thought
from ecoshell.errors import StoreError
from ecoshell.events import Emit, Notice
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.base import Experienced, Use, document_hash
from ecoshell.planning.btp.redaction import ARGUMENTS, QUERY, RESULT, beginning, digest, redacted_json, size_level
from ecoshell.planning.judging.judges import Verdict
from ecoshell.secrecy import environ


class Recorder:
    """Keeps the uses of one turn; that one cannot be kept ends nothing."""

    def __init__(self, deps: Dependencies, session: str, turn: int, question: str) -> None:
        self._deps = deps
        self._session = session
        self._turn = turn
        self._question = question

    async def record(self, call: Call, seen: Observation, verdict: Verdict, *, thought: Thought, scene: Scene) -> None:
        """Keep one use."""
        spent = scene.bill.spent_nano
        await remember(self._deps.planning, lambda: self._use(call, seen, verdict, thought, spent), scene.emit)

    def _use(self, call: Call, seen: Observation, verdict: Verdict, thought: Thought, price_nano: int) -> Use:
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


async def remember(planning: Planning, made: Callable[[], Experienced], emit: Emit) -> None:
    """Keep what is made in a thread; that it cannot be kept yet is told when it is the first that waits."""
    if not planning.recording:
        return
    try:
        await asyncio.to_thread(lambda: planning.keep(made()))
    except StoreError as failure:
        emit(Notice(f"What this turn came to is not remembered for planning yet. {failure}"))


def now() -> str:
    """The time as experience keeps it."""
    return datetime.now(UTC).isoformat(timespec="seconds")

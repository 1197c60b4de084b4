"""What is remembered of a use of a tool: redacted, shortened, and kept on this machine."""

import asyncio
import json
import os
from datetime import UTC, datetime

from ecoshell.agent.guards import Scene
from ecoshell.agent.kit import Kit
from ecoshell.agent.plan.tool_costs import Thought
from ecoshell.errors import StoreError
from ecoshell.events import Notice
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.base import Use, document_hash
from ecoshell.planning.btp.redaction import ARGUMENTS, QUERY, RESULT, beginning, digest, redacted_json, size_level
from ecoshell.planning.judging.judges import Verdict

_MOST_UNKEPT = 200
"""Uses that wait for a store that cannot be written; of more, the earliest are given up."""


class Recorder:
    """Keeps the uses of one turn; that one cannot be kept is told when it is the first that waits, and ends nothing."""

    def __init__(self, kit: Kit, session: str, turn: int, question: str) -> None:
        self._kit = kit
        self._session = session
        self._turn = turn
        self._question = question

    async def record(self, call: Call, seen: Observation, verdict: Verdict, *, thought: Thought, scene: Scene) -> None:
        """Keep one use."""
        if not self._kit.planning.recording:
            return
        told = bool(self._kit.planning.unkept)
        try:
            await asyncio.to_thread(self._keep, call, seen, verdict, thought, scene.bill.spent_nano)
        except StoreError as failure:
            if not told:
                scene.emit(Notice(f"What the tools did is not remembered for planning yet. {failure}"))

    def _keep(self, call: Call, seen: Observation, verdict: Verdict, thought: Thought, price_nano: int) -> None:
        size = len(json.dumps(dict(call.arguments), ensure_ascii=False, default=str))
        use = Use(
            query=beginning(self._question, os.environ, QUERY),
            tool=call.name,
            document_hash=document_hash(self._kit.catalog.document(call.name)),
            arguments=redacted_json(call.arguments, os.environ, ARGUMENTS),
            result=beginning(seen.text, os.environ, RESULT),
            result_hash=digest(seen.text, os.environ),
            ok=seen.ok,
            helpful=verdict.helpful,
            judged_by=verdict.by,
            model=self._kit.model,
            price_nano=price_nano,
            step_nano=thought.nano,
            step_tokens=thought.tokens,
            seconds=seen.seconds + thought.seconds,
            size_level=size_level(size),
            session=self._session,
            turn=self._turn,
            call=call.id,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        planning = self._kit.planning
        planning.unkept = [*planning.unkept, use][-_MOST_UNKEPT:]
        planning.records.add(planning.unkept)
        planning.unkept = []

"""Compacting: the turns so far become one summary, written by a model that the person has chosen, through the gate."""

import asyncio
from collections.abc import Sequence
from importlib.resources import files

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Memory, summary_messages
from ecoshell.agent.model_set import ModelSet
from ecoshell.budget.price import UNBOUNDED
from ecoshell.errors import EcoshellError, ModelBroken, UsageError
from ecoshell.events import BudgetSettled, Compacted, Emit, Event, Taken, TextArrived
from ecoshell.messages import Message
from ecoshell.models.base import Request

ROLE = "compact"
_AS_BEFORE = "Everything stays as it was."
SUMMARY_TOKENS = 1024
"""Of a summary, at most."""
_EXTRACT = 6_000
"""Characters of an extract."""
_QUOTED = 240
"""Characters of one question or answer in an extract."""


class Compaction:
    """One compaction of one session's memory; `keep` takes what happens, to be kept whatever comes of it."""

    def __init__(self, deps: Dependencies, memory: Memory, keep: Emit) -> None:
        self._keep = keep
        self._taken = Taken()
        self._deps = deps
        self._memory = memory
        self._history = memory.messages

    @property
    def spent_nano(self) -> int | None:
        """What it has cost; None when a part of it is unknown."""
        return self._taken.nano

    async def run(self) -> Compacted:
        """The summary in the place of the turns; raises UsageError, BudgetError and ModelError, and nothing is lost.

        A model too small to be trusted with a summary writes none: an extract takes its place, and says what it is.
        """
        if not self._memory.turns:
            raise UsageError("There is nothing to compact.", fix="Ask something first.")
        named = await asyncio.to_thread(self._named)
        try:
            casts = [*([named] if named else []), *self._own()]
            writer = await asyncio.to_thread(self._writer, casts)
            if writer is not None and writer is named:
                self._name(writer.model.traits.name)
            summary = extract(self._memory) if writer is None else await self._written(writer)
            return await self._settled(summary, "" if writer is None else writer.model.traits.name)
        finally:
            if named is not None:
                await named.aclose()

    def _name(self, model: str) -> None:
        """Name a model that is not the session's before it reads the conversation, once; raises UsageError then."""
        if model not in self._deps.settings.readers:
            self._deps.settings.readers.add(model)
            raise UsageError(
                f"{model}, which [agent] compact_model names, would read the whole conversation to summarise it.",
                kept="Nothing was sent.",
                fix="Type /compact again to have it so, or change the setting.",
            )

    async def _written(self, writer: ModelSet) -> str:
        reply = await writer.model.ask(_request(self._history), self._hear, role=ROLE)
        if not reply.text.strip():
            raise ModelBroken(
                f"{writer.model.traits.name} gave no summary.",
                kept=_AS_BEFORE,
                fix="Try /compact again, or name another model in [agent] compact_model.",
            )
        return reply.text.strip() + ("\n[the summary was cut here, at its longest]" if reply.cut else "")

    async def _settled(self, summary: str, model: str) -> Compacted:
        before, after = await asyncio.to_thread(self._sizes, summary)
        if after >= before:
            raise UsageError(
                f"Compacting would save nothing: {before:,} tokens now, {after:,} as a summary.", kept=_AS_BEFORE
            )
        return Compacted(summary, model, len(self._memory.turns), before, after)

    def _hear(self, event: Event) -> None:
        if isinstance(event, BudgetSettled):
            self._taken = self._taken.plus(event)
        if not isinstance(event, TextArrived):
            self._keep(event)

    def _sizes(self, summary: str) -> tuple[int, int]:
        """Tokens of what came before, and of the summary, for the session's model."""
        model = self._deps.models.current.model
        return model.size(Request(self._history)).count, model.size(Request(summary_messages(summary))).count

    def _own(self) -> list[ModelSet]:
        """The model that leads, and those that play beside it."""
        leading = self._deps.models.current
        return [leading, *(ModelSet(model, leading.mode) for model in leading.models[1:])]

    def _named(self) -> ModelSet | None:
        """The model that `compact_model` names, where it is not the session's and can be had; nothing is loaded."""
        name = self._deps.settings.compact_model
        if not name or name in {model.traits.name for model in self._deps.models.current.models}:
            return None
        try:
            return self._deps.models.factory.cast(name)
        except EcoshellError:  # no key, no file: it cannot be reached
            return None

    def _writer(self, casts: Sequence[ModelSet]) -> ModelSet | None:
        """The first model that will do, the cheapest of the session's; None where only an extract is left.

        Raises UsageError when no model can take the whole conversation.
        """
        barred = self._deps.budget.gate.ledger.barred()
        able = [cast for cast in casts if not cast.model.traits.small and cast.model.traits.name not in barred]
        costs = {at: cost for at, cast in enumerate(able) if (cost := self._most(cast)) is not None}
        own = {model.traits.name for model in self._deps.models.current.models}
        if costs:
            return able[min(costs, key=lambda at: (able[at].model.traits.name in own, costs[at]))]
        if self._deps.models.current.model.traits.small:
            return None
        raise UsageError(
            "No model can take the whole conversation to summarise it.",
            kept=_AS_BEFORE,
            fix="Name one with a larger context in [agent] compact_model, or go on in a /new session.",
        )

    def _most(self, cast: ModelSet) -> int | None:
        """What the summary may cost at most; None for a model that will not do.

        One whose price is unknown will do where there is no other: the gate knows what to say of it.
        """
        traits, request = cast.model.traits, _request(self._history)
        size = cast.model.size(request)
        if traits.context is not None and size.count + SUMMARY_TOKENS > traits.context:
            return None
        if traits.price is None:
            return UNBOUNDED
        return traits.price.worst(size.bound, SUMMARY_TOKENS)


def extract(memory: Memory) -> str:
    """The questions and the beginnings of their answers, the latest kept: what is left where no model will do."""
    lines: list[str] = []
    room = _EXTRACT
    for turn in reversed(memory.turns):
        line = f"Asked: {_beginning(turn.question)}\nAnswered: {_beginning(turn.messages[-1].text)}"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    earlier = [_beginning(memory.summary, 2 * _QUOTED)] if memory.summary else []
    left_out = len(memory.turns) - len(lines)
    return "\n".join(
        (
            "[an extract, not a summary: each question with the beginning of its answer]",
            *earlier,
            *([f"[{left_out} earlier turns are left out]"] if left_out else []),
            *reversed(lines),
        )
    )


def _request(history: Sequence[Message]) -> Request:
    system = (files("ecoshell.agent") / "compact.md").read_text(encoding="utf-8").strip()
    told = "\n\n".join(map(_line, history))
    messages = (Message("system", system), Message("user", f"The conversation:\n\n{told}\n\nNow summarise it."))
    return Request(messages, want="text", max_tokens=SUMMARY_TOKENS, purpose="compact")


def _line(message: Message) -> str:
    """One message of the conversation as text."""
    if message.speaker == "tool":
        return f"Result: {message.text}"
    who = "Person" if message.speaker == "user" else "Agent"
    called = f" [calls {message.call.signature()}]" if message.call else ""
    return f"{who}: {message.text}{called}"


def _beginning(text: str, characters: int = _QUOTED) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters].rstrip()} […]"

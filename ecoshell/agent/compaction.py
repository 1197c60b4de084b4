"""Compacting: the turns so far become one summary, written by a model that the person has chosen, through the gate."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Memory, summary_messages
from ecoshell.budget import UNBOUNDED
from ecoshell.errors import EcoshellError, ModelBroken, UsageError
from ecoshell.events import BudgetSettled, Compacted, Emit, Event, Taken, TextArrived
from ecoshell.messages import Message
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel

ROLE = "compact"
_AS_BEFORE = "Everything stays as it was."
SUMMARY_TOKENS = 1024
"""Of a summary, at most."""
_EXTRACT = 6_000
"""Characters of an extract."""
_QUOTED = 240
"""Characters of one question or answer in an extract."""


async def compact(deps: Dependencies, memory: Memory, keep: Emit) -> tuple[Compacted, int | None]:
    """The summary in the place of the turns, and its price, None when a part of that is unknown.

    `keep` takes what happens, to be kept whatever comes of it. A model too small to be trusted with a summary writes
    none: an extract takes its place, and says what it is. Raises UsageError, BudgetError and ModelError; nothing is
    lost then.
    """
    if not any(turn.messages for turn in memory.turns):
        raise UsageError("There is nothing to compact.", fix="Ask something first.")
    own, history, taken = deps.models.current.models, memory.messages, Taken()

    def hear(event: Event) -> None:
        nonlocal taken
        if isinstance(event, BudgetSettled):
            taken = taken.plus(event)
        if not isinstance(event, TextArrived):
            keep(event)

    wanted, named = deps.settings.compact_model, None
    if wanted and wanted not in {model.traits.name for model in own}:
        with suppress(EcoshellError):  # no key, no file: it cannot be reached
            named = (await asyncio.to_thread(deps.models.factory.make, wanted)).model  # nothing is loaded
    try:
        writer = await asyncio.to_thread(_writer, deps, named, history)
        name, summary = "", ""
        if writer is not None:
            name = writer.traits.name
            if writer is named and name not in deps.settings.readers:
                deps.settings.readers.add(name)
                raise UsageError(
                    f"{name}, which [agent] compact_model names, would read the whole conversation to summarise it.",
                    kept="Nothing was sent.",
                    fix="Type /compact again to have it so, or change the setting.",
                )
            reply = await writer.ask(_request(history), hear, role=ROLE)
            if not reply.text.strip():
                raise ModelBroken(
                    f"{name} gave no summary.",
                    kept=_AS_BEFORE,
                    fix="Try /compact again, or name another model in [agent] compact_model.",
                )
            summary = reply.text.strip() + ("\n[the summary was cut here, at its longest]" if reply.cut else "")
    finally:
        if named is not None:
            await named.aclose()
    summary = summary or extract(memory)
    before = (await asyncio.to_thread(own[0].size, Request(history))).count
    after = (await asyncio.to_thread(own[0].size, Request(summary_messages(summary)))).count
    if after >= before:
        raise UsageError(
            f"Compacting would save nothing: {before:,} tokens now, {after:,} as a summary.", kept=_AS_BEFORE
        )
    return Compacted(summary, name, len(memory.turns), before, after), taken.nano


def _writer(deps: Dependencies, named: MeteredModel | None, history: Sequence[Message]) -> MeteredModel | None:
    """The named model if it will do, else the cheapest of the session's that will; None where only an extract is left.

    One whose price is unknown will do where there is no other: the gate knows what to say of it. Raises UsageError when
    no model can take the whole conversation.
    """
    own, barred, request = deps.models.current.models, deps.budget.gate.ledger.barred(), _request(history)
    able: list[tuple[bool, int, MeteredModel]] = []
    for model in (*([named] if named else []), *own):
        traits = model.traits
        if traits.small or traits.name in barred:
            continue
        size = model.size(request)
        if traits.context is None or size.count + SUMMARY_TOKENS <= traits.context:
            cost = UNBOUNDED if traits.price is None else traits.price.worst(size.bound, SUMMARY_TOKENS)
            able.append((model is not named, cost, model))
    if able:
        return min(able, key=lambda one: one[:2])[2]
    if own[0].traits.small:
        return None
    raise UsageError(
        "No model can take the whole conversation to summarise it.",
        kept=_AS_BEFORE,
        fix="Name one with a larger context in [agent] compact_model, or go on in a /new session.",
    )


def extract(memory: Memory) -> str:
    """The questions and the beginnings of their answers, the latest kept: what is left where no model will do."""
    lines: list[str] = []
    room = _EXTRACT
    turns = [turn for turn in memory.turns if turn.messages]
    for turn in reversed(turns):
        line = f"Asked: {_beginning(turn.question)}\nAnswered: {_beginning(turn.messages[-1].text)}"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    told = ["[an extract, not a summary: each question with the beginning of its answer]"]
    if memory.summary:
        told.append(_beginning(memory.summary, 2 * _QUOTED))
    if len(lines) < len(turns):
        told.append(f"[{len(turns) - len(lines)} earlier turns are left out]")
    return "\n".join((*told, *reversed(lines)))


def _request(history: Sequence[Message]) -> Request:
    system = (files("ecoshell.agent") / "compact.md").read_text(encoding="utf-8").strip()
    who = {"tool": "Result", "user": "Person"}
    lines = [
        f"{who.get(message.speaker, 'Agent')}: {message.text}"
        + "".join(f" [calls {call.signature()}]" for call in message.calls if message.speaker != "tool")
        for message in history
    ]
    told = "The conversation:\n\n" + "\n\n".join(lines) + "\n\nNow summarise it."
    messages = (Message("system", system), Message("user", told))
    return Request(messages, want="text", max_tokens=SUMMARY_TOKENS, purpose="compact")


def _beginning(text: str, characters: int = _QUOTED) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters].rstrip()} […]"

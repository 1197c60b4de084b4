"""Summaries that replace earlier turns or steps, written by a model that the user has chosen, through the gate."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Memory, next_view, summary_messages
from ecoshell.agent.mode import CallForecast, View
from ecoshell.budget import UNBOUNDED
from ecoshell.errors import ContextExceeded, EcoshellError, ModelBroken, ModelError, UsageError
from ecoshell.events import BudgetSettled, Compacted, Consumption, Emit, Event, Notice, Reasoned, TextArrived
from ecoshell.messages import Call, Message
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies import Step

ROLE = "compact"
_AS_BEFORE = "Everything stays as it was."
_LEAST_SUMMARY, _LONGEST_SUMMARY = 1_024, 8_192
_SUMMARY_SHARE = 32
"""A summary takes at most this part of the context (a thirty-second)."""
_UNKNOWN_CONTEXT = 128_000
_MORE_ROOM = 4
"""Times the output of a second attempt, after reasoning took all of the first."""
_SHORTER = (20_000, 6_000, 2_000, 600, 160)
"""Characters of each text, tried in turn where the writer's context has no room for all of it."""
_EXTRACT = 6_000
"""Characters of an extract."""
_QUOTED = 240
"""Characters of one question, call, result or answer in an extract."""

Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What replaces messages, and how it came about."""

    text: str
    model: str
    """Who wrote it; empty for an extract."""
    spent_nano: int | None
    """None when a part of the price is unknown."""


@dataclass(slots=True)
class _Spending:
    """Adds up what summaries cost and passes on their events, apart from their text."""

    emit: Emit
    consumption: Consumption = field(default_factory=Consumption)

    def hear(self, event: Event) -> None:
        if isinstance(event, BudgetSettled):
            self.consumption = self.consumption.plus(event)
        if not isinstance(event, (TextArrived, Reasoned)):
            self.emit(event)


async def compact(deps: Dependencies, memory: Memory, keep: Emit) -> tuple[Compacted, int | None]:
    """Summarize all turns; gives the summary and its price, None when a part of that is unknown.

    `keep` takes the events of the calls. A model too small to be trusted with a summary writes none: an extract takes
    its place, labelled as such. Raises UsageError, BudgetError and ModelError; nothing is lost then.
    """
    if not any(turn.messages for turn in memory.turns):
        raise UsageError("There is nothing to compact.", fix="Ask something first.")
    own, history, spending = deps.models.current.models, memory.messages, _Spending(keep)
    view = next_view(memory, deps.catalog, defers=deps.models.current.defers_tools)
    named = await _named_writer(deps)
    try:
        writer = await asyncio.to_thread(_writer, deps, named, view, history)
        text = ""
        if writer is not None:
            name = writer.model.traits.name
            if writer.model is named and name not in deps.settings.readers:
                deps.settings.readers.add(name)
                raise UsageError(
                    f"{name}, which [agent] compact_model names, would read the whole conversation to summarise it.",
                    kept="Nothing was sent.",
                    fix="Type /compact again to have it so, or change the setting.",
                )
            text = await _written(writer, history, spending.hear)
    finally:
        if named is not None:
            await named.aclose()
    summary = text or extract(memory)
    before = (await asyncio.to_thread(own[0].size, Request(history))).count
    after = (await asyncio.to_thread(own[0].size, Request(summary_messages(summary)))).count
    if after >= before:
        raise UsageError(
            f"Compacting would save nothing: {before:,} tokens now, {after:,} as a summary.", kept=_AS_BEFORE
        )
    model = writer.model.traits.name if writer is not None else ""
    spent = spending.consumption.nano
    return Compacted(summary, model, len(memory.turns), before, after, spent_nano=spent), spent


async def summarize(
    deps: Dependencies, view: View, messages: Messages, fallback: Callable[[], str], emit: Emit
) -> Summary:
    """A summary of these messages, which begin the view's; the `fallback` where no model writes one.

    A model that `[agent] compact_model` names writes it once the user knows that it reads the conversation. Raises
    BudgetError.
    """
    spending, name = _Spending(emit), ""
    named = await _named_writer(deps)
    if named is not None and named.traits.name not in deps.settings.readers:
        await named.aclose()
        named = None
    try:
        writer = await asyncio.to_thread(_writer, deps, named, view, messages)
        if writer is not None:
            name = writer.model.traits.name
            return Summary(await _written(writer, messages, spending.hear), name, spending.consumption.nano)
    except (ModelError, UsageError) as failure:
        emit(Notice(f"No summary was written; an extract takes its place. {failure.message}"))
    finally:
        if named is not None:
            await named.aclose()
    return Summary(fallback(), "", spending.consumption.nano)


def summary_tokens(context: int | None) -> int:
    """The longest summary for a model with this context."""
    context = _UNKNOWN_CONTEXT if context is None else context
    return max(min(_LEAST_SUMMARY, context // 4), min(_LONGEST_SUMMARY, context // _SUMMARY_SHARE))


async def _named_writer(deps: Dependencies) -> MeteredModel | None:
    """The model that `[agent] compact_model` names, unless it is one of the session's or cannot be had."""
    wanted = deps.settings.compact_model
    if wanted and wanted not in {model.traits.name for model in deps.models.current.models}:
        with suppress(EcoshellError):  # no key, no file
            return (await asyncio.to_thread(deps.models.factory.make, wanted)).model  # nothing is loaded
    return None


def _writer(deps: Dependencies, named: MeteredModel | None, view: View, messages: Messages) -> CallForecast | None:
    """The named model if it will do, else the cheapest of the session's that will, with the request it continues.

    None where only an extract is left. A model of unknown price is the last choice; the gate decides about it. If no
    model can take the whole conversation, the one with the largest context reads it shortened.
    """
    own, barred = deps.models.current.models, deps.budget.gate.ledger.barred()
    steps = deps.models.current.mode.forecast(view).steps
    able: list[tuple[bool, int, CallForecast]] = []
    largest: CallForecast | None = None
    for model in (*([named] if named else []), *own):
        traits = model.traits
        if traits.small or traits.name in barred:
            continue
        step = next((step for step in steps if step.model is model), None)
        base = step.request if step else Request(())
        call = CallForecast(base, model, ROLE)
        request = _request(call, messages)
        size = model.size(request)
        if traits.context is None or size.count + request.max_tokens <= traits.context:
            cost = UNBOUNDED if traits.price is None else traits.price.worst(size.bound, request.max_tokens)
            able.append((model is not named, cost, call))
        elif model is not named and (largest is None or traits.context > (largest.model.traits.context or 0)):
            largest = call
    return min(able, key=lambda one: one[:2])[2] if able else largest


async def _written(writer: CallForecast, messages: Messages, emit: Emit) -> str:
    """What the model writes; raises ModelBroken when that is nothing."""
    model = writer.model
    request = await asyncio.to_thread(_fitting, writer, messages)
    try:
        reply = await model.ask(request, emit, role=ROLE)
    except ContextExceeded:  # its context is known by now
        request = await asyncio.to_thread(_fitting, writer, messages)
        reply = await model.ask(request, emit, role=ROLE)
    if not reply.text.strip() and (reply.cut or reply.calls):  # all reasoning, or a call that it was not to make
        request = replace(request, want="text", max_tokens=_MORE_ROOM * request.max_tokens)
        reply = await model.ask(request, emit, role=ROLE)
    if not reply.text.strip():
        raise ModelBroken(
            f"{model.traits.name} gave no summary.",
            kept=_AS_BEFORE,
            fix="Try /compact again, or name another model in [agent] compact_model.",
        )
    return reply.text.strip() + ("\n[the summary was cut here, at its longest]" if reply.cut else "")


def _request(writer: CallForecast, messages: Messages) -> Request:
    """The messages as a step sends them, so that a provider has them cached, and after them what to write."""
    instruction = (files("ecoshell.agent") / "compact.md").read_text(encoding="utf-8").strip()
    base = writer.request
    system = base.messages[:1] if base.messages and base.messages[0].speaker == "system" else ()
    native = writer.model.traits.native_tools and bool(base.tools)
    return Request(
        messages=(*system, *messages, Message("user", instruction)),
        tools=base.tools,
        want="either" if native else "text",  # providers cache prompts by the tool choice as well
        max_tokens=summary_tokens(writer.model.traits.context),
        purpose="compact",
        task=instruction if base.messages else "",
    )


def _fitting(writer: CallForecast, messages: Messages) -> Request:
    """The request, its texts shortened until the writer's context has room; raises UsageError when it never has."""
    context = writer.model.traits.context
    for characters in (None, *_SHORTER):
        shorter = messages if characters is None else tuple(_shortened(one, characters) for one in messages)
        request = _request(writer, shorter)
        if context is None or writer.model.size(request).count + request.max_tokens <= context:
            return request
    raise UsageError(
        "No model can take the whole conversation to summarise it.",
        kept=_AS_BEFORE,
        fix="Name one with a larger context in [agent] compact_model, or go on in a /new session.",
    )


def _shortened(message: Message, characters: int) -> Message:
    """The message with its text and the texts in its calls shortened; provider state is dropped."""

    def short(value: Any) -> Any:
        if not isinstance(value, str) or len(value) <= characters:
            return value
        return f"{value[:characters]} [… {len(value) - characters:,} more characters]"

    def with_short_arguments(call: Call) -> Call:
        return replace(call, arguments={name: short(value) for name, value in call.arguments.items()})

    calls = tuple(map(with_short_arguments, message.calls))
    return replace(message, text=short(message.text), calls=calls, images=(), state=None)


def extract(memory: Memory) -> str:
    """The questions and the beginnings of their answers, the latest kept."""
    turns = [turn for turn in memory.turns if turn.messages]
    entries = [f"Asked: {_beginning(turn.question)}\nAnswered: {_beginning(turn.messages[-1].text)}" for turn in turns]
    head = "[an extract, not a summary: each question with the beginning of its answer]"
    return _latest(head, memory.summary, entries, "turns")


def extract_of_steps(steps: Sequence[Step], before: str) -> str:
    """The calls and the beginnings of their results, the latest kept; `before` is the summary they follow."""
    entries = [
        f"Called: {_beginning(step.call.signature())}\nResult: {_beginning(step.observation.text)}" for step in steps
    ]
    return _latest("[an extract, not a summary: each call with the beginning of its result]", before, entries, "calls")


def _latest(head: str, before: str, entries: Sequence[str], what: str) -> str:
    lines: list[str] = []
    room = _EXTRACT
    for entry in reversed(entries):
        room -= len(entry)
        if room < 0:
            break
        lines.append(entry)
    told = [head]
    if before:
        told.append(_beginning(before, 2 * _QUOTED))
    if len(lines) < len(entries):
        told.append(f"[{len(entries) - len(lines)} earlier {what} are left out]")
    return "\n".join((*told, *reversed(lines)))


def _beginning(text: str, characters: int = _QUOTED) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters].rstrip()} […]"

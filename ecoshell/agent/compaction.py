"""Summaries that replace earlier turns or steps, written through the gate by a model that the user chose."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Memory, next_view
from ecoshell.agent.mode import CallForecast
from ecoshell.agent.spending import QuietSpending
from ecoshell.agent.view import View, summary_messages
from ecoshell.budget import UNBOUNDED
from ecoshell.errors import ContextExceeded, EcoshellError, ModelBroken, ModelError, UsageError
from ecoshell.events import Compacted, Emit, Notice
from ecoshell.events.work import todo_lines
from ecoshell.messages import Message
from ecoshell.models import Request
from ecoshell.models.effort import reasoning_tokens
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies import Step

ROLE = "compact"
_UNCHANGED = "Nothing was compacted."
_MIN_SUMMARY_TOKENS = 1_024
_MAX_SUMMARY_TOKENS = 8_192
_CONTEXT_PER_SUMMARY = 32
"""A summary takes at most one token for so many of the context."""
_CONTEXT_PER_REASONING = 8
"""The same for the reasoning before it."""
_UNKNOWN_CONTEXT = 128_000
_RETRY_OUTPUT_FACTOR = 4
"""How much more output a second attempt gets, after reasoning took all of the first."""
_TEXT_LIMITS = (20_000, 6_000, 2_000, 600, 160)
"""Characters of each text, tried in turn until the conversation fits the writer's context."""
_EXTRACT_CHARACTERS = 6_000
_QUOTE_CHARACTERS = 240
"""Characters of a question, call, result or answer in an extract."""

Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary that replaces messages."""

    text: str
    model: str
    """The model that wrote it; empty for an extract."""
    spent_nano: int | None
    """None if a price is unknown."""


async def compact(deps: Dependencies, memory: Memory, keep: Emit) -> Compacted:
    """Summarize all turns.

    `keep` receives the events of the calls. Small models write no summaries; falls back to an extract, labelled as
    such. Raises UsageError, BudgetError and ModelError, and changes nothing then.
    """
    if not any(turn.messages for turn in memory.turns):
        raise UsageError("There is nothing to compact.", fix="Ask something first.")
    models, history, spending = deps.models.current, memory.messages, QuietSpending(keep)
    view, model = next_view(memory, deps.catalog, defers=models.defers_tools), models.model
    async with _writer(deps, view, history) as writer:
        text = name = ""
        if writer is not None:
            name = writer.model.traits.name
            if writer.model not in models.models:
                _require_announced(deps)
            text = await _write(writer, history, spending.hear)
    summary = with_todo(text or extract(memory), memory)
    old_tokens = (await asyncio.to_thread(model.size, Request(history))).count
    new_tokens = (await asyncio.to_thread(model.size, Request(summary_messages(summary)))).count
    if new_tokens >= old_tokens:
        message = f"Compacting would save nothing: {old_tokens:,} tokens now, {new_tokens:,} as a summary."
        raise UsageError(message, kept=_UNCHANGED)
    spent = spending.consumption.nano
    return Compacted(summary, name, len(memory.turns), old_tokens, new_tokens, spent_nano=spent)


def _require_announced(deps: Dependencies) -> None:
    """Raise UsageError the first time that the model of `[agent] compact_model` would read the conversation."""
    name = deps.settings.compact_model
    if name and name not in deps.settings.readers:
        deps.settings.readers.add(name)
        raise UsageError(
            f"{name} ([agent] compact_model) would read the whole conversation to summarize it.",
            kept="Nothing was sent.",
            fix="Type /compact again to allow it, or change the setting.",
        )


async def summarize(
    deps: Dependencies, view: View, messages: Messages, fallback: Callable[[], str], emit: Emit
) -> Summary:
    """Summarize these messages, the first of the view; uses the `fallback` if no model can write the summary.

    The model of `[agent] compact_model` writes only after it was announced to the user. Raises BudgetError.
    """
    spending = QuietSpending(emit)
    try:
        async with _writer(deps, view, messages, only_announced=True) as writer:
            if writer is not None:
                text = await _write(writer, messages, spending.hear)
                return Summary(text, writer.model.traits.name, spending.consumption.nano)
    except (ModelError, UsageError) as failure:
        emit(Notice(f"No summary was written; falling back to an extract. {failure.message}"))
    return Summary(fallback(), "", spending.consumption.nano)


def summary_tokens(context: int | None) -> int:
    """The maximum tokens of a summary for a model with this context."""
    context = _UNKNOWN_CONTEXT if context is None else context
    return max(
        min(_MIN_SUMMARY_TOKENS, context // 4),
        min(_MAX_SUMMARY_TOKENS, context // _CONTEXT_PER_SUMMARY),
    )


@asynccontextmanager
async def _writer(
    deps: Dependencies, view: View, messages: Messages, *, only_announced: bool = False
) -> AsyncGenerator[CallForecast | None]:
    """Choose the writer of a summary, which may be the model of `[agent] compact_model`, and close that model.

    With `only_announced`, that model writes only if the user knows that it reads the conversation.
    """
    name, chosen = deps.settings.compact_model, None
    is_own = name in {model.traits.name for model in deps.models.current.models}
    if name and not is_own and (name in deps.settings.readers or not only_announced):
        with suppress(EcoshellError):  # a missing key or file
            chosen = (await asyncio.to_thread(deps.models.factory.make, name)).model
    try:
        yield await asyncio.to_thread(_best_writer, deps, chosen, view, messages)
    finally:
        if chosen is not None:
            await chosen.aclose()


def _best_writer(
    deps: Dependencies, chosen: MeteredModel | None, view: View, messages: Messages
) -> CallForecast | None:
    """The chosen model, otherwise the cheapest suitable model of the session, with the request that it continues.

    None if only an extract is possible. Models of unknown price come last; the gate decides about them. If the
    conversation fits no model, the one with the largest context reads it shortened.
    """
    own, disabled = deps.models.current.models, deps.budget.gate.ledger.barred()
    steps = deps.models.current.mode.forecast(view).steps
    fitting: list[tuple[bool, int, CallForecast]] = []
    largest: CallForecast | None = None
    for model in (*([chosen] if chosen else []), *own):
        traits = model.traits
        if traits.small or traits.name in disabled:
            continue
        step = next((step for step in steps if step.model is model), None)
        base = step.request if step else Request(())
        call = CallForecast(base, model, ROLE)
        request = _request(call, messages)
        size = model.size(request)
        if traits.context is None or size.count + request.max_tokens <= traits.context:
            price, output = traits.price, request.max_tokens
            cost = UNBOUNDED if price is None else price.worst(size.bound, output)
            fitting.append((model is not chosen, cost, call))
        elif model is not chosen and (
            largest is None or traits.context > (largest.model.traits.context or 0)
        ):
            largest = call
    return min(fitting, key=lambda candidate: candidate[:2])[2] if fitting else largest


async def _write(writer: CallForecast, messages: Messages, emit: Emit) -> str:
    """Let the model write a summary; raises ModelBroken if it is empty."""
    model = writer.model
    request = await asyncio.to_thread(_fitting, writer, messages)
    try:
        reply = await model.ask(request, emit, role=ROLE)
    except ContextExceeded:  # which reveals its context
        request = await asyncio.to_thread(_fitting, writer, messages)
        reply = await model.ask(request, emit, role=ROLE)
    if not reply.text.strip() and (reply.cut or reply.calls):  # only reasoning, or a call
        room = _RETRY_OUTPUT_FACTOR * request.max_tokens
        request = replace(request, want="text", max_tokens=room)
        reply = await model.ask(request, emit, role=ROLE)
    if not reply.text.strip():
        raise ModelBroken(
            f"{model.traits.name} wrote no summary.",
            kept=_UNCHANGED,
            fix="Try /compact again, or name another model in [agent] compact_model.",
        )
    note = "\n[the summary was cut here, at its longest]" if reply.cut else ""
    return reply.text.strip() + note


def _request(writer: CallForecast, messages: Messages) -> Request:
    """The messages as a step sends them, so that provider caches apply, followed by the instruction."""
    instruction = (files("ecoshell.agent") / "compact.md").read_text(encoding="utf-8").strip()
    base = writer.request
    system = base.messages[:1] if base.messages and base.messages[0].speaker == "system" else ()
    has_tools = writer.model.traits.native_tools and bool(base.tools)
    reasoning = _reasoning_room(writer.model) if base.messages else 0
    return Request(
        messages=(*system, *messages, Message("user", instruction)),
        tools=base.tools,
        # providers cache prompts by the tool choice as well
        want="either" if has_tools else "text",
        max_tokens=summary_tokens(writer.model.traits.context) + reasoning,
        purpose="compact",
        task=instruction if base.messages else "",
    )


def _reasoning_room(model: MeteredModel) -> int:
    """Room for the reasoning before a summary, with the effort that its model also has in steps."""
    traits = model.traits
    if traits.reasons is False:
        return 0
    longest = (traits.context or _UNKNOWN_CONTEXT) // _CONTEXT_PER_REASONING
    return min(reasoning_tokens(model.effort()), longest)


def _fitting(writer: CallForecast, messages: Messages) -> Request:
    """The request with texts shortened until it fits the writer's context; raises UsageError if it never does."""
    context = writer.model.traits.context
    for limit in (None, *_TEXT_LIMITS):
        shorter = messages
        if limit is not None:
            shorter = tuple(_shortened(message, limit) for message in messages)
        request = _request(writer, shorter)
        if context is None or writer.model.size(request).count + request.max_tokens <= context:
            return request
    raise UsageError(
        "The conversation is too long for every model that could summarize it.",
        kept=_UNCHANGED,
        fix="Set [agent] compact_model to one with a larger context, or start a /new session.",
    )


def _shortened(message: Message, characters: int) -> Message:
    """The message with its text and the texts in its calls shortened; provider state is dropped."""

    def short(value: Any) -> Any:
        if not isinstance(value, str) or len(value) <= characters:
            return value
        return f"{value[:characters]} [… {len(value) - characters:,} more characters]"

    calls = tuple(
        replace(call, arguments={name: short(value) for name, value in call.arguments.items()})
        for call in message.calls
    )
    return replace(message, text=short(message.text), calls=calls, images=(), state=None)


def with_todo(summary: str, memory: Memory) -> str:
    """The summary followed by the task list, which the model must still know."""
    items = memory.shown.todo
    return "\n".join((summary, "", "The task list now:", *todo_lines(items))) if items else summary


def extract(memory: Memory) -> str:
    """The latest questions and the beginnings of their answers."""
    entries = [
        f"Asked: {_beginning(turn.question)}\nAnswered: {_beginning(turn.messages[-1].text)}"
        for turn in memory.turns
        if turn.messages
    ]
    head = "[an extract, not a summary: each question with the beginning of its answer]"
    return _latest(head, memory.summary, entries, "turns")


def extract_of_steps(steps: Sequence[Step], summary: str) -> str:
    """The latest calls and the beginnings of their results, after a summary of earlier ones."""
    entries = [
        f"Called: {_beginning(step.call.signature())}\nResult: {_beginning(step.observation.text)}"
        for step in steps
    ]
    head = "[an extract, not a summary: each call with the beginning of its result]"
    return _latest(head, summary, entries, "calls")


def _latest(head: str, summary: str, entries: Sequence[str], unit: str) -> str:
    lines: list[str] = []
    room = _EXTRACT_CHARACTERS
    for entry in reversed(entries):
        room -= len(entry)
        if room < 0:
            break
        lines.append(entry)
    introduction = [head]
    if summary:
        introduction.append(_beginning(summary, 2 * _QUOTE_CHARACTERS))
    if len(lines) < len(entries):
        introduction.append(f"[{len(entries) - len(lines)} earlier {unit} omitted]")
    return "\n".join((*introduction, *reversed(lines)))


def _beginning(text: str, characters: int = _QUOTE_CHARACTERS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters].rstrip()} […]"

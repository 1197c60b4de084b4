"""Collects the chunks of one answer from litellm: texts, calls, opaque fields of the provider, and the usage."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from ecoshell.messages import FINISH
from ecoshell.models.answer_text import AnswerText
from ecoshell.models.failures import Unfinished
from ecoshell.models.traffic import BadBody, text_of

_ESTIMATING = """
a2a langflow langgraph nlp_cloud petals predibase replicate sagemaker sagemaker_chat
"""
"""Providers whose usage may be litellm's own count, which is not a report."""
_CUMULATIVE_FIELDS = frozenset({"tool_results", "tool_search_items"})  # repeated whole each time
_DERIVED_FIELDS = frozenset({"thinking_blocks", "reasoning_content", "refusal"})
"""Fields litellm repeats from elsewhere in the message."""
_PATH = re.compile(r'"path"\s*:\s*("(?:[^"\\]|\\.)*")')
_PATH_CHARACTERS = 2_000
"""Characters of arguments that are searched for the path."""
_JOINED_FIELDS = frozenset({"text", "summary", "data"})  # their pieces are joined

Fields = dict[str, Any]


@dataclass(slots=True)
class StreamedAnswer:
    """The contents of one stream so far."""

    began: bool = False
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[Fields] = field(default_factory=list[Fields])
    open: dict[int, Fields] = field(default_factory=dict[int, Fields])  # the call of each index
    thinking: list[Fields] = field(default_factory=list[Fields])  # Anthropic's thinking blocks
    items: list[Any] = field(default_factory=list[Any])  # OpenAI's reasoning items
    details: list[Fields] = field(default_factory=list[Fields])  # OpenRouter's reasoning details
    fields: Fields = field(default_factory=Fields)  # such as Gemini's thought signatures
    answer: AnswerText = field(default_factory=AnswerText)  # of `finish`, if that is the first call
    finish: str = ""
    usage: Fields | None = None

    def take(self, chunk: Any) -> dict[str, Any]:
        """Add one chunk; returns its text, reasoning and answer, the bytes that are not shown, and a growing call."""
        text = reasoning = answer = ""
        unseen, growing = 0, None
        for choice in chunk.choices[:1]:
            self.finish = choice.finish_reason or self.finish
            text = text_of(choice.delta.content)
            reasoning = text_of(getattr(choice.delta, "reasoning_content", None))
            self.text.append(text)
            self.reasoning.append(reasoning)
            self._take_fields(choice.delta)
            for part in choice.delta.tool_calls or ():
                call, arguments = self._take_call(part), part.function.arguments or ""
                unseen += len(part.function.name or "") + len(arguments)
                if call is self.calls[0] and call["name"] == FINISH:
                    answer += self.answer.feed(arguments)
                elif "\\n" in arguments:
                    growing = _growing(call, arguments.count("\\n")) or growing
        shown = {"delta": text, "reasoning": reasoning, "answer": answer, "unseen": unseen}
        return shown | ({"call": growing} if growing else {})

    def _take_call(self, part: Any) -> Fields:
        """Add a piece of a call and return the call.

        A piece belongs to the call of its index, unless it starts another: some servers number every call 0 and
        distinguish calls only by their IDs. Some repeat the name with every piece.
        """
        index, identifier, name = part.index or 0, part.id or "", part.function.name or ""
        call = self.open.get(index)
        if call is None or (name and call["name"] and identifier and identifier != call["id"]):
            call = self.open[index] = {"id": identifier, "name": "", "arguments": "", "fields": {}}
            self.calls.append(call)
        call["id"] = call["id"] or identifier
        for source in (part, part.function):
            call["fields"] |= _plain(getattr(source, "provider_specific_fields", None)) or {}
        call["name"] += "" if name == call["name"] else name
        call["arguments"] += part.function.arguments or ""
        return call

    def _take_fields(self, delta: Any) -> None:
        """Add opaque fields that the provider expects back with its message."""
        for block in _plain(getattr(delta, "thinking_blocks", None)) or ():
            last = self.thinking[-1] if self.thinking else None
            if block.get("type") == "redacted_thinking":
                self.thinking.append(block)
                continue
            if last is None or last.get("signature") or "data" in last:
                last = {"type": "thinking", "thinking": "", "signature": ""}
                self.thinking.append(last)
            last["thinking"] += block.get("thinking") or ""
            last["signature"] = block.get("signature") or ""
        self.items += _plain(getattr(delta, "reasoning_items", None)) or ()
        for piece in _plain(getattr(delta, "reasoning_details", None)) or ():
            self._take_detail(piece)
        fields: Fields = _plain(getattr(delta, "provider_specific_fields", None)) or {}
        for name, value in fields.items():
            earlier = None if name in _CUMULATIVE_FIELDS else self.fields.get(name)
            both_lists = isinstance(earlier, list) and isinstance(value, list)
            self.fields[name] = cast("list[Any]", earlier) + value if both_lists else value

    def _take_detail(self, piece: Fields) -> None:
        """Add a piece of a reasoning detail: texts of one index are joined, its other fields replaced."""
        index = piece.get("index")
        detail = next((detail for detail in self.details if detail.get("index") == index), None)
        if detail is None or index is None:
            self.details.append(piece)
            return
        for name, value in piece.items():
            texts = isinstance(value, str) and isinstance(detail.get(name), str)
            detail[name] = detail[name] + value if texts and name in _JOINED_FIELDS else value

    def close(self, stream: Any) -> None:
        """Check that the stream is complete, and take its usage.

        litellm treats a closed connection as an end and invents a finish reason; only a received one counts. Raises
        Unfinished, or BadBody if nothing was received.
        """
        finish = finish_reason(stream)
        if finish in ("", "error"):
            if finish or any(self.text) or any(self.reasoning) or self.calls:
                raise Unfinished("the stream ended before the answer did")
            raise BadBody("its answer is not a stream of chat chunks")
        for call in self.calls:
            call["arguments"] = _without_repetition(call["arguments"])
        self.finish = self.finish or finish
        self.usage = _reported_usage(stream)

    def reply(self) -> Fields:
        return {
            "text": "".join(self.text),
            "reasoning": "".join(self.reasoning),
            "calls": [{name: call[name] for name in ("name", "arguments")} for call in self.calls],
            "message": self.message(),
            "finish": self.finish,
            "usage": self.usage,
        }

    def message(self) -> Fields:
        """The assistant message as the provider expects it back, in litellm's form."""
        signed = [block for block in self.thinking if block.get("signature") or "data" in block]
        fields = {name: self.fields[name] for name in self.fields if name not in _DERIVED_FIELDS}
        reasoning = "".join(self.reasoning)
        optional = {
            "tool_calls": [*map(_sent_call, self.calls)],
            "thinking_blocks": signed,
            "reasoning_items": self.items,
            "provider_specific_fields": fields,
            "reasoning_details": self.details,
            "reasoning_content": reasoning,
            "reasoning": self.details and reasoning,
        }
        content = {"content": "".join(self.text) or None}
        return content | {name: value for name, value in optional.items() if value}


def _growing(call: Fields, lines: int) -> Fields | None:
    """The name, path and lines of a call that has these further lines, if they are worth showing."""
    call["lines"] = count = call.get("lines", 1) + lines
    shown: int = call.get("shown", 0)
    if count <= shown + shown // 16:
        return None
    call["shown"] = count
    if "path" not in call and (match := _PATH.search(call["arguments"][:_PATH_CHARACTERS])):
        with suppress(ValueError):  # the complete arguments are checked later
            call["path"] = json.loads(match[1], strict=False)
    return {"name": call["name"], "path": call.get("path", ""), "lines": count}


def _sent_call(call: Fields) -> Fields:
    function = {"name": call["name"], "arguments": call["arguments"]}
    sent = {"id": call["id"], "type": "function", "function": function}
    return sent | ({"provider_specific_fields": call["fields"]} if call["fields"] else {})


def _plain(value: Any) -> Any:
    """A value of litellm as plain JSON; None if that is impossible."""
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    dump = getattr(value, "model_dump", None)
    try:
        return json.loads(json.dumps(dump(exclude_none=True) if dump else value))
    except (TypeError, ValueError, RecursionError):
        return None


def _without_repetition(arguments: str) -> str:
    """The arguments without their repetition, which litellm adds for models that it cannot stream (gpt-5-pro)."""
    half = arguments[: len(arguments) // 2]
    return half if arguments == half * 2 else arguments


def finish_reason(stream: Any) -> str:
    """The finish reason sent by the provider; empty if none."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return next(filter(None, (getattr(stream, name, None) for name in names)), "")


def _reported_usage(stream: Any) -> Fields | None:
    """The largest usage figures sent by the provider; None if it sent none.

    litellm always ends with a usage chunk, counted by itself if the provider sent none. The provider's reports are on
    the chunks before it. Several reports are cumulative, so the largest counts. litellm includes cached and written
    tokens in the prompt's for every provider. Some servers count reasoning only in the total.
    """
    if getattr(stream, "custom_llm_provider", "") in _ESTIMATING.split():
        return None
    largest: Fields = {}
    for chunk in getattr(stream, "chunks", ()):
        usage = getattr(chunk, "usage", None)
        if usage is None:
            continue
        prompt = getattr(usage, "prompt_tokens_details", None)
        output = getattr(usage, "completion_tokens_details", None)
        written = getattr(prompt, "cache_creation_tokens", None)
        written = written or getattr(prompt, "cache_write_tokens", None)
        written = written or getattr(usage, "cache_creation_input_tokens", None)
        report = {
            "input": usage.prompt_tokens,
            "output": max(usage.completion_tokens, usage.total_tokens - usage.prompt_tokens),
            "cached": getattr(prompt, "cached_tokens", None) or 0,
            "cache_write": written or 0,
            "reasoning": getattr(output, "reasoning_tokens", None) or 0,
        }
        for name, count in report.items():
            highest = largest.get(name, count)
            are_counts = isinstance(count, int) and isinstance(highest, int)
            largest[name] = max(highest, count) if are_counts else None
    return largest or None

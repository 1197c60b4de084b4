"""What an emulated model answers, and how a test sees the request it answers: the same types for every provider."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

CHARACTERS_PER_TOKEN = 4


def token_count(text: str) -> int:
    """Tokens of a text: its UTF-8 bytes divided by four, rounded up."""
    return -(-len(text.encode()) // CHARACTERS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning, if the request allows it; a provider that hides its text reports only its tokens.

    `redacted`: Anthropic sends it encrypted.
    """

    text: str
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call; without an ID the emulator makes one in the provider's format."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """A search of the provider for deferred tools, and the tools it loads."""

    query: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part of a type that no client knows."""

    fields: Mapping[str, Any] = field(default_factory=lambda: {"type": "hologram", "hologram": "?"})


Part = Text | Reasoning | ToolCall | ToolSearch | Unknown


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model, and what goes wrong while it is streamed.

    `finish`: "length", "content_filter" or a provider's own word; None follows from the parts.
    `cut_after`, `fail_after`: the connection closes, or an error event comes, after so many events.
    `endless`: the first piece of reasoning is repeated until the client goes away.
    `content_as_parts`: OpenAI chat sends its content as a list of parts.
    """

    parts: tuple[Part, ...] = ()
    finish: str | None = None
    cut_after: int | None = None
    fail_after: int | None = None
    endless: bool = False
    content_as_parts: bool = False

    def without_reasoning(self) -> "Reply":
        """The reply of a model with reasoning turned off."""
        return replace(
            self, parts=tuple(part for part in self.parts if not isinstance(part, Reasoning))
        )

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer with an error status, in the provider's own shape, before anything is streamed."""

    status: int
    retry_after: int | None = None
    message: str | None = None


Answer = Reply | Failure


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a request, the same for every provider. `calls`: (id, name, arguments); `results`: (id, text)."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    images: int = 0
    calls: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    results: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request that passed the provider's rules."""

    number: int
    """Of the accepted requests, from 1."""
    body: Mapping[str, Any]
    model: str
    tools: tuple[str, ...]
    messages: tuple[PromptMessage, ...]
    max_output_tokens: int
    is_reasoning: bool

    @property
    def question(self) -> str:
        """The last user text."""
        return next(
            (
                message.text
                for message in reversed(self.messages)
                if message.role == "user" and message.text
            ),
            "",
        )

    @property
    def results(self) -> tuple[tuple[str, str], ...]:
        """The tool results after the last assistant message, in order: (call id, text)."""
        results: list[tuple[str, str]] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            results[:0] = message.results
        return tuple(results)


def merged(messages: Iterable[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Messages with those of one reply, and of one group of results, made one."""
    result: list[PromptMessage] = []
    for message in messages:
        last = result[-1] if result else None
        if last is None or last.role != message.role or message.role not in ("assistant", "tool"):
            result.append(message)
            continue
        result[-1] = replace(
            last,
            text=last.text + message.text,
            images=last.images + message.images,
            calls=last.calls + message.calls,
            results=last.results + message.results,
        )
    return tuple(result)


Script = Callable[[Prompt], Answer]


def limited(reply: Reply, tokens: int) -> Reply:
    """The reply cut at the limit on output tokens, as a provider cuts it."""
    parts: list[Part] = []
    remaining = tokens
    for part in reply.parts:
        needed = part_tokens(part)
        if needed <= remaining:
            parts.append(part)
            remaining -= needed
            continue
        if remaining and isinstance(part, Text | Reasoning):
            parts.append(replace(part, text=part.text[: remaining * CHARACTERS_PER_TOKEN]))
        return replace(reply, parts=tuple(parts), finish="length")
    return reply


def part_tokens(part: Part) -> int:
    """Output tokens of a part."""
    if isinstance(part, Text | Reasoning):
        return token_count(part.text)
    if isinstance(part, ToolCall):
        return token_count(part.name + json.dumps(part.arguments)) + 5
    return 1


def output_tokens(reply: Reply) -> tuple[int, int]:
    """Output tokens of a reply: all of them, and those of its reasoning."""
    reasoning = sum(part_tokens(part) for part in reply.parts if isinstance(part, Reasoning))
    return max(1, sum(part_tokens(part) for part in reply.parts)), reasoning

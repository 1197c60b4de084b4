"""Counts and bounds a prompt by what the provider counted in earlier prompts of the same conversation.

Reports of this process are kept with their prompts; those of earlier processes come from the session's events and are
found by a digest of their prompts.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from threading import Lock

from ecoshell.messages import Message, ToolSchema, Usage
from ecoshell.models import PER_PROMPT, PER_TOOL_ARRAY, PromptSize, Request
from ecoshell.models.protocol import as_plain_messages, exchanges, safe_name
from ecoshell.models.tool_search import loaded_names

MAX_PROMPTS = 8
MAX_BYTES_PER_TOKEN = 16  # reports with more may lack cached tokens, and are not used
MARGIN = 16  # divisor of the margin for templates that differ between machines

_DIGEST_CHARACTERS = 32

Group = tuple[Message, tuple[Message, ...]]
SizeOf = Callable[[Request], PromptSize]


@dataclass(frozen=True, slots=True)
class CountedPrompt:
    """A request, the usage its provider reported for it, and its count before (0 if unknown)."""

    request: Request
    groups: tuple[Group, ...]
    usage: Usage
    count: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """What a request has beyond a counted prompt, and what it lacks of it."""

    common: int  # groups of messages in both
    frame: Request  # has neither messages nor new tools
    added: Request
    removed: Request
    tools: tuple[ToolSchema, ...]  # new ones that the provider need not search
    replies: int  # added replies with provider state
    has_other_choice: bool


class ReportedPrompts:
    """Remembers the last prompts counted by a model's provider, to count and bound prompts with a common prefix.

    A count bounds every part of its prompt that is sent again, because chat templates separate messages by special
    tokens, across which no tokenizer merges. Only the rest of a prompt is bounded by its own size.
    """

    def __init__(self, model: str, *, native_tools: bool, defers_tools: bool = False) -> None:
        self.restored: Callable[[], Mapping[str, Usage]] = dict[str, Usage]
        """Reports of earlier processes for this session, by the digest of their prompts."""
        self._model = model
        self._native_tools = native_tools
        self._defers_tools = defers_tools
        self._prompts: deque[CountedPrompt] = deque(maxlen=MAX_PROMPTS)
        self._lock = Lock()

    def record(self, request: Request, usage: Usage, size: PromptSize) -> str:
        """Remember a report and return the prompt's digest; empty for one too small for a prompt of this size."""
        if usage.input * MAX_BYTES_PER_TOKEN < size.bound:
            return ""
        groups = self._groups(request)
        with self._lock:
            self._prompts.append(CountedPrompt(request, groups, usage, size.count))
        return [*self._digests(request, groups)][-1]

    def size(self, request: Request, size_of: SizeOf) -> PromptSize | None:
        """The size of a prompt by the reports; None without a usable one.

        Every usable report bounds it. The report that shares most with the prompt counts it: only the rest is counted
        by `size_of`, whose tokenizer may be that of another model.
        """
        with self._lock:
            prompts = tuple(self._prompts)
        counted = self.restored()
        if not prompts and not counted:
            return None
        groups = self._groups(request)
        usable = [
            (prompt, difference)
            for prompt in (*prompts, *self._restored(request, groups, counted))
            if (difference := self._difference(prompt, request, groups)) is not None
        ]
        if not usable:
            return None
        bound = min(_bound(prompt, difference, size_of) for prompt, difference in usable)
        usable.sort(key=lambda pair: (pair[1].common, -len(pair[0].groups)))
        return PromptSize(_count(*usable[-1], size_of), bound, exact=False)

    def bound(self, request: Request, size_of: SizeOf) -> int | None:
        """The bound of `size`."""
        size = self.size(request, size_of)
        return None if size is None else size.bound

    def _restored(
        self, request: Request, groups: tuple[Group, ...], counted: Mapping[str, Usage]
    ) -> Iterator[CountedPrompt]:
        """The longest prompt counted by an earlier process that this one extends."""
        digests = enumerate(self._digests(request, groups), 1) if counted else ()
        lengths = {length: counted[digest] for length, digest in digests if digest in counted}
        if lengths:
            length = max(lengths)
            yield CountedPrompt(request, groups[:length], lengths[length])

    def _digests(self, request: Request, groups: tuple[Group, ...]) -> Iterator[str]:
        """Digests of the prompts with the first groups of a request: of one, of two, and so on."""
        tools = [[tool.as_function(), tool.deferred] for tool in request.tools]
        settings = [self._model, request.want, *_settings(request)]
        digest = sha256(_canonical([settings, self._native_tools, self._defers_tools, tools]))
        for group in groups:
            digest.update(_canonical([_fields(message) for message in (group[0], *group[1])]))
            yield digest.hexdigest()[:_DIGEST_CHARACTERS]

    def _difference(
        self, prompt: CountedPrompt, request: Request, groups: tuple[Group, ...]
    ) -> Difference | None:
        """How a request differs from a counted prompt; None if its report says nothing about the request."""
        counted = prompt.request
        same_text_tools = self._native_tools or request.tools == counted.tools
        if not same_text_tools or _settings(request) != _settings(counted):
            return None
        pairs = zip(groups, prompt.groups, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        added = _messages(groups[common:])
        replies = sum(message.state is not None for message in added)
        if common == 0 or replies > 1:
            return None
        frame = replace(request, messages=(), tools=request.tools[:1] if self._native_tools else ())
        # A report holds only those schemas that were loaded, and any of the others may be loaded now.
        searched = self._searched(request.tools, added)
        new_tools = (tool for tool in request.tools if tool not in counted.tools)
        tools = tuple(tool for tool in new_tools if tool not in searched)
        return Difference(
            common,
            frame,
            replace(frame, messages=added, tools=(*frame.tools, *searched)),
            replace(frame, messages=_messages(prompt.groups[common:])),
            tools,
            replies,
            request.want != counted.want and bool(request.tools) and not tools,
        )

    def _searched(
        self, tools: Sequence[ToolSchema], added: Sequence[Message]
    ) -> tuple[ToolSchema, ...]:
        """Tools that the provider may load for the next reply, or has loaded in these messages."""
        if not self._defers_tools:
            return ()
        states = (message.state for message in added if message.state is not None)
        loaded = {name for state in states for name in loaded_names(state.message)}
        return tuple(tool for tool in tools if tool.deferred or safe_name(tool.name) in loaded)

    def _groups(self, request: Request) -> tuple[Group, ...]:
        """The messages as they are rendered: calls together with their results."""
        native = self._native_tools and bool(request.tools)
        return tuple(exchanges(request.messages if native else as_plain_messages(request)))


def _bound(prompt: CountedPrompt, difference: Difference, size_of: SizeOf) -> int:
    frame = difference.frame
    bound = prompt.usage.input + prompt.usage.input // MARGIN + PER_PROMPT
    bound += size_of(difference.added).bound - size_of(frame).bound
    if difference.tools:
        bound += size_of(replace(frame, tools=difference.tools)).bound
    if difference.has_other_choice:
        bound += PER_TOOL_ARRAY  # the tool choice changes the text before the array
    # Reasoning is counted again, and its text may be shorter than it was; this report has only its own reply's.
    return bound + (prompt.usage.output if difference.replies else 0)


def _count(prompt: CountedPrompt, difference: Difference, size_of: SizeOf) -> int:
    frame, count = size_of(difference.frame).count, prompt.usage.input
    if difference.removed.messages and prompt.count:
        removed = size_of(difference.removed).count - frame
        count = count * max(0, prompt.count - removed) // prompt.count
    count += size_of(difference.added).count - frame
    if difference.tools:
        count += size_of(replace(difference.frame, tools=difference.tools)).count
    return count + (prompt.usage.reasoning if difference.replies else 0)


def _messages(groups: Sequence[Group]) -> tuple[Message, ...]:
    return tuple(message for first, results in groups for message in (first, *results))


def _fields(message: Message) -> list[object]:
    """Everything of a message that may change how it is counted."""
    calls = [[call.name, call.arguments, call.id] for call in message.calls]
    images = [[image.name, image.media_type, image.data] for image in message.images]
    state = None if message.state is None else [message.state.family, message.state.message]
    return [message.speaker, message.text, calls, images, state]


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, default=dict).encode()


def _settings(request: Request) -> tuple[object, ...]:
    """What may change how a prompt is counted, apart from messages, tools and `want`."""
    return request.several, request.min_tokens, request.effort

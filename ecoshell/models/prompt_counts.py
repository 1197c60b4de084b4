"""Bounds a prompt by what the provider counted in earlier prompts of the same conversation.

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
    """A request and the usage its provider reported for it."""

    request: Request
    groups: tuple[Group, ...]
    usage: Usage


class ReportedPrompts:
    """Remembers the last prompts counted by a model's provider, to bound prompts with a common prefix.

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
            self._prompts.append(CountedPrompt(request, groups, usage))
        return [*self._digests(request, groups)][-1]

    def bound(self, request: Request, size_of: SizeOf) -> int | None:
        """The maximum tokens of a prompt by the closest report; None without a usable one."""
        with self._lock:
            prompts = tuple(self._prompts)
        counted = self.restored()
        if not prompts and not counted:
            return None
        groups = self._groups(request)
        restored = self._restored(request, groups, counted)
        bounds = (self._from(prompt, request, groups, size_of) for prompt in (*prompts, *restored))
        return min((bound for bound in bounds if bound is not None), default=None)

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

    def _from(
        self, prompt: CountedPrompt, request: Request, groups: tuple[Group, ...], size_of: SizeOf
    ) -> int | None:
        counted = prompt.request
        tools = tuple(tool for tool in request.tools if tool not in counted.tools)
        same_text_tools = self._native_tools or request.tools == counted.tools
        if not same_text_tools or _settings(request) != _settings(counted):
            return None
        pairs = zip(groups, prompt.groups, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if common == 0:
            return None
        new_groups = groups[common:]
        added = tuple(message for first, results in new_groups for message in (first, *results))
        frame = replace(request, messages=(), tools=request.tools[:1] if self._native_tools else ())
        bound = prompt.usage.input + prompt.usage.input // MARGIN + PER_PROMPT
        # A report holds only those schemas that were loaded, and any of the others may be loaded now.
        searched = self._searched(request.tools, added)
        tools = tuple(tool for tool in tools if tool not in searched)
        addition = replace(frame, messages=added, tools=(*frame.tools, *searched))
        bound += size_of(addition).bound - size_of(frame).bound
        bound += size_of(replace(frame, tools=tools)).bound if tools else 0
        if request.want != counted.want and request.tools and not tools:
            bound += PER_TOOL_ARRAY  # the tool choice changes the text before the array
        replies = sum(message.state is not None for message in added)
        if replies > 1:
            return None
        # Reasoning is counted again, and its text may be shorter than it was; this report has only its own reply's.
        return bound + (prompt.usage.output if replies else 0)

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

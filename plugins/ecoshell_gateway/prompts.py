"""Upper bounds of prompts: each part of a request with its digest and the most tokens that it can be counted as.

The rules are those of `ecoshell.models.prompt_bound`, applied to the body of a request.
"""

import json
import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Any, cast

from ecoshell.errors import ToolError
from ecoshell.images import MAX_SIDE, image_bound, image_of_base64
from ecoshell.messages import Image
from ecoshell.models import PER_PROMPT, PER_TOOL_ARRAY
from ecoshell.models.prompt_bound import (
    PER_MESSAGE,
    PER_TOOL,
    PER_TOOL_SEARCH,
    json_bound,
    text_bound,
)
from ecoshell.models.prompt_counts import MARGIN, MAX_BYTES_PER_TOKEN
from ecoshell_gateway.errors import unbounded

_CACHED_PARTS = 8192
_REMEMBERED_PROMPTS = 16
_IMAGES = frozenset({"image", "image_url", "input_image", "computer_screenshot"})
_FILES = frozenset({"document", "file", "input_file", "container_upload", "item_reference"})
_AUDIO = frozenset({"input_audio", "audio", "output_audio", "video", "input_video"})
_CHANGING_FIELDS = frozenset(
    {"id", "tool_use_id", "tool_call_id", "call_id", "signature", "encrypted_content", "thinking"}
)
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Part:
    """A message, a tool or another part of a prompt.

    `digest` is empty for a part that the provider may or may not have counted before.
    """

    digest: bytes
    bound: int
    is_open: bool = False
    """Whether it refers to content that the gateway cannot see, such as a PDF file or an earlier response."""
    step: bytes = b""
    """Digest of a message without its IDs and numbers; empty for other parts."""


class PromptParts:
    """Collects the parts of one prompt."""

    def __init__(self, model: str) -> None:
        self.parts: list[Part] = []
        self._model = model

    def add_messages(self, messages: Iterable[Any]) -> None:
        """Add messages of the conversation."""
        for message in messages:
            self.parts.append(_part("message", message, self._model))

    def add_system(self, blocks: Iterable[Any]) -> None:
        """Add blocks of a system prompt."""
        for block in blocks:
            self.parts.append(_part("system", block, self._model))

    def add_tools(self, tools: list[dict[str, Any]], choice: Any = None) -> None:
        """Add a tool array and the tool choice, which changes the text before the array."""
        if not tools:
            return
        self.parts.append(Part(_digest(["tool array", choice]), PER_TOOL_ARRAY))
        for tool in tools:
            part = _part("tool", tool, self._model)
            is_deferred = bool(tool.get("defer_loading"))
            self.parts.append(Part(b"", part.bound) if is_deferred else part)
        if any(tool.get("defer_loading") for tool in tools):
            self.parts.append(Part(b"", PER_TOOL_SEARCH))

    def add_other(self, name: str, value: Any) -> None:
        """Add a field whose text may become part of the prompt, such as a response format."""
        if value is not None and not isinstance(value, (bool, int, float)):
            self.parts.append(_part("tool", {name: value}, self._model))

    def add_hidden(self) -> None:
        """Add content that the provider stores."""
        self.parts.append(Part(b"", 0, is_open=True))

    @property
    def bound(self) -> int:
        """The most tokens of all parts."""
        return PER_PROMPT + sum(part.bound for part in self.parts)

    @property
    def is_open(self) -> bool:
        """Whether any part cannot be bounded by what was sent."""
        return any(part.is_open for part in self.parts)


class CountedPrompts:
    """What providers counted for the last prompts, by model, to bound prompts that share parts with them.

    Only digests are kept. Special tokens separate the parts, so a count bounds each part that is sent again.
    """

    def __init__(self) -> None:
        self._prompts: deque[tuple[str, dict[bytes, int], int]] = deque(maxlen=_REMEMBERED_PROMPTS)
        self._lock = Lock()

    def record(self, model: str, prompt: PromptParts, counted: int) -> None:
        """Remember the provider's count, unless it is implausibly small for a prompt of this size."""
        if prompt.is_open or counted * MAX_BYTES_PER_TOKEN < prompt.bound:
            return
        counts: dict[bytes, int] = {}
        for part in prompt.parts:
            counts[part.digest] = counts.get(part.digest, 0) + 1
        with self._lock:
            self._prompts.append((model, counts, counted))

    def bound(self, model: str, prompt: PromptParts) -> int:
        """Return the most tokens of a prompt, by its size or by the closest count."""
        with self._lock:
            prompts = [
                (counts, counted) for name, counts, counted in self._prompts if name == model
            ]
        bounds = (
            counted + counted // MARGIN + PER_PROMPT + _added(prompt, counts)
            for counts, counted in prompts
        )
        return min((prompt.bound, *bounds))


def _added(prompt: PromptParts, counts: Mapping[bytes, int]) -> int:
    """Return the bound of the parts that an earlier prompt did not have."""
    unused, added = dict(counts), 0
    for part in prompt.parts:
        remaining = unused.get(part.digest, 0) if part.digest else 0
        if remaining:
            unused[part.digest] = remaining - 1
        else:
            added += part.bound
    return added


_cache: OrderedDict[bytes, Part] = OrderedDict()
"""Parts by digest, because each request of a conversation repeats the earlier ones."""


def _part(kind: str, value: Any, model: str) -> Part:
    digest = _digest([kind, model, _without_cache_marks(value)])
    part = _cache.get(digest)
    if part is None:
        counter = _Counter(model)
        if kind == "tool":
            counter.tokens = PER_TOOL + json_bound(value)
        else:
            counter.add(value)
        step = _digest(_without_numbers(value)) if kind == "message" else b""
        part = _cache[digest] = Part(digest, counter.tokens, counter.is_open, step)
        if len(_cache) > _CACHED_PARTS:
            _cache.popitem(last=False)
    return part


def _digest(value: Any) -> bytes:
    return blake2b(json.dumps(value).encode(), digest_size=16).digest()


def _without_cache_marks(value: Any) -> Any:
    """Remove Anthropic's cache marks, which move from message to message."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        return {
            name: _without_cache_marks(item) for name, item in fields if name != "cache_control"
        }
    if isinstance(value, list):
        return [_without_cache_marks(item) for item in cast("list[Any]", value)]
    return value


def _without_numbers(value: Any) -> Any:
    """Remove what differs between two equal steps: IDs, signatures, reasoning and numbers."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        return {
            name: _without_numbers(item) for name, item in fields if name not in _CHANGING_FIELDS
        }
    if isinstance(value, list):
        return [_without_numbers(item) for item in cast("list[Any]", value)]
    return _NUMBER.sub("0", value) if isinstance(value, str) else value


class _Counter:
    """Adds up the most tokens of a value in a message."""

    def __init__(self, model: str) -> None:
        self.tokens = 0
        self.is_open = False
        self._model = model

    def add(self, value: Any) -> None:
        if isinstance(value, str):
            self.tokens += text_bound(value)
        elif isinstance(value, list):
            for item in value:  # pyright: ignore[reportUnknownVariableType]
                self.add(item)
        elif isinstance(value, dict):
            self._add_object(value)  # pyright: ignore[reportUnknownArgumentType]
        elif value is not None:
            self.tokens += len(json.dumps(value))

    def _add_object(self, part: dict[str, Any]) -> None:
        self.tokens += PER_MESSAGE
        kind = part.get("type")
        if kind in _AUDIO or "audio" in part:
            raise unbounded("Audio")
        if kind in _IMAGES:
            self.tokens += _image_bound(part, self._model)
            return
        if kind in _FILES and not _is_text_document(part):
            self.is_open = True
            return
        for name, value in part.items():
            if name == "arguments" and isinstance(value, str):
                self.tokens += _arguments_bound(value)
            elif name in ("arguments", "input") and isinstance(value, dict):
                self.tokens += json_bound(value)  # pyright: ignore[reportUnknownArgumentType]
            else:
                self.tokens += text_bound(name)
                self.add(value)


def _arguments_bound(text: str) -> int:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return 2 * text_bound(text)
    return json_bound(value) if isinstance(value, dict) else 2 * text_bound(text)  # pyright: ignore


def _is_text_document(part: Mapping[str, Any]) -> bool:
    source: Any = part.get("source")
    return isinstance(source, dict) and source.get("type") in ("text", "content")  # pyright: ignore


def _image_bound(part: Mapping[str, Any], model: str) -> int:
    """Return the most tokens of an image: by its size, or of the largest one if its bytes are not in the request."""
    source: Any = part.get("source") or part.get("image_url")
    if isinstance(source, dict):
        source = source.get("data") or source.get("url")  # pyright: ignore
    if isinstance(source, str) and not source.startswith(("http://", "https://")):
        _, comma, data = source.partition(";base64,")
        try:
            return image_bound(image_of_base64(data if comma else source, "the image"), model)
        except ToolError:
            pass
    return image_bound(Image("image", "image/png", "", MAX_SIDE, MAX_SIDE), model)

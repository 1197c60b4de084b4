"""Data that models, tools and strategies exchange, and its safe display in a terminal."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal

Speaker = Literal["system", "user", "assistant", "tool"]
Effect = Literal["read", "write", "execute", "network"]

OPAQUE: Mapping[str, bool] = MappingProxyType({"opaque": True})
"""Field metadata: the field holds no text, so no API keys are searched for in it."""
TOOL_REGISTER = "tool_register"
TOOL_SEARCH = "tool_search"
TOOL_CALL = "tool_call"
FINISH = "finish"
PROGRAM = "program"
"""The role of calls that a program makes; no model reads their results."""
META_TOOLS = frozenset({TOOL_REGISTER, TOOL_SEARCH, TOOL_CALL, FINISH})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `id` pairs it with its result and is the provider's own ID, if any."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""
    group: str = field(default="", compare=False)
    """ID of the reply that made the call."""
    fault: str = field(default="", compare=False)
    """Why the call cannot run (broken JSON, arguments that violate the schema), worded for the model."""

    @property
    def subject(self) -> str:
        """The tool the call is about: for a meta-tool, the one it names."""
        argument = {TOOL_REGISTER: "tool_name", TOOL_CALL: "name"}.get(self.name, "")
        inside = self.arguments.get(argument)
        return inside if isinstance(inside, str) else self.name

    def signature(self) -> str:
        """Return the call as `name(key=value, …)`."""
        inside = ", ".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}"
            for key, value in self.arguments.items()
        )
        return f"{self.name}({inside})"


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a message or in a tool result."""

    name: str
    media_type: str
    data: str = field(repr=False, metadata=OPAQUE)
    """The file's bytes in base64."""
    width: int
    height: int
    """In pixels."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """Part of a question: a mentioned file, a large paste, or an image."""

    name: str
    text: str
    image: Image | None = None
    """If set, `text` is its label."""


@dataclass(frozen=True, slots=True)
class ProviderState:
    """The reply as its provider sent it, with thinking blocks, signatures, reasoning items and the IDs of tool calls.

    The provider expects it back unchanged.
    """

    family: str
    """Only models of this provider family receive it."""
    message: Mapping[str, Any]
    """The assistant message in litellm's form, without its role."""


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the conversation. An assistant message holds everything of one reply."""

    speaker: Speaker
    text: str = ""
    calls: tuple[Call, ...] = ()
    """The calls of an assistant message, or the one call that a tool message answers."""
    images: tuple[Image, ...] = ()
    state: ProviderState | None = None
    note: str = ""
    """The end of a tool message's text that is not part of the result."""

    @property
    def result(self) -> str:
        """The text without the note."""
        return self.text.removesuffix(self.note)

    @property
    def call(self) -> Call | None:
        """The first call."""
        return self.calls[0] if self.calls else None


@dataclass(frozen=True)
class ToolSchema:
    """A tool schema: name, description, and parameters as a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    server: str = ""
    """The MCP server that has the tool; empty for others."""
    brief: bool = False
    """Whether tool arrays hold the short form, for chat templates that print any JSON."""
    deferred: bool = False
    """Whether the provider keeps it out of the prompt until its own search loads it."""

    @property
    def summary(self) -> str:
        """The first sentence of the description, shortened for a table."""
        sentence = " ".join(_SENTENCE_END.split(self.description.strip(), maxsplit=1)[0].split())
        return sentence if len(sentence) <= _MAX_SUMMARY else f"{sentence[: _MAX_SUMMARY - 1]}…"

    def as_function(self) -> dict[str, Any]:
        """Return the entry in a provider's tool array, or its short form.

        The short form gives the arguments as a signature, in little more than half of the tokens. Descriptions of
        arguments are in brackets, because small models copy any other text as a value. Optional numbers and booleans
        are omitted, because small models fill in every argument they see; calls may still have them.
        """
        if not self.brief:
            function = {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            }
            return {"type": "function", "function": function}
        signature: list[str] = []
        for name, kind, about, keywords, optional in self._arguments():
            if optional and kind in ("integer", "number", "boolean"):
                continue
            keywords.pop("default", None)
            written = f"{kind} {json.dumps(keywords, ensure_ascii=False)}" if keywords else kind
            first = _CLAUSE_END.split(about, maxsplit=1)[0]
            signature.append(
                f"{name}{'?' if optional else ''}: {written}{f' ({first})' if first else ''}"
            )
        entry: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "parameters": ", ".join(signature),
        }
        if keywords := self._schema_keywords():
            entry["schema"] = keywords
        return entry

    @cached_property
    def entry(self) -> str:
        """The array entry as chat templates print it, for counting tokens."""
        return json.dumps(self.as_function(), ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits that change with the description or the parameters."""
        parts = [self.description, self.parameters]
        text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
        return sha256(text.encode()).hexdigest()[:16]

    def as_text(self) -> str:
        """Return the schema as text: one line for the tool and one for each argument.

        It takes two thirds of the tokens of the JSON schema.
        """
        lines = [f"{self.name}: {self.description}"]
        for name, kind, about, keywords, optional in self._arguments():
            schema = [json.dumps(keywords, ensure_ascii=False)] if keywords else []
            marks = ", ".join([kind, *(["optional"] if optional else []), *schema])
            lines.append(f"- {name} ({marks}): {about}" if about else f"- {name} ({marks})")
        if keywords := self._schema_keywords():
            lines.append(f"Schema: {json.dumps(keywords, ensure_ascii=False)}")
        return "\n".join(lines)

    def _arguments(self) -> Iterator[tuple[str, str, str, dict[str, Any], bool]]:
        """Yield name, type, description, further schema keywords and optionality of each argument."""
        required: Sequence[str] = self.parameters.get("required") or ()
        properties: Mapping[str, Any] = self.parameters.get("properties") or {}
        for name, schema in properties.items():
            keywords: dict[str, Any] = {**schema} if isinstance(schema, Mapping) else {}
            about, kind = keywords.pop("description", None), "any"
            keywords.pop("title", None)
            if isinstance(keywords.get("type"), str):
                kind = str(keywords.pop("type"))
            yield name, kind, str(about or ""), keywords, name not in required

    def _schema_keywords(self) -> dict[str, Any]:
        """Return the schema keywords that do not belong to an argument."""
        return {
            key: value for key, value in self.parameters.items() if key not in _EXPRESSED_KEYWORDS
        }


_EXPRESSED_KEYWORDS = frozenset(
    {"type", "properties", "required", "title", "$schema", "additionalProperties"}
)
"""Keywords that `ToolSchema.as_text` expresses in its lines, or that mean nothing to a model."""
_CLAUSE_END = re.compile(r"[;.](?:\s|$)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])|\n")
_MAX_SUMMARY = 160


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory used by one run of a tool, in MB of 2^20 bytes; unknown is None (CATP-LLM B.3)."""

    cpu_mb: float | None = None
    """Constant part: memory of the process before the run."""
    cpu_instant_mb: float | None = None
    """Instant part: peak of the run above the constant part."""
    gpu_mb: float | None = None
    gpu_instant_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of a call, as the model reads it."""

    text: str
    ok: bool = True
    truncated: bool = False
    seconds: float = 0.0
    refused: str = ""
    """The guard that refused the call (unknown, repeated, unregistered, forbidden, unaffordable, unapproved, hook);
    empty if the tool ran."""
    changes: str = ""
    """Changes to files as a unified diff, for the user; the model does not read it."""
    note: str = ""
    """Added after the text: tools that are no longer allowed, and the remaining budget."""
    footprint: Footprint | None = None
    """None if not measured."""
    images: tuple[Image, ...] = ()
    """For models with vision; the text has the label of each."""
    obstacle: Literal["", "network", "outside"] = ""
    """What a failed command seems to have lacked in the sandbox."""

    def message(self, call: Call) -> Message:
        """The tool message with the text and the note."""
        note = f"\n\n{self.note}" if self.note else ""
        return Message("tool", f"{self.text}{note}", (call,), images=self.images, note=note)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call; `cached` and `cache_write` are parts of `input`, `reasoning` is part of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )

    @property
    def total(self) -> int:
        """Input and output tokens, which caps in tokens count."""
        return self.input + self.output


def visible(text: str) -> str:
    """Replace control and misleading characters with visible escapes.

    ESC becomes `␛`; other control characters `\\x9b`; bidirectional overrides, invisible tags, line separators and lone
    surrogates `\\u202e`. Newlines and tabs stay; a carriage return before a newline is removed.
    """
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(_escape, text.replace("\r\n", "\n"))


def visible_line(text: str, max_length: int | None = None) -> str:
    """Return `visible` text on one line, cut to `max_length` characters with an ellipsis."""
    line = " ".join(visible(text).split())
    if max_length is None or len(line) <= max_length:
        return line
    return f"{line[: max_length - 1].rstrip()}…"


def fenced(text: str, language: str = "") -> str:
    """Return a Markdown code block with a fence longer than any in the text."""
    marks = "```"
    while marks in text:
        marks += "`"
    return "\n".join((marks + language, text.removesuffix("\n"), marks))


_HIDDEN = re.compile(
    r"["
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and newline
    r"\u061c\u200e\u200f"  # marks of the writing direction
    r"\u2028-\u202e\u2066-\u2069"  # line and paragraph separators, embeddings, overrides and isolates
    r"\ud800-\udfff"  # surrogates, which no terminal's encoding can carry
    r"\ufeff"  # zero-width no-break space
    r"\U000e0000-\U000e007f"  # tags, which can hide whole sentences
    r"]"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x1B:
        return "␛"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

"""The nouns that models, tools and strategies exchange, and how a terminal shows what they say: as data alone."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, Literal, cast

Speaker = Literal["system", "user", "assistant", "tool"]
Effect = Literal["read", "write", "execute", "network"]

OPAQUE: Mapping[str, bool] = MappingProxyType({"opaque": True})
"""Marks a field that holds no text: keys are not looked for in it."""
TOOL_REGISTER = "tool_register"
TOOL_SEARCH = "tool_search"
TOOL_CALL = "tool_call"
FINISH = "finish"
META_TOOLS = frozenset({TOOL_REGISTER, TOOL_SEARCH, TOOL_CALL, FINISH})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `id` pairs it with its result: the provider's own ID where there is one."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""
    group: str = field(default="", compare=False)
    """Identifies the reply that made the call; equal for all calls of one reply."""
    fault: str = field(default="", compare=False)
    """Why the call cannot run (broken JSON, arguments that do not fit the schema), worded for the model."""

    @property
    def subject(self) -> str:
        """The tool the call is about: for a meta-tool, the one it names."""
        inside = self.arguments.get({TOOL_REGISTER: "tool_name", TOOL_CALL: "name"}.get(self.name, ""))
        return inside if isinstance(inside, str) else self.name

    def signature(self) -> str:
        """The call as a person reads it: `name(key=value, …)`."""
        inside = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in self.arguments.items())
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
    """What goes along with a question: a file that was mentioned, a large paste, or an image."""

    name: str
    text: str
    image: Image | None = None
    """Where it is an image; `text` is its label then."""


@dataclass(frozen=True, slots=True)
class ProviderState:
    """What a provider sent with a reply and expects back unchanged: its message, with thinking blocks, signatures,
    reasoning items, and tool calls under their own IDs.
    """

    family: str
    """Only a model of this provider family receives it again."""
    message: Mapping[str, Any]
    """The assistant message in litellm's form, without its role."""


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the conversation. An assistant message holds everything of one reply."""

    speaker: Speaker
    text: str = ""
    calls: tuple[Call, ...] = ()
    """The calls an assistant message makes; of a tool message, the one call it answers."""
    images: tuple[Image, ...] = ()
    state: ProviderState | None = None

    @property
    def call(self) -> Call | None:
        """The first of the calls."""
        return self.calls[0] if self.calls else None


@dataclass(frozen=True)
class ToolDocument:
    """What registering a tool tells the model: description and parameters (a JSON schema)."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    server: str = ""
    """Where the tool comes from; empty for built-in tools."""
    brief: bool = False
    """Whether a tool array shows it in the short form, for models that take any JSON there."""
    deferred: bool = False
    """Whether the provider keeps it out of the prompt until its own search loads it."""

    @property
    def summary(self) -> str:
        """How the description begins, for a line of a table: its first sentence, or the beginning of that."""
        begun = " ".join(_SENTENCE_END.split(self.description.strip(), maxsplit=1)[0].split())
        return begun if len(begun) <= _LONGEST_SUMMARY else f"{begun[: _LONGEST_SUMMARY - 1]}…"

    def as_function(self) -> dict[str, Any]:
        """The document in the shape providers take in their tool array, or in the short form of it.

        That has the arguments as a signature: little more than half of the tokens. What an argument is for stands in
        brackets, and not where a value would: small models copy what stands there. Numbers and switches that may be
        left out are not named, though a call may hold them: such models fill in whatever they see.
        """
        if not self.brief:
            whole = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
            return {"type": "function", "function": whole}
        signature: list[str] = []
        for name, kind, about, rest, optional in self._arguments():
            if optional and kind in ("integer", "number", "boolean"):
                continue
            rest.pop("default", None)
            written = f"{kind} {json.dumps(rest, ensure_ascii=False)}" if rest else kind
            first = _CLAUSE_END.split(about, maxsplit=1)[0]
            signature.append(f"{name}{'?' if optional else ''}: {written}{f' ({first})' if first else ''}")
        beyond = self._beyond()
        more = {"schema": beyond} if beyond else {}
        return {"name": self.name, "description": self.description, "parameters": ", ".join(signature), **more}

    @cached_property
    def entry(self) -> str:
        """The document as chat templates print an entry of the tool array: what it weighs there."""
        return json.dumps(self.as_function(), ensure_ascii=False)

    def as_text(self) -> str:
        """The whole document as it stands in a prompt or in the result of a registration.

        One line for the tool and one for each argument says what the JSON schema says, in two thirds of its tokens.
        """
        lines = [f"{self.name}: {self.description}"]
        for name, kind, about, rest, optional in self._arguments():
            schema = [json.dumps(rest, ensure_ascii=False)] if rest else []
            marks = ", ".join([kind, *(["optional"] if optional else []), *schema])
            lines.append(f"- {name} ({marks}): {about}" if about else f"- {name} ({marks})")
        if beyond := self._beyond():
            lines.append(f"Schema: {json.dumps(beyond, ensure_ascii=False)}")
        return "\n".join(lines)

    def _arguments(self) -> Iterator[tuple[str, str, str, dict[str, Any], bool]]:
        """Each argument: name, type, what it is for, the rest of its schema, and whether it may be left out."""
        required: Sequence[str] = self.parameters.get("required") or ()
        properties: Mapping[str, Any] = self.parameters.get("properties") or {}
        for name, schema in properties.items():
            rest: dict[str, Any] = dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else {}
            about, kind = rest.pop("description", None), "any"
            rest.pop("title", None)
            if isinstance(rest.get("type"), str):
                kind = str(rest.pop("type"))
            yield name, kind, str(about or ""), rest, name not in required

    def _beyond(self) -> dict[str, Any]:
        """What the schema says beside its arguments."""
        return {key: value for key, value in self.parameters.items() if key not in _SAID_OTHERWISE}


_SAID_OTHERWISE = frozenset({"type", "properties", "required", "title", "$schema", "additionalProperties"})
"""Parts of an arguments' schema that the lines of `ToolDocument.as_text` say, or that say nothing to a model."""
_CLAUSE_END = re.compile(r"[;.](?:\s|$)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])|\n")
_LONGEST_SUMMARY = 160


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that one run of a tool took, in MB of 2^20 bytes; unknown is None (CATP-LLM B.3)."""

    cpu_mb: float | None = None
    """Constant: what the process that ran it held already as it began, and so all the time."""
    cpu_instant_mb: float | None = None
    """Instant: how far the peak of the run lay above that."""
    gpu_mb: float | None = None
    gpu_instant_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What a call came to, as the model reads it."""

    text: str
    ok: bool = True
    truncated: bool = False
    seconds: float = 0.0
    refused: str = ""
    """Which guard kept the tool from running (unknown, repeated, unregistered, forbidden, unaffordable, unapproved);
    empty when it ran."""
    changes: str = ""
    """What changed in files, as a unified diff: for the person, not for the model."""
    note: str = ""
    """What the model reads after the text: what may not be used any more, and what is left of the budget."""
    footprint: Footprint | None = None
    """Memory the run took; None where it was not measured."""
    images: tuple[Image, ...] = ()
    """What models with vision see beside the text, which names each of them."""

    @property
    def told(self) -> str:
        """All that the model reads."""
        return f"{self.text}\n\n{self.note}" if self.note else self.text


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
        """Input and output together: what a cap in tokens counts."""
        return self.input + self.output


def visible(text: str) -> str:
    """The text with every character that could steer a terminal or mislead the eye made readable.

    ESC becomes `␛`; other control characters `\\x9b`; bidirectional overrides, invisible tags, line separators and lone
    surrogates `\\u202e`. Newlines and tabs stay, and a carriage return before a newline is dropped.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_shown())


def visible_line(text: str, most: int | None = None) -> str:
    """The text on one line: as `visible` shows it, with every run of white space as one space.

    Of one with more than `most` characters the end is left out, and an ellipsis says so.
    """
    line = " ".join(visible(text).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1].rstrip()}…"


def fenced(text: str, language: str = "") -> str:
    """The text as a code block of Markdown, whose fence is longer than any in it."""
    marks = "```"
    while marks in text:
        marks += "`"
    return "\n".join((marks + language, text.removesuffix("\n"), marks))


_KEPT = frozenset(b"\n\t")
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_MISLEADING = (
    0x061C,  # Arabic letter mark
    *range(0x200E, 0x2010),  # left-to-right and right-to-left marks
    *range(0x2028, 0x202F),  # line and paragraph separators, embeddings and overrides
    *range(0x2066, 0x206A),  # isolates
    *range(0xD800, 0xE000),  # surrogates, which no terminal's encoding can carry
    0xFEFF,  # zero-width no-break space
    *range(0xE0000, 0xE0080),  # tags, which carry whole sentences that nobody sees
)


@cache
def _shown() -> Mapping[int, str]:
    """What each of these characters is shown as; made when the first of them turns up, which is seldom."""
    codes = [code for code in (*_CONTROLS, *_MISLEADING) if code not in _KEPT]
    shown = {code: f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" for code in codes if code <= 0xFFFF}
    return shown | {code: f"\\U{code:08x}" for code in codes if code > 0xFFFF} | {0x1B: "␛"}

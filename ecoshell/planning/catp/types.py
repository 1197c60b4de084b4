"""Kinds of inputs and outputs of tools, derived from their schemas (CATP-LLM §4.1).

Most tools return text from which a caller fills in arguments, so text can serve as a path, an address or a number. It
cannot serve as an image or a sound, which is the common mistake in plans.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ecoshell.messages import ToolSchema

TEXT, JSON, NUMBER, TABLE = "text", "json", "number", "table"
FILE, URL = "file", "url"
IMAGE, AUDIO, VIDEO = "image", "audio", "video"
ANY = "any"
"""An unknown kind, or any kind."""

_MEDIA = frozenset({IMAGE, AUDIO, VIDEO})
_WORDS = frozenset({TEXT, JSON, NUMBER, TABLE, FILE, URL})
_SERVES: Mapping[str, frozenset[str]] = {
    TEXT: _WORDS,
    JSON: _WORDS,
    TABLE: _WORDS,
    NUMBER: frozenset({NUMBER, TEXT, JSON}),
    FILE: _MEDIA | {FILE, TEXT, JSON, TABLE},
    URL: _MEDIA | {URL, TEXT},
}
_WORDS_OF: Mapping[str, str] = {
    IMAGE: "image images img photo picture screenshot",
    AUDIO: "audio sound speech voice music",
    VIDEO: "video movie clip",
    FILE: "path paths file files filename filepath directory folder",
    URL: "url urls uri link links address",
    TABLE: "table csv rows dataframe",
    JSON: "json",
}
_KIND_BY_WORD = {word: kind for kind, words in _WORDS_OF.items() for word in words.split()}
_PLACES = frozenset({FILE, URL})
_MAKING = frozenset(
    {"generate", "create", "make", "render", "draw", "plot", "take", "capture", "record", "to"}
)
_FORMATS = {
    "uri": URL,
    "url": URL,
    "uri-reference": URL,
    "iri": URL,
    "path": FILE,
    "file-path": FILE,
}
_KIND_BY_TYPE: Mapping[str, str] = {
    "integer": NUMBER,
    "number": NUMBER,
    "boolean": TEXT,
    "object": JSON,
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class Signature:
    """The kinds of a tool's inputs and output."""

    takes: frozenset[str]
    """Kinds it accepts; if empty, dependencies only determine the order."""
    gives: frozenset[str]
    """Kinds that its result can serve as."""
    needs: tuple[str, ...] = ()
    """Kinds that dependencies must provide, with repetitions; excludes kinds that text can express, because a caller
    derives them from the question."""

    @classmethod
    def strict(cls, takes: Iterable[str], gives: str) -> "Signature":
        """Create the signature of a tool that takes each input from a dependency."""
        inputs = tuple(takes)
        return cls(frozenset(inputs), frozenset({gives}), inputs)


def serves(kinds: Iterable[str], kind: str) -> bool:
    """Whether a value of any of these kinds can serve as another kind."""
    return any(
        provided in (kind, ANY) or kind == ANY or kind in _SERVES.get(provided, ())
        for provided in kinds
    )


def signature(tool_schema: ToolSchema) -> Signature:
    """Derive a tool's signature from the types, formats and names in its schema; the default is text.

    The result is text unless the tool's name indicates another kind (text_to_image, take_screenshot).
    """
    properties = _mapping(tool_schema.parameters.get("properties"))
    required = {
        name for name in _list(tool_schema.parameters.get("required")) if isinstance(name, str)
    }
    kinds = {name: _kinds(name, schema) for name, schema in properties.items()}
    needs = {
        min(options)
        for name, options in kinds.items()
        if name in required and options and options <= _MEDIA
    }
    words = _words(tool_schema.name)
    media = [at for at, word in enumerate(words) if _KIND_BY_WORD.get(word) in _MEDIA]
    makes = media and (_MAKING & set(words[: media[-1]]) or words[-1] == "screenshot")
    gives = frozenset({_KIND_BY_WORD[words[media[-1]]], TEXT}) if makes else frozenset({TEXT})
    return Signature(frozenset[str]().union(*kinds.values()), gives, tuple(sorted(needs)))


def _kinds(name: str, schema: Any) -> frozenset[str]:
    """Return the possible kinds of an argument."""
    fields = _mapping(schema)
    options = [*_list(fields.get("anyOf")), *_list(fields.get("oneOf"))]
    if options:
        kinds = [
            _kinds(name, option) for option in options if _mapping(option).get("type") != "null"
        ]
        return frozenset[str]().union(*kinds)
    kind = fields.get("type")
    if isinstance(kind, list):
        listed = [type_name for type_name in cast("list[object]", kind) if type_name != "null"]
        return frozenset[str]().union(
            *(_kinds(name, {**fields, "type": type_name}) for type_name in listed)
        )
    return frozenset({_kind(name, fields)})


def _kind(name: str, schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    declared = str(schema.get("contentMediaType") or "").partition("/")[0]  # of encoded media
    if declared in _MEDIA:
        return declared
    if kind == "array":
        within = _kind(name, _mapping(schema.get("items")))
        return within if within in _MEDIA | _PLACES else TABLE if within == JSON else JSON
    if isinstance(kind, str) and kind in _KIND_BY_TYPE:
        return _KIND_BY_TYPE[kind]
    if schema.get("enum") or "const" in schema:
        return TEXT
    if isinstance(schema.get("format"), str) and schema["format"] in _FORMATS:
        return _FORMATS[schema["format"]]
    # by name: the path in `image_path`, the image in `input_image`
    hints = [_KIND_BY_WORD[word] for word in _words(name) if word in _KIND_BY_WORD] or [
        TEXT if kind == "string" else ANY
    ]
    return next((hint for hint in hints if hint in _PLACES), hints[-1])


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []

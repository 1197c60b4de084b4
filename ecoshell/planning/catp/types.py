"""What a tool takes and what it gives, in kinds, read from its document (CATP-LLM §4.1: typed inputs and outputs).

A tool of this shell gives text, and a caller fills in arguments from it, so text serves for nearly everything: for a
path, an address, a number. It never serves for a picture or a sound, which is what plans get wrong.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ecoshell.messages import ToolDocument

TEXT, JSON, NUMBER, TABLE = "text", "json", "number", "table"
FILE, URL = "file", "url"
IMAGE, AUDIO, VIDEO = "image", "audio", "video"
ANY = "any"
"""Nothing is known about it, or it is whatever the user gives."""

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
_NAMED = {word: kind for kind, words in _WORDS_OF.items() for word in words.split()}
_PLACES = frozenset({FILE, URL})
_MAKING = frozenset({"generate", "create", "make", "render", "draw", "plot", "take", "capture", "record", "to"})
_FORMATS = {"uri": URL, "url": URL, "uri-reference": URL, "iri": URL, "path": FILE, "file-path": FILE}
_TYPED: Mapping[str, str] = {"integer": NUMBER, "number": NUMBER, "boolean": TEXT, "object": JSON}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class Signature:
    """What may flow into a tool, and what comes out of it."""

    takes: frozenset[str]
    """Kinds it can use. Without any, what it waits for only orders it."""
    gives: frozenset[str]
    """Kinds as which its one result can be read."""
    needs: tuple[str, ...] = ()
    """Kinds that its dependencies must bring, each as often as it stands here; what words can say is not among them,
    as a caller has it from the question."""

    @classmethod
    def strict(cls, takes: Iterable[str], gives: str) -> "Signature":
        """Of a tool that takes each of these inputs from its dependencies and gives one output."""
        inputs = tuple(takes)
        return cls(frozenset(inputs), frozenset({gives}), inputs)


def serves(given: Iterable[str], taken: str) -> bool:
    """Whether a value that can be read as any of the given kinds can be used as another."""
    return any(kind in (taken, ANY) or taken == ANY or taken in _SERVES.get(kind, ()) for kind in given)


def signature(document: ToolDocument) -> Signature:
    """The signature of a tool, by the types, formats and names in its schema; text, where it does not say.

    Its result is a text, too, unless the tool's name tells of another kind (text_to_image, take_screenshot).
    """
    properties = _mapping(document.parameters.get("properties"))
    required = {name for name in _list(document.parameters.get("required")) if isinstance(name, str)}
    kinds = {name: _kinds(name, schema) for name, schema in properties.items()}
    needs = {min(found) for name, found in kinds.items() if name in required and found and found <= _MEDIA}
    words = _words(document.name)
    media = [at for at, word in enumerate(words) if _NAMED.get(word) in _MEDIA]
    makes = media and (_MAKING & set(words[: media[-1]]) or words[-1] == "screenshot")
    gives = frozenset({_NAMED[words[media[-1]]], TEXT}) if makes else frozenset({TEXT})
    return Signature(frozenset[str]().union(*kinds.values()), gives, tuple(sorted(needs)))


def _kinds(name: str, schema: Any) -> frozenset[str]:
    """Kinds that an argument can be."""
    known = _mapping(schema)
    options = [*_list(known.get("anyOf")), *_list(known.get("oneOf"))]
    if options:
        found = [_kinds(name, option) for option in options if _mapping(option).get("type") != "null"]
        return frozenset[str]().union(*found)
    kind = known.get("type")
    if isinstance(kind, list):
        listed = [one for one in cast("list[object]", kind) if one != "null"]
        return frozenset[str]().union(*(_kinds(name, {**known, "type": one}) for one in listed))
    return frozenset({_kind(name, known)})


def _kind(name: str, schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    declared = str(schema.get("contentMediaType") or "").partition("/")[0]  # of encoded media
    if declared in _MEDIA:
        return declared
    if kind == "array":
        within = _kind(name, _mapping(schema.get("items")))
        return within if within in _MEDIA | _PLACES else TABLE if within == JSON else JSON
    if isinstance(kind, str) and kind in _TYPED:
        return _TYPED[kind]
    if schema.get("enum") or "const" in schema:
        return TEXT
    if isinstance(schema.get("format"), str) and schema["format"] in _FORMATS:
        return _FORMATS[schema["format"]]
    # by what its name tells: the place in `image_path`, the picture in `input_image`
    named = [_NAMED[word] for word in _words(name) if word in _NAMED] or [TEXT if kind == "string" else ANY]
    return next((told for told in named if told in _PLACES), named[-1])


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []

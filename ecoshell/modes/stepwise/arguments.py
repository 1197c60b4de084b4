"""Filling in a tool's arguments: the tool's document is narrowed to what the request offers, and the model chooses.

Narrowing is general: it goes by a parameter's name and type, never by the tool. A parameter the request offers
something for becomes an enumeration of that; one it must have and nothing is offered for stays free; the others are
left out. The narrowed document becomes the grammar under which the model decodes the call.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, cast

from ecoshell.messages import Call, Message, ToolDocument
from ecoshell.models import Request
from ecoshell.models.protocol import call_text
from ecoshell.modes.stepwise import spans, sums

MOST_OFFERED = 160
"""Candidates in one enumeration."""
MAX_TOKENS = 320


@dataclass(frozen=True, slots=True)
class Kind:
    """Parameters that are recognised by their name and description, and where their values are found."""

    marks: tuple[str, ...]
    """The name holds one of these."""
    find: Callable[[str], list[str]]
    sides: tuple[str, ...] = ()
    """Words of which the name must be made of one, too."""
    opening: str = ""
    """What the description must begin with."""
    copied: bool = True
    """Whether a value can only be copied from the request, never made up from it."""


_PATH = ("path", "file", "folder", "directory")
_KINDS = (
    Kind(("url", "link", "address"), spans.urls),
    Kind(_PATH, spans.paths, opening="file or folder"),
    Kind(_PATH, spans.folder_paths, opening="folder"),
    Kind(_PATH, spans.file_paths, opening="file"),
    Kind(_PATH, spans.paths),
    Kind(("expression", "formula", "equation"), sums.expressions, copied=False),
    Kind(("unit", "currency"), spans.measured_units, sides=("from", "source")),
    Kind(("unit", "currency"), spans.target_units, sides=("to", "target")),
    Kind(("unit", "currency"), spans.words),
    Kind(("zone", "city", "place", "location", "country"), spans.names, copied=False),
    Kind(("value", "amount", "number", "quantity"), spans.numbers),
)


PLACES = (spans.urls, spans.paths, spans.file_paths, spans.folder_paths)
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")
"""`U.S`, which looks like a file."""
_TYPE = re.compile(r"([A-Z]{2,6}) file\b")
"""How the description of a parameter begins that takes files of one type."""
_NUMERIC = ("integer", "number")


def kinds(document: ToolDocument) -> dict[str, Kind | None]:
    """The kind of each parameter of a tool; None where its name and description do not tell."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    return {name: _kind(name, _node(schema)) for name, schema in properties.items()}


def takes(document: ToolDocument, *finds: Callable[[str], list[str]]) -> list[str]:
    """The parameters whose values are found in one of these ways."""
    return [name for name, kind in kinds(document).items() if kind is not None and kind.find in finds]


def misfits(document: ToolDocument, request: str) -> int:
    """How badly a tool's parameters go with a request: 0 to 2.

    One for needing what can only be copied from the request and is not in it (a path, an address, a unit), one for
    having no use for an address or a file the request names: none of its parameters takes it, or only another type.
    """
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    required, known = document.parameters.get("required") or (), kinds(document)
    lacking = any(kind and kind.copied and name in required and not kind.find(request) for name, kind in known.items())
    named = {*spans.urls(request), *spans.file_paths(request)}
    open_ = any(kind is None and name in required for name, kind in known.items())
    used = open_ or any(kind and not named.isdisjoint(kind.find(request)) for kind in known.values())
    described = (str(_node(schema).get("description", "")) for schema in properties.values())
    types = [type_[1].lower() for description in described if (type_ := _TYPE.match(description))]
    foreign = [name for name in named if types and not any(type_ in name.lower() for type_ in types)]
    return lacking + bool(named and (not used or len(foreign) == len(named)))


def copied(document: ToolDocument, name: str, request: str) -> list[Any]:
    """Values that a request offers for a parameter which can only be copied from it; none for any other."""
    kind = _kind(name, _node(document.parameters["properties"][name]))
    return offered(document, name, request) if kind is not None and kind.copied else []


def takes_numbers(document: ToolDocument) -> bool:
    """Whether a tool works with numbers that it must be given."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    numeric = {name for name, schema in properties.items() if _node(schema).get("type") in _NUMERIC}
    numeric.update(takes(document, sums.expressions, spans.numbers))
    return not numeric.isdisjoint(document.parameters.get("required") or ())


def invented(document: ToolDocument, call: Call, source: str) -> list[str]:
    """Texts of a call that were not offered and do not stand in the source, though they cannot be made up from it.

    `document` is a narrowed one.
    """
    found: list[str] = []
    for name, kind in kinds(document).items():
        text = call.arguments.get(name)
        made_up = kind is not None and not kind.copied
        if made_up or "enum" in document.parameters["properties"][name] or not isinstance(text, str):
            continue
        if not re.search(rf"(?<!\w){re.escape(text.strip())}(?!\w)", source, re.IGNORECASE):
            found.append(text)
    return found


def takes_named(document: ToolDocument, request: str) -> bool:
    """Whether a tool can be called with a file or an address that a request names, and needs nothing else."""
    named = {*spans.urls(request), *(path for path in spans.file_paths(request) if not _INITIALS.fullmatch(path))}
    taken = [name for name in takes(document, *PLACES) if not named.isdisjoint(offered(document, name, request))]
    return bool(taken) and set(document.parameters.get("required") or ()) <= set(taken)


def offered(document: ToolDocument, name: str, request: str, *, wanted: bool = True) -> list[Any]:
    """Values that a request offers for a parameter; `wanted` says that it must be given."""
    node = _node(document.parameters["properties"][name])
    type_ = node.get("type", "string")
    if "enum" in node or "const" in node:
        values: Sequence[Any] = node.get("enum") or [node["const"]]
        return [one for one in values if str(one).lower() in request.lower()] or (list(values) if wanted else [])
    if type_ in _NUMERIC:
        numbers = [one for one in spans.numbers(request) if type_ == "number" or "." not in one] if wanted else []
        return [float(one) if "." in one else int(one) for one in numbers]
    if type_ != "string":
        return []
    if kind := _kind(name, node):
        return list(kind.find(request)[:MOST_OFFERED])
    quoted = spans.quoted(request)
    if quoted or not wanted:
        return list(quoted[:MOST_OFFERED])
    others = {other for other in kinds(document).values() if other is not None}  # what they take is left out
    found = spans.phrases(request, without=[taken for other in others for taken in other.find(request)])
    return list(found[:MOST_OFFERED])


def narrowed(document: ToolDocument, part: str, question: str) -> ToolDocument:
    """The document with each parameter cut to what the part of the question, or else all of it, offers for it."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    required = [name for name in properties if name in (document.parameters.get("required") or ())]
    kept: dict[str, Any] = {}
    for name, schema in properties.items():
        wanted = name in required
        found = offered(document, name, part, wanted=wanted) or offered(document, name, question, wanted=wanted)
        if found:
            kept[name] = {"enum": found}
        elif wanted:
            kept[name] = schema
    parameters = {"type": "object", "properties": kept, "required": list(kept), "additionalProperties": False}
    if "$defs" in document.parameters:
        parameters["$defs"] = document.parameters["$defs"]
    return replace(document, parameters=parameters)


def only_call(document: ToolDocument) -> Call | None:
    """The call a narrowed document leaves, if it leaves exactly one: then there is nothing to ask."""
    properties = cast("Mapping[str, Mapping[str, Any]]", document.parameters["properties"])
    choices = {name: cast("Sequence[Any]", schema.get("enum", ())) for name, schema in properties.items()}
    if any(len(offered) != 1 for offered in choices.values()):
        return None
    return Call(document.name, {name: offered[0] for name, offered in choices.items()})


def call_request(document: ToolDocument, request: str, error: str = "") -> Request:
    """What to ask the model: a few worked requests, then this one, to be answered by a call to the document's tool.

    `error` is what came of an earlier attempt.
    """
    messages: list[Message] = []
    for line in (files("ecoshell.modes.stepwise") / "arguments.jsonl").read_text(encoding="utf-8").splitlines():
        shot = json.loads(line)
        messages.append(Message("user", f"{shot['tool']}({', '.join(shot['arguments'])}): {shot['request']}"))
        messages.append(Message("assistant", call_text(Call(shot["tool"], shot["arguments"]))))
    asked = f"{document.name}({', '.join(document.parameters.get('properties') or ())}): {request}"
    if error:
        asked += f"\nThe last try failed: {error[:300]}"
    messages.append(Message("user", asked))
    return Request(tuple(messages), callable_now=(document,), want="call", max_tokens=MAX_TOKENS)


def _node(schema: object) -> Mapping[str, Any]:
    """The schema of a parameter, as far as it is one."""
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _kind(name: str, schema: Mapping[str, Any]) -> Kind | None:
    name, description = name.lower(), str(schema.get("description", "")).lower()
    for kind in _KINDS:
        sided = not kind.sides or not set(kind.sides).isdisjoint(name.split("_"))
        if sided and any(mark in name for mark in kind.marks) and description.startswith(kind.opening):
            return kind
    return None

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
class _Kind:
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

    def fits(self, name: str, description: str) -> bool:
        """Whether a parameter of this name is of this kind."""
        named = any(mark in name.lower() for mark in self.marks)
        sided = not self.sides or not set(self.sides).isdisjoint(name.lower().split("_"))
        return named and sided and description.lower().startswith(self.opening)


_PATH = ("path", "file", "folder", "directory")
_KINDS = (
    _Kind(("url", "link", "address"), spans.urls),
    _Kind(_PATH, spans.paths, opening="file or folder"),
    _Kind(_PATH, spans.folder_paths, opening="folder"),
    _Kind(_PATH, spans.file_paths, opening="file"),
    _Kind(_PATH, spans.paths),
    _Kind(("expression", "formula", "equation"), sums.expressions, copied=False),
    _Kind(("unit", "currency"), spans.measured_units, sides=("from", "source")),
    _Kind(("unit", "currency"), spans.target_units, sides=("to", "target")),
    _Kind(("unit", "currency"), spans.words),
    _Kind(("zone", "city", "place", "location", "country"), spans.names, copied=False),
    _Kind(("value", "amount", "number", "quantity"), spans.numbers),
)


_PLACES = (spans.urls, spans.paths, spans.file_paths, spans.folder_paths)
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")
"""`U.S`, which looks like a file."""
_TYPE = re.compile(r"([A-Z]{2,6}) file\b")
"""How the description of a parameter begins that takes files of one type."""
_NUMERIC = ("integer", "number")


def misfits(document: ToolDocument, request: str) -> int:
    """How badly a tool's parameters go with a request: 0 to 2.

    One for needing what can only be copied from the request and is not in it (a path, an address, a unit), one for
    having no use for an address or a file the request names: none of its parameters takes it, or only another type.
    """
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    kinds = {name: _kind(name, schema) for name, schema in properties.items()}
    required = document.parameters.get("required") or ()
    lacking = any(kind and kind.copied and name in required and not kind.find(request) for name, kind in kinds.items())
    named = {*spans.urls(request), *spans.file_paths(request)}
    open_ = any(kind is None and name in required for name, kind in kinds.items())
    used = open_ or any(kind and not named.isdisjoint(kind.find(request)) for kind in kinds.values())
    types = [type_[1].lower() for schema in properties.values() if (type_ := _TYPE.match(_about(schema)))]
    foreign = [name for name in named if types and not any(type_ in name.lower() for type_ in types)]
    return lacking + bool(named and (not used or len(foreign) == len(named)))


def copied(document: ToolDocument, name: str, request: str) -> list[Any]:
    """Values that a request offers for a parameter which can only be copied from it; none for any other."""
    kind = _kind(name, document.parameters["properties"][name])
    return _offered(document, name, request, wanted=True) if kind is not None and kind.copied else []


def takes_numbers(document: ToolDocument) -> bool:
    """Whether a tool works with numbers that it must be given."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    return any(
        (kind is not None and kind.find in (sums.expressions, spans.numbers)) or _type(properties[name]) in _NUMERIC
        for name in document.parameters.get("required") or ()
        if name in properties
        for kind in (_kind(name, properties[name]),)
    )


def takes_sums(document: ToolDocument) -> bool:
    """Whether a tool works out arithmetic."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    kinds = (_kind(name, schema) for name, schema in properties.items())
    return any(kind is not None and kind.find == sums.expressions for kind in kinds)


def invented(document: ToolDocument, call: Call, source: str) -> list[str]:
    """Texts of a call that were not offered and do not stand in the source, though they cannot be made up from it.

    `document` is a narrowed one.
    """
    properties: Mapping[str, Any] = document.parameters["properties"]
    free = {name: schema for name, schema in properties.items() if "enum" not in schema}
    kinds = {name: _kind(name, schema) for name, schema in free.items()}
    texts = {name: call.arguments[name] for name in free if isinstance(call.arguments.get(name), str)}
    return [
        text
        for name, text in texts.items()
        if ((kind := kinds[name]) is None or kind.copied)
        and not re.search(rf"(?<!\w){re.escape(text.strip())}(?!\w)", source, re.IGNORECASE)
    ]


def lacks_unit(document: ToolDocument, request: str) -> bool:
    """Whether a tool must be told the unit of a quantity, and the request does not tell it."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    kinds = (_kind(name, schema) for name, schema in properties.items())
    return any(kind is not None and kind.find == spans.measured_units for kind in kinds) and not spans.measured_units(
        request
    )


def places(document: ToolDocument) -> list[str]:
    """The parameters that take a file, a folder or an address."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    kinds = {name: _kind(name, schema) for name, schema in properties.items()}
    return [name for name, kind in kinds.items() if kind is not None and kind.find in _PLACES]


def takes_named(document: ToolDocument, request: str) -> bool:
    """Whether a tool can be called with a file or an address that a request names, and needs nothing else."""
    named = {*spans.urls(request), *(path for path in spans.file_paths(request) if not _INITIALS.fullmatch(path))}
    taken = [name for name in places(document) if not named.isdisjoint(offered(document, name, request))]
    return bool(taken) and set(document.parameters.get("required") or ()) <= set(taken)


def is_named(document: ToolDocument, name: str) -> bool:
    """Whether a parameter's values are of a kind that is recognised by its name."""
    return _kind(name, document.parameters["properties"][name]) is not None


def offered(document: ToolDocument, name: str, request: str) -> list[Any]:
    """Values that a request offers for a parameter."""
    return _offered(document, name, request, wanted=True)


def narrowed(document: ToolDocument, part: str, question: str) -> ToolDocument:
    """The document with each parameter cut to what the part of the question, or else all of it, offers for it."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    required = [name for name in properties if name in (document.parameters.get("required") or ())]
    kept: dict[str, Any] = {}
    for name, schema in properties.items():
        wanted = name in required
        offered = _offered(document, name, part, wanted=wanted) or _offered(document, name, question, wanted=wanted)
        if offered:
            kept[name] = {"enum": offered}
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
    asked = _asked(document.name, tuple(document.parameters.get("properties") or ()), request)
    if error:
        asked += f"\nThe last try failed: {error[:300]}"
    return Request((*_shots(), Message("user", asked)), callable_now=(document,), want="call", max_tokens=MAX_TOKENS)


def _kind(name: str, schema: Any) -> _Kind | None:
    description = _about(schema)
    return next((kind for kind in _KINDS if kind.fits(name, description)), None)


def _about(schema: Any) -> str:
    """What a parameter is said to be for."""
    node: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    return str(node.get("description", ""))


def _offered(document: ToolDocument, name: str, request: str, *, wanted: bool) -> list[Any]:
    """Values a request offers for a parameter; `wanted` says that it must be given."""
    schema: Any = document.parameters["properties"][name]
    node: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    if "enum" in node or "const" in node:
        return _mentioned(node.get("enum") or [node["const"]], request, wanted=wanted)
    type_ = node.get("type", "string")
    if type_ in _NUMERIC:
        return [json.loads(number) for number in spans.numbers(request) if _fits(number, type_)] if wanted else []
    if type_ != "string":
        return []
    kind = _kind(name, node)
    found = kind.find(request) if kind is not None else _texts(document, request, wanted=wanted)
    return found[:MOST_OFFERED]


def _mentioned(values: Sequence[Any], request: str, *, wanted: bool) -> list[Any]:
    """The values the request names; all of them when it names none and one must be given."""
    named = [value for value in values if str(value).lower() in request.lower()]
    return named or (list(values) if wanted else [])


def _texts(document: ToolDocument, request: str, *, wanted: bool) -> list[str]:
    """What is quoted, or any phrase if the parameter must be given; what another parameter takes is left out."""
    quoted = spans.quoted(request)
    if quoted or not wanted:
        return quoted
    properties: Mapping[str, Any] = document.parameters["properties"]
    others = {kind for name, schema in properties.items() if (kind := _kind(name, schema)) is not None}
    return spans.phrases(request, without=[taken for kind in others for taken in kind.find(request)])


def _type(schema: Any) -> Any:
    return cast("Mapping[str, Any]", schema).get("type") if isinstance(schema, Mapping) else None


def _fits(number: str, kind: str) -> bool:
    return kind == "number" or "." not in number


def _asked(tool: str, parameters: Sequence[str], request: str) -> str:
    return f"{tool}({', '.join(parameters)}): {request}"


def _shots() -> tuple[Message, ...]:
    """Worked requests, one JSON object a line: tool, request, arguments."""
    messages: list[Message] = []
    for line in (files("ecoshell.modes.stepwise") / "arguments.jsonl").read_text(encoding="utf-8").splitlines():
        shot = json.loads(line)
        messages.append(Message("user", _asked(shot["tool"], tuple(shot["arguments"]), shot["request"])))
        messages.append(Message("assistant", call_text(Call(shot["tool"], shot["arguments"]))))
    return tuple(messages)

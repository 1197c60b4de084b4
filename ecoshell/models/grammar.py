"""GBNF grammars for calls and decisions: decoding under one makes every one of a local model well formed.

llama-cpp-python has a converter from JSON schemas, but it does not escape backslashes in constants, knows no bounds for
texts (a small model rambles), and its white space is open; this one writes exactly what `json.dumps` would.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from ecoshell.messages import ToolDocument

MAX_STRING = 600
"""Characters of a text argument."""
MAX_ANSWER = 4000
"""Characters of a plain-text reply where a call may come instead."""
MAX_LEAD = 320
"""Characters of a text before the ending it must have: a sentence or two."""
MAX_ITEMS = 24
MAX_DEPTH = 8

_RULES = rf"""
char ::= [^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])
string ::= "\"" char{{0,{MAX_STRING}}} "\""
integer ::= "-"? ("0" | [1-9] [0-9]{{0,15}})
number ::= integer ("." [0-9]{{1,8}})? ([eE] [-+]? [0-9]{{1,2}})?
boolean ::= "true" | "false"
null ::= "null"
array ::= "[" (value (", " value){{0,{MAX_ITEMS}}})? "]"
object ::= "{{" (string ": " value (", " string ": " value){{0,{MAX_ITEMS}}})? "}}"
value ::= string | number | boolean | null | array | object
"""
_KINDS = frozenset({"string", "integer", "number", "boolean", "null"})
_PLAIN_TEXT = rf"[^{{`\x00-\x20] [^\x00]{{0,{MAX_ANSWER}}}"

Node = Mapping[str, Any]


def call_grammar(documents: Sequence[ToolDocument], want: Literal["call", "either"] = "call") -> str:
    """The grammar of one call to any of the documents; with `either`, also of plain text that opens no object."""
    calls = " | ".join(map(_call, documents))
    thought, call = literal('"thought": '), literal('"call": ')
    root = f'json-call ::= "{{" ({thought} string ", ")? {call} ({calls}) "}}"'
    plain = f" | {_PLAIN_TEXT}" if want == "either" else ""
    return f"root ::= json-call{plain}\n{root}{_RULES}"


def ending_grammar(endings: Sequence[str], max_tokens: int) -> str:
    """The grammar of a line of plain text and then one of these endings.

    The line is short enough for the ending to come within `max_tokens`, as a token is at least one character of it.
    """
    longest = max(map(len, endings))
    most = max(0, min(MAX_LEAD, max_tokens - longest) - 2)
    lead = rf"(([^{{`\x00-\x20\x7f] [^\x00-\x1f\x7f]{{0,{most}}})? [ \n])?" if most else ""
    return f"root ::= {lead} ({' | '.join(map(literal, endings))})"


def arguments_rule(schema: Node) -> str:
    """The expression for a tool's arguments: the required ones, then any of the optional ones, in their order."""
    target = _followed(schema, schema)
    if target.get("type", "object") != "object" and not _options(target):
        return "object"
    return _value({"type": "object", **target}, schema, MAX_DEPTH)


def _call(document: ToolDocument) -> str:
    head = f'{{"name": {json.dumps(document.name, ensure_ascii=False)}, "arguments": '
    return f'{literal(head)} {arguments_rule(document.parameters)} "}}"'


def literal(text: str) -> str:
    """A text as a quoted GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _constant(value: Any) -> str:
    return literal(json.dumps(value, ensure_ascii=False))


def _value(schema: Any, root: Node, depth: int) -> str:
    """The expression for a value of this schema; what is not understood becomes any JSON value."""
    node = _followed(schema, root)
    if depth == 0:
        return "value"
    if "const" in node:
        return _constant(node["const"])
    if node.get("enum"):
        return f"({' | '.join(map(_constant, node['enum']))})"
    options = _options(node)
    if options:
        return f"({' | '.join(_value(option, root, depth - 1) for option in options)})"
    return _of_kind(node, root, depth)


def _of_kind(node: Node, root: Node, depth: int) -> str:
    def inner(schema: Any) -> str:
        return _value(schema, root, depth - 1)

    kind = node.get("type")
    if kind == "object" or "properties" in node:
        return _object(node, inner)
    if kind == "array":
        return _array(node, inner)
    return str(kind) if kind in _KINDS else "value"


def _object(node: Node, inner: Callable[[Any], str]) -> str:
    properties: Node = node.get("properties") or {}
    if not properties:
        return '"{}"' if node.get("additionalProperties") is False else "object"
    entries = {
        name: f"{literal(json.dumps(name, ensure_ascii=False) + ': ')} {inner(properties[name])}" for name in properties
    }
    needed = [entry for name, entry in entries.items() if name in (node.get("required") or ())]
    others = [entry for name, entry in entries.items() if name not in (node.get("required") or ())]
    if needed:
        body = ' ", " '.join(needed) + "".join(f' (", " {entry})?' for entry in others)
    else:
        body = f"({' | '.join(_from_here(others[first:]) for first in range(len(others)))})?"
    return f'("{{" {body} "}}")'


def _from_here(entries: Sequence[str]) -> str:
    """The first entry, and any of the later ones."""
    return entries[0] + "".join(f' (", " {entry})?' for entry in entries[1:])


def _array(node: Node, inner: Callable[[Any], str]) -> str:
    item = inner(node["items"]) if "items" in node else "value"
    least = min(int(node.get("minItems") or 0), MAX_ITEMS)
    most = max(least, min(int(node.get("maxItems") or MAX_ITEMS), MAX_ITEMS))
    # Bounded repetitions inside one another multiply into more rules than llama.cpp takes.
    upper = str(max(0, most - 1)) if item in _KINDS or "maxItems" in node else ""
    some = f'{item} (", " {item}){{{max(0, least - 1)},{upper}}}'
    return f'("[" {some} "]")' if least else f'("[" ({some})? "]")'


def _options(node: Node) -> list[Any]:
    """The alternatives a schema names, by `anyOf`, `oneOf` or a list of types."""
    kind = node.get("type")
    if isinstance(kind, list):
        return [{**node, "type": one} for one in cast("list[Any]", kind)]
    return list(node.get("anyOf") or node.get("oneOf") or ())


def _followed(schema: Any, root: Node) -> Node:
    """The schema, or what its reference points to; empty (anything) when that is elsewhere, nowhere or circular."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return {}
        node = cast("Node", schema)
        if "$ref" not in node:
            return node
        schema = _resolved(str(node["$ref"]), root)
    return {}


def _resolved(reference: str, root: Node) -> Any:
    if not reference.startswith("#"):
        return {}
    found: Any = root
    for part in filter(None, reference.removeprefix("#").split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        found = cast("Node", found).get(key) if isinstance(found, Mapping) else None
    return found

"""GBNF grammars for values and decisions: decoding under one makes every one of a local model well formed.

llama-cpp-python has a converter from JSON schemas, but it does not escape backslashes in constants, knows no bounds for
texts (a small model rambles), and its white space is open; this one writes exactly what `json.dumps` would, or allows
some white space where a model writes JSON over several lines.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

MAX_ANSWER = 4000
"""Characters of a plain-text reply where a plan may come instead."""
MAX_LEAD = 320
"""Characters of a text before the ending it must have: a sentence or two."""
MAX_ITEMS = 24
MAX_DEPTH = 8

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notation:
    """How a family of models writes values; `argument` and `key` are what stands before a value, `{}` the name."""

    argument: str = '"{}": '
    key: str = '"{}": '
    comma: str = ", "
    quote: str = '"'
    constants: tuple[str, str, str] = ("true", "false", "null")
    brackets: tuple[str, str] = ("{", "}")
    """What stands around the arguments."""
    space: str = ""
    """The rule of white space that may stand beside signs; empty where none may but what is written in them."""

    def sign(self, text: str, *, before: bool = False, after: bool = True) -> str:
        """The expression for a sign and the white space that may stand beside it."""
        parts = [self.space if before else "", literal(text), self.space if after else ""]
        return " ".join(part for part in parts if part)


JSON = Notation()
LOOSE = Notation(argument='"{}":', key='"{}":', comma=",", space="ws")
"""JSON as most models write it: on one line or over several."""
PYTHON = Notation(argument="{}=", constants=("True", "False", "None"), brackets=("(", ")"))

_KINDS = frozenset({"string", "integer", "number", "boolean", "null"})


def rules(notation: Notation = JSON) -> str:
    """The rules that `arguments_rule` refers to."""
    comma, (true, false, null) = notation.sign(notation.comma), map(literal, notation.constants)
    quote = literal(notation.quote)
    char = r'[^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])'
    if notation.quote != '"':
        first, second = notation.quote[:2]
        char = rf"[^{first}\x00] | {literal(first)} [^{second}\x00]"
    before, _, after = notation.key.partition("{}")
    colon = notation.sign(after.removeprefix(before))
    entry = f"string {colon} value" if before else f"[a-zA-Z0-9_]+ {colon} value"
    opened, closed = notation.sign("{"), notation.sign("}", before=True, after=False)
    listed, ended = notation.sign("["), notation.sign("]", before=True, after=False)
    space = '\nws ::= (" " | "\\n" [ ]{0,16})?' if notation.space else ""
    return rf"""
char ::= {char}
string ::= {quote} char* {quote}
integer ::= "-"? ("0" | [1-9] [0-9]{{0,15}})
number ::= integer ("." [0-9]{{1,8}})? ([eE] [-+]? [0-9]{{1,2}})?
boolean ::= {true} | {false}
null ::= {null}
array ::= {listed} (value ({comma} value)*)? {ended}
object ::= {opened} ({entry} ({comma} {entry})*)? {closed}
value ::= string | number | boolean | null | array | object{space}
"""


def arguments_rule(schema: Node, notation: Notation = JSON) -> str:
    """The expression for a tool's arguments: the required ones, then any of the optional ones, in their order."""
    target = followed(schema, schema)
    if target.get("type", "object") != "object" and not alternatives(target):
        return "object"
    return _Writer(schema, notation).arguments(target)


def value_rule(schema: Any, root: Node, notation: Notation = LOOSE) -> str:
    """The expression for one value of a tool schema; `root` is the whole schema, which references point into."""
    return _Writer(root, notation).value(schema, MAX_DEPTH)


def ending_grammar(endings: Sequence[str], max_tokens: int) -> str:
    """The grammar of a line of plain text and then one of these endings.

    The line is short enough for the ending to come within `max_tokens`, as a token is at least one character of it.
    """
    longest = max(map(len, endings))
    most = max(0, min(MAX_LEAD, max_tokens - longest) - 2)
    lead = rf"(([^{{`\x00-\x20\x7f] [^\x00-\x1f\x7f]{{0,{most}}})? [ \n])?" if most else ""
    return f"root ::= {lead} ({' | '.join(map(literal, endings))})"


def literal(text: str) -> str:
    """A text as a quoted GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


@dataclass(eq=False)
class _Writer:
    """Writes the expressions of one schema."""

    _root: Node
    _notation: Notation

    def arguments(self, node: Node) -> str:
        """The expression for the arguments themselves, which some notations write otherwise than objects in them."""
        if alternatives(node) or not isinstance(node.get("properties") or {}, Mapping):
            return self.value({"type": "object", **node}, MAX_DEPTH)
        notation = self._notation
        if notation.argument == notation.key and notation.brackets == JSON.brackets:
            return self.value({"type": "object", **node}, MAX_DEPTH)
        return self._object(node, MAX_DEPTH, notation.argument, notation.brackets)

    def _constant(self, value: Any) -> str:
        notation = self._notation
        if isinstance(value, str) and notation.quote != '"':
            return literal(f"{notation.quote}{value}{notation.quote}")
        if value is None or isinstance(value, bool):
            return literal(notation.constants[2 if value is None else 0 if value else 1])
        return literal(json.dumps(value, ensure_ascii=False))

    def value(self, schema: Any, depth: int) -> str:
        """The expression for a value of this schema; what is not understood becomes any value."""
        node = followed(schema, self._root)
        constants = [node["const"]] if "const" in node else node.get("enum")
        if depth == 0:
            return "value"
        if constants:
            return f"({' | '.join(map(self._constant, constants))})"
        if options := alternatives(node):
            return f"({' | '.join(self.value(option, depth - 1) for option in options)})"
        kind = node.get("type")
        if kind == "object" or "properties" in node:
            return self._object(node, depth, self._notation.key, JSON.brackets)
        if kind == "array":
            item = self.value(node["items"], depth - 1) if "items" in node else "value"
            comma = self._notation.sign(self._notation.comma)
            opened, closed = self._notation.sign("["), self._notation.sign("]", before=True, after=False)
            least = min(int(node.get("minItems") or 0), MAX_ITEMS)
            most = max(least, min(int(node.get("maxItems") or MAX_ITEMS), MAX_ITEMS))
            # Bounded repetitions inside one another multiply into more rules than llama.cpp takes.
            upper = str(max(0, most - 1)) if item in _KINDS or "maxItems" in node else ""
            some = f"{item} ({comma} {item}){{{max(0, least - 1)},{upper}}}"
            return f"({opened} {some} {closed})" if least else f"({opened} ({some})? {closed})"
        return str(kind) if kind in _KINDS else "value"

    def _object(self, node: Node, depth: int, key: str, brackets: tuple[str, str]) -> str:
        properties: Node = node.get("properties") or {}
        opening, closing = brackets
        if not properties:
            empty = node.get("additionalProperties") is False or brackets != JSON.brackets
            return literal(opening + closing) if empty else "object"
        entries: dict[str, str] = {}
        for name, value in properties.items():
            written = key.replace("{}", json.dumps(name, ensure_ascii=False)[1:-1] if '"' in key else name)
            entries[name] = f"{self._notation.sign(written)} {self.value(value, depth - 1)}"
        needed = [entry for name, entry in entries.items() if name in (node.get("required") or ())]
        others = [entry for name, entry in entries.items() if name not in (node.get("required") or ())]
        comma = self._notation.sign(self._notation.comma)
        may = [f" ({comma} {entry})?" for entry in others]
        if needed:
            body = f" {comma} ".join(needed) + "".join(may)
        else:  # any of them may be the first
            body = f"({' | '.join(one + ''.join(may[at:]) for at, one in enumerate(others, 1))})?"
        return f"({self._notation.sign(opening)} {body} {self._notation.sign(closing, before=True, after=False)})"


def alternatives(node: Node) -> list[Any]:
    """The alternatives a schema names, by `anyOf`, `oneOf` or a list of types."""
    kind = node.get("type")
    if isinstance(kind, list):
        return [{**node, "type": one} for one in cast("list[Any]", kind)]
    return list(node.get("anyOf") or node.get("oneOf") or ())


def followed(schema: Any, root: Node) -> Node:
    """The schema, or what its reference points to; empty (anything) when that is elsewhere, nowhere or circular."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return {}
        node = cast("Node", schema)
        if "$ref" not in node:
            return node
        reference, schema = str(node["$ref"]), root
        if not reference.startswith("#"):
            return {}
        for part in filter(None, reference.removeprefix("#").split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            schema = cast("Node", schema).get(key) if isinstance(schema, Mapping) else None
    return {}

"""GBNF grammars for arguments and decisions, so that local models always write them correctly.

llama-cpp-python can convert JSON schemas, but it does not escape backslashes in constants, does not bound texts (small
models ramble), and allows any white space. These grammars match exactly what `json.dumps` writes, or allow limited
white space for models that write JSON over several lines.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

MAX_ANSWER = 4000  # maximum characters of a plain-text reply instead of a plan
MAX_LEAD = 320  # maximum characters of a text before its required ending
MAX_ITEMS = 24
MAX_DEPTH = 8

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notation:
    """How a model family writes values; `argument` and `key` are the text before a value, with `{}` for the name."""

    argument: str = '"{}": '
    key: str = '"{}": '
    comma: str = ", "
    quote: str = '"'
    constants: tuple[str, str, str] = ("true", "false", "null")
    brackets: tuple[str, str] = ("{", "}")  # brackets around the arguments
    space: str = ""  # the rule for optional white space around signs; empty for none

    def sign(self, text: str, *, space_before: bool = False, space_after: bool = True) -> str:
        """The expression for a sign and the optional white space around it."""
        spaces = self.space if space_before else "", self.space if space_after else ""
        return " ".join(filter(None, (spaces[0], literal(text), spaces[1])))

    def closing(self, text: str) -> str:
        """The expression for a sign that ends a value, and the optional white space before it."""
        return self.sign(text, space_before=True, space_after=False)


JSON = Notation()
LOOSE = Notation(argument='"{}":', key='"{}":', comma=",", space="ws")  # JSON on several lines
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
    prefix, _, suffix = notation.key.partition("{}")
    colon = notation.sign(suffix.removeprefix(prefix))
    entry = f"string {colon} value" if prefix else f"[a-zA-Z0-9_]+ {colon} value"
    opening, closing = notation.sign("{"), notation.closing("}")
    list_start, list_end = notation.sign("["), notation.closing("]")
    space = '\nws ::= (" " | "\\n" [ ]{0,16})?' if notation.space else ""
    return rf"""
char ::= {char}
string ::= {quote} char* {quote}
integer ::= "-"? ("0" | [1-9] [0-9]{{0,15}})
number ::= integer ("." [0-9]{{1,8}})? ([eE] [-+]? [0-9]{{1,2}})?
boolean ::= {true} | {false}
null ::= {null}
array ::= {list_start} (value ({comma} value)*)? {list_end}
object ::= {opening} ({entry} ({comma} {entry})*)? {closing}
value ::= string | number | boolean | null | array | object{space}
"""


def arguments_rule(schema: Node, notation: Notation = JSON) -> str:
    """The expression for a tool's arguments: the required ones, then any of the optional ones, in schema order."""
    target = followed(schema, schema)
    if target.get("type", "object") != "object" and not alternatives(target):
        return "object"
    return _Writer(schema, notation).arguments(target)


def value_rule(schema: Any, root: Node) -> str:
    """The expression for one value of a tool schema; `root` is the whole schema, which references refer to."""
    return _Writer(root, LOOSE).value(schema, MAX_DEPTH)


def ending_grammar(endings: Sequence[str], max_tokens: int) -> str:
    """The grammar of a line of plain text followed by one of these endings.

    The line is short enough for the ending to fit into `max_tokens`, because a token has at least one character.
    """
    longest = max(map(len, endings))
    max_lead = max(0, min(MAX_LEAD, max_tokens - longest) - 2)
    lead = rf"(([^{{`\x00-\x20\x7f] [^\x00-\x1f\x7f]{{0,{max_lead}}})? [ \n])?" if max_lead else ""
    return f"root ::= {lead} ({' | '.join(map(literal, endings))})"


def literal(text: str) -> str:
    """A text as a quoted GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


@dataclass(eq=False)
class _Writer:
    """Writes the expressions of one schema."""

    _root: Node
    _notation: Notation

    def arguments(self, node: Node) -> str:
        """The expression for the arguments, which some notations write differently from nested objects."""
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
        """The expression for a value of this schema; unsupported schemas allow any value."""
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
            opening, closing = self._notation.sign("["), self._notation.closing("]")
            min_items = min(int(node.get("minItems") or 0), MAX_ITEMS)
            max_items = max(min_items, min(int(node.get("maxItems") or MAX_ITEMS), MAX_ITEMS))
            # Nested bounded repetitions multiply into more rules than llama.cpp accepts.
            upper = str(max(0, max_items - 1)) if item in _KINDS or "maxItems" in node else ""
            items = f"{item} ({comma} {item}){{{max(0, min_items - 1)},{upper}}}"
            return f"({opening} {items if min_items else f'({items})?'} {closing})"
        return str(kind) if kind in _KINDS else "value"

    def _object(self, node: Node, depth: int, key: str, brackets: tuple[str, str]) -> str:
        properties: Node = node.get("properties") or {}
        opening, closing = brackets
        if not properties:
            empty = node.get("additionalProperties") is False or brackets != JSON.brackets
            return literal(opening + closing) if empty else "object"
        entries: dict[str, str] = {}
        for name, value in properties.items():
            shown_name = json.dumps(name, ensure_ascii=False)[1:-1] if '"' in key else name
            written = self._notation.sign(key.replace("{}", shown_name))
            entries[name] = f"{written} {self.value(value, depth - 1)}"
        names = node.get("required") or ()
        required = [entry for name, entry in entries.items() if name in names]
        optional = [entry for name, entry in entries.items() if name not in names]
        comma = self._notation.sign(self._notation.comma)
        further = [f" ({comma} {entry})?" for entry in optional]
        if required:
            body = f" {comma} ".join(required) + "".join(further)
        else:  # any argument may be the first
            body = f"({' | '.join(entry + ''.join(further[index:]) for index, entry in enumerate(optional, 1))})?"
        end = self._notation.closing(closing)
        return f"({self._notation.sign(opening)} {body} {end})"


def alternatives(node: Node) -> list[Any]:
    """The alternatives of a schema with `anyOf`, `oneOf` or a list of types."""
    kind = node.get("type")
    if isinstance(kind, list):
        return [{**node, "type": option} for option in cast("list[Any]", kind)]
    return list(node.get("anyOf") or node.get("oneOf") or ())


def followed(schema: Any, root: Node) -> Node:
    """The schema, or the target of its reference; empty (any value) if that is external, missing or circular."""
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

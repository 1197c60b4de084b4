"""Calls written as XML elements: one element per argument, with the value as plain text inside it.

A string argument is the text itself, without quotes or escapes; any other value is JSON. Text and JSON look alike
(`5` may be either), so the tool's schema decides. Where the schema allows a string and other types, text that parses as
one of the other types is read as that type, and a string that would be misread is written as a JSON string.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from ecoshell.models.call_parsing import refuse_constant
from ecoshell.models.grammar import MAX_DEPTH, Node, alternatives, followed, literal, value_rule

Kinds = frozenset[str]  # JSON types that a value may have
ANY: Kinds = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
STRING: Kinds = frozenset({"string"})
_UNION_DEPTH = 3  # nested unions that are followed; deeper ones allow any type
_KEY_RULE = "[a-zA-Z0-9_.-]+"
_PYTHON_VALUE = re.compile(r"\s*(?:(?:True|False|None)\s*\Z|[\[{])")
"""Values that are read as Python literals if they are not JSON: some templates print them, so models write them."""


@dataclass(frozen=True)
class Elements:
    """The tags of one format. A newline at a tag's inner edge belongs to the tag, not to the value."""

    name: tuple[str, str]  # text around a tool's name; the first may be empty
    key: tuple[str, str]  # text before and after an argument's name
    value_end: str
    call_end: str = ""  # empty if the format's closing marker ends the call

    @property
    def markers(self) -> tuple[str, ...]:
        """The texts that stand around names and values."""
        return (*self.name, *self.key, self.value_end, self.call_end)

    # -- writing

    def write(
        self, name: str, arguments: Mapping[str, Any], parameters: Node, data: Callable[[str], str]
    ) -> str:
        """A call without the markers around it; `data` marks names and values."""
        texts = argument_texts(arguments, parameters).items()
        opening, middle, end = *self.key, self.value_end
        written = (f"{opening}{data(key)}{middle}{data(text)}{end}" for key, text in texts)
        return f"{self.name[0]}{data(name)}{self.name[1]}{''.join(written)}{self.call_end}"

    # -- grammars

    def call_rule(self, name: str, parameters: Node) -> str:
        """The expression for a call of this tool."""
        return f"{literal(self.name[0] + name + self.name[1])} {self.body_rule(parameters)}"

    def body_rule(self, parameters: Node) -> str:
        """The expression for what follows the tool's name: arguments in the order of the schema, then the end."""
        target = followed(parameters, parameters)
        properties = target.get("properties")
        if isinstance(properties, Mapping) and properties:
            required = target.get("required") or ()
            entries = [
                f"({self._argument_rule(key, schema, parameters)}){'' if key in required else '?'}"
                for key, schema in cast("Node", properties).items()
            ]
        elif target.get("additionalProperties") is False or (
            "properties" in target and not alternatives(target)
        ):
            entries = []
        else:
            closed, end = literal(self.key[1]), literal(self.value_end)
            entries = [f"({literal(self.key[0])} {_KEY_RULE} {closed} text {end})*"]
        return " ".join([*entries, literal(self.call_end)] if self.call_end else entries) or '""'

    def text_rules(self) -> str:
        """The rule of a text that does not contain the closing tag, one rule for each matched character of the tag."""
        tag = self.value_end.strip()
        first = _class_char(tag[0])
        rules = [f"text ::= ([^{first}\\x00] text | {literal(tag[0])} text-1)?"]
        for length in range(1, len(tag)):
            extend = f"{literal(tag[length])} text-{length + 1} | " if length + 1 < len(tag) else ""
            other = f"[^{_class_char(tag[length])}{first}\\x00]"
            rules.append(f"text-{length} ::= ({extend}{literal(tag[0])} text-1 | {other} text)?")
        return "\n".join(rules)

    def _argument_rule(self, key: str, schema: Any, root: Node) -> str:
        value = self._value_rule(schema, root, value_kinds(schema, root), MAX_DEPTH)
        return f"{literal(self.key[0] + key + self.key[1])} {value} {literal(self.value_end)}"

    def _value_rule(self, schema: Any, root: Node, kinds: Kinds, depth: int) -> str:
        node = followed(schema, root)
        constants = [node["const"]] if "const" in node else node.get("enum")
        if constants:
            return f"({' | '.join(literal(value_text(value, kinds)) for value in constants)})"
        if depth and (options := alternatives(node)):
            return f"({' | '.join(self._value_rule(option, root, kinds, depth - 1) for option in options)})"
        return "text" if "string" in value_kinds(node, root) else value_rule(node, root)

    # -- reading

    def read(
        self, text: str, opens: str, end: str, schemas: Mapping[str, Node]
    ) -> tuple[list[tuple[str, dict[str, Any]]], bool]:
        """The calls in a text, and whether reading stopped at a call that is incomplete or malformed.

        `opens` and `end` are the format's markers, `schemas` the parameters of the tools by name.
        """
        calls: list[tuple[str, dict[str, Any]]] = []
        place = 0
        while head := self.head_pattern(opens).search(text, place):
            parameters = schemas.get(head[1], {})
            kinds = parameter_kinds(parameters)
            arguments: dict[str, Any] = {}
            place = head.end()
            while key := self._key_pattern.match(text, place):
                value = self._value(text, key.end(), kinds.get(key[1], ANY), end)
                if value is None:
                    return calls, True
                arguments[key[1]], place = value
            closing = self._closing(end).match(text, place)
            if closing is None:
                return calls, True
            calls.append((head[1], arguments))
            place = closing.start(1) if closing[1] == end.strip() else closing.end()
        return calls, False

    def head_pattern(self, opens: str) -> re.Pattern[str]:
        """What begins a call, with the tool's name as its group; `opens` is the format's opening marker."""
        if self.name[0]:
            opening, closing = map(re.escape, (self.name[0], self.name[1].strip()))
            follows = "|".join(re.escape(tag.strip()) for tag in (self.key[0], self.call_end))
            return re.compile(rf"{opening}([^<>\"\n]{{1,200}}){closing}\s*(?={follows}|\Z)")
        opening, key = re.escape(opens), re.escape(self.key[0])
        return re.compile(rf"{opening}\s*([^\s<>{{}}\[\]\"]{{1,200}})\s*(?={key}|</|\Z)")

    def called(self, text: str) -> tuple[str, int] | None:
        """The tool that a text after the opening marker calls, and where its arguments begin; None if still unknown."""
        pattern = r"\s*([^\s<>]+)(?=[\s<])"
        if self.name[0]:
            pattern = rf"\s*{re.escape(self.name[0])}([^<>\"\n]{{1,200}}){re.escape(self.name[1].strip())}"
        match = re.match(pattern, text)
        return match and (match[1], match.end())

    def text_so_far(self, text: str, key: str) -> str:
        """The text of an argument whose element may still be open, without what may turn out to be its closing tag."""
        openings = self._key_pattern.finditer(text)
        opening = next((match for match in openings if match[1] == key), None)
        if opening is None:
            return ""
        value = text[opening.end() :]
        if self.key[1].endswith("\n"):
            value = value.removeprefix("\n")
        closing = self.value_end.rstrip("\n")
        value, closed, _ = value.partition(closing)
        return value if closed else value[: len(value) - open_end(value, closing)]

    @cached_property
    def _key_pattern(self) -> re.Pattern[str]:
        tags = r"\s*".join(re.escape(part) for part in self.key[1].split("\n") if part)
        return re.compile(rf"\s*{re.escape(self.key[0])}([^<>\n]{{1,200}}?){tags}")

    def _closing(self, end: str) -> re.Pattern[str]:
        tags = "|".join(re.escape(tag.strip()) for tag in (self.call_end, end) if tag.strip())
        return re.compile(rf"\s*({tags})")

    def _value(self, text: str, place: int, kinds: Kinds, end: str) -> tuple[Any, int] | None:
        """The value at a place and the end of its element; None if the element is not closed."""
        tag = self.value_end.strip()
        parts = (part.strip() for part in (self.key[0], self.call_end, end))
        follows = "|".join(re.escape(part) for part in parts if part)
        closing = re.compile(rf"{re.escape(tag)}(?=\s*(?:{follows}))").search(text, place)
        if closing is None:
            return None
        value = text[place : closing.start()]
        if self.key[1].endswith("\n"):
            value = value.removeprefix("\n")
        if self.value_end.startswith("\n"):
            value = value.removesuffix("\n")
        return read_value(value, kinds), closing.end()


# -- values


def argument_texts(arguments: Mapping[str, Any], parameters: Node) -> dict[str, str]:
    """Each argument as the text of its element."""
    kinds = parameter_kinds(parameters)
    return {key: value_text(value, kinds.get(key, ANY)) for key, value in arguments.items()}


def value_text(value: Any, kinds: Kinds) -> str:
    """The text from which `read_value` reads this value."""
    if isinstance(value, str) and read_value(value, kinds) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def read_value(text: str, kinds: Kinds) -> Any:
    """The value of a text under a schema that allows these types; the text itself if it is not such a value."""
    if kinds == STRING:
        return text
    try:
        value = _json_value(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return text
    return value if "string" not in kinds or _fits(value, kinds) else text


def parameter_kinds(parameters: Node) -> dict[str, Kinds]:
    """The types of each parameter of a tool."""
    properties = followed(parameters, parameters).get("properties")
    if not isinstance(properties, Mapping):
        return {}
    entries = cast("Node", properties).items()
    return {key: value_kinds(schema, parameters) for key, schema in entries}


def value_kinds(schema: Any, root: Node, depth: int = _UNION_DEPTH) -> Kinds:
    """The JSON types that a schema allows, as far as its outermost keywords tell."""
    node = followed(schema, root)
    if depth == 0:
        return ANY
    kinds = ANY
    declared = node.get("type")
    if isinstance(declared, list):
        kinds &= frozenset(cast("list[str]", declared))
    elif declared is not None:
        kinds &= {str(declared)}
    elif "properties" in node:
        kinds &= {"object"}
    constants = [node["const"]] if "const" in node else node.get("enum")
    if isinstance(constants, list):
        kinds &= {_kind(value) for value in cast("list[Any]", constants)}
    for options in (node.get("anyOf"), node.get("oneOf")):
        if isinstance(options, list) and options:
            inner = cast("list[Any]", options)
            allowed = (value_kinds(option, root, depth - 1) for option in inner)
            kinds &= frozenset[str]().union(*allowed)
    for part in cast("list[Any]", node.get("allOf") or ()):
        kinds &= value_kinds(part, root, depth - 1)
    return kinds or ANY


def _json_value(text: str) -> Any:
    """The value of a JSON text, or of a Python literal; raises ValueError, SyntaxError and more for anything else."""
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except ValueError:
        if not _PYTHON_VALUE.match(text):
            raise
        value = ast.literal_eval(text.strip())
    return json.loads(json.dumps(value, allow_nan=False))


def _fits(value: Any, kinds: Kinds) -> bool:
    kind = _kind(value)
    integral = isinstance(value, float) and value.is_integer() and "integer" in kinds
    return kind in kinds or integral or (kind == "integer" and "number" in kinds)


_KINDS = {
    "NoneType": "null",
    "str": "string",
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "list": "array",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value).__name__, "object")


def open_end(text: str, tag: str) -> int:
    """Length of the text's end that may become this tag."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)


def _class_char(character: str) -> str:
    """A character as it is written in a character class of GBNF."""
    return f"\\{character}" if character in "]\\^-" else character

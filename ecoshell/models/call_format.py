"""The call format of one family of models: how its calls are written, constrained and read.

A call starts with a marker (`opens`), or with a head such as `{"name": "read_file", "arguments": `; text before that is
free. Decoding after the marker or the head is constrained to `CallFormat.grammar`. `CallFormat.read` parses the same
text, and also calls that were written without constraints.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from ecoshell.messages import ToolSchema
from ecoshell.models.call_parsing import (
    CALL_NAME,
    Attempt,
    Head,
    ParsedText,
    brace_calls,
    call_head,
    json_calls,
    named_calls,
    python_calls,
)
from ecoshell.models.elements import Elements
from ecoshell.models.grammar import LOOSE, Node, Notation, arguments_rule, literal, rules

Syntax = Literal["json", "named", "python", "braces", "elements"]
"""`{"name": "f", "arguments": {…}}`, `f[ARGS]{…}`, `f(a=1)`, `call:f{a:1}`, or XML elements."""
_MARKER = re.compile(r"<[^<>\s]*>|\[[A-Z_]+\]")


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The format of one family of models."""

    name: str
    signs: tuple[str, ...] = ()  # texts that occur only in chat templates of the family
    opens: str = ""  # the opening marker; empty if calls have none
    start: str = ""
    between: str = ""  # text between two calls of one reply; empty if a reply has only one call
    end: str = ""
    syntax: Syntax = "json"
    notation: Notation = LOOSE
    elements: Elements | None = None  # the tags, if the syntax is XML elements
    argument_key: str = "arguments"
    result_role: str = "tool"
    tools_in_system: bool = False  # whether the system message's `tools` holds the tools as text

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens, and must be kept as text in replies."""
        texts = (self.opens, self.start, self.between, self.end, self.notation.quote)
        texts += self.elements.markers if self.elements else ()
        parts = {part for text in texts for part in _MARKER.findall(text)}
        return tuple(sorted(parts | ({"[ARGS]"} if self.syntax == "named" else set())))

    # -- writing

    def write(
        self,
        name: str,
        arguments: str,
        data: Callable[[str], str] = str,
        parameters: Node | None = None,
    ) -> str:
        """A call in this format, from its arguments as JSON; `data` marks everything that is not syntax.

        `parameters` is the tool's schema, which decides whether an XML element contains text or JSON.
        """
        if self.elements:
            written = self.elements.write(name, json.loads(arguments), parameters or {}, data)
            return f"{self.opens}{self.start}{written}{self.end}"
        match self.syntax:
            case "json":
                written = f'{{"name": "{name}", "{self.argument_key}": {arguments}}}'
            case "named":
                written = f"{name}[ARGS]{arguments}"
            case _:
                values: dict[str, Any] = json.loads(arguments)
                opening, closing = self.notation.brackets
                key = self.notation.argument.format
                pieces = (key(name) + self._value(value) for name, value in values.items())
                written = f"{name}{opening}{self.notation.comma.join(pieces)}{closing}"
        return f"{self.opens}{self.start}{data(written)}{self.end}"

    def _value(self, value: Any) -> str:
        if self.syntax == "python":
            is_text = isinstance(value, str)
            return json.dumps(value, ensure_ascii=False) if is_text else repr(value)
        if isinstance(value, str):
            return f"{self.notation.quote}{value}{self.notation.quote}"
        if isinstance(value, Mapping):
            entries = cast("Mapping[str, Any]", value).items()
            return "{" + ",".join(f"{key}:{self._value(inner)}" for key, inner in entries) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._value, cast("list[Any]", value))) + "]"
        return json.dumps(value, ensure_ascii=False)

    # -- grammars

    def grammar(self, schemas: Sequence[ToolSchema], *, marked: bool, once: bool) -> str:
        """The grammar of calls to these tools; `marked` says that the opening marker is already written."""
        notation, calls = self.notation, list[str]()
        if self.elements:
            return self._elements_grammar(self.elements, schemas, marked=marked, once=once)
        for schema in schemas:
            arguments = arguments_rule(schema.parameters, notation)
            name = json.dumps(schema.name, ensure_ascii=False)
            if self.syntax == "named":
                calls.append(f"{literal(schema.name + '[ARGS]')} {arguments}")
            elif self.syntax != "json":
                calls.append(f"{literal(schema.name)} {arguments}")
            else:
                head = ("{", '"name":', f"{name},", f'"{self.argument_key}":')
                closing = notation.closing("}")
                calls.append(f"{' '.join(map(notation.sign, head))} {arguments} {closing}")
        root = [] if marked or not self.opens else [literal(self.opens)]
        if self.start:
            is_list = self.start.startswith("[") and self.opens and not notation.space
            root += ['" "?'] if is_list else []
            root.append(_sign(self.start, notation))
        root.append("call")
        if self.between and not once:
            root.append(f"({_sign(self.between, notation)} call)*")
        if self.end:
            root.append(_sign(self.end, notation, last=True))
        return f"root ::= {' '.join(root)}\ncall ::= {' | '.join(calls)}{rules(notation)}"

    def _elements_grammar(
        self, elements: Elements, schemas: Sequence[ToolSchema], *, marked: bool, once: bool
    ) -> str:
        calls = " | ".join(elements.call_rule(schema.name, schema.parameters) for schema in schemas)
        more = "" if once else f"({literal(self.between)} call)*"
        opening = literal(self.start if marked else self.opens + self.start)
        root = f"root ::= {opening} call {more} {literal(self.end)}"
        return f"{root}\ncall ::= {calls}\n{elements.text_rules()}{rules(LOOSE)}"

    def rest(self, schema: ToolSchema, head: Head) -> str:
        """The grammar of the text after the head of a call of this tool without a marker."""
        if self.elements and not head.json:
            body = self.elements.body_rule(schema.parameters)
            newline = literal("\n") if self.elements.name[1].endswith("\n") else '""'
            return f"root ::= {newline} {body}\n{self.elements.text_rules()}{rules(LOOSE)}"
        if self.syntax == "python" and not head.json:
            arguments = arguments_rule(schema.parameters, self.notation)
            # The head includes the bracket.
            arguments = '")"' if arguments == '"()"' else arguments.replace('("("', "(", 1)
            return f'root ::= {arguments} "]"{rules(self.notation)}'
        closing = LOOSE.closing("}")
        return f"root ::= {arguments_rule(schema.parameters, LOOSE)} {closing}{rules(LOOSE)}"

    # -- reading

    def head(self, text: str, names: frozenset[str], *, complete: bool = False) -> Head | None:
        """The start of the first call in a text, or of what may become one if the text is not yet `complete`."""
        names = names if self._head_tags else frozenset()
        return call_head(text, self.opens, names, self._head_tags or ("", ""), complete=complete)

    @property
    def _head_tags(self) -> tuple[str, str] | None:
        """The tags around the tool's name in a call without a marker; None if every call needs the marker."""
        if self.syntax == "python":
            return "[", "("
        if self.elements and self.elements.name[0]:
            return self.elements.name[0], self.elements.name[1].strip()
        return None

    def called(self, text: str) -> Head | None:
        """The tool called by a text after the marker, and the start of its arguments.

        None while unknown, and in formats whose values are neither JSON nor XML elements.
        """
        if self.syntax == "named":
            match = CALL_NAME.match(text)
            return match and Head(0, sure=True, end=match.end(), tool=match[1])
        if self.elements:
            element = self.elements.called(text)
            return element and Head(0, sure=True, end=element[1], tool=element[0])
        return call_head(text) if self.syntax == "json" else None

    def read(self, text: str, schemas: Sequence[ToolSchema] = ()) -> ParsedText:
        """Parse the calls in a text; unreadable ones are skipped and reported as broken.

        `schemas` are the callable tools; they give the types of values in XML elements.
        """
        place = text.find(self.opens) if self.opens else -1
        if self.elements:
            return self._read_elements(self.elements, text, place, schemas)
        if self.syntax == "json" or (place < 0 and self.syntax != "python"):
            return json_calls(text, place, len(self.opens))
        inside = text[place + len(self.opens) :] if place >= 0 else text
        lead = text[:place] if place >= 0 else ""
        if self.syntax == "named":
            attempts, broken = named_calls(inside)
        elif self.syntax == "python":
            text_before, attempts, broken = python_calls(inside)
            if not attempts and not broken:
                return json_calls(text, place, len(self.opens))
            lead = lead or text_before
        else:
            attempts, broken = brace_calls(inside, self.notation.quote)
        return ParsedText(lead.strip(), attempts, broken or (place >= 0 and not attempts))

    def _read_elements(
        self, elements: Elements, text: str, place: int, tools: Sequence[ToolSchema]
    ) -> ParsedText:
        head = elements.head_pattern(self.opens).search(text)
        if head is None:
            return json_calls(text, place, len(self.opens))
        lead = text[: head.start() if place < 0 else min(place, head.start())]
        schemas = {tool.name: tool.parameters for tool in tools}
        calls, broken = elements.read(text[head.start() :], self.opens, self.end, schemas)
        attempts = tuple(Attempt(name, arguments) for name, arguments in calls)
        return ParsedText(lead.strip(), attempts, broken)


def _sign(text: str, notation: Notation, *, last: bool = False) -> str:
    """The expression for text around calls, with optional white space if the notation allows it."""
    if not notation.space:
        return literal(text)
    pieces = [notation.sign(piece, space_before=True) for piece in text.split()]
    if last and pieces:
        ending = text.rsplit(maxsplit=1)[-1]
        pieces[-1] = notation.closing(ending)
    return " ".join(pieces) or notation.space

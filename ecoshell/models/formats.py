"""Call formats of local model families: one table, with a grammar, a writer and a tolerant reader for each.

A call starts with a marker (`opens`), or with a head such as `{"name": "read_file", "arguments": `; text before that is
free. Decoding after the marker or the head is constrained to `CallFormat.grammar`. `CallFormat.read` parses the same
text, and also calls that were written without constraints.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NoReturn, cast

from ecoshell.messages import Call, ToolSchema
from ecoshell.models.elements import Elements
from ecoshell.models.grammar import LOOSE, PYTHON, Node, Notation, arguments_rule, literal, rules

Syntax = Literal["json", "named", "python", "braces", "elements"]
"""`{"name": "f", "arguments": {…}}`, `f[ARGS]{…}`, `f(a=1)`, `call:f{a:1}`, or XML elements."""

REASONING_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""Tags around the reasoning of model families."""

_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*"?)|,(?=\s*[}\]])', re.DOTALL)
"""A JSON string, or a trailing comma outside of strings."""
_OLDER_HEAD = re.compile(r'\{\s*"(?:call|thought)"')
_FENCE = re.compile(r"```[a-zA-Z_]*")
_MAX_STARTS = 40
"""Opening braces that are tried, so that garbage does not take quadratic time."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call as written: name and arguments may have wrong types."""

    name: Any
    arguments: Any


@dataclass(frozen=True, slots=True)
class ParsedText:
    """Contents of a reply: the text before the first call, the calls, and whether a call was unreadable."""

    text: str
    attempts: tuple[Attempt, ...] = ()
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The position where a call starts (`sure`) or may start, and then its tool and the start of its arguments.

    `tool` is empty if a marker starts the call. `json` says whether the head is JSON.
    """

    start: int
    sure: bool = False
    end: int = 0
    tool: str = ""
    json: bool = False


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The format of one family of models."""

    name: str
    signs: tuple[str, ...] = ()
    """Texts that occur only in chat templates of the family."""
    opens: str = ""
    """The opening marker; empty if calls have none."""
    start: str = ""
    between: str = ""
    """Text between two calls of one reply; empty if a reply has only one call."""
    end: str = ""
    syntax: Syntax = "json"
    notation: Notation = LOOSE
    elements: Elements | None = None
    """The tags, if the syntax is XML elements."""
    argument_key: str = "arguments"
    result_role: str = "tool"
    tools_in_system: bool = False
    """Whether the template takes the tools as text in the system message's `tools`."""

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
                written_call = f'{{"name": "{name}", "{self.argument_key}": {arguments}}}'
            case "named":
                written_call = f"{name}[ARGS]{arguments}"
            case _:
                values: dict[str, Any] = json.loads(arguments)
                opening, closing = self.notation.brackets
                pieces = (
                    self.notation.argument.format(key) + self._value(value)
                    for key, value in values.items()
                )
                written_call = f"{name}{opening}{self.notation.comma.join(pieces)}{closing}"
        return f"{self.opens}{self.start}{data(written_call)}{self.end}"

    def _value(self, value: Any) -> str:
        if self.syntax == "python":
            return (
                repr(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            )
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
                closing = notation.sign("}", space_before=True, space_after=False)
                calls.append(f"{' '.join(map(notation.sign, head))} {arguments} {closing}")
        root = [] if marked or not self.opens else [literal(self.opens)]
        if self.start:
            some = (
                ['" "?'] if self.start.startswith("[") and self.opens and not notation.space else []
            )
            root += [*some, _sign(self.start, notation)]
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
        closing = LOOSE.sign("}", space_before=True, space_after=False)
        return f"root ::= {arguments_rule(schema.parameters, LOOSE)} {closing}{rules(LOOSE)}"

    # -- reading

    def head(self, text: str, names: frozenset[str], *, complete: bool = False) -> Head | None:
        """The start of the first call in a text, or of what may become one if the text is not yet `complete`."""
        tags = _head_tags(self)
        tool_names = names if tags else _NO_NAMES
        match = _beginnings(self.opens, tool_names, tags).search(text, partial=not complete)
        if match is None or match.partial:
            return match and Head(match.start())
        tool = match["json"] or match["named"] or ""
        return Head(
            match.start(), sure=True, end=match.end(), tool=tool, json=match["json"] is not None
        )

    def called(self, text: str) -> Head | None:
        """The tool called by a text after the marker, and the start of its arguments.

        None while unknown, and in formats whose values are neither JSON nor XML elements.
        """
        if self.syntax == "named":
            match = _CALL_NAME.match(text)
            return match and Head(0, sure=True, end=match.end(), tool=match[1])
        if self.elements:
            element = self.elements.called(text)
            return element and Head(0, sure=True, end=element[1], tool=element[0])
        return GENERIC.head(text, frozenset(), complete=True) if self.syntax == "json" else None

    def read(self, text: str, schemas: Sequence[ToolSchema] = ()) -> ParsedText:
        """Parse the calls in a text; unreadable ones are skipped and reported as broken.

        `schemas` are the callable tools; they give the types of values in XML elements.
        """
        place = text.find(self.opens) if self.opens else -1
        if self.elements:
            return self._read_elements(self.elements, text, place, schemas)
        if self.syntax == "json" or (place < 0 and self.syntax != "python"):
            return _json_calls(text, place, len(self.opens))
        inside = text[place + len(self.opens) :] if place >= 0 else text
        lead = text[:place] if place >= 0 else ""
        if self.syntax == "named":
            attempts, broken = _named_calls(inside)
        elif self.syntax == "python":
            text_before, attempts, broken = _python_calls(inside)
            if not attempts and not broken:
                return _json_calls(text, place, len(self.opens))
            lead = lead or text_before
        else:
            attempts, broken = _brace_calls(inside, self.notation.quote)
        return ParsedText(lead.strip(), attempts, broken or (place >= 0 and not attempts))

    def _read_elements(
        self, elements: Elements, text: str, place: int, tool_schemas: Sequence[ToolSchema]
    ) -> ParsedText:
        head = elements.head_pattern(self.opens).search(text)
        if head is None:
            return _json_calls(text, place, len(self.opens))
        lead = text[: head.start() if place < 0 else min(place, head.start())]
        schemas = {tool_schema.name: tool_schema.parameters for tool_schema in tool_schemas}
        calls, broken = elements.read(text[head.start() :], self.opens, self.end, schemas)
        return ParsedText(
            lead.strip(), tuple(Attempt(name, arguments) for name, arguments in calls), broken
        )


_MARKER = re.compile(r"<[^<>\s]*>|\[[A-Z_]+\]")

GENERIC = CallFormat("generic", signs=("<function=", "]<]minimax[>["), between="\n")
"""For templates without tools, or with tags of an unsupported format (Functionary 3.1, MiniMax-M3)."""
HERMES = CallFormat(
    "hermes",
    signs=("<tool_call>",),
    opens="<tool_call>",
    start="\n",
    between="\n</tool_call>\n<tool_call>\n",
    end="\n</tool_call>",
)
_FORMATS = (
    CallFormat(
        "function-gemma",
        signs=("<start_function_call>",),
        opens="<start_function_call>",
        start="call:",
        between="<end_function_call><start_function_call>call:",
        end="<end_function_call>",
        syntax="braces",
        notation=Notation(argument="{}:", key="{}:", comma=",", quote="<escape>"),
    ),
    CallFormat(
        "gemma-4",
        signs=("<|tool_call>",),
        opens="<|tool_call>",
        start="call:",
        between="<tool_call|><|tool_call>call:",
        end="<tool_call|>",
        syntax="braces",
        notation=Notation(argument="{}:", key="{}:", comma=",", quote='<|"|>'),
    ),
    CallFormat(
        "liquid",
        signs=("<|tool_call_start|>", "<|tool_list_start|>"),
        opens="<|tool_call_start|>",
        start="[",
        between=", ",
        end="]<|tool_call_end|>",
        syntax="python",
        notation=PYTHON,
    ),
    CallFormat(
        "seed",
        signs=("<seed:tool_call>",),
        opens="<seed:tool_call>",
        start="\n",
        between="\n</seed:tool_call>\n<seed:tool_call>\n",
        end="\n</seed:tool_call>",
        syntax="elements",
        elements=Elements(
            ("<function=", ">\n"), ("<parameter=", ">"), "</parameter>\n", "</function>"
        ),
    ),
    CallFormat(
        "qwen3-coder",
        signs=("<parameter=",),
        opens="<tool_call>",
        start="\n",
        between="\n</tool_call>\n<tool_call>\n",
        end="\n</tool_call>",
        syntax="elements",
        elements=Elements(
            ("<function=", ">\n"), ("<parameter=", ">\n"), "\n</parameter>\n", "</function>"
        ),
    ),
    CallFormat(
        "glm-4.7",
        signs=("</arg_key><arg_value>",),
        opens="<tool_call>",
        between="</tool_call><tool_call>",
        end="</tool_call>",
        syntax="elements",
        elements=Elements(("", ""), ("<arg_key>", "</arg_key><arg_value>"), "</arg_value>"),
    ),
    CallFormat(
        "glm-4.5",
        signs=("<arg_key>",),
        opens="<tool_call>",
        between="</tool_call>\n<tool_call>",
        end="</tool_call>",
        syntax="elements",
        elements=Elements(("", "\n"), ("<arg_key>", "</arg_key>\n<arg_value>"), "</arg_value>\n"),
    ),
    CallFormat(
        "minimax-m2",
        signs=("<minimax:tool_call>",),
        opens="<minimax:tool_call>",
        start="\n",
        between="\n",
        end="\n</minimax:tool_call>",
        syntax="elements",
        elements=Elements(
            ('<invoke name="', '">\n'), ('<parameter name="', '">'), "</parameter>\n", "</invoke>"
        ),
    ),
    GENERIC,
    CallFormat(
        "minimax-m1",
        signs=('<tool_calls>\\n{"name"',),
        opens="<tool_calls>",
        start="\n",
        between="\n",
        end="\n</tool_calls>",
    ),
    HERMES,
    CallFormat(
        "mistral-named",
        signs=("[ARGS]",),
        opens="[TOOL_CALLS]",
        between="[TOOL_CALLS]",
        syntax="named",
    ),
    CallFormat(
        "mistral", signs=("[TOOL_CALLS]",), opens="[TOOL_CALLS]", start="[", between=", ", end="]"
    ),
    CallFormat("phi-functools", signs=("functools",), opens="functools[", between=", ", end="]"),
    CallFormat(
        "phi",
        signs=("<|tool|>",),
        opens="<|tool_call|>",
        start="[",
        between=", ",
        end="]<|/tool_call|>",
        result_role="tool_response",
        tools_in_system=True,
    ),
    CallFormat(
        "llama-pythonic",
        signs=("[func_name1(",),
        start="[",
        between=", ",
        end="]",
        syntax="python",
        notation=PYTHON,
    ),
    CallFormat("llama-json", signs=("<|start_header_id|>ipython",), argument_key="parameters"),
)
"""Formats with more specific signs first."""
FORMATS = {form.name: form for form in _FORMATS}


def _sign(text: str, notation: Notation, *, last: bool = False) -> str:
    """The expression for text around calls, with optional white space if the notation allows it."""
    if not notation.space:
        return literal(text)
    pieces = [notation.sign(piece, space_before=True) for piece in text.split()]
    if last and pieces:
        pieces[-1] = notation.sign(
            text.rsplit(maxsplit=1)[-1], space_before=True, space_after=False
        )
    return " ".join(pieces) or notation.space


def detect(template: str) -> CallFormat:
    """The format of a chat template."""
    return next(
        (form for form in _FORMATS if any(sign in template for sign in form.signs)), GENERIC
    )


def format_of_text(text: str) -> CallFormat:
    """The format whose marker occurs in a text, for servers that do not parse calls."""
    return next((form for form in FORMATS.values() if form.opens and _occurs(form, text)), GENERIC)


def _occurs(form: CallFormat, text: str) -> bool:
    if form.elements and form.elements.head_pattern(form.opens).search(text) is None:
        return False  # several formats share the marker
    return form.opens in text


def call_json(call: Call) -> str:
    """A call's arguments as JSON."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


# -- starts of calls

_NO_NAMES = frozenset[str]()


def _head_tags(form: CallFormat) -> tuple[str, str] | None:
    """The tags around the tool's name in a call without an opening marker; None if every call needs the marker."""
    if form.syntax == "python":
        return "[", "("
    return (
        (form.elements.name[0], form.elements.name[1].strip())
        if form.elements and form.elements.name[0]
        else None
    )


@lru_cache(maxsize=64)
def _beginnings(marker: str, names: frozenset[str], tags: tuple[str, str] | None) -> Any:
    """Matches the start of a call: a marker, a JSON head, or the name of one of these tools between tags."""
    import regex  # for partial matches; imported here to keep start-up fast

    key = r"(?:arguments|parameters)"
    json_head = rf'(?:```[a-zA-Z_]*\s*)?\{{\{{?\s*"name"\s*:\s*"(?P<json>[^"\\\n]{{1,120}})"\s*,\s*"{key}"\s*:\s*'
    tools = "|".join(map(regex.escape, sorted(names))) or r"(?!)"
    alternatives = [regex.escape(marker)] if marker else []
    opening, closing = map(regex.escape, tags or ("", ""))
    return regex.compile(
        "|".join([*alternatives, json_head, rf"{opening}\s*(?P<named>{tools}){closing}"])
    )


# -- JSON


def _json_calls(text: str, place: int, marker: int) -> ParsedText:
    """The calls among the outermost JSON objects of a text, after the marker if there is one."""
    attempts: list[Attempt] = []
    lead = text[:place] if place >= 0 else ""
    begin = place + marker if place >= 0 else 0
    for _ in range(_MAX_STARTS):
        start = text.find("{", begin)
        if start < 0:
            break
        value = _decode_from(text, start)
        if value is None:
            begin = start + 1
            continue
        record, begin = value
        call = record.get("call")
        inner = cast("Mapping[str, Any]", call) if isinstance(call, dict) else record
        plainly = "arguments" in record or "parameters" in record or place >= 0
        if inner is record and not ("name" in record and plainly):
            continue
        if not attempts:
            thought = record.get("thought")
            text_before = (
                _FENCE.sub("", text[:start] if place < 0 else lead)
                .strip()
                .removesuffix("{")
                .strip()
            )
            lead = thought if isinstance(thought, str) else text_before
        attempts.append(
            Attempt(inner.get("name"), inner.get("arguments", inner.get("parameters", {})))
        )
    if not attempts and place < 0:
        older = _OLDER_HEAD.match(_FENCE.sub("", text, count=1).lstrip())
        return ParsedText(
            text.strip(),
            broken=bool(older) or GENERIC.head(text, frozenset(), complete=True) is not None,
        )
    return ParsedText(lead.strip(), tuple(attempts), broken=not attempts)


def _decode_from(text: str, place: int) -> tuple[Mapping[str, Any], int] | None:
    decoder = json.JSONDecoder(parse_constant=refuse_constant, strict=False)
    plain = text[place:]
    # Both have the same length.
    for candidate in (plain, _TRAILING_COMMA.sub(lambda match: match[1] or " ", plain)):
        try:
            value, length = decoder.raw_decode(candidate)
        except (
            ValueError,
            RecursionError,
        ):  # ValueError covers bad JSON and integers past Python's digit limit
            continue
        if isinstance(value, dict):
            return cast("Mapping[str, Any]", value), place + length
    return None


def decoded(text: str) -> Any:
    """A JSON value; None if the text is not JSON."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None


def refuse_constant(name: str) -> NoReturn:
    """For `json.loads`, which accepts NaN and Infinity by default."""
    raise ValueError(f"{name} is not JSON")


# -- the other notations

_CALL_NAME = re.compile(
    r"\s*(?:\[TOOL_CALLS\])?\s*([^\s\[{]+)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(?=\{)"
)


def _named_calls(text: str) -> tuple[tuple[Attempt, ...], bool]:
    attempts, place, broken = _calls_before_objects(_CALL_NAME.match, text)
    if not attempts and not broken and "{" in text:  # the older form, a list of objects
        parsed = _json_calls(text, 0, 0)
        return parsed.attempts, parsed.broken
    return attempts, broken or (bool(text[place:].strip(" \n]")) and not attempts)


def _calls_before_objects(
    find: Callable[[str, int], re.Match[str] | None], text: str
) -> tuple[tuple[Attempt, ...], int, bool]:
    """Calls of a name followed by an object, the end of the last one, and whether one is broken."""
    attempts: list[Attempt] = []
    place = 0
    while match := find(text, place):
        value = _decode_from(text, match.end())
        if value is None:
            return tuple(attempts), place, True
        arguments, place = value
        attempts.append(Attempt(match[1], arguments))
    return tuple(attempts), place, False


_PYTHON_CALL = re.compile(r"\[?\s*[A-Za-z_][\w.\-]*\(")


def _python_calls(text: str) -> tuple[str, tuple[Attempt, ...], bool]:
    """The text before the first call, the calls in a list or a line, and whether one is broken."""
    match = re.search(r"\[\s*[A-Za-z_][\w.\-]*\(", text) or _PYTHON_CALL.match(text)
    if match is None:
        return text, (), False
    attempts: list[Attempt] = []
    place = match.start() + (text[match.start()] == "[")
    while call := re.compile(r"[\s,]*([A-Za-z_][\w.\-]*)(?=\()").match(text, place):
        end = _closing(text, call.end())
        arguments = None if end is None else _python_arguments(text[call.end() : end])
        if end is None or arguments is None:
            return text[: match.start()], tuple(attempts), True
        attempts.append(Attempt(call[1], arguments))
        place = end
    return text[: match.start()], tuple(attempts), not attempts


def _closing(text: str, place: int) -> int | None:
    """The position after the bracket that closes the one at `place`."""
    depth, quote, skip = 0, "", False
    for index in range(place, len(text)):
        sign = text[index]
        if skip:
            skip = False
        elif quote:
            skip, quote = sign == "\\", "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        else:
            depth += (sign in "([{") - (sign in ")]}")
            if depth == 0:
                return index + 1
    return None


def _python_arguments(text: str) -> dict[str, Any] | None:
    try:
        call = _JsonWords().visit(ast.parse(f"f{text}", mode="eval")).body
        if not isinstance(call, ast.Call) or call.args:
            return None
        return {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


class _JsonWords(ast.NodeTransformer):
    """Replaces JSON's constants by Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_WORDS[node.id]) if node.id in _JSON_WORDS else node


_JSON_WORDS = {"true": True, "false": False, "null": None}


_BRACE_CALL = re.compile(r"call:\s*([^\s{]+)\s*(?=\{)")
_BRACE_KEY = re.compile(r"(?<=[{,])\s*([^{}\[\],:\"]+?)\s*(?=:)")
_BRACE_WORD = re.compile(r"(?<=[:\[,])\s*([^\s{}\[\],:\"][^{}\[\],]*)(?=[,}\]])")


def _brace_calls(text: str, quote: str) -> tuple[tuple[Attempt, ...], bool]:
    """Calls with unquoted keys and strings between `quote` marks, converted to JSON first."""

    def quoted(word: re.Match[str]) -> str:
        value = word[1].strip()
        return value if value == "null" or decoded(value) is not None else json.dumps(value)

    written = ""
    for index, piece in enumerate(text.split(quote)):
        if index % 2:
            written += json.dumps(piece)
        else:  # quote the keys and words between strings
            written += _BRACE_WORD.sub(
                quoted, _BRACE_KEY.sub(lambda key: json.dumps(key[1]), piece)
            )
    attempts, _, broken = _calls_before_objects(_BRACE_CALL.search, written)
    return attempts, broken or not attempts

"""How families of local models write calls: one table, with a grammar, a writer and a forgiving reader for each.

A call begins with a marker (`opens`), or is recognised by its head: `{"name": "read_file", "arguments": ` of a tool.
Until then a reply is free text. What stands after the marker or the head is held to `CallFormat.grammar`; the same
text is read by `CallFormat.read`, which also takes what a model wrote without being held to anything.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast

from ecoshell.messages import Call, ToolDocument
from ecoshell.models.grammar import JSON, LOOSE, PYTHON, Notation, arguments_rule, literal, rules

Syntax = Literal["json", "named", "python", "braces"]
"""`{"name": "f", "arguments": {…}}`, `f[ARGS]{…}`, `f(a=1)`, or `call:f{a:1}`."""

REASONING_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""What families that reason put around it."""

_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_OLDER_HEAD = re.compile(r'\{\s*"(?:call|thought)"')
_FENCE = re.compile(r"```[a-zA-Z_]*")
_MAX_STARTS = 40
"""Opening braces tried before a text counts as having no JSON object: keeps garbage from costing quadratic time."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call as it was written: a name and arguments, either of which may be of a wrong kind."""

    name: Any
    arguments: Any


@dataclass(frozen=True, slots=True)
class Found:
    """What a reply holds: the text before the first call, the calls, and whether a last one could not be read."""

    text: str
    attempts: tuple[Attempt, ...] = ()
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """Where a call begins in a text, or may: `sure` when it does, then with what it is of and where its values begin.

    `tool` is empty where a marker begins the call.
    """

    start: int
    sure: bool = False
    end: int = 0
    tool: str = ""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The format of one family of models."""

    name: str
    opens: str = ""
    """The marker; empty where the call itself begins it."""
    start: str = ""
    between: str = ""
    """What stands between two calls of one reply; empty where one reply has one call."""
    end: str = ""
    syntax: Syntax = "json"
    notation: Notation = LOOSE
    argument_key: str = "arguments"
    result_role: str = "tool"
    told_in_system: bool = False
    """Whether the template takes the tools as a text in the system message's `tools`."""

    @property
    def known(self) -> bool:
        """Whether a template of this family knows tools; otherwise they are told as plain text."""
        return self.name != "generic"

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens of the model and have to be read as text in its replies."""
        texts = (self.opens, self.start, self.between, self.end, self.notation.quote)
        parts = {part for text in texts for part in _MARKER.findall(text)}
        return tuple(sorted(parts | ({"[ARGS]"} if self.syntax == "named" else set())))

    # -- writing

    def write(self, name: str, arguments: str, data: Callable[[str], str] = str) -> str:
        """A call as a model of the family writes it, its arguments given as JSON; `data` marks what is not syntax."""
        return f"{self.opens}{self.start}{data(self._one(name, arguments))}{self.end}"

    def _one(self, name: str, arguments: str) -> str:
        match self.syntax:
            case "json":
                return f'{{"name": "{name}", "{self.argument_key}": {arguments}}}'
            case "named":
                return f"{name}[ARGS]{arguments}"
            case "python" | "braces":
                values: dict[str, Any] = json.loads(arguments)
                opening, closing = self.notation.brackets
                pieces = (self.notation.argument.format(key) + self._value(value) for key, value in values.items())
                return f"{name}{opening}{self.notation.comma.join(pieces)}{closing}"

    def _value(self, value: Any) -> str:
        if self.syntax == "python":
            return repr(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if isinstance(value, str):
            return f"{self.notation.quote}{value}{self.notation.quote}"
        if isinstance(value, Mapping):
            entries = cast("Mapping[str, Any]", value).items()
            return "{" + ",".join(f"{key}:{self._value(inner)}" for key, inner in entries) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._value, cast("list[Any]", value))) + "]"
        return json.dumps(value, ensure_ascii=False)

    # -- grammars

    def grammar(self, documents: Sequence[ToolDocument], *, marked: bool, once: bool, bounded: bool = False) -> str:
        """The grammar of calls to any of the documents, from the end of the marker on if that is `marked` already."""
        notation = self._notation(bounded=bounded)
        calls = " | ".join(self._rule(document, notation) for document in documents)
        root = [] if marked or not self.opens else [literal(self.opens)]
        if self.start:
            some = ['" "?'] if self.start.startswith("[") and self.opens and not notation.space else []
            root += [*some, _sign(self.start, notation)]
        root.append("call")
        if self.between and not once:
            root.append(f"({_sign(self.between, notation)} call)*")
        if self.end:
            root.append(_sign(self.end, notation, last=True))
        return f"root ::= {' '.join(root)}\ncall ::= {calls}{rules(notation, bounded=bounded)}"

    def rest(self, document: ToolDocument, *, bounded: bool = False) -> str:
        """The grammar of what follows the head of a call of this tool that no marker began."""
        if self.syntax == "python":
            arguments = arguments_rule(document.parameters, self.notation)
            arguments = '")"' if arguments == '"()"' else arguments.replace('("("', "(", 1)  # the head has the bracket
            return f'root ::= {arguments} "]"{rules(self.notation, bounded=bounded)}'
        notation = JSON if bounded else LOOSE
        closing = notation.sign("}", before=True, after=False)
        return f"root ::= {arguments_rule(document.parameters, notation)} {closing}{rules(notation, bounded=bounded)}"

    def _notation(self, *, bounded: bool) -> Notation:
        """How values are written; a small model, which rambles, is left no white space."""
        return JSON if bounded and self.notation is LOOSE else self.notation

    def _rule(self, document: ToolDocument, notation: Notation) -> str:
        arguments = arguments_rule(document.parameters, notation)
        match self.syntax:
            case "json":
                name = json.dumps(document.name, ensure_ascii=False)
                if not notation.space:
                    head = '{"name": ' + name + f', "{self.argument_key}": '
                    return f"{literal(head)} {arguments} {literal('}')}"
                head = ("{", '"name":', f"{name},", f'"{self.argument_key}":')
                return (
                    f"{' '.join(map(notation.sign, head))} {arguments} {notation.sign('}', before=True, after=False)}"
                )
            case "named":
                return f"{literal(document.name + '[ARGS]')} {arguments}"
            case "python" | "braces":
                return f"{literal(document.name)} {arguments}"

    # -- reading

    def head(self, text: str, names: frozenset[str], *, whole: bool = False) -> Head | None:
        """Where the first call of a text begins or, unless this is the `whole` of it, may be about to."""
        maybe: Head | None = None
        marked = text.find(self.opens) if self.opens else -1
        found = Head(marked, sure=True, end=marked + len(self.opens)) if marked >= 0 else None
        if not whole and found is None:
            maybe = _tail(text, self.opens) or _tail(text, "```")
        patterns = (_JSON_HEAD, _PYTHON_HEAD) if self.syntax == "python" else (_JSON_HEAD,)
        for pattern in patterns:
            head = pattern.find(text, names, whole=whole)
            if head is not None and head.sure and (found is None or head.start < found.start):
                found = head
            elif head is not None and not head.sure and (maybe is None or head.start < maybe.start):
                maybe = head
        return found or maybe

    def called(self, text: str) -> Head | None:
        """What the call is of that a text after the marker begins with, as far as it can be known; its values are JSON.

        None while that is not known, and where values are written otherwise.
        """
        if self.syntax == "named":
            named = _NAMED.match(text)
            return named and Head(0, sure=True, end=named.end(), tool=named[1])
        head = _JSON_HEAD.find(text, frozenset(), whole=True) if self.syntax == "json" else None
        return head if head and head.sure else None

    def read(self, text: str) -> Found:
        """The calls in a text; what cannot be read is left out, and said to be broken if it was to be a call."""
        place = text.find(self.opens) if self.opens else -1
        if self.syntax == "json" or (place < 0 and self.syntax != "python"):
            return _json_calls(text, place, len(self.opens))
        inside = text[place + len(self.opens) :] if place >= 0 else text
        lead = text[:place] if place >= 0 else ""
        if self.syntax == "named":
            attempts, broken = _named_calls(inside)
        elif self.syntax == "python":
            before, attempts, broken = _python_calls(inside)
            if not attempts and not broken:
                return _json_calls(text, place, len(self.opens))
            lead = lead or before
        else:
            attempts, broken = _brace_calls(inside, self.notation.quote)
        return Found(lead.strip(), attempts, broken or (place >= 0 and not attempts))


_MARKER = re.compile(r"<[^<>\s]*>|\[[A-Z_]+\]")
_ESCAPED = Notation(argument="{}:", key="{}:", comma=",", quote="<escape>")

GENERIC = CallFormat("generic", between="\n")
"""For models whose template knows no tools."""
HERMES = CallFormat(
    "hermes", opens="<tool_call>", start="\n", between="\n</tool_call>\n<tool_call>\n", end="\n</tool_call>"
)
LLAMA_JSON = CallFormat("llama-json", argument_key="parameters")
LLAMA_PYTHONIC = CallFormat("llama-pythonic", start="[", between=", ", end="]", syntax="python", notation=PYTHON)
LIQUID = CallFormat(
    "liquid",
    opens="<|tool_call_start|>",
    start="[",
    between=", ",
    end="]<|tool_call_end|>",
    syntax="python",
    notation=PYTHON,
)
MISTRAL = CallFormat("mistral", opens="[TOOL_CALLS]", start="[", between=", ", end="]")
MISTRAL_NAMED = CallFormat("mistral-named", opens="[TOOL_CALLS]", between="[TOOL_CALLS]", syntax="named")
FUNCTION_GEMMA = CallFormat(
    "function-gemma",
    opens="<start_function_call>",
    start="call:",
    between="<end_function_call><start_function_call>call:",
    end="<end_function_call>",
    syntax="braces",
    notation=_ESCAPED,
)
GEMMA_4 = CallFormat(
    "gemma-4",
    opens="<|tool_call>",
    start="call:",
    between="<tool_call|><|tool_call>call:",
    end="<tool_call|>",
    syntax="braces",
    notation=Notation(argument="{}:", key="{}:", comma=",", quote='<|"|>'),
)
PHI = CallFormat(
    "phi",
    opens="<|tool_call|>",
    start="[",
    between=", ",
    end="]<|/tool_call|>",
    result_role="tool_response",
    told_in_system=True,
)
PHI_FUNCTOOLS = CallFormat("phi-functools", opens="functools[", between=", ", end="]")

FORMATS = {
    form.name: form
    for form in (
        GENERIC,
        HERMES,
        LLAMA_JSON,
        LLAMA_PYTHONIC,
        LIQUID,
        MISTRAL,
        MISTRAL_NAMED,
        FUNCTION_GEMMA,
        GEMMA_4,
        PHI,
        PHI_FUNCTOOLS,
    )
}

_SIGNS: tuple[tuple[str, CallFormat], ...] = (
    ("<start_function_call>", FUNCTION_GEMMA),
    ("<|tool_call>", GEMMA_4),
    ("<|tool_call_start|>", LIQUID),
    ("<|tool_list_start|>", LIQUID),
    ("<function=", GENERIC),  # calls as XML elements, which no format here writes
    ("<arg_key>", GENERIC),
    ("<tool_call>", HERMES),
    ("[ARGS]", MISTRAL_NAMED),
    ("[TOOL_CALLS]", MISTRAL),
    ("functools", PHI_FUNCTOOLS),
    ("<|tool|>", PHI),
    ("[func_name1(", LLAMA_PYTHONIC),
    ("<|start_header_id|>ipython", LLAMA_JSON),
)


def _sign(text: str, notation: Notation, *, last: bool = False) -> str:
    """What stands around calls, with the white space that may stand beside it, if any may."""
    if not notation.space:
        return literal(text)
    pieces = [notation.sign(piece, before=True) for piece in text.split()]
    if last and pieces:
        pieces[-1] = notation.sign(text.rsplit(maxsplit=1)[-1], before=True, after=False)
    return " ".join(pieces) or notation.space


def detect(template: str) -> CallFormat:
    """The format that a chat template speaks of."""
    return next((form for sign, form in _SIGNS if sign in template), GENERIC)


def spoken(text: str) -> CallFormat:
    """The format whose marker stands in a text, for servers that pass on unread what their model wrote."""
    return next((form for form in FORMATS.values() if form.opens and form.opens in text), GENERIC)


def call_json(call: Call) -> str:
    """A call's arguments as JSON."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


# -- heads of calls without a marker


_KEY = r"(?:arguments|parameters)"


class _Pattern:
    """A regular expression in pieces, of which a text may so far hold only the first ones."""

    def __init__(self, begins: str, *pieces: str) -> None:
        self._begins = re.compile(begins)
        self._whole = re.compile("".join(pieces))
        partial = ""
        for piece in reversed(pieces):
            begun = "[a-z]{1,10}" if piece == _KEY else piece
            partial = f"{begun}{partial}" if begun[-1] in "*?" else f"(?:{begun}{partial})?"
        self._partial = re.compile(partial + r"\Z")

    def find(self, text: str, names: frozenset[str], *, whole: bool) -> Head | None:
        """The first sure head in a text; else the first place from which its end may grow into one."""
        maybe: Head | None = None
        for begin in self._begins.finditer(text):
            match = self._whole.match(text, begin.start())
            if match is not None:
                tool = match["name"]
                if self is _JSON_HEAD or tool in names:
                    return Head(maybe.start if maybe else begin.start(), sure=True, end=match.end(), tool=tool)
            elif maybe is None and not whole and self._partial.match(text, begin.start()):
                maybe = Head(begin.start())
        return maybe


_JSON_HEAD = _Pattern(
    r"```|\{",
    *(
        r"(?:```[a-zA-Z_]*\s*)?",
        r"\{",
        r"(?:\{)?",
        r"\s*",
        *'"name"',
        r"\s*",
        ":",
        r"\s*",
        '"',
        r'(?P<name>[^"\\\n]{1,120})',
    ),
    *('"', r"\s*", ",", r"\s*", '"', _KEY, '"', r"\s*", ":", r"\s*"),
)
_PYTHON_HEAD = _Pattern(r"\[", r"\[", r"\s*", r"(?P<name>[\w.\-]{1,120})", r"\(")


def _tail(text: str, marker: str) -> Head | None:
    """Where the end of a text is the beginning of the marker."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return Head(len(text) - length)
    return None


# -- JSON


def _json_calls(text: str, place: int, marker: int) -> Found:
    """The JSON objects of a text that are calls, from a marker on if there is one."""
    attempts: list[Attempt] = []
    lead = text[:place] if place >= 0 else ""
    begin = place + marker if place >= 0 else 0
    for start, record in _objects(text, begin):
        call = record.get("call")
        inner = cast("Mapping[str, Any]", call) if isinstance(call, dict) else record
        plainly = "arguments" in record or "parameters" in record or place >= 0
        if inner is record and not ("name" in record and plainly):
            continue
        if not attempts:
            thought = record.get("thought")
            before = _FENCE.sub("", text[:start] if place < 0 else lead).strip().removesuffix("{").strip()
            lead = thought if isinstance(thought, str) else before
        attempts.append(Attempt(inner.get("name"), inner.get("arguments", inner.get("parameters", {}))))
    if not attempts and place < 0:
        return Found(text.strip(), broken=_looks_tried(text))
    return Found(lead.strip(), tuple(attempts), broken=not attempts)


def _looks_tried(text: str) -> bool:
    """Whether a text without a readable call was to be one."""
    begun = _FENCE.sub("", text, count=1).lstrip()
    return bool(_OLDER_HEAD.match(begun)) or _JSON_HEAD.find(text, frozenset(), whole=True) is not None


def _objects(text: str, place: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every outermost JSON object of a text with its place; at most `_MAX_STARTS` places are tried."""
    for _ in range(_MAX_STARTS):
        place = text.find("{", place)
        if place < 0:
            return
        decoded = _decode_from(text, place)
        if decoded is None:
            place += 1
            continue
        record, end = decoded
        yield place, record
        place = end


def _decode_from(text: str, place: int) -> tuple[Mapping[str, Any], int] | None:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)
    for candidate in (text[place:], _TRAILING_COMMA.sub(r"\1", text[place:])):
        try:
            value, length = decoder.raw_decode(candidate)
        except (ValueError, RecursionError):  # ValueError covers bad JSON and integers past Python's digit limit
            continue
        if isinstance(value, dict):
            shortened = len(text) - place - len(candidate)
            return cast("Mapping[str, Any]", value), place + length + shortened
    return None


def decoded(text: str) -> Any:
    """A JSON value; None for what is none."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# -- the other notations

_NAMED = re.compile(r"\s*(?:\[TOOL_CALLS\])?\s*([^\s\[{]+)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(?=\{)")


def _named_calls(text: str) -> tuple[tuple[Attempt, ...], bool]:
    attempts: list[Attempt] = []
    place = 0
    while match := _NAMED.match(text, place):
        value = _decode_from(text, match.end())
        if value is None:
            return tuple(attempts), True
        arguments, place = value
        attempts.append(Attempt(match[1], arguments))
    if not attempts and "{" in text:  # the older form, a list of objects
        found = _json_calls(text, 0, 0)
        return found.attempts, found.broken
    return tuple(attempts), bool(text[place:].strip(" \n]")) and not attempts


_PYTHON_CALL = re.compile(r"\[?\s*[A-Za-z_][\w.\-]*\(")


def _python_calls(text: str) -> tuple[str, tuple[Attempt, ...], bool]:
    """The text before the first call, the calls of a list or a line of them, and whether one is broken."""
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
    """Where the bracket that opens at a place is closed again."""
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
    for candidate in (text, re.sub(r"\b(true|false|null)\b", lambda word: _PYTHON_WORDS[word[0]], text)):
        try:
            call = ast.parse(f"f{candidate}", mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                return None
            return {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


_PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}


def _brace_calls(text: str, quote: str) -> tuple[tuple[Attempt, ...], bool]:
    attempts: list[Attempt] = []
    place = 0
    while match := re.compile(r"call:\s*([^\s{]+)\s*(?=\{)").search(text, place):
        value = _brace_value(text, match.end(), quote)
        if value is None:
            return tuple(attempts), True
        arguments, place = value
        attempts.append(Attempt(match[1], arguments))
    return tuple(attempts), not attempts


def _brace_value(text: str, place: int, quote: str, depth: int = 0) -> tuple[Any, int] | None:
    """The value that stands at a place, and where it ends; None when it cannot be read."""
    if depth > 50 or place >= len(text):
        return None
    if text.startswith(quote, place):
        end = text.find(quote, place + len(quote))
        return None if end < 0 else (text[place + len(quote) : end], end + len(quote))
    if text[place] not in "{[":
        match = re.compile(r"[^,}\]]*").match(text, place)
        word = match[0].strip() if match else ""
        value = decoded(word)
        return (word if value is None and word != "null" else value, place + len(match[0] if match else ""))
    named = text[place] == "{"
    record: dict[str, Any] = {}
    items: list[Any] = []
    place += 1
    while place < len(text) and text[place] != ("}" if named else "]"):
        key = re.compile(r"\s*([^:{}\[\],]+):\s*").match(text, place) if named else None
        if named and key is None:
            return None
        value = _brace_value(text, key.end() if key else place, quote, depth + 1)
        if value is None:
            return None
        if key:
            record[key[1].strip().strip('"')] = value[0]
        items.append(value[0])
        place = value[1]
        if place < len(text) and text[place] == ",":
            place += 1
    return (record if named else items, place + 1) if place < len(text) else None

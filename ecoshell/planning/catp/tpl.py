"""The tool planning language: parse and render tool graphs (CATP-LLM §3.1, SPEC §3).

tokens    [SoP] [count_text] <SoD> <task> <EoD> [calculate] <SoD> <count_text> <EoD> [EoP]
text      ["count_text", ["<task>"], "calculate", ["count_text"]]
numbered  [[1, "count_text", ["<task>"]], [2, "calculate", [1]]]

The first two forms are the paper's. The third refers to dependencies by number, so that a grammar can enforce it
exactly (planning/catp/masking). A dependency is `<task>` or an earlier node. A label is the tool's name, with an index
from the second use on: `read_file#2`; a tool whose name ends like that always has an index: `c#2#1`. In the token form,
names with blanks, brackets or quotes, and reserved words, are JSON strings: `["my tool"]`, `<"task">`.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import Literal

from ecoshell.planning.catp.plan import (
    BOM,
    ITSELF,
    MAX_NODES,
    TASK,
    GraphPlan,
    Node,
    PlanFault,
    faults_of,
    shown,
    unknown_tool,
)

Form = Literal["tokens", "text", "numbered"]
START, END, OPEN, CLOSE = "[SoP]", "[EoP]", "<SoD>", "<EoD>"
MAX_TEXT = 200_000
"""Maximum characters of a text that `find_plan` searches."""

_STRING = r'"(?:[^"\\]|\\.)*+"'
"""A JSON string; `.` must match newlines."""
_QUOTED = re.compile(_STRING, re.DOTALL)
_BARE = r'[^\s\[\]<>"\\]++'
"""An unquoted word within the brackets of a token."""
_WORD = re.compile(_BARE)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?![0-9])")
_INDEX = re.compile(r"#([1-9]\d{0,3})\Z", re.ASCII)
_TASK_NAMES = frozenset({TASK, "task", "input_of_query"})
"""Spellings of the dependency on the user's input; OpenCATP's recorded plans use the last."""
_RESERVED = _TASK_NAMES | {"SoP", "EoP", "SoD", "EoD"}
_BLANK = re.compile(r"\s*+")
_FENCE = re.compile(r"\s*+```[\w-]*+[ \t]*+\n")
_TOKEN_FORM = re.compile(r"\[\s*+SoP\s*+\]")
_TOKEN_END = re.compile(r"\[\s*+EoP\s*+\]")
_NUMBERED_FORM = re.compile(r"\[\s*+\[")
_BEGINNING = re.compile(r'\[\s*+(?:"|\[|SoP\s*+\])')
_PARTS = re.compile(rf"{_STRING}?|[\[\]]", re.DOTALL)
"""Brackets, and strings, whose brackets do not count; an unclosed string extends to the end."""
_BRACKET = re.compile(r"[\[\]]")


def render(plan: GraphPlan, form: Form = "tokens") -> str:
    """Render a plan as one line that `parse` reads.

    The numbered form preserves the order of nodes, not their indices, which count the uses of each tool from 1.
    """
    if form == "tokens":
        words, tokens = {TASK: "task"}, [START]
        for node in plan.nodes:
            words[node.label] = token_word(node)
            tokens += [
                f"[{token_word(node)}]",
                OPEN,
                *(f"<{words[label]}>" for label in node.after),
                CLOSE,
            ]
        return " ".join((*tokens, END))
    words, entries = {TASK: quoted(TASK)}, list[str]()
    for number, node in enumerate(plan.nodes, 1):
        written = quoted(_written_label(node))
        words[node.label] = written if form == "text" else str(number)
        waits = f"[{', '.join(map(words.__getitem__, node.after))}]"
        entries.append(
            f"{written}, {waits}" if form == "text" else f"[{number}, {quoted(node.tool)}, {waits}]"
        )
    return f"[{', '.join(entries)}]"


@lru_cache(maxsize=4096)
def token_word(node: Node) -> str:
    """Return a node's label for a token, quoted if it would be ambiguous."""
    label = _written_label(node)
    plain = _WORD.fullmatch(label) and label.isprintable() and label not in _RESERVED
    return label if plain else quoted(label)


def quoted(text: str) -> str:
    """Return a JSON string with escaped control characters."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _written_label(node: Node) -> str:
    """Return the written label: `read_file`, `read_file#2`, or `c#2#1` for a tool named `c#2`."""
    return f"{node.tool}#1" if node.index == 1 and _INDEX.search(node.tool) else node.label


def parse(text: str, *, tools: Collection[str] | None = None) -> GraphPlan:
    """Parse a text that consists of one plan in any form, optionally in a code fence.

    `tools` are the known names; None accepts every name. Raises PlanFault with the position, also for arguments that
    are not texts. For model output with surrounding prose, use `find_plan`.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanFault(f"A plan is read from a text (str), and this is {type(text).__name__}.")
    return _Reader(text, *_unfenced(text), tools).written().plan


@dataclass(frozen=True, slots=True)
class Written:
    """A plan with its source text."""

    plan: GraphPlan
    text: str
    places: tuple[tuple[int, ...], ...]
    """The positions of each node and its dependencies, in characters from 0."""

    def placed(self, fault: PlanFault) -> PlanFault:
        """Return the fault with its position in the text."""
        at, number = fault.spot
        return PlanFault.at(self.text, self.places[at][number - ITSELF], fault.message, fault.node)


def find_plan(text: str, tools: Collection[str] | None = None) -> Written:
    """Find the plan in model output, with positions in the output; raises PlanFault for no plan or several.

    The plan is the longest list that begins like a plan. Other lists that parse as plans must be parts of it, such as
    explanations of nodes; a second plan is a fault, so that a part never runs instead of the complete plan.
    """
    if len(text) > MAX_TEXT:
        raise PlanFault.at(
            text, MAX_TEXT, f"The text has {len(text):,} characters; at most {MAX_TEXT:,} are read."
        )
    lists = list(_lists(text))
    if not lists:
        return _Reader(text, *_unfenced(text), tools).written()
    likely, start, end = max(
        lists, key=lambda candidate: (candidate[0], candidate[2] - candidate[1])
    )
    longest = _Reader(text, start, end, tools)
    for likely, start, end in lists:
        if not likely:
            continue
        try:
            nodes = _Reader(text, start, end, tools).nodes
        except PlanFault:
            continue  # not a plan
        if not set(nodes) <= set(longest.nodes):  # otherwise it repeats nodes
            raise PlanFault.at(
                text,
                start,
                "There are two plans, and this is the shorter one: write one, as one list.",
            )
    return longest.written()


def _lists(text: str) -> Iterator[tuple[bool, int, int]]:
    """Yield the outermost lists: whether each begins like a plan, its start and its end; skips unclosed brackets of
    prose."""
    opened: list[int] = []
    closing: dict[int, int] = {}  # ignoring quotes, as in prose
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "[":
            opened.append(bracket.start())
        elif opened:
            closing[opened.pop()] = bracket.end()
    at = text.find("[")
    while at >= 0:
        likely, end = _BEGINNING.match(text, at) is not None, closing.get(at)
        if likely and _TOKEN_FORM.match(text, at):
            closing_token = _TOKEN_END.search(text, at)
            end = closing_token.end() if closing_token else len(text)
        elif likely:  # an unclosed list extends to the end of the text
            end, depth = len(text), 0
            for part in _PARTS.finditer(text, at):
                depth += (part[0] == "[") - (part[0] == "]")
                if not depth:
                    end = part.end()
                    break
        if end is not None:
            yield likely, at, end
        at = text.find("[", at + 1 if end is None else end)


def _unfenced(text: str) -> tuple[int, int]:
    """Return the range of a text without byte order mark and code fence."""
    start = len(BOM) if text.startswith(BOM) else 0
    fence = _FENCE.match(text, start)
    if fence is None:
        return start, len(text)
    closing = text.rfind("```", fence.end())
    closed = closing >= 0 and not text[closing + 3 :].strip()
    return fence.end(), closing if closed else len(text)


@dataclass(slots=True)
class _Entry:
    """A parsed node before labels are resolved."""

    tool: str
    index: int
    after: list[str | int] = field(default_factory=list[str | int])
    """Dependencies: TASK, a label or a number."""
    places: list[int] = field(default_factory=list[int])
    """Positions of the node and its dependencies."""


class _Reader:
    """A linear-time parser of one range of a text."""

    def __init__(self, text: str, start: int, end: int, tools: Collection[str] | None) -> None:
        self._text = text
        self._at, self._end = start, end
        self._start = start
        self._tools = tools if tools is None else frozenset(tools)
        self._entries: list[_Entry] = []

    def written(self) -> Written:
        """Return the plan with its positions; raises PlanFault with the position of the first fault."""
        nodes = self.nodes
        places = tuple(tuple(entry.places) for entry in self._entries) or ((self._start,),)
        unknown = (
            PlanFault(unknown_tool(node.tool, self._tools), node=node.label, spot=(at, ITSELF))
            for at, node in enumerate(nodes)
            if self._tools is not None and node.tool not in self._tools
        )
        for fault in chain(unknown, faults_of(nodes)):
            at, number = fault.spot
            raise PlanFault.at(self._text, places[at][number - ITSELF], fault.message, fault.node)
        return Written(GraphPlan(nodes), self._text, places)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The parsed nodes, not yet validated as a plan; raises PlanFault for a syntax error."""
        self._start = self._skip()
        if self._at >= self._end:
            raise PlanFault.at(self._text, self._at, "There is no plan: the text is empty.")
        if _TOKEN_FORM.match(self._text, self._at, self._end):
            self._read_tokens()
        else:
            self._read_list(
                numbered=_NUMBERED_FORM.match(self._text, self._at, self._end) is not None
            )
        self._skip()
        if self._at < self._end:
            raise self._expected("the end of the text")
        return self._resolved()

    def _read_tokens(self) -> None:
        """`[SoP] [tool] <SoD> <dep> … <EoD> … [EoP]`."""
        for sign in ("[", "SoP", "]"):
            self._take(sign)
        while True:
            self._take("[", "`[` and a tool, or `[EoP]`")
            place, (word, bare) = self._skip(), self._word("a tool's name")
            self._take("]")
            if bare and word == "EoP":
                return
            entry = self._begin(*self._key(word), place)
            self._take("<", "`<SoD>`")
            if self._word("SoD") != ("SoD", True):
                raise self._expected("`<SoD>` before this")
            self._take(">")
            while True:
                self._take("<", "`<` and a dependency, or `<EoD>`")
                place, (word, bare) = self._skip(), self._word("a dependency")
                self._take(">")
                if bare and word == "EoD":
                    break
                entry.places.append(place)
                entry.after.append(TASK if bare and word in _TASK_NAMES else word)

    def _read_list(self, *, numbered: bool) -> None:
        """`["tool", ["dep", …], …]`, or `[[1, "tool", ["<task>", …]], …]`."""
        uses: Counter[str] = Counter()
        self._take("[", "`[`, as a plan begins")
        if not numbered and self._took("]"):
            return
        while True:
            if numbered:
                self._take("[", "`[` and the next node")
                due = len(self._entries) + 1
                place, number = self._skip(), self._match(_NUMBER, f"the node's number, {due}")
                if int(number) != due:
                    raise PlanFault.at(self._text, place, f"This is node {due}, not {number}.")
                self._take(",")
            place, name = self._skip(), self._string("a tool's name")
            uses[name] += 1
            entry = self._begin(*((name, uses[name]) if numbered else self._key(name)), place)
            self._take(",", "`,` and the tool's dependencies")
            self._take("[", "`[` and the tool's dependencies")
            ended = self._took("]")
            while not ended:
                entry.places.append(self._skip())
                is_number = numbered and not self._text.startswith('"', self._at)
                entry.after.append(
                    int(self._match(_NUMBER, "a node's number or `<task>` in quotes"))
                    if is_number
                    else self._string("a dependency")
                )
                ended = not self._took(",")
                if ended:
                    self._take("]", "`,` or `]`")
            if numbered:
                self._take("]")
            if self._took("]"):
                return
            self._take(",", "`,` or `]`")

    def _begin(self, tool: str, index: int, place: int) -> _Entry:
        self._entries.append(_Entry(tool, index, places=[place]))
        if len(self._entries) > MAX_NODES:
            label = Node(tool, index=index).label
            message = f"The plan has more than {MAX_NODES} nodes: {shown(label)} is one too many."
            raise PlanFault.at(self._text, place, message, label)
        return self._entries[-1]

    def _key(self, label: str) -> tuple[str, int]:
        """Split a label into tool and index, unless it is a known tool's name."""
        match = None if self._tools is not None and label in self._tools else _INDEX.search(label)
        return (label[: match.start()], int(match[1])) if match and match.start() else (label, 1)

    def _resolved(self) -> tuple[Node, ...]:
        """Return the nodes with resolved dependencies; unknown ones stay as written."""
        own = {
            (entry.tool, entry.index): Node(entry.tool, (), entry.index).label
            for entry in self._entries
        }
        labels: dict[str | int, str] = dict(enumerate(own.values(), 1))
        for written in {
            dependency for entry in self._entries for dependency in entry.after
        } - labels.keys():
            if isinstance(written, int):
                labels[written] = f"node {written}"
            else:
                label = None if written == TASK else own.get(self._key(written))
                labels[written] = label or (TASK if written in _TASK_NAMES else written)
        return tuple(
            Node(entry.tool, tuple(map(labels.__getitem__, entry.after)), entry.index)
            for entry in self._entries
        )

    def _skip(self) -> int:
        """Skip blanks and return the new position."""
        blanks = _BLANK.match(self._text, self._at, self._end)
        self._at = blanks.end() if blanks else self._at
        return self._at

    def _took(self, sign: str) -> bool:
        """Consume a sign after blanks; return whether it was present."""
        self._skip()
        if not self._text.startswith(sign, self._at, self._end):
            return False
        self._at += len(sign)
        return True

    def _take(self, sign: str, instead: str = "") -> None:
        """Consume a required sign."""
        if not self._took(sign):
            raise self._expected(instead or f"`{sign}`")

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Consume required text by pattern."""
        self._skip()
        match = pattern.match(self._text, self._at, self._end)
        if not match:
            raise self._expected(expected)
        self._at = match.end()
        return match[0]

    def _string(self, expected: str) -> str:
        """Consume a required JSON string."""
        place = self._skip()
        written = self._match(_QUOTED, f"{expected} in quotes")
        try:
            return str(json.loads(written))
        except json.JSONDecodeError as error:
            message = f"{expected} is not a JSON string: {error.msg}."
            raise PlanFault.at(self._text, place, message) from error

    def _word(self, expected: str) -> tuple[str, bool]:
        """Consume a word within brackets; return it and whether it is unquoted."""
        self._skip()
        if self._text.startswith('"', self._at, self._end):
            return self._string(expected), False
        return self._match(_WORD, expected), True

    def _expected(self, expected: str) -> PlanFault:
        """Return the fault for unexpected text."""
        self._skip()
        actual = "the text ends here"
        if self._at < self._end:
            actual = f"here is {shown(self._text[self._at : self._at + 20])}"
        return PlanFault.at(self._text, self._at, f"Expected {expected}; {actual}.")

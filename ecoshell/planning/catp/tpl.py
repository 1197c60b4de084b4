"""The tool planning language: branching plans read from texts, and printed (CATP-LLM §3.1, SPEC §3).

tokens    [SoP] [count_text] <SoD> <task> <EoD> [calculate] <SoD> <count_text> <EoD> [EoP]
text      ["count_text", ["<task>"], "calculate", ["count_text"]]
numbered  [[1, "count_text", ["<task>"]], [2, "calculate", [1]]]

The first two are the paper's. The third names what a node waits for by its number, so that a grammar can hold a model
to it exactly (planning/catp/masking). A dependency is `<task>` or a node that stands earlier. A label is a tool's name,
and from its second use on its index: `read_file#2`; a tool whose own name ends so is written with its index, `c#2#1`.
In the token form a name with blanks, brackets or quotes, or one of the language's own words, is a JSON string:
`["my tool"]`, `<"task">`.
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
"""Characters of a text in which a plan is looked for."""

_STRING = r'"(?:[^"\\]|\\.)*+"'
"""A JSON string, by what closes it; `.` has to match newlines."""
_QUOTED = re.compile(_STRING, re.DOTALL)
_BARE = r'[^\s\[\]<>"\\]++'
"""What stands within the brackets of a token without quotes."""
_WORD = re.compile(_BARE)
_WAITED = re.compile(rf"\s*+<\s*+({_STRING}|{_BARE})\s*+>", re.DOTALL)
"""A dependency in the token form."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?![0-9])")
_LISTED = re.compile(rf"\s*+({_STRING})\s*+([,\]])", re.DOTALL)
"""A dependency in a list, and what stands behind it."""
_NUMBERED = re.compile(rf"\s*+({_STRING}|{_NUMBER.pattern})\s*+([,\]])", re.DOTALL)
_INDEX = re.compile(r"#([1-9]\d{0,3})\Z", re.ASCII)
_TASK_NAMES = frozenset({TASK, "task", "input_of_query"})
"""How the dependency on what the user gave may be written; OpenCATP's recorded plans have the last."""
_RESERVED = _TASK_NAMES | {"SoP", "EoP", "SoD", "EoD"}
_BLANK = re.compile(r"\s*+")
_FENCE = re.compile(r"\s*+```[\w-]*+[ \t]*+\n")
_TOKEN_FORM = re.compile(r"\[\s*+SoP\s*+\]")
_TOKEN_END = re.compile(r"\[\s*+EoP\s*+\]")
_NUMBERED_FORM = re.compile(r"\[\s*+\[")
_BEGINNING = re.compile(r'\[\s*+(?:"|\[|SoP\s*+\])')
_PARTS = re.compile(rf"{_STRING}?|[\[\]]", re.DOTALL)
"""What counts for where a list closes: brackets, and strings, which hide theirs; an open one hides all that follows."""
_BRACKET = re.compile(r"[\[\]]")


def render(plan: GraphPlan, form: Form = "tokens") -> str:
    """The plan as a text that `parse` reads back, all on one line.

    The numbered form keeps the order of the nodes, not their indices: these count the uses of each tool from 1 on.
    """
    if form == "tokens":
        words, tokens = {TASK: "task"}, [START]
        for node in plan.nodes:
            words[node.label] = token_word(node)
            tokens += [f"[{token_word(node)}]", OPEN, *(f"<{words[label]}>" for label in node.after), CLOSE]
        return " ".join((*tokens, END))
    words, entries = {TASK: quoted(TASK)}, list[str]()
    for number, node in enumerate(plan.nodes, 1):
        written = quoted(_written_label(node))
        words[node.label] = written if form == "text" else str(number)
        waits = f"[{', '.join(map(words.__getitem__, node.after))}]"
        entries.append(f"{written}, {waits}" if form == "text" else f"[{number}, {quoted(node.tool)}, {waits}]")
    return f"[{', '.join(entries)}]"


@lru_cache(maxsize=4096)
def token_word(node: Node) -> str:
    """A node's label within the brackets of a token: bare, or quoted where it could be taken for something else."""
    label = _written_label(node)
    plain = _WORD.fullmatch(label) and label.isprintable() and label not in _RESERVED
    return label if plain else quoted(label)


def quoted(text: str) -> str:
    """A JSON string; characters that could steer a terminal are escaped in it."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _written_label(node: Node) -> str:
    """The label as it stands in a text: `read_file`, `read_file#2`, and `c#2#1` where the tool itself is `c#2`."""
    return f"{node.tool}#1" if node.index == 1 and _INDEX.search(node.tool) else node.label


def parse(text: str, *, tools: Collection[str] | None = None) -> GraphPlan:
    """The plan that a text in any of the forms says, and nothing else; a code fence around it is passed over.

    `tools` are the names that are known; None takes every name. Raises PlanFault, which tells the place, also for what
    is no text. What a model writes has prose around it: that is read by `find_plan`.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanFault(f"A plan is read from a text (str), and this is {type(text).__name__}.")
    return _Reader(text, *_unfenced(text), tools).written().plan


@dataclass(frozen=True, slots=True)
class Written:
    """A plan as it was written."""

    plan: GraphPlan
    text: str
    places: tuple[tuple[int, ...], ...]
    """Of each node where it stands, and then where each of its dependencies does; characters from 0."""

    def placed(self, fault: PlanFault) -> PlanFault:
        """The fault with its place in the text."""
        at, number = fault.spot
        return PlanFault.at(self.text, self.places[at][number - ITSELF], fault.message, fault.node)


def find_plan(text: str, tools: Collection[str] | None = None) -> Written:
    """The plan in what a model wrote, with places in the whole of it; raises PlanFault where there is none, or several.

    It is the longest of the lists that begin as a plan does. What reads like another must be a part of it, as where its
    nodes are explained; a second plan is a fault, and never is a part run in the place of the whole.
    """
    if len(text) > MAX_TEXT:
        raise PlanFault.at(text, MAX_TEXT, f"A plan is looked for in {MAX_TEXT:,} characters; here are {len(text):,}.")
    lists = list(_lists(text))
    if not lists:
        return _Reader(text, *_unfenced(text), tools).written()
    likely, start, end = max(lists, key=lambda one: (one[0], one[2] - one[1]))
    whole = _Reader(text, start, end, tools)
    for likely, start, end in lists:
        if not likely:
            continue
        try:
            nodes = _Reader(text, start, end, tools).nodes
        except PlanFault:
            continue  # none in the language
        if not set(nodes) <= set(whole.nodes):  # else it repeats some of them
            raise PlanFault.at(text, start, "There are two plans, and this is the shorter one: write one, as one list.")
    return whole.written()


def _lists(text: str) -> Iterator[tuple[bool, int, int]]:
    """The outermost lists: whether each begins as a plan does, its start and its end; an opening bracket that prose
    never closes is passed over."""
    opened: list[int] = []
    closing: dict[int, int] = {}  # when quotes mean nothing, as in prose
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "[":
            opened.append(bracket.start())
        elif opened:
            closing[opened.pop()] = bracket.end()
    at = text.find("[")
    while at >= 0:
        likely, end = _BEGINNING.match(text, at) is not None, closing.get(at)
        if likely and _TOKEN_FORM.match(text, at):
            found = _TOKEN_END.search(text, at)
            end = found.end() if found else len(text)
        elif likely:  # it goes on to the end of the text where it does not close
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
    """Where a text begins and ends without a byte order mark before it and a code fence around it."""
    start = len(BOM) if text.startswith(BOM) else 0
    fence = _FENCE.match(text, start)
    if fence is None:
        return start, len(text)
    closing = text.rfind("```", fence.end())
    closed = closing >= 0 and not text[closing + 3 :].strip()
    return fence.end(), closing if closed else len(text)


@dataclass(slots=True)
class _Entry:
    """A node as it was written."""

    tool: str
    index: int
    after: list[str | int] = field(default_factory=list[str | int])
    """Dependencies: TASK, a label or a number."""
    places: list[int] = field(default_factory=list[int])
    """Its own, and those of its dependencies."""


class _Reader:
    """Reads one part of a text from its beginning to its end, in time in proportion to its length."""

    def __init__(self, text: str, start: int, end: int, tools: Collection[str] | None) -> None:
        self._text = text
        self._at, self._end = start, end
        self._start = start
        self._tools = tools if tools is None else frozenset(tools)
        self._entries: list[_Entry] = []

    def written(self) -> Written:
        """The plan that stands there; raises PlanFault with the place of what keeps it from being one."""
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
        """The nodes that stand there, whether they are a plan or not; raises PlanFault where it is not the language."""
        self._start = self._skip()
        if self._at >= self._end:
            raise PlanFault.at(self._text, self._at, "There is no plan: the text is empty.")
        if _TOKEN_FORM.match(self._text, self._at, self._end):
            self._read_tokens()
        else:
            self._read_list(numbered=_NUMBERED_FORM.match(self._text, self._at, self._end) is not None)
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
            while found := _WAITED.match(self._text, self._at, self._end):
                self._at, word = found.end(), found[1]
                if word == "EoD":
                    break
                entry.places.append(found.start(1))
                known = TASK if word in _TASK_NAMES else word
                entry.after.append(self._decoded(word, found.start(1), "a dependency") if word[0] == '"' else known)
            else:
                self._take("<", "`<` and a dependency, or `<EoD>`")
                self._word("a dependency")
                raise self._expected("`>`")

    def _read_list(self, *, numbered: bool) -> None:
        """`["tool", ["dep", …], …]`, or `[[1, "tool", ["<task>", …]], …]`."""
        uses: Counter[str] = Counter()
        pattern = _NUMBERED if numbered else _LISTED
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
            while not ended and (found := pattern.match(self._text, self._at, self._end)):
                self._at, (word, behind) = found.end(), found.groups()
                entry.places.append(found.start(1))
                entry.after.append(self._decoded(word, found.start(1), "a dependency") if word[0] == '"' else int(word))
                ended = behind == "]"
            if not ended:
                self._skip()
                if numbered and not self._text.startswith('"', self._at):
                    self._match(_NUMBER, "a node's number or `<task>` in quotes")
                else:
                    self._string("a dependency")
                raise self._expected("`,` or `]`")
            if numbered:
                self._take("]")
            if self._took("]"):
                return
            self._take(",", "`,` or `]`")

    def _begin(self, tool: str, index: int, place: int) -> _Entry:
        self._entries.append(_Entry(tool, index, places=[place]))
        if len(self._entries) > MAX_NODES:
            label = Node(tool, index=index).label
            said = f"The plan has more than {MAX_NODES} nodes: {shown(label)} is one too many."
            raise PlanFault.at(self._text, place, said, label)
        return self._entries[-1]

    def _key(self, label: str) -> tuple[str, int]:
        """A label's tool and the index of its use; a known tool's name is taken whole."""
        found = None if self._tools is not None and label in self._tools else _INDEX.search(label)
        return (label[: found.start()], int(found[1])) if found and found.start() else (label, 1)

    def _resolved(self) -> tuple[Node, ...]:
        """What was read as nodes, each dependency by its label; one that names no node stays as it was written."""
        own = {(entry.tool, entry.index): Node(entry.tool, (), entry.index).label for entry in self._entries}
        labels: dict[str | int, str] = dict(enumerate(own.values(), 1))
        for written in {one for entry in self._entries for one in entry.after} - labels.keys():
            if isinstance(written, int):
                labels[written] = f"node {written}"
            else:
                found = None if written == TASK else own.get(self._key(written))
                labels[written] = found or (TASK if written in _TASK_NAMES else written)
        return tuple(
            Node(entry.tool, tuple(map(labels.__getitem__, entry.after)), entry.index) for entry in self._entries
        )

    def _skip(self) -> int:
        """Pass over blanks; the place after them."""
        found = _BLANK.match(self._text, self._at, self._end)
        self._at = found.end() if found else self._at
        return self._at

    def _took(self, sign: str) -> bool:
        """Whether this sign comes next after blanks; it is passed over."""
        self._skip()
        if not self._text.startswith(sign, self._at, self._end):
            return False
        self._at += len(sign)
        return True

    def _take(self, sign: str, instead: str = "") -> None:
        """Pass over a sign that must come next."""
        if not self._took(sign):
            raise self._expected(instead or f"`{sign}`")

    def _match(self, pattern: re.Pattern[str], what: str) -> str:
        """What must come next, by its pattern."""
        self._skip()
        found = pattern.match(self._text, self._at, self._end)
        if not found:
            raise self._expected(what)
        self._at = found.end()
        return found[0]

    def _string(self, what: str) -> str:
        """The JSON string that must come next."""
        place = self._skip()
        return self._decoded(self._match(_QUOTED, f"{what} in quotes"), place, what)

    def _decoded(self, written: str, place: int, what: str) -> str:
        try:
            return str(json.loads(written))
        except json.JSONDecodeError as error:
            raise PlanFault.at(self._text, place, f"{what} is not a JSON string: {error.msg}.") from error

    def _word(self, what: str) -> tuple[str, bool]:
        """What stands within brackets, and whether it stands there without quotes."""
        self._skip()
        if self._text.startswith('"', self._at, self._end):
            return self._string(what), False
        return self._match(_WORD, what), True

    def _expected(self, what: str) -> PlanFault:
        """The fault that something else stands here."""
        self._skip()
        ended = self._at >= self._end
        there = "the text ends here" if ended else f"here is {shown(self._text[self._at : self._at + 20])}"
        return PlanFault.at(self._text, self._at, f"Expected {what}; {there}.")

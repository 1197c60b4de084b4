"""Reading plans: a scanner that knows where it is, and the three forms of the language on top of it."""

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.planning.catp.checks import faults_of, unknown_tool
from ecoshell.planning.catp.faults import PlanFault, shown
from ecoshell.planning.catp.words import TASK_NAMES, read_label

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_WORD = re.compile(r'[^\s\[\]<>"\\]+')
_NUMBER = re.compile(r"[1-9][0-9]{0,5}(?![0-9])")
_BLANK = re.compile(r"\s*+")
_FENCE = re.compile(r"\s*+```[\w-]*+[ \t]*+\n")
_TOKEN_FORM = re.compile(r"\[\s*+SoP\s*+\]")
_NUMBERED_FORM = re.compile(r"\[\s*+\[")

_Key = tuple[str, int]


@dataclass(slots=True)
class _Entry:
    """A node as it was written, with places in the text."""

    tool: str
    index: int
    place: int
    after: list[tuple[str | int, int]] = field(default_factory=list[tuple[str | int, int]])
    """Dependencies: TASK, a label or a number."""


def read(text: str, tools: Collection[str] | None, max_nodes: int) -> GraphPlan:
    """The plan a text says; raises PlanFault with the place."""
    scanner = _Scanner(text)
    reader = _Reader(scanner, tools, max_nodes)
    scanner.skip()
    if scanner.at_end:
        raise PlanFault.at(text, scanner.at, "There is no plan: the text is empty.")
    if scanner.sees(_TOKEN_FORM):
        reader.token_form()
    elif scanner.sees(_NUMBERED_FORM):
        reader.numbered_form()
    else:
        reader.text_form()
    scanner.skip()
    if not scanner.at_end:
        raise scanner.expected("the end of the text")
    return reader.plan()


class _Scanner:
    """A place in a text, which only goes on; so reading takes time in proportion to the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        fence = _FENCE.match(text)
        self.at = fence.end() if fence else 0
        closing = text.rfind("```", self.at) if fence else -1
        self.end = closing if closing >= 0 and not text[closing + 3 :].strip() else len(text)

    @property
    def at_end(self) -> bool:
        return self.at >= self.end

    def skip(self) -> int:
        """Pass over blanks; the place after them."""
        found = _BLANK.match(self.text, self.at, self.end)
        self.at = found.end() if found else self.at
        return self.at

    def sees(self, pattern: re.Pattern[str]) -> bool:
        """Whether this comes next."""
        return bool(pattern.match(self.text, self.at, self.end))

    def took(self, sign: str) -> bool:
        """Whether this sign comes next after blanks; it is passed over."""
        self.skip()
        if self.at_end or not self.text.startswith(sign, self.at, self.end):
            return False
        self.at += len(sign)
        return True

    def take(self, sign: str, instead: str = "") -> None:
        """Pass over a sign that must come next."""
        if not self.took(sign):
            raise self.expected(instead or f"`{sign}`")

    def string(self, what: str) -> str:
        """The JSON string that must come next."""
        place = self.skip()
        found = _STRING.match(self.text, self.at, self.end)
        if not found:
            raise self.expected(f"{what} in quotes")
        try:
            value = str(json.loads(found[0]))
        except json.JSONDecodeError as error:
            raise PlanFault.at(self.text, place, f"{what} is not a JSON string: {error.msg}.") from error
        self.at = found.end()
        return value

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        """What must come next, by its pattern."""
        self.skip()
        found = pattern.match(self.text, self.at, self.end)
        if not found:
            raise self.expected(what)
        self.at = found.end()
        return found[0]

    def next_is(self, sign: str) -> bool:
        """Whether this sign comes next after blanks."""
        self.skip()
        return not self.at_end and self.text.startswith(sign, self.at, self.end)

    def expected(self, what: str) -> PlanFault:
        """The fault that something else stands here."""
        self.skip()
        there = "the text ends here" if self.at_end else f"here is {shown(self.text[self.at : self.at + 20])}"
        return PlanFault.at(self.text, self.at, f"Expected {what}; {there}.")


class _Reader:
    """Collects the nodes of one text."""

    def __init__(self, scanner: _Scanner, tools: Collection[str] | None, max_nodes: int) -> None:
        self._scanner = scanner
        self._tools = tools
        self._max_nodes = max_nodes
        self._entries: list[_Entry] = []

    def token_form(self) -> None:
        """`[SoP] [tool] <SoD> <dep> … <EoD> … [EoP]`."""
        scan = self._scanner
        scan.take("[")
        scan.take("SoP")
        scan.take("]")
        while True:
            scan.take("[", "`[` and a tool, or `[EoP]`")
            place, (word, bare) = scan.skip(), self._word("a tool's name")
            scan.take("]")
            if bare and word == "EoP":
                return
            self._begin(*self._key(word), place)
            scan.take("<", "`<SoD>`")
            if self._word("SoD") != ("SoD", True):
                raise scan.expected("`<SoD>` before this")
            scan.take(">")
            self._token_dependencies()

    def _token_dependencies(self) -> None:
        scan = self._scanner
        while True:
            scan.take("<", "`<` and a dependency, or `<EoD>`")
            place, (word, bare) = scan.skip(), self._word("a dependency")
            scan.take(">")
            if bare and word == "EoD":
                return
            self._entries[-1].after.append((TASK if bare and word in TASK_NAMES else word, place))

    def _word(self, what: str) -> tuple[str, bool]:
        """What stands within brackets, and whether it stands there without quotes."""
        if self._scanner.next_is('"'):
            return self._scanner.string(what), False
        return self._scanner.match(_WORD, what), True

    def text_form(self) -> None:
        """`["tool", ["dep", …], …]`."""
        scan = self._scanner
        scan.take("[", "`[`, as a plan begins")
        if scan.took("]"):
            return
        while True:
            place = scan.skip()
            self._begin(*self._key(scan.string("a tool's name")), place)
            scan.take(",", "`,` and the tool's dependencies")
            self._dependencies()
            if scan.took("]"):
                return
            scan.take(",", "`,` or `]`")

    def numbered_form(self) -> None:
        """`[[1, "tool", ["<task>", …]], …]`."""
        scan = self._scanner
        uses: Counter[str] = Counter()
        scan.take("[")
        while True:
            scan.take("[", "`[` and the next node")
            place, due = scan.skip(), len(self._entries) + 1
            number = scan.match(_NUMBER, f"the node's number, {due}")
            if int(number) != due:
                raise PlanFault.at(scan.text, place, f"This is node {due}, not {number}.")
            scan.take(",")
            place, tool = scan.skip(), scan.string("a tool's name")
            uses[tool] += 1
            self._begin(tool, uses[tool], place)
            scan.take(",", "`,` and the tool's dependencies")
            self._dependencies(numbers=True)
            scan.take("]")
            if scan.took("]"):
                return
            scan.take(",", "`,` or `]`")

    def _dependencies(self, *, numbers: bool = False) -> None:
        """A list of labels, or of `<task>` and numbers."""
        scan, after = self._scanner, self._entries[-1].after
        scan.take("[", "`[` and the tool's dependencies")
        if scan.took("]"):
            return
        while True:
            place = scan.skip()
            if numbers and not scan.next_is('"'):
                after.append((int(scan.match(_NUMBER, "a node's number or `<task>` in quotes")), place))
            else:
                after.append((scan.string("a dependency"), place))
            if scan.took("]"):
                return
            scan.take(",", "`,` or `]`")

    def _key(self, label: str) -> _Key:
        """A label's tool and index; a known tool's name is taken whole."""
        return (label, 1) if self._tools is not None and label in self._tools else read_label(label)

    def _begin(self, tool: str, index: int, place: int) -> None:
        if len(self._entries) == self._max_nodes:
            raise PlanFault.at(self._scanner.text, place, f"The plan has more than {self._max_nodes} nodes.")
        if self._tools is not None and tool not in self._tools:
            raise PlanFault.at(self._scanner.text, place, unknown_tool(tool, self._tools), tool)
        self._entries.append(_Entry(tool, index, place))

    def plan(self) -> GraphPlan:
        """What was read, once it is known to be a plan."""
        labels = {(entry.tool, entry.index): Node(entry.tool, (), entry.index).label for entry in self._entries}
        order = list(labels.values())
        nodes = [
            Node(entry.tool, tuple(self._label(one, labels, order) for one, _ in entry.after), entry.index)
            for entry in self._entries
        ]
        for (at, number), fault in faults_of(nodes, self._max_nodes):
            entry = self._entries[at] if self._entries else None
            place = 0 if entry is None else entry.place if number < 0 else entry.after[number][1]
            raise PlanFault.at(self._scanner.text, place, fault.message, fault.node) from None
        return GraphPlan(tuple(nodes))

    def _label(self, written: str | int, labels: dict[_Key, str], order: list[str]) -> str:
        """The label of the node that a dependency names; what names none stays as it was written."""
        if isinstance(written, int):
            return order[written - 1] if written <= len(order) else f"node {written}"
        if written == TASK:
            return TASK
        found = labels.get(self._key(written))
        return found if found is not None else TASK if written in TASK_NAMES else written

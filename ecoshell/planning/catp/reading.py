"""Reading plans: the three forms of the language, and what was written of each node with its place."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.planning.catp.checks import beyond, faults_of, unknown_tool
from ecoshell.planning.catp.faults import PlanFault
from ecoshell.planning.catp.places import ITSELF, Places
from ecoshell.planning.catp.scanner import Scanner, Span
from ecoshell.planning.catp.words import STRING, TASK_NAMES, WORD, read_label

_WORD = re.compile(WORD)
_BARE = re.compile(rf"(?:\s*+<(?!\s*+EoD\s*+>)\s*+{WORD}\s*+>)*+")
"""Dependencies in the token form up to `<EoD>`, or to one in quotes."""
_BRACKETED = re.compile(f"{STRING}|{WORD}", re.DOTALL)
"""A dependency in the token form."""
_LISTED = re.compile(f"{STRING}|-?[0-9]+", re.DOTALL)
"""A dependency in a JSON list."""
_NUMBER = re.compile(r"[1-9][0-9]{0,5}(?![0-9])")
_TOKEN_FORM = re.compile(r"\[\s*+SoP\s*+\]")
_NUMBERED_FORM = re.compile(r"\[\s*+\[")

_Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Written:
    """A plan as it was written."""

    plan: GraphPlan
    places: Places


@dataclass(slots=True)
class _Entry:
    """A node as it was written, with its place in the text."""

    tool: str
    index: int
    place: int
    after_place: int = 0
    after: list[str | int] = field(default_factory=list[str | int])
    """Dependencies: TASK, a label or a number."""


class Reader:
    """Reads one part of a text, from its beginning to its end."""

    def __init__(self, text: str, span: Span, tools: Collection[str] | None, max_nodes: int) -> None:
        self._scanner = Scanner(text, span)
        self._tools = tools if tools is None else frozenset(tools)
        self._max_nodes = max_nodes
        self._entries: list[_Entry] = []
        self._start = span[0]
        self._dependency = _LISTED

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that stand there, whether they are a plan or not; raises PlanFault where it is not the language."""
        scan = self._scanner
        self._start = scan.skip()
        if scan.at_end:
            raise PlanFault.at(scan.text, scan.at, "There is no plan: the text is empty.")
        if scan.sees(_TOKEN_FORM):
            self._token_form()
        elif scan.sees(_NUMBERED_FORM):
            self._numbered_form()
        else:
            self._text_form()
        scan.skip()
        if not scan.at_end:
            raise scan.expected("the end of the text")
        return self._resolved()

    def written(self) -> Written:
        """The plan that stands there; raises PlanFault with the place of what keeps it from being one."""
        nodes, entries = self.nodes, self._entries
        places = Places(
            text=self._scanner.text,
            start=self._start,
            nodes=tuple(entry.place for entry in entries),
            after=tuple(entry.after_place for entry in entries),
            dependency=self._dependency,
        )
        if self._tools is not None:
            for at, node in enumerate(nodes):
                if node.tool not in self._tools:
                    fault = PlanFault(unknown_tool(node.tool, self._tools), node=node.label)
                    raise places.fault((at, ITSELF), fault)
        for spot, fault in faults_of(nodes, self._max_nodes):
            raise places.fault(spot, fault)
        return Written(GraphPlan(nodes), places)

    def _token_form(self) -> None:
        """`[SoP] [tool] <SoD> <dep> … <EoD> … [EoP]`."""
        scan, self._dependency = self._scanner, _BRACKETED
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
        scan, entry = self._scanner, self._entries[-1]
        entry.after_place = scan.at
        while True:
            words = _WORD.findall(scan.match(_BARE, "dependencies"))
            entry.after += [TASK if word in TASK_NAMES else word for word in words]
            scan.take("<", "`<` and a dependency, or `<EoD>`")
            word, bare = self._word("a dependency")
            scan.take(">")
            if bare:  # it is EoD: all other bare words have been taken
                return
            entry.after.append(word)

    def _word(self, what: str) -> tuple[str, bool]:
        """What stands within brackets, and whether it stands there without quotes."""
        if self._scanner.next_is('"'):
            return self._scanner.string(what), False
        return self._scanner.match(_WORD, what), True

    def _text_form(self) -> None:
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

    def _numbered_form(self) -> None:
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
        scan, entry = self._scanner, self._entries[-1]
        entry.after_place = scan.skip()
        listed = scan.values(str, int) if numbers else scan.values(str)
        if listed is None:
            self._one_by_one(entry.after, numbers=numbers)
        else:
            entry.after = listed

    def _one_by_one(self, after: list[str | int], *, numbers: bool) -> None:
        """A list that does not read as JSON at once: mostly there is something wrong with it, and this tells where."""
        scan = self._scanner
        scan.take("[", "`[` and the tool's dependencies")
        if scan.took("]"):
            return
        while True:
            if numbers and not scan.next_is('"'):
                after.append(int(scan.match(_NUMBER, "a node's number or `<task>` in quotes")))
            else:
                after.append(scan.string("a dependency"))
            if scan.took("]"):
                return
            scan.take(",", "`,` or `]`")

    def _key(self, label: str) -> _Key:
        """A label's tool and index; a known tool's name is taken whole."""
        return (label, 1) if self._tools is not None and label in self._tools else read_label(label)

    def _begin(self, tool: str, index: int, place: int) -> None:
        if len(self._entries) == self._max_nodes:
            fault = beyond(Node(tool, index=index), self._max_nodes)
            raise PlanFault.at(self._scanner.text, place, fault.message, fault.node)
        self._entries.append(_Entry(tool, index, place))

    def _resolved(self) -> tuple[Node, ...]:
        """What was read as nodes, each dependency by its label."""
        own = {(entry.tool, entry.index): Node(entry.tool, (), entry.index).label for entry in self._entries}
        order = list(own.values())
        written = set[str | int]().union(*(entry.after for entry in self._entries))
        labels = {one: self._label(one, own, order) for one in written}
        return tuple(
            Node(entry.tool, tuple(map(labels.__getitem__, entry.after)), entry.index) for entry in self._entries
        )

    def _label(self, written: str | int, own: dict[_Key, str], order: list[str]) -> str:
        """The label of the node that a dependency names; what names none stays as it was written."""
        if isinstance(written, int):
            return order[written - 1] if 0 < written <= len(order) else f"node {written}"
        if written == TASK:
            return TASK
        found = own.get(self._key(written))
        return found if found is not None else TASK if written in TASK_NAMES else written

"""A GBNF grammar of the plans that solve a problem: under it a local model writes no other (SPEC §3).

It is of the numbered form. There a node is told by its place, and so what may come next depends on how many nodes
there are and of which kind, not on their names: few enough states to write each down as a rule, and the grammar is
exact. It takes dependencies in one order only, `<task>` first, so that each plan has one writing.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import groupby

from ecoshell.models.grammar import literal
from ecoshell.planning.catp.base import TASK
from ecoshell.planning.catp.faults import PlanFault
from ecoshell.planning.catp.rules import Bag, Problem
from ecoshell.planning.catp.words import quoted

MAX_RULES = 4_000
"""Beyond so many rules the grammar is written for fewer nodes."""

_Edge = tuple[str, "Hashable | None"]
"""What is written, and the state after it; None is the end."""


@dataclass(frozen=True, slots=True)
class _Row:
    """The nodes so far: the group of each one's result, and whether no other waits for it."""

    groups: tuple[int, ...] = ()
    open: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class _Between:
    """Between two nodes, with what stands there."""

    row: _Row


@dataclass(frozen=True, slots=True)
class _Within:
    """Within the dependencies of a node of some class: those on nodes before `next` are written."""

    row: _Row
    tool: int
    next: int
    bag: Bag


def plan_grammar(problem: Problem) -> str:
    """The grammar; a plan written under it has as many nodes as the problem allows, or as MAX_RULES rules can tell.

    Raises PlanFault when no plan solves the problem, and ValueError for one that bounds the uses of a tool or the
    tokens: a grammar cannot count them.
    """
    if problem.uses is not None or problem.max_tokens is not None:
        raise ValueError("a grammar bounds neither the uses of a tool nor the tokens")
    fitting: dict[Hashable, list[_Edge]] = {}
    for nodes in range(1, problem.max_nodes + 1):
        edges = _Automaton(problem, nodes).edges()
        if edges is None:
            break
        fitting = edges
    return _written(_productive(fitting), problem)


class _Automaton:
    """All states that plans of so many nodes pass through."""

    def __init__(self, problem: Problem, nodes: int) -> None:
        self._rules = problem.rules
        self._all_wanted = not problem.wanted
        self._nodes = nodes
        self._most = max([1, *(len(one.needs) for one in self._rules.signatures)])
        self._classes = sorted(set(_alike(problem).values()))

    def edges(self) -> dict[Hashable, list[_Edge]] | None:
        """What may be written in each state; None when there are too many states."""
        start = _Row()
        found: dict[Hashable, list[_Edge]] = {}
        waiting: list[Hashable] = [start]
        while waiting:
            state = waiting.pop()
            if state not in found:
                found[state] = list(self._from(state))
                waiting += [after for _, after in found[state] if after is not None]
            if len(found) > MAX_RULES:
                return None
        return found

    def _from(self, state: Hashable) -> Iterator[_Edge]:
        if isinstance(state, _Row):
            yield from self._beginnings(state)
        elif isinstance(state, _Between):
            yield from self._further(state.row)
        elif isinstance(state, _Within):
            yield from self._dependencies(state)

    def _beginnings(self, row: _Row) -> Iterator[_Edge]:
        number = len(row.groups) + 1
        for tool in self._classes:
            nothing = Bag((0,) * len(self._rules.gives))
            yield f'{literal(f"[{number}, ")} tool-{tool} ", ["', _Within(row, tool, 0, nothing)

    def _further(self, row: _Row) -> Iterator[_Edge]:
        sinks = [0] * len(self._rules.gives)
        for group, is_open in zip(row.groups, row.open, strict=True):
            sinks[group] += is_open
        if self._rules.delivers(sinks):
            yield '"]"', None
        if len(row.groups) < self._nodes:
            yield '", "', row

    def _dependencies(self, state: _Within) -> Iterator[_Edge]:
        rules, bag = self._rules, state.bag
        comma = ", " if bag.task or any(bag.counts) else ""
        if not comma and rules.task_usable[state.tool]:
            yield literal(quoted(TASK)), _Within(state.row, state.tool, 0, Bag(bag.counts, True))
        for at in range(state.next, len(state.row.groups)):
            group = state.row.groups[at]
            if rules.usable[state.tool][group]:
                counts = [count + (number == group) for number, count in enumerate(bag.counts)]
                more = Bag(tuple(min(count, self._most) for count in counts), bag.task)
                row = state.row if self._all_wanted else _closed(state.row, at)
                yield literal(f"{comma}{at + 1}"), _Within(row, state.tool, at + 1, more)
        if rules.covers(state.tool, bag):
            group = rules.group_of[state.tool]
            yield '"]]"', _Between(_Row((*state.row.groups, group), (*state.row.open, True)))


def _closed(row: _Row, at: int) -> _Row:
    return _Row(row.groups, (*row.open[:at], False, *row.open[at + 1 :]))


def _alike(problem: Problem) -> dict[int, int]:
    """For each class the first that the rules treat alike: they may differ in names of kinds alone."""
    rules = problem.rules
    first: dict[Hashable, int] = {}
    return {
        number: first.setdefault(
            (rules.usable[number], rules.task_usable[number], one.needs, rules.group_of[number]), number
        )
        for number, one in enumerate(rules.signatures)
    }


def _productive(edges: dict[Hashable, list[_Edge]]) -> dict[Hashable, list[_Edge]]:
    """The states from which the end can be reached, with the ways that lead there."""
    before: dict[Hashable | None, list[Hashable]] = {}
    for state, ways in edges.items():
        for _, after in ways:
            before.setdefault(after, []).append(state)
    good: set[Hashable | None] = {None}
    waiting: list[Hashable | None] = [None]
    while waiting:
        for state in before.get(waiting.pop(), ()):
            if state not in good:
                good.add(state)
                waiting.append(state)
    return {
        state: [(text, after) for text, after in ways if after in good]
        for state, ways in edges.items()
        if state in good
    }


def _written(edges: dict[Hashable, list[_Edge]], problem: Problem) -> str:
    """The rules as text."""
    if not edges:
        raise PlanFault("No plan of these tools gives what the task asks for.")
    names = {state: f"s{number}" for number, state in enumerate(edges)}
    lines = [f'root ::= "[" {names[_Row()]}']
    for state, ways in edges.items():
        told = (text if after is None else f"{text} {names[after]}" for text, after in ways)
        lines.append(f"{names[state]} ::= {' | '.join(told)}")
    alike, classes = _alike(problem), problem.rules.class_of
    tools = sorted((alike[classes[tool]], tool) for tool in problem.tools)
    for number, members in groupby(tools, key=lambda pair: pair[0]):
        lines.append(f"tool-{number} ::= {' | '.join(literal(quoted(tool)) for _, tool in members)}")
    return "\n".join(lines) + "\n"

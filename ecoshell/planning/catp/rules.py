"""What may come next in a plan (SPEC §3): the one description that mask, grammar and validator follow.

A tool may come while a use of it is left; it waits for results it can use, and among them is all that it needs; the
plan ends when what no node waits for is exactly what the task asks for. Nothing comes from which the end could not be
reached: distances to it are exact. What a node waits for has one order only, `<task>` first and then as the nodes
stand, so that each plan is written in one way; the validator takes any order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate, islice, product
from typing import Literal, NamedTuple

from ecoshell.planning.catp.plan import ITSELF, TASK, GraphPlan, Node, PlanFault, beyond, shown, unknown_tool
from ecoshell.planning.catp.tpl import Written
from ecoshell.planning.catp.types import ANY, Signature, serves

MAX_PLANNED = 16
"""Nodes of a plan that a model writes."""
FAR = 1 << 40
"""The distance of what cannot be completed."""
_TOLD = 20
"""Faults that are looked for: a model that is asked again needs no more."""

Counts = tuple[int, ...]
"""How many there are of each group of results."""
Choice = tuple[Literal["tool", "task", "node", "close", "end"], int]
"""What comes next: a tool of some class, a dependency on `<task>` or on a node by its number from 0, or an end."""


@dataclass(frozen=True)
class Problem:
    """What a plan is to do: with which tools, from what, to what end."""

    tools: Mapping[str, Signature]
    """By name, as the catalogue has them."""
    given: tuple[str, ...] = (ANY,)
    """Kinds of what the user gives, one for each thing; ANY is as much of everything as is needed."""
    wanted: tuple[str, ...] = ()
    """Kinds of what the plan is to give, one for each thing; empty: whatever it gives will do."""
    max_nodes: int = MAX_PLANNED
    max_tokens: int | None = None
    """Tokens after [SoP], [EoP] among them; None is no limit beyond the nodes'."""
    uses: int | None = None
    """How often one tool may stand in the plan; None is as often as the nodes allow."""

    @cached_property
    def rules(self) -> "Rules":
        """What may come next."""
        return Rules(self)


class ToolClass(NamedTuple):
    """Tools that the rules treat alike."""

    needs: tuple[str, ...]
    usable: tuple[bool, ...]
    """Whether they can use a result of each group."""
    task_usable: bool
    group: int
    """That of their results."""


class State(NamedTuple):
    """A plan that is begun, as far as it counts for what may come next."""

    groups: Counts = ()
    """The group of each node's result."""
    sinks: tuple[bool, ...] = ()
    """Whether no other node waits for it; this is not told apart where the task asks for nothing."""
    left: Counts = ()
    """Uses that each class of tools still has; empty when there is no limit."""
    tool: int | None = None
    """The class of the node that is being written; None between two nodes."""
    had: Counts = ()
    """What that node waits for so far, counted no further than any tool needs."""
    task: bool = False
    """Whether it waits for what the user gave."""
    next: int = 0
    """The first node it may still wait for."""


class _Standing(NamedTuple):
    """A plan between two nodes, as far as its completion goes: here only numbers count, which makes few states."""

    left: Counts
    sinks: Counts
    spare: Counts
    """Results that some node waits for, counted no further than any tool needs."""
    nodes: int
    """Nodes that may still come."""


class _Begun(NamedTuple):
    """The node that is being written, likewise."""

    tool: int
    had: Counts
    task: bool
    sinks: Counts
    """What it may still wait for."""
    spare: Counts


class Rules:
    """The rules of one problem, over groups of results and classes of tools that behave alike."""

    def __init__(self, problem: Problem) -> None:
        tools = problem.tools
        self._problem = problem
        kinds = {kind for one in tools.values() for kind in (*one.takes, *one.needs)} | {*problem.wanted}
        served = {one.gives: tuple(serves(one.gives, kind) for kind in sorted(kinds)) for one in tools.values()}
        numbers = {behaviour: number for number, behaviour in enumerate(dict.fromkeys(served.values()))}
        self.group_of = {tool: numbers[served[one.gives]] for tool, one in tools.items()}
        """The group of each tool's results."""
        gives = {numbers[behaviour]: kinds for kinds, behaviour in reversed(served.items())}
        self.gives = tuple(gives[number] for number in range(len(numbers)))
        """As what the results of each group can be read."""
        classes: dict[str, ToolClass] = {}
        for tool, one in tools.items():
            usable = tuple(_uses(one, gives) for gives in self.gives)
            classes[tool] = ToolClass(one.needs, usable, _uses(one, problem.given), self.group_of[tool])
        self.classes = tuple(dict.fromkeys(classes.values()))
        self.class_of = {tool: self.classes.index(one) for tool, one in classes.items()}
        members, uses = [*self.class_of.values()], problem.uses
        left = () if uses is None else tuple(members.count(number) * uses for number in range(len(self.classes)))
        self.start = State(left=left)
        """A plan without nodes."""
        self._none: Counts = (0,) * len(self.gives)
        self._enough = max([1, *(len(one.needs) for one in self.classes)])
        """Results of one group beyond which a further one makes no difference."""
        self._ways = lru_cache(maxsize=1 << 14)(self._ways_uncached)
        self._to_end = cache(self._to_end_uncached)
        self._to_end_by = cache(self._to_end_by_uncached)
        self._whole_nodes = cache(self._whole_nodes_uncached)
        self._endings = cache(self._endings_uncached)
        self._further = cache(self._further_uncached)

    def choices(self, state: State, most: int = FAR - 1) -> Iterator[tuple[Choice, State | None]]:
        """What may come next if the plan is to end within so many tokens, and the state after it; None is the end."""
        for choice, after, tokens in self._ways(state):
            if tokens <= most:
                yield choice, after

    def _ways_uncached(self, state: State) -> list[tuple[Choice, State | None, int]]:
        """What the rules let come next, the state after it, and the tokens to the end that way."""
        permitted: list[tuple[Choice, State | None]] = []
        if state.tool is None:
            if self.delivers(self._counted(state.groups, state.sinks)):
                permitted.append((("end", 0), None))
            if len(state.groups) < self._problem.max_nodes:
                for number, left in self._tools_left(state.left):
                    after = state._replace(tool=number, left=left, had=self._none)
                    permitted.append((("tool", number), after))
        else:
            tool, begun = self.classes[state.tool], state.task or any(state.had)
            if tool.task_usable and not begun:
                permitted.append((("task", 0), state._replace(task=True)))
            for at in range(state.next, len(state.groups)):
                group = state.groups[at]
                if tool.usable[group]:
                    had = tuple(min(n + (at == group), self._enough) for at, n in enumerate(state.had))
                    sinks = (*state.sinks[:at], not self._problem.wanted, *state.sinks[at + 1 :])
                    permitted.append((("node", at), state._replace(had=had, sinks=sinks, next=at + 1)))
            if begun and not self.missing(tool.needs, state.had, task=state.task):
                after = State((*state.groups, tool.group), (*state.sinks, True), state.left)
                permitted.append((("close", 0), after))
        ways: list[tuple[Choice, State | None, int]] = []
        for choice, after in permitted:
            tokens = 2 if choice[0] == "tool" else 1  # <SoD> belongs to the tool
            ways.append((choice, after, tokens + (0 if after is None else self.distance(after))))
        return ways

    def _tools_left(self, left: Counts) -> list[tuple[int, Counts]]:
        """The classes of which a tool may still come, each with what is left after it."""
        numbers = range(len(self.classes))
        return [
            (number, tuple(n - (at == number) for at, n in enumerate(left)))
            for number in numbers
            if not left or left[number]
        ]

    def missing(self, needs: tuple[str, ...], counts: Counts, *, task: bool) -> str:
        """The first of these needs that results, counted by group, and what the user gave do not meet; or none."""
        brought = [gives for gives, n in zip(self.gives, counts, strict=True) for _ in range(min(n, len(needs)))]
        return _missing(needs, (*brought, *(frozenset({kind}) for kind in self._problem.given if task)))

    def delivers(self, sinks: Counts) -> bool:
        """Whether the results nobody waits for, counted by group, are what the task asks for, no more and no less."""
        wanted = self._problem.wanted
        if not wanted:
            return any(sinks)
        return sum(sinks) == len(wanted) and not self.missing(wanted, sinks, task=False)

    def distance(self, state: State) -> int:
        """Tokens to the end along a shortest completion; FAR where there is none."""
        sinks = self._counted(state.groups, state.sinks)
        spare = self._counted(state.groups, (not one for one in state.sinks), self._enough)
        standing = _Standing(state.left, sinks, spare, self._problem.max_nodes - len(state.groups))
        if state.tool is None:
            return self._to_end(standing)
        groups, later = state.groups[state.next :], state.sinks[state.next :]
        sinks = self._counted(groups, later)
        spare = self._counted(groups, (not one for one in later), self._enough)
        node = _Begun(state.tool, state.had, state.task, sinks, spare)
        return min((tokens + self._to_end(after) for tokens, after in self._endings(standing, node)), default=FAR)

    def _counted(self, groups: Counts, which: Iterable[bool], most: int = FAR) -> Counts:
        counts = [0] * len(self.gives)
        for group, counts_too in zip(groups, which, strict=True):
            counts[group] += counts_too
        return tuple(min(n, most) for n in counts)

    def _to_end_uncached(self, standing: _Standing) -> int:
        """From between two nodes: with few nodes first, as each takes three tokens and those it waits for."""
        if self.delivers(standing.sinks):
            return 1
        best, limit = FAR, self._problem.max_tokens or FAR
        superfluous = sum(standing.sinks) - len(self._problem.wanted) if self._problem.wanted else -FAR
        for nodes in range(1, standing.nodes + 1):
            least = 1 + 3 * nodes + max(nodes, superfluous + nodes)
            if least >= best or least > limit:
                break
            best = min(best, self._to_end_by(standing, nodes))
        return best

    def _to_end_by_uncached(self, standing: _Standing, nodes: int) -> int:
        """By exactly so many nodes."""
        if nodes == 0:
            return 1 if self.delivers(standing.sinks) else FAR
        if sum(standing.sinks) + nodes < len(self._problem.wanted):
            return FAR
        ways = self._whole_nodes(standing)
        return min((tokens + self._to_end_by(after, nodes - 1) for tokens, after in ways), default=FAR)

    def _whole_nodes_uncached(self, standing: _Standing) -> list[tuple[int, _Standing]]:
        """The nodes that may come next: the tokens of each, and where the plan stands then."""
        return [
            (2 + tokens, after)
            for number, left in self._tools_left(standing.left)
            for tokens, after in self._endings(
                standing._replace(left=left), _Begun(number, self._none, False, standing.sinks, standing.spare)
            )
        ]

    def _endings_uncached(self, standing: _Standing, node: _Begun) -> list[tuple[int, _Standing]]:
        """The ways to end a node: the tokens that still come of it, and where the plan stands then."""
        tool, found = self.classes[node.tool], list[tuple[int, _Standing]]()
        free = tool.task_usable and not node.task and not any(node.had)
        for taken in product(*map(range, (n + 1 for n in _masked(node.sinks, tool.usable)))):
            had = tuple(min(sum(both), self._enough) for both in zip(node.had, taken, strict=True))
            further = self._further(node.tool, had, node.spare, node.task, free)
            if further is not None:
                sinks = [n - less for n, less in zip(standing.sinks, taken, strict=True)]
                sinks[tool.group] += 1
                spare = tuple(min(sum(both), self._enough) for both in zip(standing.spare, taken, strict=True))
                after = _Standing(standing.left, tuple(sinks), spare, standing.nodes - 1)
                found.append((sum(taken) + further + 1, after))
        return found

    def _further_uncached(self, number: int, had: Counts, spare: Counts, task: bool, free: bool) -> int | None:
        """How many further dependencies a node needs at least; None when it cannot have all it needs.

        `free` is whether `<task>` may be one.
        """
        tool, found = self.classes[number], list[int]()
        rooms = (range(n + 1) for n in _masked(spare, tool.usable))
        for *more, task_too in product(*rooms, (0, 1) if free else (0,)):
            counts, with_task = tuple(map(sum, zip(had, more, strict=True))), task or task_too > 0
            if (with_task or any(counts)) and not self.missing(tool.needs, counts, task=with_task):
                found.append(sum(more) + task_too)
        return min(found, default=None)


def _masked(counts: Counts, usable: tuple[bool, ...]) -> list[int]:
    return [n if use else 0 for n, use in zip(counts, usable, strict=True)]


def _uses(signature: Signature, given: Iterable[str]) -> bool:
    """Whether a tool can use a result; one that takes nothing is only put in order by what it waits for."""
    return not signature.takes or any(serves(given, kind) for kind in signature.takes)


@lru_cache(maxsize=4096)
def _missing(needs: tuple[str, ...], supplies: tuple[frozenset[str], ...]) -> str:
    """The first need that cannot be met when each thing meets one; ANY meets all."""
    if any(ANY in supply for supply in supplies):
        return ""
    return next((need for at, need in enumerate(needs, 1) if not _met(needs[:at], supplies)), "")


def _met(needs: tuple[str, ...], supplies: tuple[frozenset[str], ...]) -> bool:
    """Whether there is a thing for each need."""
    return not needs or any(
        serves(supply, needs[0]) and _met(needs[1:], (*supplies[:at], *supplies[at + 1 :]))
        for at, supply in enumerate(supplies)
    )


def validate(plan: GraphPlan, problem: Problem, written: Written | None = None) -> None:
    """Raise PlanFault for a plan that does not solve the problem; its message tells the faults, each with its node.

    With the plan as it was written, each has its line and column, too.
    """
    if found := faults(plan, problem, written):
        raise PlanFault.of(found)


def faults(plan: GraphPlan, problem: Problem, written: Written | None = None) -> list[PlanFault]:
    """What keeps a plan from solving the problem, the first twenty faults."""
    found = [*islice(_limits_passed(plan.nodes, problem), _TOLD)] or [*islice(_misfits(plan, problem), _TOLD)]
    return found if written is None else [written.placed(fault) for fault in found]


def _limits_passed(nodes: Sequence[Node], problem: Problem) -> Iterator[PlanFault]:
    """Tools that are not known, and what there is too much of."""
    if len(nodes) > problem.max_nodes:
        yield beyond(nodes, problem.max_nodes)
    used: dict[str, int] = {}
    for at, node in enumerate(nodes):
        due = used[node.tool] = used.get(node.tool, 0) + 1
        said = ""
        if node.tool not in problem.tools:
            said = unknown_tool(node.tool, problem.tools)
        elif problem.uses is not None and due > problem.uses:
            said = f"{shown(node.label)}: a tool may be used {problem.uses} times at most."
        elif node.index != due:
            right = Node(node.tool, index=due).label
            said = f"{shown(node.label)} is use {due} of {shown(node.tool)}: call it {shown(right)}."
        if said:
            yield PlanFault(said, node=node.label, spot=(at, ITSELF))
    ends = [*accumulate(len(node.after) + 3 for node in nodes)]  # [SoP] does not count
    if problem.max_tokens is not None and ends[-1] >= problem.max_tokens:
        at = next(at for at, end in enumerate(ends) if end >= problem.max_tokens)
        label, said = nodes[at].label, f"The plan has {ends[-1] + 1} tokens; at most {problem.max_tokens} are taken"
        yield PlanFault(f"{said}: {shown(label)} is beyond them.", node=label, spot=(at, ITSELF))


def _misfits(plan: GraphPlan, problem: Problem) -> Iterator[PlanFault]:
    """What does not fit in a plan of known tools: what flows in at each node, and what comes out at the end."""
    rules = problem.rules
    groups = {node.label: rules.group_of[node.tool] for node in plan.nodes}
    for at, node in enumerate(plan.nodes):
        tool, counts = rules.classes[rules.class_of[node.tool]], [0] * len(rules.gives)
        for place, label in enumerate(node.after):
            if not (tool.task_usable if label == TASK else tool.usable[groups[label]]):
                taken = " or ".join(sorted(problem.tools[node.tool].takes))
                given = " and ".join(problem.given) if label == TASK else "/".join(sorted(rules.gives[groups[label]]))
                said = f"{shown(node.label)} takes {taken}, and {shown(label)} gives {given}."
                yield PlanFault(said, node=node.label, spot=(at, place))
            if label != TASK:
                counts[groups[label]] += 1
        if kind := rules.missing(tool.needs, tuple(counts), task=TASK in node.after):
            said = f"{shown(node.label)} needs {kind}, and nothing it waits for gives (enough of) it."
            yield PlanFault(said, node=node.label, spot=(at, ITSELF))
    sinks = [groups[node.label] for node in plan.sinks]
    if not rules.delivers(tuple(sinks.count(group) for group in range(len(rules.gives)))):
        first = plan.sinks[0]
        ends = (f"{shown(node.label)} ({'/'.join(sorted(problem.tools[node.tool].gives))})" for node in plan.sinks[:8])
        asked = f"The task asks for {' and '.join(problem.wanted)}, nothing more and nothing less"
        said = f"{asked}; the plan ends in {', '.join(ends)}."
        yield PlanFault(said, node=first.label, spot=(plan.nodes.index(first), ITSELF))

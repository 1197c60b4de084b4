"""The rules of valid plans (SPEC §3), shared by mask, grammar and validator.

A tool may be added while uses are left. It depends on results it can use, which include everything it needs. A plan
ends when its sinks are exactly what the task wants. No choice leads to a dead end, because distances to the end are
exact. Dependencies have a canonical order, `<task>` first and then in node order, so that each plan has one form; the
validator accepts any order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate, islice, product
from typing import Literal, NamedTuple

from ecoshell.planning.catp.plan import (
    ITSELF,
    TASK,
    GraphPlan,
    Node,
    PlanFault,
    beyond,
    shown,
    unknown_tool,
)
from ecoshell.planning.catp.tpl import Written
from ecoshell.planning.catp.types import ANY, Signature, serves

MAX_PLANNED = 16
"""Maximum nodes of a plan by a model."""
FAR = 1 << 40
"""The distance of a state that cannot be completed."""
_MAX_FAULTS = 20
"""Reported faults; a retry needs no more."""

Counts = tuple[int, ...]
"""Counts by group of results."""
Choice = tuple[Literal["tool", "task", "node", "close", "end"], int]
"""The next element: a tool of a class, a dependency on `<task>` or on a node by index, or an end."""


@dataclass(frozen=True)
class Problem:
    """The tools, inputs and outputs of a plan, and its limits."""

    tools: Mapping[str, Signature]
    """Signatures by tool name."""
    inputs: tuple[str, ...] = (ANY,)
    """Kinds of the user's inputs, one per input; ANY provides every kind without limit."""
    outputs: tuple[str, ...] = ()
    """Kinds of the plan's outputs, one per output; empty accepts any output."""
    max_nodes: int = MAX_PLANNED
    max_tokens: int | None = None
    """Maximum tokens after [SoP], including [EoP]; None for no limit."""
    uses: int | None = None
    """Maximum uses per tool; None for no limit."""

    @cached_property
    def rules(self) -> "Rules":
        """The rules of this problem."""
        return Rules(self)


class ToolClass(NamedTuple):
    """Tools that are equivalent under the rules."""

    needs: tuple[str, ...]
    usable: tuple[bool, ...]
    """Whether the tools can use results of each group."""
    task_usable: bool
    group: int
    """The group of their results."""


class State(NamedTuple):
    """The part of a partial plan that determines the next choices."""

    groups: Counts = ()
    """The group of each node's result."""
    sinks: tuple[bool, ...] = ()
    """Whether each node has no dependents; constant if the task wants no specific output."""
    remaining: Counts = ()
    """Remaining uses of each tool class; empty without a limit."""
    tool: int | None = None
    """The class of the current node; None between nodes."""
    dependencies: Counts = ()
    """Dependencies of the current node by group, capped at the maximum need."""
    task: bool = False
    """Whether the current node depends on the user's input."""
    next: int = 0
    """The first node that may still become a dependency."""


class _PlanCounts(NamedTuple):
    """A plan between two nodes, reduced to counts for distances, which keeps the number of states small."""

    remaining: Counts
    sinks: Counts
    spare: Counts
    """Results with dependents, capped at the maximum need."""
    nodes: int
    """Remaining nodes."""


class _OpenNode(NamedTuple):
    """The current node, reduced to counts."""

    tool: int
    dependencies: Counts
    task: bool
    sinks: Counts
    """Sinks that may still become dependencies."""
    spare: Counts


class Rules:
    """The rules of one problem, over groups of equivalent results and classes of equivalent tools."""

    def __init__(self, problem: Problem) -> None:
        tools = problem.tools
        self._problem = problem
        kinds = {
            kind for signature in tools.values() for kind in (*signature.takes, *signature.needs)
        } | {*problem.outputs}
        served = {
            signature.gives: tuple(serves(signature.gives, kind) for kind in sorted(kinds))
            for signature in tools.values()
        }
        numbers = {
            behaviour: number for number, behaviour in enumerate(dict.fromkeys(served.values()))
        }
        self.group_of = {
            tool: numbers[served[signature.gives]] for tool, signature in tools.items()
        }
        """The group of each tool's results."""
        gives = {numbers[behaviour]: kinds for kinds, behaviour in reversed(served.items())}
        self.gives = tuple(gives[number] for number in range(len(numbers)))
        """Kinds that results of each group can serve as."""
        classes: dict[str, ToolClass] = {}
        for tool, signature in tools.items():
            usable = tuple(_uses(signature, gives) for gives in self.gives)
            classes[tool] = ToolClass(
                signature.needs, usable, _uses(signature, problem.inputs), self.group_of[tool]
            )
        self.classes = tuple(dict.fromkeys(classes.values()))
        self.class_of = {tool: self.classes.index(signature) for tool, signature in classes.items()}
        members, uses = [*self.class_of.values()], problem.uses
        uses_left: Counts = ()
        if uses is not None:
            uses_left = tuple(members.count(at) * uses for at in range(len(self.classes)))
        self.start = State(remaining=uses_left)
        """A plan without nodes."""
        self._none: Counts = (0,) * len(self.gives)
        self._enough = max([1, *(len(signature.needs) for signature in self.classes)])
        """The cap of counted results per group."""
        self._options = lru_cache(maxsize=1 << 14)(self._options_uncached)
        self._to_end = cache(self._to_end_uncached)
        self._to_end_by = cache(self._to_end_by_uncached)
        self._complete_nodes = cache(self._complete_nodes_uncached)
        self._endings = cache(self._endings_uncached)
        self._further = cache(self._further_uncached)

    def choices(
        self, state: State, max_tokens: int = FAR - 1
    ) -> Iterator[tuple[Choice, State | None]]:
        """Yield the choices that allow an end within `max_tokens`, with the next state; None is the end."""
        for choice, after, tokens in self._options(state):
            if tokens <= max_tokens:
                yield choice, after

    def _options_uncached(self, state: State) -> list[tuple[Choice, State | None, int]]:
        """Return all choices with the next state and the tokens to the end."""
        permitted: list[tuple[Choice, State | None]] = []
        if state.tool is None:
            if self.delivers(self._counted(state.groups, state.sinks)):
                permitted.append((("end", 0), None))
            if len(state.groups) < self._problem.max_nodes:
                for number, uses_left in self._remaining_tools(state.remaining):
                    after = state._replace(
                        tool=number, remaining=uses_left, dependencies=self._none
                    )
                    permitted.append((("tool", number), after))
        else:
            tool, has_dependency = self.classes[state.tool], state.task or any(state.dependencies)
            if tool.task_usable and not has_dependency:
                permitted.append((("task", 0), state._replace(task=True)))
            for at in range(state.next, len(state.groups)):
                group = state.groups[at]
                if tool.usable[group]:
                    dependencies = tuple(
                        min(n + (at == group), self._enough)
                        for at, n in enumerate(state.dependencies)
                    )
                    sinks = (*state.sinks[:at], not self._problem.outputs, *state.sinks[at + 1 :])
                    permitted.append(
                        (
                            ("node", at),
                            state._replace(dependencies=dependencies, sinks=sinks, next=at + 1),
                        )
                    )
            if has_dependency and not self.missing(tool.needs, state.dependencies, task=state.task):
                after = State((*state.groups, tool.group), (*state.sinks, True), state.remaining)
                permitted.append((("close", 0), after))
        ways: list[tuple[Choice, State | None, int]] = []
        for choice, after in permitted:
            tokens = 2 if choice[0] == "tool" else 1  # <SoD> belongs to the tool
            ways.append((choice, after, tokens + (0 if after is None else self.distance(after))))
        return ways

    def _remaining_tools(self, uses_left: Counts) -> list[tuple[int, Counts]]:
        """Return the classes with remaining uses, each with the uses left afterwards."""
        numbers = range(len(self.classes))
        return [
            (number, tuple(n - (at == number) for at, n in enumerate(uses_left)))
            for number in numbers
            if not uses_left or uses_left[number]
        ]

    def missing(self, needs: tuple[str, ...], counts: Counts, *, task: bool) -> str:
        """Return the first need not met by results, counted by group, and the user's input; empty if all are met."""
        brought = [
            gives
            for gives, n in zip(self.gives, counts, strict=True)
            for _ in range(min(n, len(needs)))
        ]
        return _missing(
            needs, (*brought, *(frozenset({kind}) for kind in self._problem.inputs if task))
        )

    def delivers(self, sinks: Counts) -> bool:
        """Whether the sinks, counted by group, are exactly what the task wants."""
        kinds = self._problem.outputs
        if not kinds:
            return any(sinks)
        return sum(sinks) == len(kinds) and not self.missing(kinds, sinks, task=False)

    def distance(self, state: State) -> int:
        """Return the tokens of the shortest completion; FAR without one."""
        sinks = self._counted(state.groups, state.sinks)
        spare = self._counted(state.groups, (not is_sink for is_sink in state.sinks), self._enough)
        plan = _PlanCounts(
            state.remaining, sinks, spare, self._problem.max_nodes - len(state.groups)
        )
        if state.tool is None:
            return self._to_end(plan)
        groups, later = state.groups[state.next :], state.sinks[state.next :]
        sinks = self._counted(groups, later)
        spare = self._counted(groups, (not is_sink for is_sink in later), self._enough)
        node = _OpenNode(state.tool, state.dependencies, state.task, sinks, spare)
        return min(
            (tokens + self._to_end(after) for tokens, after in self._endings(plan, node)),
            default=FAR,
        )

    def _counted(self, groups: Counts, flags: Iterable[bool], limit: int = FAR) -> Counts:
        counts = [0] * len(self.gives)
        for group, counts_too in zip(groups, flags, strict=True):
            counts[group] += counts_too
        return tuple(min(n, limit) for n in counts)

    def _to_end_uncached(self, plan: _PlanCounts) -> int:
        """Compute the distance between two nodes, trying few nodes first: each takes three tokens plus dependencies."""
        if self.delivers(plan.sinks):
            return 1
        best, limit = FAR, self._problem.max_tokens or FAR
        superfluous = (
            sum(plan.sinks) - len(self._problem.outputs) if self._problem.outputs else -FAR
        )
        for nodes in range(1, plan.nodes + 1):
            least = 1 + 3 * nodes + max(nodes, superfluous + nodes)
            if least >= best or least > limit:
                break
            best = min(best, self._to_end_by(plan, nodes))
        return best

    def _to_end_by_uncached(self, plan: _PlanCounts, nodes: int) -> int:
        """Compute the distance with exactly this number of nodes."""
        if nodes == 0:
            return 1 if self.delivers(plan.sinks) else FAR
        if sum(plan.sinks) + nodes < len(self._problem.outputs):
            return FAR
        ways = self._complete_nodes(plan)
        return min(
            (tokens + self._to_end_by(after, nodes - 1) for tokens, after in ways), default=FAR
        )

    def _complete_nodes_uncached(self, plan: _PlanCounts) -> list[tuple[int, _PlanCounts]]:
        """Return the possible next nodes, each with its tokens and the counts afterwards."""
        return [
            (2 + tokens, after)
            for number, uses_left in self._remaining_tools(plan.remaining)
            for tokens, after in self._endings(
                plan._replace(remaining=uses_left),
                _OpenNode(number, self._none, False, plan.sinks, plan.spare),
            )
        ]

    def _endings_uncached(
        self, plan: _PlanCounts, node: _OpenNode
    ) -> list[tuple[int, _PlanCounts]]:
        """Return the possible completions of a node, each with its remaining tokens and the counts afterwards."""
        tool, endings = self.classes[node.tool], list[tuple[int, _PlanCounts]]()
        free = tool.task_usable and not node.task and not any(node.dependencies)
        for counts in product(*map(range, (n + 1 for n in _masked(node.sinks, tool.usable)))):
            dependencies = tuple(
                min(sum(both), self._enough) for both in zip(node.dependencies, counts, strict=True)
            )
            further = self._further(node.tool, dependencies, node.spare, node.task, free)
            if further is not None:
                sinks = [n - less for n, less in zip(plan.sinks, counts, strict=True)]
                sinks[tool.group] += 1
                spare = tuple(
                    min(sum(both), self._enough) for both in zip(plan.spare, counts, strict=True)
                )
                after = _PlanCounts(plan.remaining, tuple(sinks), spare, plan.nodes - 1)
                endings.append((sum(counts) + further + 1, after))
        return endings

    def _further_uncached(
        self, number: int, dependencies: Counts, spare: Counts, task: bool, free: bool
    ) -> int | None:
        """Return the minimum number of further dependencies; None if the needs cannot be met.

        `free` allows `<task>` as a dependency.
        """
        tool, totals = self.classes[number], list[int]()
        rooms = (range(n + 1) for n in _masked(spare, tool.usable))
        for *more, task_too in product(*rooms, (0, 1) if free else (0,)):
            counts = tuple(map(sum, zip(dependencies, more, strict=True)))
            with_task = task or task_too > 0
            if (with_task or any(counts)) and not self.missing(tool.needs, counts, task=with_task):
                totals.append(sum(more) + task_too)
        return min(totals, default=None)


def _masked(counts: Counts, usable: tuple[bool, ...]) -> list[int]:
    return [n if use else 0 for n, use in zip(counts, usable, strict=True)]


def _uses(signature: Signature, kinds: Iterable[str]) -> bool:
    """Whether a tool can use a result; dependencies of a tool without inputs only determine the order."""
    return not signature.takes or any(serves(kinds, kind) for kind in signature.takes)


@lru_cache(maxsize=4096)
def _missing(needs: tuple[str, ...], supplies: tuple[frozenset[str], ...]) -> str:
    """Return the first need that cannot be met if each supply meets one; ANY meets all."""
    if any(ANY in supply for supply in supplies):
        return ""
    return next((need for at, need in enumerate(needs, 1) if not _met(needs[:at], supplies)), "")


def _met(needs: tuple[str, ...], supplies: tuple[frozenset[str], ...]) -> bool:
    """Whether each need has a supply."""
    return not needs or any(
        serves(supply, needs[0]) and _met(needs[1:], (*supplies[:at], *supplies[at + 1 :]))
        for at, supply in enumerate(supplies)
    )


def validate(plan: GraphPlan, problem: Problem, written: Written | None = None) -> None:
    """Raise PlanFault, which lists the faults with their nodes, for a plan that does not solve the problem.

    With `written`, faults have line and column.
    """
    if found_faults := faults(plan, problem, written):
        raise PlanFault.of(found_faults)


def faults(plan: GraphPlan, problem: Problem, written: Written | None = None) -> list[PlanFault]:
    """Return the first faults of a plan for the problem."""
    found_faults = [*islice(_exceeded_limits(plan.nodes, problem), _MAX_FAULTS)] or [
        *islice(_misfits(plan, problem), _MAX_FAULTS)
    ]
    return found_faults if written is None else [written.placed(fault) for fault in found_faults]


def _exceeded_limits(nodes: Sequence[Node], problem: Problem) -> Iterator[PlanFault]:
    """Yield unknown tools and exceeded limits."""
    if len(nodes) > problem.max_nodes:
        yield beyond(nodes, problem.max_nodes)
    used: dict[str, int] = {}
    for at, node in enumerate(nodes):
        due = used[node.tool] = used.get(node.tool, 0) + 1
        message = ""
        if node.tool not in problem.tools:
            message = unknown_tool(node.tool, problem.tools)
        elif problem.uses is not None and due > problem.uses:
            message = f"{shown(node.label)}: a tool may be used {problem.uses} times at most."
        elif node.index != due:
            right = Node(node.tool, index=due).label
            message = (
                f"{shown(node.label)} is use {due} of {shown(node.tool)}: call it {shown(right)}."
            )
        if message:
            yield PlanFault(message, node=node.label, spot=(at, ITSELF))
    ends = [*accumulate(len(node.after) + 3 for node in nodes)]  # [SoP] does not count
    if problem.max_tokens is not None and ends[-1] >= problem.max_tokens:
        at = next(at for at, end in enumerate(ends) if end >= problem.max_tokens)
        label = nodes[at].label
        message = f"The plan has {ends[-1] + 1} tokens; at most {problem.max_tokens} are taken"
        yield PlanFault(f"{message}: {shown(label)} is beyond them.", node=label, spot=(at, ITSELF))


def _misfits(plan: GraphPlan, problem: Problem) -> Iterator[PlanFault]:
    """Yield mismatched inputs of nodes and outputs of the plan, for a plan of known tools."""
    rules = problem.rules
    groups = {node.label: rules.group_of[node.tool] for node in plan.nodes}
    for at, node in enumerate(plan.nodes):
        tool, counts = rules.classes[rules.class_of[node.tool]], [0] * len(rules.gives)
        for place, label in enumerate(node.after):
            if not (tool.task_usable if label == TASK else tool.usable[groups[label]]):
                expected = " or ".join(sorted(problem.tools[node.tool].takes))
                provided = " and ".join(problem.inputs)
                if label != TASK:
                    provided = "/".join(sorted(rules.gives[groups[label]]))
                message = f"{shown(node.label)} takes {expected}, and {shown(label)} gives"
                yield PlanFault(f"{message} {provided}.", node=node.label, spot=(at, place))
            if label != TASK:
                counts[groups[label]] += 1
        if kind := rules.missing(tool.needs, tuple(counts), task=TASK in node.after):
            message = f"{shown(node.label)} needs {kind}, and nothing it waits for gives"
            yield PlanFault(f"{message} (enough of) it.", node=node.label, spot=(at, ITSELF))
    sinks = [groups[node.label] for node in plan.sinks]
    if not rules.delivers(tuple(sinks.count(group) for group in range(len(rules.gives)))):
        first = plan.sinks[0]
        ends = (
            f"{shown(node.label)} ({'/'.join(sorted(problem.tools[node.tool].gives))})"
            for node in plan.sinks[:8]
        )
        outputs = " and ".join(problem.outputs)
        requirement = f"The task asks for {outputs}, nothing more and nothing less"
        message = f"{requirement}; the plan ends in {', '.join(ends)}."
        yield PlanFault(message, node=first.label, spot=(plan.nodes.index(first), ITSELF))

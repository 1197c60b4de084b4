"""How far a plan that is begun is from its shortest completion, exactly (SPEC §3: closure before the length limit).

Tools of one class and results of one group behave alike, so what counts of a plan is how many there are of each: that
makes few enough states to keep the distances of all that were ever asked for.
"""

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from ecoshell.planning.catp.rules import Bag, Problem

FAR = 1 << 40
"""The distance of what cannot be completed."""
_NODE = 3
"""Tokens of a node beside its dependencies: the tool, <SoD> and <EoD>."""
_Counts = tuple[int, ...]


class Standing(NamedTuple):
    """A plan between two nodes, as far as its completion goes."""

    left: _Counts
    """Uses that each class of tools still has; empty when there is no limit."""
    sinks: _Counts
    """Results that no node waits for, by group."""
    spare: _Counts
    """Other results, by group; counted no further than any tool needs."""
    nodes: int
    """Nodes that may still come."""


class Opened(NamedTuple):
    """A node whose dependencies are being written: what it waits for so far."""

    tool: int
    """Its class."""
    absorbed: _Counts
    """Results nobody waited for before it, by group."""
    others: _Counts
    task: bool = False


class Completions:
    """Distances in tokens, of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._rules = problem.rules
        self._wanted = len(problem.wanted)
        self._most_tokens = math.inf if problem.max_tokens is None else problem.max_tokens
        self._uses = problem.uses
        self._groups = range(len(self._rules.gives))
        self.most_needed = max([1, *(len(one.needs) for one in self._rules.signatures)])
        """Results of one group beyond which a further one makes no difference."""
        self._none: _Counts = (0,) * len(self._rules.gives)
        self._begun = [Opened(number, self._none, self._none) for number in range(len(self._rules.signatures))]
        self.start = Standing(self._all_uses(), self._none, self._none, problem.max_nodes)
        self.distance = cache(self._distance)
        self.offers = cache(self._offers)
        self.openings = cache(self._openings)
        self._exactly = cache(self._exactly_uncached)
        self._extra = cache(self._extra_uncached)
        self._closing = cache(self._closing_uncached)
        self.after = cache(self._after)

    def _all_uses(self) -> _Counts:
        return () if self._uses is None else tuple(len(tools) * self._uses for tools in self._rules.members)

    def opened(self, tool: int) -> Opened:
        """A node of this class before its first dependency."""
        return self._begun[tool]

    def with_sink(self, node: Opened, group: int) -> Opened:
        """The node with one more dependency, on a result of this group that nobody waited for."""
        return node._replace(absorbed=_with(node.absorbed, group, node.absorbed[group] + 1))

    def with_other(self, node: Opened, group: int) -> Opened:
        """The node with one more dependency, on another result of this group."""
        return node._replace(others=_with(node.others, group, min(node.others[group] + 1, self.most_needed)))

    def _after(self, standing: Standing, node: Opened) -> Standing:
        """Where the plan stands when the node is written."""
        group = self._rules.group_of[node.tool]
        sinks = [have - taken for have, taken in zip(standing.sinks, node.absorbed, strict=True)]
        spare = [have + taken for have, taken in zip(standing.spare, node.absorbed, strict=True)]
        sinks[group] += 1
        left = tuple(uses - (number == node.tool) for number, uses in enumerate(standing.left))
        capped = tuple(min(count, self.most_needed) for count in spare)
        return Standing(left, tuple(sinks), capped, standing.nodes - 1)

    def _openings(self, standing: Standing) -> tuple[int, ...]:
        """Between two nodes: the distance to the end by way of each class of tools, and at last by way of [EoP]."""
        ways = [self._by_way_of(standing, number) for number in range(len(self._rules.signatures))]
        return (*ways, 1 if self._rules.delivers(standing.sinks) else FAR)

    def _by_way_of(self, standing: Standing, number: int) -> int:
        if standing.nodes < 1 or (standing.left and not standing.left[number]):
            return FAR
        return 2 + self._closing(standing, self._begun[number])

    def _offers(self, standing: Standing, node: Opened) -> tuple[_Counts, _Counts, int, int]:
        """Within a node: the distances by way of a further dependency on a sink and on another result, by group; by way
        of <task>; and by way of <EoD>."""
        rules, usable = self._rules, self._rules.usable[node.tool]
        sinks, others = [FAR] * len(self._groups), [FAR] * len(self._groups)
        for group in self._groups:
            if usable[group] and node.absorbed[group] < standing.sinks[group]:
                sinks[group] = 1 + self._closing(standing, self.with_sink(node, group))
            if usable[group] and standing.spare[group]:
                others[group] = 1 + self._closing(standing, self.with_other(node, group))
        task = FAR
        if rules.task_usable[node.tool] and not node.task:
            task = 1 + self._closing(standing, node._replace(task=True))
        end = FAR
        if rules.covers(node.tool, _bag(node)):
            end = 1 + self.distance(self.after(standing, node))
        return tuple(sinks), tuple(others), task, end

    def _distance(self, standing: Standing) -> int:
        """Tokens to the end of the plan, from between two nodes."""
        if self._rules.delivers(standing.sinks):
            return 1
        best, open_ends = FAR, sum(standing.sinks)
        for nodes in range(1, standing.nodes + 1):
            absorbed = open_ends + nodes - self._wanted if self._wanted else nodes
            least = 1 + _NODE * nodes + max(nodes, absorbed)
            if least >= best or least > self._most_tokens:
                break
            best = min(best, self._exactly(standing, nodes))
        return best

    def _exactly_uncached(self, standing: Standing, nodes: int) -> int:
        """Tokens to the end by so many more nodes."""
        if nodes == 0:
            return 1 if self._rules.delivers(standing.sinks) else FAR
        return min((self._through(standing, node, nodes) for node in self._nodes(standing, nodes)), default=FAR)

    def _through(self, standing: Standing, node: Opened, nodes: int) -> int:
        extra = self._extra(node, standing.spare)
        if extra == FAR:
            return FAR
        return _NODE + sum(node.absorbed) + extra + self._exactly(self.after(standing, node), nodes - 1)

    def _nodes(self, standing: Standing, nodes: int) -> Iterator[Opened]:
        """Every node that may come next, by what it takes from the sinks, when so many are to come in all."""
        most = sum(standing.sinks) + nodes - self._wanted if self._wanted else sum(standing.sinks)
        least = most if nodes == 1 and self._wanted else 0
        for number in range(len(self._rules.signatures)):
            if not standing.left or standing.left[number]:
                for taken in self._absorbable(standing, self._begun[number]):
                    if least <= sum(taken) <= most:
                        yield Opened(number, taken, self._none)

    def _absorbable(self, standing: Standing, node: Opened) -> Iterator[_Counts]:
        """What the node may take from the sinks in the end, beyond what it has taken."""
        usable = self._rules.usable[node.tool]
        ranges = [
            range(node.absorbed[group], (standing.sinks[group] if usable[group] else node.absorbed[group]) + 1)
            for group in self._groups
        ]
        return product(*ranges)

    def _closing_uncached(self, standing: Standing, node: Opened) -> int:
        """Tokens to the end of the plan, from within a node."""
        best, had = FAR, sum(node.absorbed)
        for taken in self._absorbable(standing, node):
            full = node._replace(absorbed=taken)
            extra = self._extra(full, standing.spare)
            if extra < FAR:
                best = min(best, sum(taken) - had + extra + 1 + self.distance(self.after(standing, full)))
        return best

    def _extra_uncached(self, node: Opened, spare: _Counts) -> int:
        """How many further dependencies the node needs that are no sinks; FAR when it cannot have all it needs."""
        usable, best = self._rules.usable[node.tool], FAR
        rooms = [max(0, spare[group] - node.others[group]) if usable[group] else 0 for group in self._groups]
        tasks = (0, 1) if self._rules.task_usable[node.tool] and not node.task else (0,)
        for *more, task in product(*(range(room + 1) for room in rooms), tasks):
            counts = tuple(map(sum, zip(node.absorbed, node.others, more, strict=True)))
            if sum(more) + task < best and self._rules.covers(node.tool, Bag(counts, node.task or bool(task))):
                best = sum(more) + task
        return best


def _bag(node: Opened) -> Bag:
    return Bag(tuple(map(sum, zip(node.absorbed, node.others, strict=True))), node.task)


def _with(counts: _Counts, group: int, count: int) -> _Counts:
    return (*counts[:group], count, *counts[group + 1 :])

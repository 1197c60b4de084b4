"""What may come next in a plan (SPEC §3): the one description that mask, validator and grammar share.

A tool may come while a use of it is left; it waits for results it can use, and among them is all that it needs; the
plan ends when what no node waits for is exactly what the task asks for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ecoshell.planning.catp.types import ANY, Signature, serves

MAX_PLANNED = 16
"""Nodes of a plan that a model writes."""


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
    rules: "Rules" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", Rules(self))


@dataclass(frozen=True, slots=True)
class Bag:
    """Results at hand, counted by group, and whether what the user gave is among them."""

    counts: tuple[int, ...]
    task: bool = False


class Rules:
    """The rules of one problem, over classes of tools and groups of results that behave alike."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.signatures: tuple[Signature, ...] = tuple(dict.fromkeys(problem.tools.values()))
        """One for each class of tools."""
        numbers = {signature: number for number, signature in enumerate(self.signatures)}
        self.class_of: dict[str, int] = {tool: numbers[signature] for tool, signature in problem.tools.items()}
        behaviours = [self._behaviour(signature) for signature in self.signatures]
        distinct = list(dict.fromkeys(behaviours))
        self.group_of: tuple[int, ...] = tuple(distinct.index(behaviour) for behaviour in behaviours)
        """The group of each class's results."""
        self.gives: tuple[frozenset[str], ...] = tuple(
            self.signatures[behaviours.index(behaviour)].gives for behaviour in distinct
        )
        """As what each group's results can be read."""

    def _behaviour(self, signature: Signature) -> tuple[bool, ...]:
        """What distinguishes a result: which kinds that anybody takes or wants it serves as."""
        return tuple(serves(signature.gives, kind) for kind in self._kinds)

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        asked = {kind for signature in self.signatures for kind in (*signature.takes, *signature.needs)}
        return tuple(sorted(asked | set(self._problem.wanted)))

    @cached_property
    def members(self) -> tuple[tuple[str, ...], ...]:
        """The tools of each class."""
        return tuple(
            tuple(tool for tool, found in self.class_of.items() if found == number)
            for number in range(len(self.signatures))
        )

    @cached_property
    def usable(self) -> tuple[tuple[bool, ...], ...]:
        """For each class, whether it can use a result of each group."""
        return tuple(tuple(_uses(one, gives) for gives in self.gives) for one in self.signatures)

    @cached_property
    def task_usable(self) -> tuple[bool, ...]:
        """For each class, whether it can use what the user gives."""
        return tuple(_uses(one, self._problem.given) for one in self.signatures)

    def covers(self, number: int, bag: Bag) -> bool:
        """Whether a tool of this class finds all it needs in the bag, and there is something in it."""
        if not bag.task and not any(bag.counts):
            return False
        return self.missing(number, bag) == ""

    def missing(self, number: int, bag: Bag) -> str:
        """The first kind that a tool of this class needs and the bag does not bring; empty when there is none."""
        needs = self.signatures[number].needs
        return _missing(needs, self._supplies(bag, len(needs)))

    def _supplies(self, bag: Bag, most: int) -> tuple[frozenset[str], ...]:
        """What the bag brings, one entry for each thing, as far as so many are of use."""
        brought = [gives for gives, count in zip(self.gives, bag.counts, strict=True) for _ in range(min(count, most))]
        given = [frozenset({kind}) for kind in self._problem.given] if bag.task else []
        return (*brought, *given)

    def delivers(self, sinks: Sequence[int]) -> bool:
        """Whether the results nobody waits for, counted by group, are what the task asks for, no more and no less."""
        if not any(sinks):
            return False
        wanted = self._problem.wanted
        supplies = self._supplies(Bag(tuple(sinks)), len(wanted))
        return not wanted or (sum(sinks) == len(wanted) and not _missing(wanted, supplies))


def _uses(signature: Signature, given: Sequence[str] | frozenset[str]) -> bool:
    """Whether a tool can use a result; one that takes nothing is only put in order by what it waits for."""
    return not signature.takes or any(serves(given, kind) for kind in signature.takes)


@lru_cache(maxsize=4096)
def _missing(needs: tuple[str, ...], supplies: tuple[frozenset[str], ...]) -> str:
    """The first need that cannot be met when each thing meets one; ANY meets all."""
    if any(ANY in supply for supply in supplies):
        return ""
    held: dict[int, int] = {}
    for number, _ in enumerate(needs):
        if not _assign(number, needs, supplies, held, set()):
            return needs[number]
    return ""


def _assign(
    number: int, needs: tuple[str, ...], supplies: tuple[frozenset[str], ...], held: dict[int, int], tried: set[int]
) -> bool:
    """Find a thing for a need, moving others to other things where that helps (augmenting paths)."""
    for at, supply in enumerate(supplies):
        if at in tried or not serves(supply, needs[number]):
            continue
        tried.add(at)
        if at not in held or _assign(held[at], needs, supplies, held, tried):
            held[at] = number
            return True
    return False

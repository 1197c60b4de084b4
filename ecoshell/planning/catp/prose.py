"""A plan in what a model wrote: announced, explained behind it, within a code fence, told twice."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ecoshell.planning.catp.checks import MAX_NODES
from ecoshell.planning.catp.faults import PlanFault
from ecoshell.planning.catp.reading import Reader, Written
from ecoshell.planning.catp.scanner import Span, unfenced
from ecoshell.planning.catp.words import STRING

MAX_TEXT = 200_000
"""Characters of a text in which a plan is looked for."""
_BEGINNING = re.compile(r'\[\s*+(?:"|\[|SoP\s*+\])')
_TOKENS = re.compile(r"\[\s*+SoP\s*+\]")
_TOKENS_END = re.compile(r"\[\s*+EoP\s*+\]")
_PARTS = re.compile(rf"{STRING}?|[\[\]]", re.DOTALL)
"""What counts for where a list closes: brackets, and strings, which hide theirs; an open one hides all that follows."""
_BRACKET = re.compile(r"[\[\]]")


@dataclass(frozen=True, slots=True)
class _List:
    """What stands in brackets, from the first to the one that closes it."""

    span: Span
    likely: bool
    """Whether it begins as a plan does."""

    @property
    def rank(self) -> tuple[bool, int]:
        return self.likely, self.span[1] - self.span[0]


def find_plan(text: str, tools: Collection[str] | None = None, max_nodes: int = MAX_NODES) -> Written:
    """The plan in a text, with places in the whole of it; raises PlanFault where there is none, or no telling which.

    It is the longest of the lists that begin as a plan does. What reads like another must be a part of it, as where its
    nodes are explained; a second plan is a fault, and never is a part run in the place of the whole.
    """
    if len(text) > MAX_TEXT:
        raise PlanFault.at(text, MAX_TEXT, f"A plan is looked for in {MAX_TEXT:,} characters; here are {len(text):,}.")
    lists = list(_lists(text))
    if not lists:
        return Reader(text, unfenced(text), tools, max_nodes).written()
    longest = max(lists, key=lambda one: one.rank)
    reader = Reader(text, longest.span, tools, max_nodes)
    for other in lists:
        if other.likely and not _is_part(Reader(text, other.span, tools, MAX_NODES), reader):
            said = "There are two plans, and this is the shorter one: write one, as one list."
            raise PlanFault.at(text, other.span[0], said)
    return reader.written()


def _is_part(other: Reader, whole: Reader) -> bool:
    """Whether a list adds no node to the plan: it repeats some, or is none in the language."""
    try:
        nodes = other.nodes
    except PlanFault:
        return True
    return set(nodes) <= set(whole.nodes)


def _lists(text: str) -> Iterator[_List]:
    """The outermost lists; an opening bracket that prose never closes is passed over."""
    closing = _closing(text)
    at = text.find("[")
    while at >= 0:
        likely = _BEGINNING.match(text, at) is not None
        end = _end(text, at) if likely else closing.get(at)
        if end is not None:
            yield _List((at, end), likely)
        at = text.find("[", at + 1 if end is None else end)


def _end(text: str, start: int) -> int:
    """Where a plan ends that begins here; the text's end where it does not."""
    if _TOKENS.match(text, start):
        found = _TOKENS_END.search(text, start)
        return found.end() if found else len(text)
    depth = 0
    for part in _PARTS.finditer(text, start):
        depth += (part[0] == "[") - (part[0] == "]")
        if not depth:
            return part.end()
    return len(text)


def _closing(text: str) -> dict[int, int]:
    """Where each bracket's list has ended, when quotes mean nothing, as in prose."""
    opened: list[int] = []
    ends: dict[int, int] = {}
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "[":
            opened.append(bracket.start())
        elif opened:
            ends[opened.pop()] = bracket.end()
    return ends

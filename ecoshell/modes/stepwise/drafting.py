"""A plan of branches for a small model: the question is taken apart, and for each part the model chooses a tool.

What only a larger model could see is left out: a part waits for the one before it where its words refer back, else for
the question alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ecoshell.modes.stepwise import answering, spans
from ecoshell.planning.catp.base import TASK, GraphPlan, Node

_BACK = re.compile(
    r"\b(?:its|them|their)\b|\bthe (?:result|output|answer)s?\b|\b(?:of|in|from|to|with|into) (?:it|that|those)\b",
    re.IGNORECASE,
)
_LISTABLE: tuple[Callable[[str], list[str]], ...] = (spans.urls, spans.file_paths, spans.names)
_BETWEEN = r"(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*)"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a question asks for."""

    text: str
    request: int = 0
    """Which of the question's requests it belongs to: one may be made of several things at once."""
    refers: bool = False
    """Whether it speaks of what the request before it finds out."""


def taken_apart(question: str) -> list[Part]:
    """What the question asks for; what it asks of several files, addresses or places at once stands once for each."""
    found: list[Part] = []
    for number, request in enumerate(answering.parts(question)):
        refers = bool(found) and _BACK.search(request) is not None
        found += [Part(text, number, refers) for text in _one_each(request)]
    return found


def plan_of(chosen: Sequence[tuple[Part, str]]) -> tuple[GraphPlan, dict[str, Part]]:
    """The plan in which each part has a node with its tool; and the parts by the nodes' labels."""
    uses: Counter[str] = Counter()
    nodes: list[Node] = []
    parts: dict[str, Part] = {}
    for part, tool in chosen:
        uses[tool] += 1
        before = tuple(label for label, one in parts.items() if part.refers and one.request == part.request - 1)
        nodes.append(Node(tool, before or (TASK,), uses[tool]))
        parts[nodes[-1].label] = part
    return GraphPlan(tuple(nodes)), parts


def _one_each(request: str) -> list[str]:
    """The request once for each thing in the first list it has: `count a.txt` and `count b.txt`."""
    for find in _LISTABLE:
        named = sorted(find(request), key=len, reverse=True)
        if len(named) < 2:
            continue
        one = rf"[\"'`]?(?:{'|'.join(map(re.escape, named))})[\"'`]?(?!\w)"
        listed = re.search(rf"{one}(?:{_BETWEEN}{one})+", request)
        if listed:
            things = re.findall(one, listed.group())
            return [f"{request[: listed.start()]}{thing}{request[listed.end() :]}" for thing in things]
    return [request]

"""A parallel plan for a small model: the question is taken apart, and for each part the model chooses a tool.

What only a larger model could see is left out: a part waits for those before it that its words speak of, else for the
question alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ecoshell.modes.stepwise import parting, spans, sums
from ecoshell.modes.stepwise.referring import Number, references, said_out
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node

_LISTABLE: tuple[Callable[[str], list[str]], ...] = (
    spans.urls,
    spans.file_paths,
    spans.names,
    lambda request: [] if sums.worded(request) else spans.expressions(request),
)
_TOGETHER = frozenset({"average", "compare", "multiply", "sum", "total"})
"""Verbs of which it is not enough that the same is done to each thing of a list."""
_BETWEEN = r"(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*)"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a question asks for."""

    text: str
    after: tuple["Part", ...] = ()
    """The parts whose results its words speak of."""
    position: int = 0
    """Among the parts: two may say the same."""


def taken_apart(question: str, verbs: Collection[str] = ()) -> list[Part]:
    """What the question asks for; what it asks of several files, addresses or places at once stands once for each.

    `verbs` are words with which requests begin, beside the common ones.
    """
    groups: list[list[Part]] = []
    for request in parting.parts(question, verbs):
        said = said_out(request) if groups else request
        position = sum(map(len, groups))
        waits = _waits(said, groups)
        texts = _one_each(said)
        each = [(text, after) for text in texts for after in waits]
        groups.append([Part(text, after, at) for at, (text, after) in enumerate(each, position)])
        if len(texts) > 1 and (verb := parting.verb(said)) in _TOGETHER:
            groups.append([Part(f"{verb} them", tuple(groups[-1]), position + len(each))])
    return [part for group in groups for part in group]


def plan_of(chosen: Sequence[tuple[Part, str]]) -> tuple[GraphPlan, dict[str, Part]]:
    """The plan in which each part has a node with its tool; and the parts by the nodes' labels."""
    uses: Counter[str] = Counter()
    nodes: list[Node] = []
    labels: dict[Part, str] = {}
    for part, tool in chosen:
        uses[tool] += 1
        nodes.append(Node(tool, tuple(labels[one] for one in part.after) or (TASK,), uses[tool]))
        labels[part] = nodes[-1].label
    return GraphPlan(tuple(nodes)), {label: part for part, label in labels.items()}


def _waits(request: str, groups: Sequence[Sequence[Part]]) -> list[tuple[Part, ...]]:
    """What the request waits for: a group of parts for each time that it is to be done.

    Its words speak of so many parts as they say, of the last request's, or of all of the last that ask alike.
    """
    numbers: list[Number] = [one.number for one in references(request)] if groups else []
    if not numbers:
        return [()]
    count = max((one for one in numbers if isinstance(one, int)), default=0)
    last = groups[-1]
    spoken_of = list(last)
    if count:
        spoken_of = [part for group in groups for part in group][-count:]
    elif len(last) == 1 and {"all", "each"} & set(numbers):
        spoken_of = []
        for group in reversed(groups):
            if parting.verb(group[0].text) != parting.verb(last[0].text):
                break
            spoken_of[:0] = group
    return [(one,) for one in spoken_of] if "each" in numbers else [tuple(spoken_of)]


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

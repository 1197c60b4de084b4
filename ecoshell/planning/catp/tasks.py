"""The kinds of tasks of OpenCATP: what they give, and what they ask for (CATP-LLM §5.1)."""

from collections.abc import Mapping, Sequence

from ecoshell.planning.catp.rules import Problem
from ecoshell.planning.catp.types import IMAGE, TEXT, Signature

TASK_TYPES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((IMAGE,), (IMAGE,)),
    ((IMAGE,), (TEXT,)),
    ((TEXT,), (IMAGE,)),
    ((TEXT,), (TEXT,)),
    ((IMAGE, TEXT), (TEXT,)),
    ((TEXT, TEXT), (TEXT,)),
    ((IMAGE,), (IMAGE, TEXT)),
    ((IMAGE,), (TEXT, TEXT)),
    ((IMAGE,), (IMAGE, TEXT, TEXT)),
)
"""What is given and what is wanted, for every combination in the benchmark: six sequential ones, three branching."""
MAX_TOKENS = 40
"""Tokens that a plan of the benchmark may have."""


def problems(types: Mapping[str, tuple[Sequence[str], str]]) -> dict[str, Problem]:
    """A problem for each combination of types, by a name such as `image→text+text`.

    `types` tells the inputs and the output of each tool (constants.json); a tool stands in a plan once.
    """
    tools = {tool: Signature.strict(takes, gives) for tool, (takes, gives) in types.items()}
    return {
        f"{'+'.join(given)}→{'+'.join(wanted)}": Problem(tools, given, wanted, max_tokens=MAX_TOKENS, uses=1)
        for given, wanted in TASK_TYPES
    }

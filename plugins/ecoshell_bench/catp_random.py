"""The kinds of tasks of OpenCATP, and a random policy for them: each token drawn evenly from those that may come."""

from collections.abc import Mapping, Sequence
from random import Random

from ecoshell.planning.catp.masking import Draft
from ecoshell.planning.catp.plan import TASK, Node, PlanFault
from ecoshell.planning.catp.rules import Problem, faults
from ecoshell.planning.catp.tpl import CLOSE, END, OPEN, START, parse, token_word
from ecoshell.planning.catp.types import IMAGE, TEXT, Signature
from ecoshell_train.caorl_planner import MAX_TOKENS

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


def problems(types: Mapping[str, tuple[Sequence[str], str]]) -> dict[str, Problem]:
    """A problem for each combination of types, by a name such as `image→text+text` (CATP-LLM §5.1).

    `types` tells the inputs and the output of each tool (constants.json); a tool stands in a plan once.
    """
    tools = {tool: Signature.strict(takes, gives) for tool, (takes, gives) in types.items()}
    return {
        f"{'+'.join(given)}→{'+'.join(wanted)}": Problem(tools, given, wanted, max_tokens=MAX_TOKENS, uses=1)
        for given, wanted in TASK_TYPES
    }


def random_plan(problem: Problem, rng: Random, *, masked: bool = True) -> str:
    """A plan in the token form, drawn under the mask; empty when the problem has no solution.

    Not masked, it is drawn from the language's two heads as they are: any tool or [EoP], then any dependency or <EoD>
    (CATP-LLM, Table 4). What has no end at the length limit stays as it is.
    """
    if masked:
        draft = Draft(problem)
        while allowed := draft.next_tokens():
            draft.add(_drawn(allowed, rng))
        return " ".join(draft.tokens) if draft.finished else ""
    words = [token_word(Node(tool)) for tool in problem.tools]
    heads = [*(f"[{word}]" for word in words), END], [*(f"<{word}>" for word in words), TASK, CLOSE]
    tokens, head = [START], 0
    while len(tokens) <= (problem.max_tokens or MAX_TOKENS) and tokens[-1] != END:
        tokens.append(_drawn(heads[head], rng))
        if tokens[-1] == CLOSE:
            head = 0
        elif head == 0 and tokens[-1] != END:
            tokens.append(OPEN)
            head = 1
    return " ".join(tokens)


def valid(written: str, problem: Problem) -> bool:
    """Whether a text is a plan that solves the problem."""
    try:
        return not faults(parse(written), problem)
    except PlanFault:
        return False


def _drawn(tokens: Sequence[str], rng: Random) -> str:
    return tokens[int(rng.random() * len(tokens))]

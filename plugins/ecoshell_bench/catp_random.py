"""The task types of OpenCATP, and a random policy that draws each token uniformly from those allowed."""

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
"""Input and output types of every task in the benchmark: six sequential, three branching."""


def problems(types: Mapping[str, tuple[Sequence[str], str]]) -> dict[str, Problem]:
    """Return a problem for each task type by a name such as `image→text+text` (CATP-LLM §5.1).

    `types` has the inputs and the output of each tool (constants.json); a plan uses a tool at most once.
    """
    tools = {tool: Signature.strict(inputs, output) for tool, (inputs, output) in types.items()}
    return {
        f"{'+'.join(inputs)}→{'+'.join(outputs)}": Problem(
            tools, inputs, outputs, max_tokens=MAX_TOKENS, uses=1
        )
        for inputs, outputs in TASK_TYPES
    }


def random_plan(problem: Problem, rng: Random, *, masked: bool = True) -> str:
    """Draw a plan in token form under the mask; empty if the problem has no solution.

    Without the mask, tokens are drawn from the language's two heads: any tool or [EoP], then any dependency or <EoD>
    (CATP-LLM, Table 4). A plan that reaches the length limit may be incomplete.
    """
    if masked:
        draft = Draft(problem)
        while allowed := draft.next_tokens():
            draft.add(_draw(allowed, rng))
        return " ".join(draft.tokens) if draft.finished else ""
    words = [token_word(Node(tool)) for tool in problem.tools]
    heads = [*(f"[{word}]" for word in words), END], [*(f"<{word}>" for word in words), TASK, CLOSE]
    tokens, head = [START], 0
    while len(tokens) <= (problem.max_tokens or MAX_TOKENS) and tokens[-1] != END:
        tokens.append(_draw(heads[head], rng))
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


def _draw(tokens: Sequence[str], rng: Random) -> str:
    return tokens[int(rng.random() * len(tokens))]

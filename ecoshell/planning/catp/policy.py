"""The random policy: plans written token by token, each token drawn evenly from those that may come (SPEC §3)."""

from collections.abc import Callable
from random import Random

from ecoshell.planning.catp.base import TASK
from ecoshell.planning.catp.masking import CLOSE, END, OPEN, START, Mask
from ecoshell.planning.catp.published import PublishedMask

MOST_TOKENS = 40
"""Where a policy stops that need not end, when the problem has no limit: OpenCATP's."""

_Choices = Callable[[list[str]], list[str]]


def random_plan(mask: Mask, rng: Random, *, masked: bool = True) -> str:
    """A plan in the token form, drawn under the mask; empty when the problem has no solution.

    Not masked, it is drawn from the language's two heads as they are: any tool or [EoP], then any dependency or <EoD>
    (CATP-LLM, Table 4). What has no end at the length limit stays as it is.
    """
    if not masked:
        tools = [*mask.beginnings, END]
        dependencies = [*(f"<{token[1:-1]}>" for token in mask.beginnings), TASK, CLOSE]
        return _drawn_plan(lambda _: tools, lambda _: dependencies, mask, rng)
    draft = mask.draft()
    while allowed := draft.next_tokens():
        draft.add(_drawn(allowed, rng))
    return " ".join(draft.tokens) if draft.finished else ""


def published_plan(mask: Mask, rng: Random) -> str:
    """What is drawn under the rules in the authors' code; where these leave no token, the plan stays as it is."""
    published = PublishedMask(mask.problem)
    return _drawn_plan(published.tools, published.dependencies, mask, rng)


def _drawn_plan(tools: _Choices, dependencies: _Choices, mask: Mask, rng: Random) -> str:
    tokens, choices = [START], tools
    most = mask.problem.max_tokens or MOST_TOKENS
    while len(tokens) <= most and tokens[-1] != END and (allowed := choices(tokens)):
        tokens.append(_drawn(allowed, rng))
        if tokens[-1] == CLOSE:
            choices = tools
        elif choices is tools and tokens[-1] != END:
            tokens.append(OPEN)
            choices = dependencies
    return " ".join(tokens)


def _drawn(tokens: list[str], rng: Random) -> str:
    return tokens[int(rng.random() * len(tokens))]

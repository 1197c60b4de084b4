"""Choosing an action: which tool's name makes the request likely (a noisy channel), together with local ranking.

A small model asked for a name picks badly, but it knows how well a request goes with a name: the score of a tool is
log P(request | name) − log P(request | chat), plus its BM25 score, less a penalty when its parameters go badly with
what the request names (paths, addresses, units). Talking needs no tool and stands at zero.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files

from ecoshell.messages import Message
from ecoshell.models.base import Request, ScoreRequest

CHAT = "chat"
RANK_WEIGHT = 2.0
"""How much a point of BM25 counts against one of log-probability; calibrated with `CHAT_LEAD` on 32 plain requests."""
CHAT_LEAD = 3.0
"""How much likelier than talk a tool must make the request."""
MISFIT_COST = 6.0
"""What each way counts in which a tool's parameters do not go with the request (`arguments.misfits`)."""
SHORTLIST = 20
"""Names scored at most; with more tools, those that rank best."""
MOST_CHARACTERS = 600
"""How much of a long request is scored: its beginning says what is wanted."""


def shortlist(known: Sequence[str], ranked: Mapping[str, float]) -> tuple[str, ...]:
    """The names worth scoring: all of a small pool, else the best ranked; never none."""
    if len(known) <= SHORTLIST:
        return tuple(known)
    best = sorted(known, key=lambda name: -ranked.get(name, 0.0))
    return tuple(best[:SHORTLIST])


def score_request(request: str, names: Sequence[str]) -> ScoreRequest:
    """What to ask the model: the request after each name, and after `chat`, which comes last."""
    shots = (files("ecoshell.modes.stepwise") / "actions.md").read_text(encoding="utf-8").strip() + "\n"
    text = " ".join(request.split())[:MOST_CHARACTERS]
    contexts = tuple(f"{name.replace('_', ' ')}:" for name in (*names, CHAT))
    return ScoreRequest(shots, contexts, (f" {text}\n",) * len(contexts))


def as_foreseen(scoring: ScoreRequest) -> Request:
    """What scoring takes, as a request that can be estimated: it is all prompt."""
    scored = "".join((scoring.prefix, *scoring.contexts, *scoring.targets))
    return Request((Message("user", scored),), want="text", max_tokens=0, purpose="rank")


def totals(
    names: Sequence[str], logprobs: Sequence[float], ranked: Mapping[str, float], misfits: Mapping[str, int]
) -> dict[str, float]:
    """The score of each tool; `logprobs` are those of `score_request`, chat's the last."""
    *scores, chat = logprobs
    return {
        name: score - chat - CHAT_LEAD + RANK_WEIGHT * ranked.get(name, 0.0) - MISFIT_COST * misfits.get(name, 0)
        for name, score in zip(names, scores, strict=True)
    }


def best_name(scores: Mapping[str, float]) -> str | None:
    """The tool to use by its total, or None to talk."""
    best = max(scores, key=scores.__getitem__, default=None)
    return best if best is not None and scores[best] > 0 else None

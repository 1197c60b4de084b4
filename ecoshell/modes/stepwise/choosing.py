"""Choosing an action: which tool's name makes the request likely (a noisy channel), together with local ranking.

A small model asked for a name picks badly, but it knows how well a request goes with a name: the score of a tool is
log P(request | name) − log P(request | chat), plus its BM25 score, less a penalty when its parameters go badly with
what the request names (paths, addresses, units). Talking needs no tool and stands at zero.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from ecoshell.agent.approval import verbs
from ecoshell.agent.model_set import View
from ecoshell.events import Emit
from ecoshell.messages import META_TOOLS, Message, ToolDocument
from ecoshell.models import Request, ScoreRequest
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.stepwise import arguments, parting, referring, sums
from ecoshell.modes.stepwise.drafting import Part

Rank = Callable[[str], Sequence[tuple[str, float]]]
"""Names of the tools that fit a request and their scores, best first."""

CHAT = "chat"
RANK_WEIGHT = 2.0
"""How much a point of BM25 counts against one of log-probability; calibrated with `CHAT_LEAD` on 32 plain requests."""
CHAT_LEAD = 3.0
"""How much likelier than talk a tool must make the request."""
MISFIT_COST = 6.0
"""What each way counts in which a tool's parameters do not go with the request (`arguments.misfits`)."""
SHORTLIST = 20
"""Names scored at most; with more tools, those that rank best."""
ASKED_FOR = 0.5
"""The BM25 score from which a request names a tool by its words; a file's name alone scores less."""
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


class Choice(NamedTuple):
    """The tool for a part of a question; None to talk."""

    name: str | None
    withheld: str = ""
    """A tool that fits better, and is not to be guessed at: the part does not begin by saying what it does."""


class Chooser:
    """Chooses tools for parts of a question with one model."""

    def __init__(
        self,
        model: MeteredModel,
        *,
        rank: Rank,
        document: Callable[[str], ToolDocument],
        guarded: Callable[[str], bool],
    ) -> None:
        """`rank` is local ranking; `document` gives any known tool's document; `guarded` says of which no use is to be
        guessed at.
        """
        self._model = model
        self._rank = rank
        self._document = document
        self._guarded = guarded

    async def tool(
        self, part: Part, view: View, emit: Emit, *, role: str, within: str, failed: Collection[str] = ()
    ) -> Choice:
        """The tool whose name makes this part of the question likely, of those not tried yet.

        `within` is where what it needs may stand; a part that speaks of others needs what they name. Where it names a
        file or an address there is no talk, but what takes that, and that alone once others have `failed`.
        """
        ranked, tried = dict(self._rank(part.text)), {one.call.subject for one in view.tried} | set(failed)
        usable = [name for name in view.usable if name not in META_TOOLS and name not in tried]
        names = shortlist(usable, ranked)
        if view.along:  # what is asked about is here already, so a tool must be asked for by its words
            names = tuple(name for name in names if ranked.get(name, 0.0) >= ASKED_FOR)
        if not names:
            return Choice(None)
        scores = await self.scores(part, names, emit, role=role, within=within)
        begins, open_ = parting.verb(part.text).split(), dict(scores)
        for name in scores:  # one that is not to be guessed at is asked for by what the part begins with
            if self._guarded(name) and verbs([self._document(name)]).isdisjoint(begins):
                del open_[name]
        best, found = best_name(scores), None if failed else best_name(open_)
        if found is None and not view.along and not view.tried:
            taking = [name for name in open_ if arguments.takes_named(self._document(name), part.text)]
            found = max(taking, key=open_.__getitem__, default=None)
        return Choice(found, best if best is not None and best not in open_ else "")

    async def scores(self, part: Part, names: Sequence[str], emit: Emit, *, role: str, within: str) -> dict[str, float]:
        """How well each tool goes with the part; `within` is as for `tool`.

        A part that speaks of others goes with a tool as it would be said with their results.
        """
        found = await self._model.score(score_request(part.text, names), emit, role=role)
        misfits: dict[str, int] = {}
        for name, document in ((name, self._document(name)) for name in names):
            if part.after:
                named = " ".join(one.text for one in (*part.after, part))
                things = ["2"] * max(len(part.after), referring.furthest(part.text))
                work = sums.expressions(referring.replaced(part.text, things))
                idle = bool(work) and not arguments.takes(document, sums.expressions)
                misfits[name] = min(arguments.misfits(document, text) for text in (part.text, named)) + idle
            else:
                misfits[name] = arguments.misfits(document, within)
        return totals(names, found.logprobs, dict(self._rank(part.text)), misfits)

"""What registering by name saves on recorded runs, per number of tools (EcoAct §3.2, Figure 3).

Each run, or session of several, gets a pool of tools: those it used and a plain random draw of others. Policies:

- all: every document in the tool array from the start;
- all_text: every document as text from the start, in the compact form;
- grow, stable: names only, in that presentation;
- auto: what the shell decides from the question, the documents and the prices alone (catalog/registration);
- oracle: knows what will be used and has exactly that registered up front, in the cheaper of the two presentations.
"""

import random
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from ecoshell.budget.price import Rates
from ecoshell.catalog.presentation import GROW, PLAIN, STABLE, TEXT, Presentation, few_words
from ecoshell.catalog.registration import Decision, Policy, Workload, candidates_of, decide
from ecoshell.catalog.search import Ranker
from ecoshell.messages import ToolDocument, Usage
from ecoshell_bench.replay import Bill, Scenario, Session
from ecoshell_bench.trajectories import RecordedRun, Tools

POLICIES = ("all", "all_text", "grow", "stable", "auto", "oracle")


@dataclass(frozen=True, slots=True)
class Setting:
    """How runs are replayed; `rates` are relative to the price of an input token, `count` counts a text's tokens, and
    `system` is what a model is told first.

    `wrong` is the chance that a question registers a tool it does not need before the first that it does; `questions`
    is how many runs make a session.
    """

    rates: Rates
    count: Callable[[str], int]
    system: Callable[[Presentation], str]
    seed: int = 0
    wrong: float = 0.0
    questions: int = 1

    def price(self, usage: Usage) -> Decimal:
        """What the usage costs, in prices of an input token."""
        fresh = usage.input - usage.cached - usage.cache_write
        read = fresh * self.rates.input + usage.cached * self.rates.cached_input
        return read + usage.cache_write * self.rates.cache_write + usage.output * self.rates.output


@dataclass(slots=True)
class Total:
    """Sums over runs under one policy; `documents` counts the documents registered by the end of each."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    documents: int = 0

    def add(self, bill: Bill, documents: int) -> None:
        """Add one run."""
        self.usage += bill.usage
        self.calls += bill.calls
        self.documents += documents


@dataclass(slots=True)
class PoolResult:
    """All policies at one pool size, and what `auto` did: its choices, its documents up front, those that were used."""

    pool: int
    runs: int = 0
    """Sessions, where these have several questions."""
    totals: dict[str, Total] = field(default_factory=lambda: {policy: Total() for policy in POLICIES})
    chosen: Counter[str] = field(default_factory=Counter[str])
    upfront: int = 0
    upfront_used: int = 0
    excess: list[Decimal] = field(default_factory=list[Decimal])
    """Of each run, what `auto` cost beside registering everything in the cheaper of the two forms, less 1."""

    def saving(self, policy: str, setting: Setting) -> Decimal:
        """The share of the cost of registering everything that a policy saves; negative when it is dearer."""
        return 1 - setting.price(self.totals[policy].usage) / setting.price(self.totals["all"].usage)

    @property
    def losing(self) -> float:
        """The share of runs in which `auto` costs more than registering everything."""
        return sum(one > 0 for one in self.excess) / len(self.excess) if self.excess else 0.0

    @property
    def worst(self) -> float:
        """How much more it costs in the worst of them."""
        return max(0.0, float(max(self.excess, default=Decimal(0))))


def measure_pools(
    runs: Sequence[RecordedRun], tools: Tools, pools: Sequence[int], setting: Setting
) -> Iterator[PoolResult]:
    """One result per pool size, in order; a session that used more tools than a pool holds has no place in it."""
    for size in pools:
        result = PoolResult(size)
        for session in sessions_of(runs, setting):
            if len(_used(session)) <= size:
                _measure(session, draw_pool(session, tools, size, setting.seed), setting, result)
        yield result


def sessions_of(runs: Sequence[RecordedRun], setting: Setting) -> list[tuple[RecordedRun, ...]]:
    """Each run at the beginning of a session, and others drawn to follow it, none twice."""
    sessions: list[tuple[RecordedRun, ...]] = []
    for run in runs:
        others = [one for one in runs if one is not run]
        draw = random.Random(f"{setting.seed}/{run.id}/session")
        sessions.append((run, *draw.sample(others, min(setting.questions - 1, len(others)))))
    return sessions


def draw_pool(session: Sequence[RecordedRun], tools: Tools, size: int, seed: int) -> list[ToolDocument]:
    """What the runs used and a random draw of what they did not, up to `size`, shuffled; the same for the same seed."""
    draw = random.Random(f"{seed}/{'+'.join(run.id for run in session)}/{size}")
    used = _used(session)
    others = [name for name in tools.documents if name not in used]
    names = [*used, *draw.sample(others, max(0, min(size - len(used), len(others))))]
    draw.shuffle(names)
    return [tools.documents[name] for name in names]


def decide_for(
    question: str,
    pool: Sequence[ToolDocument],
    setting: Setting,
    *,
    presentation: Literal["auto", "grow", "stable"] = "auto",
    history: int = 0,
    registered: Container[str] = (),
) -> Decision:
    """The shell's own decision, which knows the question, the documents and the prices, and nothing of the run.

    `history` is the tokens of earlier questions of the session, `registered` what these have registered.
    """
    work = Workload(base=setting.count(setting.system(PLAIN)) + history + setting.count(question))
    documents = [document for document in pool if document.name not in registered]
    candidates = candidates_of(documents, Ranker(pool).chances(question), setting.count)
    return decide(candidates, setting.rates, work, Policy(presentation=presentation))


def _used(session: Sequence[RecordedRun]) -> dict[str, None]:
    """The catalog's tools that were used, in the order of their first use."""
    return dict.fromkeys(name for run in session for name in run.used)


def _measure(runs: Sequence[RecordedRun], pool: Sequence[ToolDocument], setting: Setting, result: PoolResult) -> None:
    """Add one session, under all policies, to the result."""
    result.runs += 1

    def replayed(presentation: Presentation, upfront: Callable[[RecordedRun], Sequence[ToolDocument]]) -> Session:
        session = Session(Scenario(presentation, setting.system(presentation), setting.count), pool)
        for run in runs:
            session.ask(run, upfront(run), wrong=_wrong(run, pool, session, setting))
        return session

    def used(run: RecordedRun) -> list[ToolDocument]:
        return [document for document in pool if document.name in run.used]

    def price(session: Session) -> Decimal:
        return setting.price(session.bill.usage)

    found = {
        "all": replayed(PLAIN, lambda _: pool),
        "all_text": replayed(TEXT, lambda _: pool),
        "grow": replayed(GROW, lambda _: ()),
        "stable": replayed(STABLE, lambda _: ()),
        "auto": _auto(runs, pool, setting, result),
        "oracle": min((replayed(one, used) for one in (GROW, STABLE)), key=price),
    }
    for policy, session in found.items():
        result.totals[policy].add(session.bill, len(session.registered))
    result.excess.append(price(found["auto"]) / min(price(found["all"]), price(found["all_text"])) - 1)


def _auto(runs: Sequence[RecordedRun], pool: Sequence[ToolDocument], setting: Setting, result: PoolResult) -> Session:
    """A session as the shell decides it, question by question; it keeps its presentation."""
    first = decide_for(runs[0].query, pool, setting)
    session = Session(Scenario(first.presentation, setting.system(first.presentation), setting.count), pool)
    result.chosen[first.presentation.name] += 1
    about = {document.name: few_words(document) for document in pool} if first.plan.described else {}
    for run in runs:
        decision = first
        if run is not runs[0]:
            kept = "grow" if first.presentation in (GROW, PLAIN) else "stable"
            decision = decide_for(
                run.query,
                pool,
                setting,
                presentation=kept,
                history=session.history,
                registered=session.registered,
            )
        upfront = [document for document in pool if document.name in decision.upfront]
        session.ask(run, upfront, about=about, wrong=_wrong(run, pool, session, setting))
        result.upfront += len(upfront)
        result.upfront_used += len({*decision.upfront} & {*run.used})
    return session


def _wrong(run: RecordedRun, pool: Sequence[ToolDocument], session: Session, setting: Setting) -> str:
    """The tool that this run registers without need; the same under every policy, unless that has it already."""
    draw = random.Random(f"{setting.seed}/{run.id}/wrong")
    if draw.random() >= setting.wrong:
        return ""
    names = [document.name for document in pool if document.name not in run.used]
    draw.shuffle(names)
    return next((name for name in names if name not in session.registered), "")

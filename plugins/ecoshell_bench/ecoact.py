"""`ecoshell bench ecoact`: what registering by name saves on recorded runs, by number of tools (EcoAct §3.2, Figure 3)

Each run, or session of several, gets a pool of tools: those it used and a plain random draw of others. Policies:

- all: every document in the tool array from the start;
- all_text: every document as text from the start, in the compact form;
- grow, stable: names only, in that presentation;
- auto: what the shell decides from the question, the documents and the prices alone (catalog/registration);
- oracle: knows what will be used and has exactly that registered up front, in the cheaper of the two presentations.

What a run would have cost is counted without a model, request by request, as providers bill and the shell sends:

- A prompt is the tool array, then the system prompt, then the conversation, as providers put them. What it has in
  common with the prompt before it, from the first token on, is read from the cache; the rest is written to it.
- There is no `finish`, as where no strategy searches; an answer is text.
- A registration is a model call of its own: the whole prompt once more, and a short call as output. Recorded thoughts
  stay with the calls they were recorded with.
- A tool is registered right before its first use. A tool that the catalog does not have needs no registration.
- Several runs may be the questions of one session: what was said, registered and cached stays.
- A cache holds for the whole session, and begins empty with each.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal

from ecoshell.budget import Rates, plain
from ecoshell.catalog import (
    GROW,
    PLAIN,
    STABLE,
    TEXT,
    Decision,
    Policy,
    Presentation,
    Workload,
    candidates_of,
    decide,
    few_words,
)
from ecoshell.catalog.search import Ranker
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, ToolDocument, Usage
from ecoshell.modes.requests import system_text
from ecoshell_bench.printing import counting, show, table
from ecoshell_bench.reading import RecordedRun, Tools, read_runs, read_tools

POLICIES = ("all", "all_text", "grow", "stable", "auto", "oracle")
PER_MESSAGE = 3
"""Tokens of a message's frame, as the shell counts them for remote models."""


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    tools = read_tools(args.catalog)
    pools = list(dict.fromkeys(min(pool, len(tools.documents)) for pool in args.pools))  # no row of more than there are
    runs = read_runs(args.replay, tools)[: args.limit]
    one = Decimal(1)  # without cache prices, every token of a prompt costs 1
    cached = one if args.cached_price is None else args.cached_price
    written = one if args.cache_write_price is None else args.cache_write_price
    rates = Rates(one, cached, written, args.output_price, args.output_price)
    with counting("gpt-4") as (count, tokenizer):
        setting = Setting(rates, count, system_text, args.seed, args.wrong, args.questions)
        results = list(measure_pools(runs, tools, pools, setting))
    measured = results, setting, tokenizer
    show(json.dumps(as_record(*measured)) if args.json else as_text(*measured))
    return 0


@dataclass(slots=True)
class Bill:
    """Adds up the usage of one run's calls; `calls` counts them."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    _array: int = 0
    _messages: int = 0

    def call(self, array: int, messages: int, output: int) -> None:
        """One request with these tokens of tool array and messages; both only ever grow, and the array stands first."""
        cached = self._array + (self._messages if array == self._array else 0)
        prompt = array + messages
        self.usage += Usage(input=prompt, output=output, cached=cached, cache_write=prompt - cached)
        self.calls += 1
        self._array, self._messages = array, messages


class Session:
    """Runs, one after another, on their way from question to answer; `count` counts the tokens of a text."""

    def __init__(
        self, presentation: Presentation, system: str, count: Callable[[str], int], pool: Sequence[ToolDocument]
    ) -> None:
        """A session that knows the tools of `pool` by name."""
        self.bill = Bill()
        self.registered: dict[str, ToolDocument] = {}
        self._presentation = presentation
        self._count = count
        self._known = {document.name: document for document in pool}
        self._asked = False
        self._array = self._array_tokens()
        self.history = count(system) + PER_MESSAGE
        """Tokens of all messages so far, the system prompt's included."""

    def ask(
        self,
        run: RecordedRun,
        upfront: Sequence[ToolDocument] = (),
        *,
        about: Mapping[str, str] | None = None,
        wrong: str = "",
    ) -> None:
        """One question with its run; documents of `upfront` are put there with it, and `about` goes with the names.

        `wrong` is a tool that is registered as well, before the first one that is needed and not there.
        """
        names = () if self._asked else tuple(self._known)
        self._asked = True
        fresh = [document for document in upfront if document.name not in self.registered]
        self.registered |= {document.name: document for document in fresh}
        self._array = self._array_tokens()
        listing = self._presentation.opening(names, fresh, about=about)
        self.history += self._count(f"{listing}\n\n{run.query}" if listing else run.query) + PER_MESSAGE
        for step in run.steps:
            if step.tool is not None and step.tool not in self.registered:
                if wrong and wrong not in self.registered:
                    self._register(self._known[wrong])
                wrong = ""
                self._register(self._known[step.tool])
            call = _call_text(step.called, step.arguments)
            if self._presentation in (STABLE, TEXT):
                call = _call_text(TOOL_CALL, call)
            self._exchange(step.thought, call, step.observation)
        self._exchange("", run.answer, "")

    def _register(self, document: ToolDocument) -> None:
        call = _call_text(TOOL_REGISTER, json.dumps({"tool_name": document.name}, ensure_ascii=False))
        self._exchange("", call, self._presentation.registration_result(document))
        self.registered[document.name] = document
        self._array = self._array_tokens()

    def _array_tokens(self) -> int:
        array = self._presentation.array([*self.registered.values()], finish=False)
        return sum(self._count(document.entry) for document in array)

    def _exchange(self, thought: str, call: str, observation: str) -> None:
        """One request, its reply, and what both leave in the conversation."""
        output = self._count(thought) + self._count(call)
        self.bill.call(self._array, self.history, output)
        self.history += output + PER_MESSAGE + self._count(observation) + PER_MESSAGE


def _call_text(name: str, arguments: str) -> str:
    """A call as chat templates print it."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}'


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

    def session(self, presentation: Presentation, pool: Sequence[ToolDocument]) -> Session:
        """A session that begins."""
        return Session(presentation, self.system(presentation), self.count, pool)


@dataclass(slots=True)
class Total:
    """Sums over runs under one policy; `documents` counts the documents registered by the end of each."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    documents: int = 0


@dataclass(slots=True)
class PoolResult:
    """All policies at one pool size, and what `auto` did: its choices, its schemas up front, those that were used."""

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


def _used(session: Sequence[RecordedRun]) -> dict[str, None]:
    """The catalog's tools that were used, in the order of their first use."""
    return dict.fromkeys(name for run in session for name in run.used)


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
    candidates = candidates_of(documents, Ranker(pool).chances(question), lambda texts: [*map(setting.count, texts)])
    return decide(candidates, setting.rates, work, Policy(presentation=presentation))


def _measure(runs: Sequence[RecordedRun], pool: Sequence[ToolDocument], setting: Setting, result: PoolResult) -> None:
    """Add one session, under all policies, to the result."""
    result.runs += 1

    def replayed(presentation: Presentation, upfront: Callable[[RecordedRun], Sequence[ToolDocument]]) -> Session:
        session = setting.session(presentation, pool)
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
        total = result.totals[policy]
        total.usage += session.bill.usage
        total.calls += session.bill.calls
        total.documents += len(session.registered)
    result.excess.append(price(found["auto"]) / min(price(found["all"]), price(found["all_text"])) - 1)


def _auto(runs: Sequence[RecordedRun], pool: Sequence[ToolDocument], setting: Setting, result: PoolResult) -> Session:
    """A session as the shell decides it, question by question; it keeps its presentation."""
    decision = decide_for(runs[0].query, pool, setting)
    first = decision.plan
    session = setting.session(first.presentation, pool)
    result.chosen[first.presentation.name] += 1
    about = {document.name: few_words(document) for document in pool} if first.described else {}
    kept = "grow" if first.presentation in (GROW, PLAIN) else "stable"
    for run in runs:
        if run is not runs[0]:
            there = session.registered
            decision = decide_for(
                run.query, pool, setting, presentation=kept, history=session.history, registered=there
            )
        upfront = [document for document in pool if document.name in decision.plan.upfront]
        session.ask(run, upfront, about=about, wrong=_wrong(run, pool, session, setting))
        result.upfront += len(upfront)
        result.upfront_used += len({*decision.plan.upfront} & {*run.used})
    return session


def _wrong(run: RecordedRun, pool: Sequence[ToolDocument], session: Session, setting: Setting) -> str:
    """The tool that this run registers without need; the same under every policy, unless that has it already."""
    draw = random.Random(f"{setting.seed}/{run.id}/wrong")
    if draw.random() >= setting.wrong:
        return ""
    names = [document.name for document in pool if document.name not in run.used]
    draw.shuffle(names)
    return next((name for name in names if name not in session.registered), "")


def as_record(results: Sequence[PoolResult], setting: Setting, tokenizer: str) -> dict[str, Any]:
    """One object: rows by pool, tokenizer and prices. Costs are the mean of a run, in prices of an input token."""

    def row(result: PoolResult) -> dict[str, Any]:
        runs, totals = max(1, result.runs), result.totals
        saved = {policy: round(float(result.saving(policy, setting)), 4) for policy in POLICIES if result.runs}
        return {
            "pool": result.pool,
            "runs": result.runs,
            "cost": {policy: round(float(setting.price(total.usage) / runs), 2) for policy, total in totals.items()},
            "saving": saved,
            "loses": {"share": round(result.losing, 4), "worst": round(result.worst, 4)},
            "registered": round(totals["grow"].documents / runs, 3),
            "tokens": {policy: _tokens(total, runs) for policy, total in totals.items()},
            "auto": {
                "presentations": dict(result.chosen),
                "upfront": round(result.upfront / runs, 3),
                "upfront_used": round(result.upfront_used / runs, 3),
            },
        }

    return {
        "rows": list(map(row, results)),
        "tokenizer": tokenizer,
        "prices": {name: float(rate) for name, rate in asdict(setting.rates).items()},
        "unit": "prices of an input token, per run",
        "seed": setting.seed,
        "wrong": setting.wrong,
        "questions": setting.questions,
    }


def as_text(results: Sequence[PoolResult], setting: Setting, tokenizer: str) -> str:
    """The same for people: a table of the policies at each size, and what `auto` did."""
    rows: list[dict[str, Any]] = []
    about: list[str] = []
    for result in results:
        if not result.runs:
            about.append(f"{result.pool} tools: every run used more tools than this")
            continue
        for policy, total in result.totals.items():
            cost, saving = float(setting.price(total.usage) / result.runs), float(result.saving(policy, setting))
            figures = {"cost": cost, "saving": saving, **_tokens(total, result.runs)}
            rows.append({"policy": policy, "tools": result.pool, **figures})
        choices = ", ".join(f"{name} in {count}" for name, count in result.chosen.most_common())
        about.append(
            f"{result.pool} tools: of {result.runs} runs, auto chose {choices}; {result.upfront} schemas up front, "
            f"{result.upfront_used} of them used; dearer than registering everything in {result.losing:.1%}, by "
            f"{result.worst:.1%} at most"
        )
    rates = setting.rates
    prices = f"cached input {plain(rates.cached_input)}, cache write {plain(rates.cache_write)}"
    about += [
        f"Mean of a run, in prices of an input token: {prices}, output {plain(rates.output)}. Saving: against all.",
        f"Tokens by {tokenizer}; other tools drawn with seed {setting.seed}.",
    ]
    return "\n".join((*table(rows), "", *about))


def _tokens(total: Total, runs: int) -> dict[str, float]:
    """What a run reads and writes on average; `fresh` is all of the prompts that was not found in the cache."""
    use = total.usage
    counts = {"calls": total.calls, "fresh": use.input - use.cached, "cached": use.cached, "output": use.output}
    return {name: round(count / runs, 2) for name, count in {**counts, "documents": total.documents}.items()}

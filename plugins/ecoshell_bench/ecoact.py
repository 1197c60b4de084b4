"""`ecoshell bench ecoact`: savings of registration by name on recorded runs, by number of tools (EcoAct §3.2, Figure 3)

Each session of one or more runs gets a pool of tools: those it used and a uniform random draw of others. Policies:

- all: every tool schema in the tool array from the start;
- all_text: every tool schema as text from the start, in the compact form;
- grow, stable: names only, in that presentation;
- auto: the shell's decision for a model without native calls, from the question and
  the schemas (catalog/loading_decision);
- oracle: loads exactly the tools that will be used, in the cheaper of the two presentations.

The cost is computed without a model, request by request, as the shell sends requests and providers bill them:

- A prompt is the tool array, then the system prompt, then the conversation. Its longest common prefix with the
  previous prompt is read from the cache; the remaining tokens are written to it.
- An answer is text, not a `finish` call, as in strategies without search.
- A registration is a separate model call: the complete prompt again, and a short call as output. Recorded thoughts
  stay with their recorded calls.
- A tool is registered right before its first use. A tool that is not in the catalog needs no registration.
- The runs of a session share the conversation, registered tools and cache.
- The cache never expires within a session and starts empty.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal

from ecoshell.budget import Rates, plain
from ecoshell.catalog import (
    GROW,
    PLAIN,
    STABLE,
    TEXT,
    LoadingDecision,
    LoadingPolicy,
    Presentation,
    candidates_of,
    decide_loading,
)
from ecoshell.catalog.search import Ranker
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, ToolSchema, Usage
from ecoshell.modes.requests import system_text
from ecoshell_bench.printing import counting, show, table
from ecoshell_bench.reading import RecordedRun, Tools, read_runs, read_tools

POLICIES = ("all", "all_text", "grow", "stable", "auto", "oracle")
TOKENS_PER_MESSAGE = 3
"""The overhead of a message, as the shell counts it for remote models."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    tools = read_tools(args.catalog)
    pools = list(dict.fromkeys(min(pool, len(tools.schemas)) for pool in args.pools))
    runs = read_runs(args.replay, tools)[: args.limit]
    unit = Decimal(1)  # the input price, and the default for reading and writing the cache
    cached = unit if args.cached_price is None else args.cached_price
    cache_write = unit if args.cache_write_price is None else args.cache_write_price
    rates = Rates(unit, cached, cache_write, args.output_price, args.output_price)
    with counting("gpt-4") as (count, tokenizer):
        setting = Setting(rates, count, system_text, args.seed, args.wrong, args.questions)
        results = list(measure_pools(runs, tools, pools, setting))
    format_results = as_json if args.json else as_text
    show(format_results(results, setting, tokenizer))
    return 0


@dataclass(slots=True)
class Bill:
    """The total usage and number of the model calls of a session."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    _array: int = 0
    _messages: int = 0

    def call(self, array: int, messages: int, output: int) -> None:
        """Add a request with these token counts; both parts only grow, and the tool array comes first."""
        cached = self._array + (self._messages if array == self._array else 0)
        prompt = array + messages
        self.usage += Usage(input=prompt, output=output, cached=cached, cache_write=prompt - cached)
        self.calls += 1
        self._array, self._messages = array, messages


class Session:
    """Replays runs as the questions of one session; `count` counts the tokens of a text."""

    def __init__(
        self,
        presentation: Presentation,
        system: str,
        count: Callable[[str], int],
        pool: Sequence[ToolSchema],
    ) -> None:
        """Start a session that knows the tools of `pool` by name."""
        self.bill = Bill()
        self.registered: dict[str, ToolSchema] = {}
        self._presentation = presentation
        self._count = count
        self._pool = {schema.name: schema for schema in pool}
        self._is_first_question = True
        self._array = self._array_tokens()
        self.history = count(system) + TOKENS_PER_MESSAGE
        """Tokens of all messages so far, including the system prompt."""

    def ask(
        self,
        run: RecordedRun,
        loaded: Sequence[ToolSchema] = (),
        *,
        wrong: str = "",
    ) -> None:
        """Replay a run; the `loaded` tool schemas come with the question.

        `wrong` is an unneeded tool that is registered before the first needed one that is not loaded.
        """
        names = tuple(self._pool) if self._is_first_question else ()
        self._is_first_question = False
        new = [schema for schema in loaded if schema.name not in self.registered]
        self.registered |= {schema.name: schema for schema in new}
        self._array = self._array_tokens()
        listing = self._presentation.opening(names, new)
        self.history += (
            self._count(f"{listing}\n\n{run.query}" if listing else run.query) + TOKENS_PER_MESSAGE
        )
        for step in run.steps:
            if step.tool is not None and step.tool not in self.registered:
                if wrong and wrong not in self.registered:
                    self._register(self._pool[wrong])
                wrong = ""
                self._register(self._pool[step.tool])
            call = _call_text(step.called, step.arguments)
            if self._presentation in (STABLE, TEXT):
                call = _call_text(TOOL_CALL, call)
            self._exchange(step.thought, call, step.observation)
        self._exchange("", run.answer, "")

    def _register(self, schema: ToolSchema) -> None:
        call = _call_text(TOOL_REGISTER, json.dumps({"tool_name": schema.name}, ensure_ascii=False))
        self._exchange("", call, self._presentation.registration_result(schema))
        self.registered[schema.name] = schema
        self._array = self._array_tokens()

    def _array_tokens(self) -> int:
        array = self._presentation.array([*self.registered.values()], finish=False)
        return sum(self._count(schema.entry) for schema in array)

    def _exchange(self, thought: str, call: str, observation: str) -> None:
        """Bill a request and its reply, and add the reply and the observation to the conversation."""
        output = self._count(thought) + self._count(call)
        self.bill.call(self._array, self.history, output)
        self.history += output + TOKENS_PER_MESSAGE + self._count(observation) + TOKENS_PER_MESSAGE


def _call_text(name: str, arguments: str) -> str:
    """Format a call as chat templates do."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}'


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a replay."""

    rates: Rates
    """Prices relative to that of an input token."""
    count: Callable[[str], int]
    """Counts the tokens of a text."""
    system: Callable[[Presentation], str]
    """Returns the system prompt."""
    seed: int = 0
    wrong: float = 0.0
    """The probability that a question registers an unneeded tool."""
    questions: int = 1
    """Runs per session."""

    def price(self, usage: Usage) -> Decimal:
        """Return the price of the usage, in prices of an input token."""
        uncached = usage.input - usage.cached - usage.cache_write
        prompt = uncached * self.rates.input + usage.cached * self.rates.cached_input
        return (
            prompt + usage.cache_write * self.rates.cache_write + usage.output * self.rates.output
        )

    def session(self, presentation: Presentation, pool: Sequence[ToolSchema]) -> Session:
        """Start a session."""
        return Session(presentation, self.system(presentation), self.count, pool)


@dataclass(slots=True)
class Total:
    """Sums over sessions under one policy; `schemas` counts the tool schemas registered at the end of each."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    schemas: int = 0


@dataclass(slots=True)
class PoolResult:
    """The totals of all policies at one pool size, and the decisions of `auto`."""

    pool: int
    runs: int = 0
    """The number of sessions."""
    totals: dict[str, Total] = field(
        default_factory=lambda: {policy: Total() for policy in POLICIES}
    )
    presentations: Counter[str] = field(default_factory=Counter[str])
    """Presentations chosen by `auto`."""
    loaded: int = 0
    """Tool schemas that `auto` loaded with the questions."""
    loaded_used: int = 0
    excess: list[Decimal] = field(default_factory=list[Decimal])
    """The relative extra cost of `auto` over the cheaper form of registering everything, for each session."""

    def saving(self, policy: str, setting: Setting) -> Decimal:
        """Return the share of the cost of `all` that a policy saves; negative if it costs more."""
        return 1 - setting.price(self.totals[policy].usage) / setting.price(
            self.totals["all"].usage
        )

    @property
    def losing(self) -> float:
        """The share of sessions in which `auto` costs more than registering everything."""
        return sum(extra > 0 for extra in self.excess) / len(self.excess) if self.excess else 0.0

    @property
    def worst(self) -> float:
        """The largest relative extra cost of `auto`."""
        return max(0.0, float(max(self.excess, default=Decimal(0))))


def measure_pools(
    runs: Sequence[RecordedRun], tools: Tools, pools: Sequence[int], setting: Setting
) -> Iterator[PoolResult]:
    """Yield one result per pool size; sessions that used more tools than the pool holds are skipped."""
    for size in pools:
        result = PoolResult(size)
        for session in sessions_of(runs, setting):
            if len(_used(session)) <= size:
                _measure(session, draw_pool(session, tools, size, setting.seed), setting, result)
        yield result


def sessions_of(runs: Sequence[RecordedRun], setting: Setting) -> list[tuple[RecordedRun, ...]]:
    """Return a session for each run: the run itself, followed by a random draw of other runs."""
    sessions: list[tuple[RecordedRun, ...]] = []
    for run in runs:
        candidates = [other for other in runs if other is not run]
        rng = random.Random(f"{setting.seed}/{run.id}/session")
        sessions.append((run, *rng.sample(candidates, min(setting.questions - 1, len(candidates)))))
    return sessions


def draw_pool(
    session: Sequence[RecordedRun], tools: Tools, size: int, seed: int
) -> list[ToolSchema]:
    """Return the used tools and a random draw of unused ones up to `size`, shuffled; reproducible by the seed."""
    rng = random.Random(f"{seed}/{'+'.join(run.id for run in session)}/{size}")
    used = _used(session)
    unused = [name for name in tools.schemas if name not in used]
    names = [*used, *rng.sample(unused, max(0, min(size - len(used), len(unused))))]
    rng.shuffle(names)
    return [tools.schemas[name] for name in names]


def _used(session: Sequence[RecordedRun]) -> dict[str, None]:
    """Return the used tools of the catalog, in the order of their first use."""
    return dict.fromkeys(name for run in session for name in run.used)


def decide_for(
    question: str,
    pool: Sequence[ToolSchema],
    setting: Setting,
    *,
    presentation: Literal["auto", "grow", "stable"] = "auto",
    registered: Container[str] = (),
) -> LoadingDecision:
    """Return the shell's decision from the question and the tool schemas, without looking at the run.

    `registered` are the tools that earlier questions of the session registered.
    """
    schemas = [schema for schema in pool if schema.name not in registered]
    policy = LoadingPolicy(presentation=presentation, is_first=presentation == "auto")
    candidates = candidates_of(
        schemas, Ranker(pool).chances(question), lambda texts: [*map(setting.count, texts)], policy
    )
    return decide_loading(candidates, policy)


def _measure(
    runs: Sequence[RecordedRun], pool: Sequence[ToolSchema], setting: Setting, result: PoolResult
) -> None:
    """Replay a session under all policies and add it to the result."""
    result.runs += 1

    def replay(
        presentation: Presentation, loaded: Callable[[RecordedRun], Sequence[ToolSchema]]
    ) -> Session:
        session = setting.session(presentation, pool)
        for run in runs:
            session.ask(run, loaded(run), wrong=_wrong_tool(run, pool, session, setting))
        return session

    def used(run: RecordedRun) -> list[ToolSchema]:
        return [schema for schema in pool if schema.name in run.used]

    def price(session: Session) -> Decimal:
        return setting.price(session.bill.usage)

    sessions = {
        "all": replay(PLAIN, lambda _: pool),
        "all_text": replay(TEXT, lambda _: pool),
        "grow": replay(GROW, lambda _: ()),
        "stable": replay(STABLE, lambda _: ()),
        "auto": _replay_auto(runs, pool, setting, result),
        "oracle": min((replay(presentation, used) for presentation in (GROW, STABLE)), key=price),
    }
    for policy, session in sessions.items():
        total = result.totals[policy]
        total.usage += session.bill.usage
        total.calls += session.bill.calls
        total.schemas += len(session.registered)
    result.excess.append(
        price(sessions["auto"]) / min(price(sessions["all"]), price(sessions["all_text"])) - 1
    )


def _replay_auto(
    runs: Sequence[RecordedRun], pool: Sequence[ToolSchema], setting: Setting, result: PoolResult
) -> Session:
    """Replay a session with the shell's decision for each question; the first one fixes the presentation."""
    decision = decide_for(runs[0].query, pool, setting)
    session = setting.session(decision.presentation, pool)
    result.presentations[decision.presentation.name] += 1
    presentation = "grow" if decision.presentation in (GROW, PLAIN) else "stable"
    for run in runs:
        if run is not runs[0]:
            decision = decide_for(
                run.query,
                pool,
                setting,
                presentation=presentation,
                registered=session.registered,
            )
        loaded = [schema for schema in pool if schema.name in decision.loaded]
        session.ask(run, loaded, wrong=_wrong_tool(run, pool, session, setting))
        result.loaded += len(loaded)
        result.loaded_used += len({*decision.loaded} & {*run.used})
    return session


def _wrong_tool(
    run: RecordedRun, pool: Sequence[ToolSchema], session: Session, setting: Setting
) -> str:
    """Return the unneeded tool that this run registers: the same under every policy, unless it is registered there."""
    rng = random.Random(f"{setting.seed}/{run.id}/wrong")
    if rng.random() >= setting.wrong:
        return ""
    names = [schema.name for schema in pool if schema.name not in run.used]
    rng.shuffle(names)
    return next((name for name in names if name not in session.registered), "")


def as_json(results: Sequence[PoolResult], setting: Setting, tokenizer: str) -> str:
    """Return the record as JSON."""
    return json.dumps(as_record(results, setting, tokenizer))


def as_record(results: Sequence[PoolResult], setting: Setting, tokenizer: str) -> dict[str, Any]:
    """Return rows by pool, the tokenizer and the prices; costs are means per session in prices of an input token."""

    def row(result: PoolResult) -> dict[str, Any]:
        runs, totals = max(1, result.runs), result.totals
        savings = {
            policy: round(float(result.saving(policy, setting)), 4)
            for policy in POLICIES
            if result.runs
        }
        return {
            "pool": result.pool,
            "runs": result.runs,
            "cost": {
                policy: round(float(setting.price(total.usage) / runs), 2)
                for policy, total in totals.items()
            },
            "saving": savings,
            "loses": {"share": round(result.losing, 4), "worst": round(result.worst, 4)},
            "registered": round(totals["grow"].schemas / runs, 3),
            "tokens": {policy: _tokens(total, runs) for policy, total in totals.items()},
            "auto": {
                "presentations": dict(result.presentations),
                "upfront": round(result.loaded / runs, 3),
                "upfront_used": round(result.loaded_used / runs, 3),
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
    """Return a table of the policies at each pool size, and a summary of the decisions of `auto`."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for result in results:
        if not result.runs:
            notes.append(f"{result.pool} tools: every run used more tools than this")
            continue
        for policy, total in result.totals.items():
            cost, saving = (
                float(setting.price(total.usage) / result.runs),
                float(result.saving(policy, setting)),
            )
            figures = {"cost": cost, "saving": saving, **_tokens(total, result.runs)}
            rows.append({"policy": policy, "tools": result.pool, **figures})
        choices = ", ".join(
            f"{name} in {count}" for name, count in result.presentations.most_common()
        )
        notes.append(
            f"{result.pool} tools: of {result.runs} runs, auto chose {choices}; it loaded {result.loaded} schemas, of "
            f"which {result.loaded_used} were used; it cost more than registering everything in {result.losing:.1%} "
            f"of the runs, by {result.worst:.1%} at most"
        )
    rates = setting.rates
    prices = f"cached input {plain(rates.cached_input)}, cache write {plain(rates.cache_write)}"
    notes += [
        f"Means per run in prices of an input token: {prices}, output {plain(rates.output)}. Savings compare with all.",
        f"Tokens by {tokenizer}; unused tools drawn with seed {setting.seed}.",
    ]
    return "\n".join((*table(rows), "", *notes))


def _tokens(total: Total, runs: int) -> dict[str, float]:
    """Return mean calls and tokens of a run; `fresh` is the part of the prompts that is not read from the cache."""
    use = total.usage
    counts = {
        "calls": total.calls,
        "fresh": use.input - use.cached,
        "cached": use.cached,
        "output": use.output,
    }
    return {
        name: round(count / runs, 2)
        for name, count in {**counts, "documents": total.schemas}.items()
    }

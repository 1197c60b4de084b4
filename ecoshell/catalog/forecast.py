"""Expected costs of a task for each way of loading tools (SPEC §1).

Costs are in millionths of a dollar, as rates are in dollars per million tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Literal

from ecoshell.budget import Price, Rates
from ecoshell.catalog.presentation import GROW, STABLE, TEXT, Presentation, few_words
from ecoshell.messages import ToolSchema

TOKEN_WEIGHTS = Rates(Decimal(1), Decimal("0.1"), Decimal(1), Decimal(4), Decimal(4))
"""Rates for models that are free or of unknown price, relative to an uncached input token.

The output weight is that of the median model in litellm's price file.
"""
SMALL_SET_TOKENS = 1_200
"""Tokens of schemas up to which a set of tools counts as small if the context is unknown."""
FAILURE_RATE = Decimal("0.03")
"""How often an unknown model fails a task for a needed tool that is not loaded.

The registration fails, is forgotten, or another tool is used, and the task has to be repeated.
"""
DESCRIPTION_EFFECT = Decimal("0.5")
"""Share of tool-choice failures that short descriptions are assumed to prevent; not measured."""
UNLUCKY_DEVIATIONS = Decimal("1.3")
"""Standard deviations of the number of registrations in the unlucky case."""
REGISTRATION_OUTPUT_TOKENS = 20
"""Output tokens of a `tool_register` call."""
REGISTRATION_HISTORY_TOKENS = 32
"""Tokens of that call and its result in the history, without the schema."""
REGISTRATION_PROMPT_TOKENS = 30
"""Tokens of the system prompt's explanation of registration."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """The expected course of a task, in tokens.

    The defaults are rounded means of 48 recorded LiveMCPBench runs. `steps` are tool calls without
    registrations, `base` are system prompt, question and earlier turns, and `registered_after` is
    the mean share of steps before a registration.
    """

    steps: int = 6
    output: int = 200
    observation: int = 450
    answer: int = 500
    base: int = 300
    registered_after: Decimal = Decimal("0.3")

    @property
    def calls(self) -> int:
        """Model calls, with the answer and without registrations."""
        return self.steps + 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool that could be registered.

    `tokens` and `text_tokens` are sizes of its schema in a tool array and as text, and
    `description_tokens` that of the short description after its name. `chance` is the
    probability of use.
    """

    name: str
    tokens: int
    name_tokens: int
    chance: Decimal
    text_tokens: int | None = None
    description_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LoadingPolicy:
    """The user's choices, and the limits of the model and the catalog.

    - `has_all_tools`: the candidates are all tools, so that loading everything is possible.
    - `room`: tokens that loaded schemas may take, None without a limit.
    - `small_tokens`: tokens of schemas up to which a set of tools counts as small.
    - `failure_rate`: how often the model fails a task for a needed tool that is not loaded.
    - `prefers_array`: all tools go into the tool array, the form that weak models were trained on.
    - `array_only`: the model has native tool calls, so tools are never shown as text.
    - `core`: tools that are always registered.
    - `declared`: tools of the session's constant array of short schemas, empty before its first
      turn, None if the model reads no such array.
    - `is_open`: tools may appear during the session, so there must be a way to register them.
    """

    registration: Literal["auto", "names", "all", "all_text"] = "auto"
    presentation: Literal["auto", "grow", "deferred", "stable"] = "auto"
    has_all_tools: bool = True
    room: int | None = None
    small_tokens: int = SMALL_SET_TOKENS
    failure_rate: Decimal = FAILURE_RATE
    prefers_array: bool = False
    array_only: bool = False
    core: frozenset[str] = frozenset()
    declared: frozenset[str] | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class LoadingPlan:
    """A presentation, the tools loaded at the start, in catalog order, and the expected cost.

    `unlucky_cost` is the cost with more registrations than expected. `registration_cost` is that
    of a needed tool that is not loaded.
    """

    presentation: Presentation
    loaded: tuple[str, ...]
    cost: Decimal
    unlucky_cost: Decimal = Decimal(0)
    has_descriptions: bool = False
    forecast: "Forecast | None" = field(default=None, compare=False, repr=False)
    registration_cost: Decimal = Decimal(0)


def candidates_of(
    schemas: Iterable[ToolSchema],
    chances: Mapping[str, float],
    sizes: Callable[[Iterable[str]], Sequence[int]],
) -> tuple[Candidate, ...]:
    """Return the tools as candidates; `sizes` counts the tokens of texts."""
    schemas = tuple(schemas)
    texts = [
        text
        for schema in schemas
        for text in (
            schema.entry,
            f", {schema.name}",
            schema.as_text(),
            f" ({few_words(schema)})",
        )
    ]
    counts = iter(sizes(texts))
    return tuple(
        [
            Candidate(
                schema.name,
                entry_tokens,
                name_tokens,
                Decimal(str(round(chances.get(schema.name, 0.0), 4))),
                text_tokens,
                description_tokens,
            )
            for schema, entry_tokens, name_tokens, text_tokens, description_tokens in zip(
                schemas, *[counts] * 4, strict=True
            )
        ]
    )


def sized_for(presentation: Presentation, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the candidates with `tokens` as in this presentation."""
    if presentation not in (STABLE, TEXT):
        return candidates
    return [tool if tool.text_tokens is None else replace(tool, tokens=tool.text_tokens) for tool in candidates]


def rates_of(price: Price | None, prompt_tokens: int) -> Rates:
    """Return the rates of a price, or token weights if it is unknown or zero."""
    rates = TOKEN_WEIGHTS if price is None else price.rates_for(prompt_tokens)
    return rates if rates.dearest_input or rates.dearest_output else TOKEN_WEIGHTS


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected costs of one task at these rates."""

    rates: Rates
    work: Workload
    candidates: Sequence[Candidate]

    def carry(self, tokens: Decimal | int, calls: Decimal | int) -> Decimal:
        """Return the price of tokens that stay in the prompts of so many calls.

        They are written to the cache once, then read from it.
        """
        reads = max(calls - 1, Decimal(0))
        return tokens * (self.rates.cache_write + self.rates.cached_input * reads)

    def everything(self, presentation: Presentation) -> LoadingPlan:
        """Return the plan that loads all candidates."""
        tokens = sum([tool.tokens for tool in self.candidates])
        prompt = _meta_tokens(presentation) + tokens
        cost = self._common() + self.carry(prompt, self.work.calls)
        names = tuple([tool.name for tool in self.candidates])
        return LoadingPlan(presentation, names, cost, unlucky_cost=cost)

    def by_name(
        self,
        presentation: Presentation,
        policy: LoadingPolicy,
        failure_cost: Decimal,
    ) -> list[LoadingPlan]:
        """Return plans that list names, each with some more of the likeliest tools loaded.

        Equally likely tools are loaded together, unless only some of them fit. `failure_cost` is
        the mean cost of failures for each needed tool that is not loaded.
        """
        names_only = policy.registration == "names"
        meta = self._common() + self.carry(_meta_tokens(presentation), self.work.calls)
        hidden, loaded_tokens, loaded = _Totals().plus(self.candidates), 0, set[str]()
        usual = self._registration_step(presentation, hidden, loaded_tokens) + failure_cost
        core = [] if names_only else [tool for tool in self.candidates if tool.name in policy.core]
        groups = [core]
        if not names_only:
            optional = [tool for tool in self.candidates if tool not in core]
            groups += _likeliest(optional, policy.room)
        plans: list[LoadingPlan] = []
        for group in groups:
            loaded |= {tool.name for tool in group}
            loaded_tokens += sum(tool.tokens for tool in group)
            hidden = hidden.plus(group, sign=-1)
            step = self._registration_step(presentation, hidden, loaded_tokens)
            fixed = meta + self.carry(loaded_tokens + hidden.name_tokens, self.work.calls)
            later = self.carry(hidden.likely_tokens, self.work.calls)
            cost = fixed + later + hidden.needed * (step + failure_cost)
            unlucky_cost = fixed + hidden.unlucky_factor * (later + hidden.needed * step)
            descriptions = self.carry(hidden.description_tokens, self.work.calls)
            has_descriptions = (
                not names_only
                and 0 < hidden.description_tokens <= policy.small_tokens
                and descriptions < DESCRIPTION_EFFECT * hidden.needed * failure_cost
            )
            if has_descriptions:
                cost, unlucky_cost = cost + descriptions, unlucky_cost + descriptions
            names = tuple(tool.name for tool in self.candidates if tool.name in loaded)
            plans.append(LoadingPlan(presentation, names, cost, unlucky_cost, has_descriptions, self, usual))
        return plans

    def _registration_step(self, presentation: Presentation, hidden: "_Totals", loaded_tokens: int) -> Decimal:
        """Return the price of one registration without its schema.

        It consists of one more prompt, the call, and the history the call leaves. A tool array that
        grows precedes the messages, so that the next call does not find them in the cache.
        """
        work, rates = self.work, self.rates
        history = work.registered_after * work.steps * (work.output + work.observation)
        messages = work.base + hidden.name_tokens + history
        prompt = _meta_tokens(presentation) + messages + hidden.likely_tokens / 2 + loaded_tokens
        remaining_calls = work.calls * (1 - work.registered_after)
        output = rates.output * REGISTRATION_OUTPUT_TOKENS
        exchange = self.carry(REGISTRATION_HISTORY_TOKENS, remaining_calls)
        cache_miss = Decimal(0)
        if presentation is GROW:
            cache_miss = (rates.cache_write - rates.cached_input) * messages
        return rates.cached_input * prompt + output + exchange + cache_miss

    def _common(self) -> Decimal:
        """Return the cost that is the same under every plan."""
        work = self.work
        step_tokens = work.output + work.observation
        exchanges = work.steps * self.carry(step_tokens, Decimal(work.calls) / 2)
        output = self.rates.output * (work.steps * work.output + work.answer)
        return self.carry(work.base, work.calls) + exchanges + output


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums over tools: the expected number of needed tools, its variance, and tokens.

    `likely_tokens` are those of schemas, weighted by their chance.
    """

    needed: Decimal = Decimal(0)
    variance: Decimal = Decimal(0)
    likely_tokens: Decimal = Decimal(0)
    name_tokens: int = 0
    description_tokens: int = 0

    @property
    def unlucky_factor(self) -> Decimal | int:
        """The number of registrations in the unlucky case, relative to the expected number."""
        if self.needed <= 0:
            return 1
        return 1 + UNLUCKY_DEVIATIONS * max(self.variance, Decimal(0)).sqrt() / self.needed

    def plus(self, tools: Iterable[Candidate], sign: int = 1) -> "_Totals":
        """Return the totals with these tools, or without them if `sign` is −1."""
        needed, variance, likely_tokens = self.needed, self.variance, self.likely_tokens
        name_tokens, description_tokens = self.name_tokens, self.description_tokens
        for tool in tools:
            needed += sign * tool.chance
            variance += sign * tool.chance * (1 - tool.chance)
            likely_tokens += sign * tool.chance * tool.tokens
            name_tokens += sign * tool.name_tokens
            description_tokens += sign * tool.description_tokens
        return _Totals(needed, variance, likely_tokens, name_tokens, description_tokens)


def _likeliest(candidates: Iterable[Candidate], room: int | None) -> list[list[Candidate]]:
    """Return the candidates that fit, likeliest first, grouped by chance."""
    groups: list[list[Candidate]] = []
    for tool in sorted(candidates, key=attrgetter("chance"), reverse=True):
        if room is not None and tool.tokens > room:
            continue
        room = None if room is None else room - tool.tokens
        if groups and groups[-1][0].chance == tool.chance:
            groups[-1].append(tool)
        else:
            groups.append([tool])
    return groups


@cache
def _meta_tokens(presentation: Presentation) -> int:
    """Return the approximate size of the meta-tools and their explanation, without `finish`."""
    characters = sum(len(schema.entry) for schema in presentation.array((), finish=False))
    explanation = REGISTRATION_PROMPT_TOKENS if presentation.registers else 0
    return characters // _CHARACTERS_PER_TOKEN + explanation

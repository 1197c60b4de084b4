"""Which documents a question starts with, and in which presentation, decided by price before the first step (SPEC §1).

Costs are in millionths of a dollar, as rates are in dollars per million tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Literal

from ecoshell.budget import Price, Rates
from ecoshell.catalog import GROW, PLAIN, STABLE, TEXT, Presentation, few_words
from ecoshell.messages import ToolDocument

TOKEN_WEIGHTS = Rates(Decimal(1), Decimal("0.1"), Decimal(1), Decimal(4), Decimal(4))
"""Rates for a model that is free or of unknown price: a token read anew counts 1, one found in the cache a tenth of it,
and one written 4, which is what the median model of litellm's price file asks."""

MARGIN = Decimal("0.05")
"""Leaving tools as names must promise to save this share: its cost is less certain than that of showing everything."""
CLEAR_MARGIN = Decimal("0.1")
"""The same where the documents take little of the context anyway."""
LITTLE = 1_200
"""Tokens of documents that are little where the context is unknown; else they are `LITTLE_SHARE` of it."""
LITTLE_SHARE = Decimal("0.04")
FORGOTTEN = Decimal("0.03")
"""How often a task fails for a tool it needs and sees by name alone, so that it has to be done again, where nothing is
known of the model: a registration fails, is forgotten, or another tool is taken in its place."""
RISK = Decimal("1.3")
SAFE_MARGIN = Decimal("0.03")
"""A plan that leaves names must save that much also where it has bad luck, so many standard deviations of registrations
more than are expected: it may not lose single tasks for the sake of the mean. Chosen with the 36 successful runs of
LiveMCPBench in pools of 10 and 20 in view."""
WORDS_HELP = Decimal("0.5")
"""The part of what is forgotten that a few words beside each name are taken to prevent; nobody has measured it."""

REGISTRATION_OUTPUT = 20
"""Tokens of a call of `tool_register`."""
REGISTRATION_EXCHANGE = 32
"""Tokens that call and its acknowledgment leave in the history, besides the document."""
REGISTERING_PROMPT = 30
"""Tokens by which a system prompt tells how tools are registered."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """A task as it is expected to go, in tokens. The defaults are round means of 48 recorded LiveMCPBench runs."""

    steps: int = 6
    """Calls of tools, registrations not counted."""
    output: int = 200
    """Of a step: thought and call."""
    observation: int = 450
    answer: int = 500
    base: int = 300
    """System prompt, question and earlier turns."""
    registered_after: Decimal = Decimal("0.3")
    """The share of the steps that are done, on average, when a tool is registered."""

    @property
    def calls(self) -> int:
        """Model calls, the answer's included and registrations not."""
        return self.steps + 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool that could be registered: the tokens of its document and of its name, and its chance of use (0 to 1)."""

    name: str
    tokens: int
    """Of its document in a tool array."""
    name_tokens: int
    chance: Decimal
    text_tokens: int | None = None
    """Of its document as text, where that differs."""
    words_tokens: int = 0
    """Of the few words of what it does that may go with the name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user has settled, and what the catalog allows."""

    registration: Literal["auto", "names", "all", "all_text"] = "auto"
    presentation: Literal["auto", "grow", "stable"] = "auto"
    whole: bool = True
    """Whether the candidates are all tools; if they are a shortlist, registering everything is no choice."""
    room: int | None = None
    """Tokens that documents may take up front, if the context or a cap sets a limit."""
    little: int = LITTLE
    """Tokens of documents up to which a set takes little of the context."""
    forgotten: Decimal = FORGOTTEN
    """How often this model fails a task for a tool it needs and sees by name alone."""
    native: bool = False
    """Whether everything, where that is shown, stands in the tool array: the form a weak model was trained on."""
    grows: bool = False
    """Whether tools may come and go while the session lasts, so that there must be a way to register them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Both sides of one tool's decision: what waiting is expected to cost, and what carrying is expected to waste."""

    candidate: Candidate
    waiting: Decimal
    carrying: Decimal

    @property
    def pays(self) -> bool:
        """Whether the document by itself is expected to pay from the start."""
        return self.waiting > self.carrying

    def told(self, *, upfront: bool) -> str:
        """The verdict for a person; `upfront` says what came of it."""
        candidate = self.candidate
        chance = f"{candidate.name}, needed with a chance of {candidate.chance:.0%}:"
        if upfront and self.pays:
            return f"{chance} document up front; going without would cost more than its {candidate.tokens} tokens."
        if upfront:
            return f"{chance} document up front: it saves a registration that one task in a few would pay for dearly."
        if self.pays:
            return f"{chance} name only, though its document would pay: names were asked for, or there is no room."
        return f"{chance} name only; its {candidate.tokens} tokens would cost more than a registration step."


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to begin: a presentation, the tools registered up front, and what the task is expected to cost.

    `dearest` is what it may come to with bad luck (`RISK`); `described` says that names come with a few words.
    """

    presentation: Presentation
    upfront: tuple[str, ...]
    cost: Decimal
    dearest: Decimal = Decimal(0)
    described: bool = False
    forecast: "Forecast | None" = field(default=None, compare=False, repr=False)
    """By which names were decided on; None where none was."""
    waiting: Decimal = Decimal(0)
    """What a needed tool is expected to cost that is left a name."""

    def verdict(self, name: str) -> Verdict | None:
        """Both sides of the decision on this tool; None where there was none."""
        one = next((one for one in self.forecast.candidates if one.name == name), None) if self.forecast else None
        if self.forecast is None or one is None:
            return None
        carrying = (1 - one.chance) * self.forecast.carry(one.tokens, self.forecast.work.calls)
        return Verdict(one, one.chance * self.waiting, carrying)


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan that was chosen, beside those it was chosen from."""

    plan: Plan
    considered: tuple[Plan, ...]
    summary: str

    @property
    def presentation(self) -> Presentation:
        return self.plan.presentation

    @property
    def upfront(self) -> tuple[str, ...]:
        """Names whose documents are there from the start, in catalog order."""
        return self.plan.upfront

    def why(self, name: str) -> str:
        """Why this tool's document is there from the start, or is not."""
        found = self.plan.verdict(name)
        return self.summary if found is None else found.told(upfront=name in self.upfront)


def candidates_of(
    documents: Iterable[ToolDocument], chances: Mapping[str, float], sizes: Callable[[Iterable[str]], Sequence[int]]
) -> tuple[Candidate, ...]:
    """The documents as candidates; `sizes` counts the tokens of texts."""
    documents = tuple(documents)
    told = [text for one in documents for text in (one.entry, f", {one.name}", one.as_text(), f" ({few_words(one)})")]
    counted = iter(sizes(told))
    found: list[Candidate] = []
    for one, entry, name, text, words in zip(documents, *[counted] * 4, strict=True):
        likely = Decimal(str(round(chances.get(one.name, 0.0), 4)))
        found.append(Candidate(one.name, entry, name, likely, text, words))
    return tuple(found)


def under(presentation: Presentation, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """The candidates with `tokens` as this presentation shows their documents."""
    if presentation not in (STABLE, TEXT):
        return candidates
    return [one if one.text_tokens is None else replace(one, tokens=one.text_tokens) for one in candidates]


def rates_of(price: Price | None, prompt_tokens: int) -> Rates:
    """The rates to decide by: the price's own, or weights of tokens where there is no price to compare."""
    rates = TOKEN_WEIGHTS if price is None else price.rates_for(prompt_tokens)
    return rates if rates.dearest_input or rates.dearest_output else TOKEN_WEIGHTS


def decide(candidates: Sequence[Candidate], rates: Rates, work: Workload, policy: Policy = Policy()) -> Decision:
    """What the question starts with: the cheapest plan by expectation, the tasks that fail for it counted.

    Documents up front are always those of the likeliest tools, however long they are. A plan that leaves names must
    save a margin against showing everything, and may not be dearer than that with bad luck either.
    """
    whole = _whole(policy, candidates)
    everything = Forecast(rates, work, under(whole, candidates)).everything(whole)
    if policy.registration in ("all", "all_text"):
        return Decision(everything, (everything,), "Every tool is registered, as asked.")
    shown = {"grow": (GROW,), "stable": (STABLE,), "auto": (GROW, STABLE)}[policy.presentation]
    needed = sum([one.tokens for one in under(whole, candidates)])
    possible = policy.whole and (policy.room is None or needed <= policy.room)
    again = everything.cost * policy.forgotten
    plans: list[Plan] = []
    for way in shown:
        plans += Forecast(rates, work, under(way, candidates)).by_name(way, policy, again)
    best = min(plans, key=attrgetter("cost"))
    if policy.registration == "names":
        return Decision(best, tuple(plans), f"Names only, as asked; presentation {best.presentation.name}.")
    if not possible:
        return Decision(best, tuple(plans), _summary(best, everything, possible))
    little = sum([one.tokens for one in under(TEXT, candidates)]) <= policy.little
    most = everything.cost * (1 - (CLEAR_MARGIN if little else MARGIN))
    safe = [
        plan
        for plan in plans
        if len(plan.upfront) < len(candidates)
        and plan.cost < most
        and plan.dearest <= everything.cost * (1 - SAFE_MARGIN)
    ]
    best = min(safe, key=attrgetter("cost"), default=everything)
    return Decision(best, (everything, *plans), _summary(best, everything, possible))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected costs of one task under these rates."""

    rates: Rates
    work: Workload
    candidates: Sequence[Candidate]

    def carry(self, tokens: Decimal | int, calls: Decimal | int) -> Decimal:
        """The price of tokens in the prompts of so many calls: written to the cache once, then read from it."""
        return tokens * (self.rates.cache_write + self.rates.cached_input * max(calls - 1, Decimal(0)))

    def everything(self, presentation: Presentation) -> Plan:
        """The plan that registers all candidates up front."""
        documents = sum([one.tokens for one in self.candidates])
        cost = self._common() + self.carry(_meta_tokens(presentation) + documents, self.work.calls)
        return Plan(presentation, tuple([one.name for one in self.candidates]), cost, dearest=cost)

    def by_name(self, presentation: Presentation, policy: Policy, again: Decimal) -> list[Plan]:
        """Plans that show names, each with the documents of some more of the likeliest tools up front.

        Tools of the same chance go together, unless only some of them have room. `again` is what a needed tool that
        is left a name costs on average in tasks that fail for it.
        """
        every, calls = self.candidates, self.work.calls
        meta = self._common() + self.carry(_meta_tokens(presentation), calls)
        hidden, upfront, chosen = _Sums().plus(every), 0, set[str]()
        usual = self._registration_step(presentation, hidden, upfront) + again
        groups: list[list[Candidate]] = [[]]
        room = policy.room
        for one in sorted(every, key=attrgetter("chance"), reverse=True) if policy.registration != "names" else ():
            if room is not None and one.tokens > room:
                continue
            room = None if room is None else room - one.tokens
            if groups[-1] and groups[-1][0].chance == one.chance:
                groups[-1].append(one)
            else:
                groups.append([one])
        plans: list[Plan] = []
        for added in groups:
            for one in added:
                chosen.add(one.name)
                upfront += one.tokens
            hidden = hidden.plus(added, sign=-1)
            step = self._registration_step(presentation, hidden, upfront)
            fixed = meta + self.carry(upfront + hidden.name_tokens, calls)
            late = self.carry(hidden.likely_tokens, calls)
            cost = fixed + late + hidden.needed * (step + again)
            unlucky = 1 + RISK * max(hidden.variance, Decimal(0)).sqrt() / hidden.needed if hidden.needed > 0 else 1
            dearest = fixed + unlucky * (late + hidden.needed * step)
            words, helped = self.carry(hidden.words_tokens, calls), WORDS_HELP * hidden.needed * again
            described = policy.registration != "names" and 0 < hidden.words_tokens <= policy.little and words < helped
            if described:
                cost, dearest = cost + words, dearest + words
            names = tuple(one.name for one in every if one.name in chosen)
            plans.append(Plan(presentation, names, cost, dearest, described, self, usual))
        return plans

    def _registration_step(self, presentation: Presentation, hidden: "_Sums", upfront: int) -> Decimal:
        """The price of one registration besides the document: the prompt once more, the call, and what stays of it.

        `upfront` is the tokens of documents that are there. An array that grows does so ahead of the messages, so that
        the next call does not find them in the cache.
        """
        work, rates = self.work, self.rates
        history = work.registered_after * work.steps * (work.output + work.observation)
        messages = work.base + hidden.name_tokens + history
        prompt = _meta_tokens(presentation) + messages + hidden.likely_tokens / 2 + upfront
        left = work.calls * (1 - work.registered_after)
        written = rates.output * REGISTRATION_OUTPUT + self.carry(REGISTRATION_EXCHANGE, left)
        missed = (rates.cache_write - rates.cached_input) * messages if presentation is GROW else Decimal(0)
        return rates.cached_input * prompt + written + missed

    def _common(self) -> Decimal:
        """What the task costs under every plan."""
        work = self.work
        exchanges = work.steps * self.carry(work.output + work.observation, Decimal(work.calls) / 2)
        written = self.rates.output * (work.steps * work.output + work.answer)
        return self.carry(work.base, work.calls) + exchanges + written


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over tools: how many of them are expected to be needed, the variance of that, and tokens.

    `likely_tokens` are those of documents, each counted by its chance.
    """

    needed: Decimal = Decimal(0)
    variance: Decimal = Decimal(0)
    likely_tokens: Decimal = Decimal(0)
    name_tokens: int = 0
    words_tokens: int = 0

    def plus(self, candidates: Iterable[Candidate], sign: int = 1) -> "_Sums":
        """With these tools, too; with a `sign` of −1, without them."""
        needed, variance, likely = self.needed, self.variance, self.likely_tokens
        names, words = self.name_tokens, self.words_tokens
        for one in candidates:
            needed += sign * one.chance
            variance += sign * one.chance * (1 - one.chance)
            likely += sign * one.chance * one.tokens
            names += sign * one.name_tokens
            words += sign * one.words_tokens
        return _Sums(needed, variance, likely, names, words)


def _whole(policy: Policy, candidates: Sequence[Candidate]) -> Presentation:
    """How everything is shown where it is.

    Text takes about two thirds of the tokens; its calls go through `tool_call`, which is left out of account: on
    recorded runs the array was never more than 1 % cheaper, and text up to 10 %.
    """
    if policy.registration == "all_text":
        return TEXT
    if policy.grows and policy.registration != "all":
        return GROW if policy.presentation == "grow" else STABLE
    if policy.presentation != "auto":
        return TEXT if policy.presentation == "stable" else PLAIN
    if policy.registration == "all":
        return PLAIN
    in_array = policy.room is None or sum(candidate.tokens for candidate in candidates) <= policy.room
    return PLAIN if policy.native and in_array else TEXT


@cache
def _meta_tokens(presentation: Presentation) -> int:
    """About how many tokens the presentation's own tools take, and what is told of them; `finish` is no part of it."""
    array = sum(len(document.entry) for document in presentation.array((), finish=False)) // _CHARACTERS_PER_TOKEN
    return array + (REGISTERING_PROMPT if presentation.registers else 0)


def _summary(best: Plan, everything: Plan, possible: bool) -> str:
    upfront = f"{len(best.upfront)} schemas up front" if best.upfront else "no schema up front"
    if not possible:
        return f"Names by {best.presentation.name}, {upfront}: there is no room to register every tool."
    if best is everything:
        form = " as text" if best.presentation in (TEXT, STABLE) else ""
        return f"Every tool is registered{form}: registering by name is not expected to save enough."
    saving = 1 - best.cost / everything.cost
    return (
        f"Names by {best.presentation.name}, {upfront}: expected to save {saving:.0%} against registering every tool."
    )

"""Which documents a question starts with, and in which presentation, decided by price before the first step (SPEC §1).

Costs are in millionths of a dollar, as rates are in dollars per million tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from ecoshell.budget.price import Price, Rates
from ecoshell.catalog.presentation import GROW, PLAIN, STABLE, Presentation
from ecoshell.messages import ToolDocument

TOKEN_WEIGHTS = Rates(Decimal(1), Decimal("0.1"), Decimal(1), Decimal(4), Decimal(4))
"""Rates for a model that is free or of unknown price: a token read anew counts 1, one found in the cache a tenth of it,
and one written 4, which is what the median model of litellm's price file asks."""

MARGIN = Decimal("0.05")
"""Registering by name must promise to save this share: its cost is less certain than that of registering everything."""

REGISTRATION_OUTPUT = 20
"""Tokens of a call of `tool_register`."""
REGISTRATION_EXCHANGE = 32
"""Tokens that call and its acknowledgment leave in the history, besides the document."""
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

    def under(self, presentation: Presentation) -> "Candidate":
        """The candidate with `tokens` as this presentation shows its document."""
        if presentation is not STABLE or self.text_tokens is None:
            return self
        return replace(self, tokens=self.text_tokens)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user has settled, and what the catalog allows."""

    registration: Literal["auto", "names", "all"] = "auto"
    presentation: Literal["auto", "grow", "stable"] = "auto"
    whole: bool = True
    """Whether the candidates are all tools; if they are a shortlist, registering everything is no choice."""
    room: int | None = None
    """Tokens that documents may take up front, if the context sets a limit."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Both sides of one tool's decision: what waiting is expected to cost, and what carrying is expected to waste."""

    candidate: Candidate
    waiting: Decimal
    carrying: Decimal

    @property
    def pays(self) -> bool:
        """Whether the document is expected to pay from the start."""
        return self.waiting > self.carrying

    def told(self, *, upfront: bool) -> str:
        """The verdict for a person; `upfront` says what came of it."""
        candidate = self.candidate
        chance = f"{candidate.name}, used with a chance of {candidate.chance:.0%}:"
        if not self.pays:
            return f"{chance} name only; its {candidate.tokens} tokens would cost more than a registration step."
        if not upfront:
            return f"{chance} name only, though its document would pay: names were asked for, or there is no room."
        return f"{chance} document up front; a registration step would cost more than its {candidate.tokens} tokens."


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to begin: a presentation, the tools registered up front, and what the task is expected to cost."""

    presentation: Presentation
    upfront: tuple[str, ...]
    cost: Decimal
    verdicts: tuple[Verdict, ...] = ()


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
        found = next((verdict for verdict in self.plan.verdicts if verdict.candidate.name == name), None)
        return self.summary if found is None else found.told(upfront=name in self.upfront)


def candidates_of(
    documents: Iterable[ToolDocument], chances: Mapping[str, float], count: Callable[[str], int]
) -> tuple[Candidate, ...]:
    """The documents as candidates; `count` counts the tokens of a text."""
    return tuple(
        Candidate(
            document.name,
            count(document.as_entry()),
            count(f", {document.name}"),
            Decimal(str(round(chances.get(document.name, 0.0), 4))),
            count(document.as_text()),
        )
        for document in documents
    )


def rates_of(price: Price | None, prompt_tokens: int) -> Rates:
    """The rates to decide by: the price's own, or weights of tokens where there is no price to compare."""
    rates = TOKEN_WEIGHTS if price is None else price.rates_for(prompt_tokens)
    return rates if rates.dearest_input or rates.dearest_output else TOKEN_WEIGHTS


def decide(candidates: Sequence[Candidate], rates: Rates, work: Workload, policy: Policy = Policy()) -> Decision:
    """What the question starts with. The cheapest plan by expectation; never one dearer than registering everything."""

    def forecast(presentation: Presentation) -> Forecast:
        return Forecast(rates, work, tuple(candidate.under(presentation) for candidate in candidates))

    whole = STABLE if policy.presentation == "stable" else PLAIN
    everything = forecast(whole).everything(whole)
    if policy.registration == "all":
        return Decision(everything, (everything,), "Every tool is registered, as asked.")
    shown = {"grow": (GROW,), "stable": (STABLE,), "auto": (GROW, STABLE)}[policy.presentation]
    by_name = [forecast(presentation).by_name(presentation, policy) for presentation in shown]
    best = min(by_name, key=lambda plan: plan.cost)
    if policy.registration == "names":
        return Decision(best, tuple(by_name), f"Names only, as asked; presentation {best.presentation.name}.")
    possible = policy.whole and (policy.room is None or sum(one.tokens for one in candidates) <= policy.room)
    if possible and best.cost >= everything.cost * (1 - MARGIN):
        best = everything
    considered = (everything, *by_name) if possible else tuple(by_name)
    return Decision(best, considered, _summary(best, everything, possible))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected costs of one task under these rates."""

    rates: Rates
    work: Workload
    candidates: tuple[Candidate, ...]

    def carry(self, tokens: Decimal | int, calls: Decimal | int) -> Decimal:
        """The price of tokens in the prompts of so many calls: written to the cache once, then read from it."""
        return tokens * (self.rates.cache_write + self.rates.cached_input * max(calls - 1, Decimal(0)))

    def everything(self, presentation: Presentation) -> Plan:
        """The plan that registers all candidates up front."""
        documents = sum(candidate.tokens for candidate in self.candidates)
        cost = self._common() + self.carry(_meta_tokens(presentation) + documents, self.work.calls)
        return Plan(presentation, tuple(candidate.name for candidate in self.candidates), cost)

    def by_name(self, presentation: Presentation, policy: Policy) -> Plan:
        """The plan that shows names, and up front those documents that are expected to pay."""
        step = self.registration_step(presentation)
        verdicts = tuple(self._verdict(candidate, step) for candidate in self.candidates)
        chosen = set[str]() if policy.registration == "names" else _within(verdicts, policy.room)
        cost = self._common() + self.carry(_meta_tokens(presentation), self.work.calls)
        for verdict in verdicts:
            candidate = verdict.candidate
            document = self.carry(candidate.tokens, self.work.calls)
            if candidate.name in chosen:
                cost += document
            else:
                cost += self.carry(candidate.name_tokens, self.work.calls) + candidate.chance * (step + document)
        upfront = tuple(candidate.name for candidate in self.candidates if candidate.name in chosen)
        return Plan(presentation, upfront, cost, verdicts)

    def registration_step(self, presentation: Presentation) -> Decimal:
        """The price of one registration besides the document: the prompt once more, the call, and what stays of it.

        An array that grows does so ahead of the messages, so that the next call does not find them in the cache.
        """
        work, rates = self.work, self.rates
        history = work.registered_after * work.steps * (work.output + work.observation)
        others = sum((candidate.chance * candidate.tokens for candidate in self.candidates), Decimal(0)) / 2
        messages = work.base + sum(candidate.name_tokens for candidate in self.candidates) + history
        prompt = _meta_tokens(presentation) + messages + others
        left = work.calls * (1 - work.registered_after)
        written = rates.output * REGISTRATION_OUTPUT + self.carry(REGISTRATION_EXCHANGE, left)
        missed = (rates.cache_write - rates.cached_input) * messages if presentation is GROW else Decimal(0)
        return rates.cached_input * prompt + written + missed

    def _verdict(self, candidate: Candidate, step: Decimal) -> Verdict:
        carrying = (1 - candidate.chance) * self.carry(candidate.tokens, self.work.calls)
        return Verdict(candidate, candidate.chance * step, carrying)

    def _common(self) -> Decimal:
        """What the task costs under every plan."""
        work = self.work
        exchanges = work.steps * self.carry(work.output + work.observation, Decimal(work.calls) / 2)
        written = self.rates.output * (work.steps * work.output + work.answer)
        return self.carry(work.base, work.calls) + exchanges + written


def _within(verdicts: Sequence[Verdict], room: int | None) -> set[str]:
    """Names to put up front; when they do not all fit, those most likely to be used."""
    chosen: set[str] = set()
    for verdict in sorted(verdicts, key=lambda one: one.candidate.chance, reverse=True):
        tokens = verdict.candidate.tokens
        if verdict.pays and (room is None or tokens <= room):
            chosen.add(verdict.candidate.name)
            room = None if room is None else room - tokens
    return chosen


def _meta_tokens(presentation: Presentation) -> int:
    """About how many tokens the presentation's own tools take."""
    return sum(len(document.as_entry()) for document in presentation.array(())) // _CHARACTERS_PER_TOKEN


def _summary(best: Plan, everything: Plan, possible: bool) -> str:
    if not possible:
        return f"Names by {best.presentation.name}: there are too many tools to register them all."
    if best is everything:
        return "Every tool is registered: for these few, registering by name is not expected to save enough."
    saving = 1 - best.cost / everything.cost
    upfront = f"{len(best.upfront)} documents up front" if best.upfront else "no document up front"
    return (
        f"Names by {best.presentation.name}, {upfront}: expected to save {saving:.0%} against registering every tool."
    )

"""The user at a line-based terminal: asks each question of the core between two lines of output."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ecoshell.agent import (
    Approval,
    CostChoice,
    Decision,
    LimitChoice,
    QuoteChoice,
    Trust,
    enough_text,
    parse_arguments,
)
from ecoshell.agent.command_table import dollars
from ecoshell.budget import counted, parse_amount
from ecoshell.cli.signals import Interrupted
from ecoshell.errors import UsageError
from ecoshell.events import (
    ApprovalWanted,
    CostWanted,
    Event,
    LimitHit,
    ModelOffer,
    PlanWritten,
    Quote,
    TrustWanted,
)
from ecoshell.messages import Call, visible, visible_line

_EVENT_SECONDS = 1.0
"""Seconds to wait for a question's event before asking without it: a locked store delays events."""
_PREVIEW_LINES = 40
_TRUST_PROMPT = "[1] trust it until it changes  [n] no, until it changes  [l] not now: "
_APPROVAL_PROMPT = (
    "[1] once  [2] this session  [3] this project  [e] edit  [n] no  [d] no, do this instead: "
)
_SERVER_PROMPT = "[1] yes  [e] edit  [n] no: "
_ARGUMENTS_PROMPT = "Arguments as one line of JSON (empty keeps them): "
_MODEL_PROMPT = "Model (/models lists them): "
_LIMIT_PROMPT = (
    "[r] raise the cap  [m] another model  [a] answer with the results so far  [s] stop: "
)
_QUOTE_PROMPT = "[g] start  [numbers] leave these nodes out  [r] do not start: "
_PLAN_PROMPT = (
    "[1] carry out this plan  [2] and accept edits  [e] change it in $EDITOR  [n] not now: "
)
_COST_PROMPT = (
    "[g] go on  [d] go on, don't ask again  [m] another model"
    "  [a] answer with the results so far  [s] stop: "
)
_NO_WITH_TEXT = re.compile(r"no?\b[\s,:;.]+(\S.*)", re.IGNORECASE | re.DOTALL)

T = TypeVar("T")
K = TypeVar("K", bound=str)
Question = ApprovalWanted | LimitHit | CostWanted | TrustWanted | Quote
"""An event that asks the user for a decision."""
QUESTIONS = (ApprovalWanted, LimitHit, CostWanted, TrustWanted)
"""Events that always ask; a quote may be shown only."""


def _by_word(words_by_decision: Mapping[T, str]) -> dict[str, T]:
    """Map every word a user may type to its decision."""
    return {
        word: decision for decision, words in words_by_decision.items() for word in words.split()
    }


_DECISIONS: Mapping[str, Decision] = _by_word(
    {"once": "1 y yes once", "session": "2 s session", "project": "3 p project", "no": "n no"}
)
_LIMIT_CHOICES: Mapping[str, Literal["raise", "model", "answer", "stop"]] = _by_word(
    {"raise": "r raise", "model": "m model", "answer": "a answer", "stop": "s stop"}
)
_AMOUNT_EXAMPLES: Mapping[str, str] = {"usd": "0.50", "tokens": "20000tok", "ms": "2min"}
_COST_CHOICES: Mapping[str, Literal["go", "always", "model", "answer", "stop"]] = _by_word(
    {
        "go": "g y go",
        "always": "d always",
        "model": "m model",
        "answer": "a answer",
        "stop": "s stop",
    }
)
_TRUST_CHOICES: Mapping[str, Trust] = _by_word({"yes": "1 y yes", "no": "n no", "later": "l later"})


@dataclass(slots=True)
class _Pending:
    """A question the core waits for; created while the event loop runs."""

    answer: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    started: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class LineUser:
    """Asks the user for decisions.

    The core's question arrives as an event and as a call of `approve`, `at_limit`, `at_cost` or `trust`. Only the
    event has its place among the printed lines, so `answer` asks the user, and the call waits for the decision.
    """

    read: Callable[[str], Awaitable[str]]
    """Shows a prompt and returns the typed line; raises Interrupted and EOFError."""
    say: Callable[[str], None]
    """Prints one line."""
    _pending: dict[int, _Pending] = field(default_factory=dict[int, _Pending])
    _answered_early: set[int] = field(default_factory=set[int])
    """Questions that were asked before their event arrived."""

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return await self._decision(wanted, Approval("no"))

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        return await self._decision(hit, LimitChoice("stop"))

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        return await self._decision(wanted, CostChoice("stop"))

    async def trust(self, wanted: TrustWanted) -> Trust:
        return await self._decision(wanted, "later")

    async def at_quote(self, quoted: Quote) -> QuoteChoice:
        return await self._decision(quoted, QuoteChoice("refuse"))

    async def review_plan(self, plan: PlanWritten) -> str | None:
        """Ask whether a plan is carried out: the argument of `/plan accept`, or None for not now."""
        while True:
            word = await self._word(_PLAN_PROMPT, at_end="n")
            if word in ("1", "y", "yes"):
                return ""
            if word in ("2", "a"):
                return "edits"
            if word in ("e", "edit"):
                from ecoshell.tui.editor import edited_text  # rarely needed

                try:
                    return await asyncio.to_thread(edited_text, plan.text)
                except UsageError as error:
                    self.say(visible_line(str(error)))
            elif word in ("n", "no"):
                return None
            else:
                self.say("Type 1, 2, e or n.")

    async def answer(self, event: Event) -> None:
        """Ask the user if the event is a question; raises Interrupted if the user types Ctrl-C."""
        if id(event) in self._answered_early:
            self._answered_early.discard(id(event))
        elif isinstance(event, QUESTIONS) or (
            isinstance(event, Quote) and id(event) in self._pending
        ):
            await self._ask(event)

    def reset(self) -> None:
        """Drop the questions of a finished turn."""
        self._pending.clear()
        self._answered_early.clear()

    async def _decision(self, event: Question, if_interrupted: T) -> T:
        """Wait for the decision; return `if_interrupted` on Ctrl-C if no event arrives through which to stop."""
        pending = self._pending.setdefault(id(event), _Pending())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVENT_SECONDS):
                    await pending.started.wait()
            if not pending.started.is_set():
                self._answered_early.add(id(event))
                await self._ask(event)
            return await pending.answer
        except Interrupted:
            return if_interrupted
        finally:
            pending.answer.cancel()
            self._pending.pop(id(event), None)

    async def _ask(self, event: Question) -> None:
        """Ask the user; the question is withdrawn when the core stops waiting because the turn was stopped."""
        pending = self._pending.setdefault(id(event), _Pending())
        pending.started.set()
        question: Coroutine[Any, Any, object]
        match event:
            case ApprovalWanted():
                question = self._approval(event)
            case LimitHit():
                question = self._limit(event)
            case CostWanted():
                question = self._cost(event)
            case TrustWanted():
                question = self._trust(event)
            case Quote():
                question = self._quote(event)
        task = asyncio.ensure_future(question)
        pending.answer.add_done_callback(lambda _: task.cancel())
        try:
            decision = await task
        except asyncio.CancelledError:
            if not pending.answer.cancelled():
                raise
        else:
            if not pending.answer.done():
                pending.answer.set_result(decision)

    async def _approval(self, event: ApprovalWanted) -> Approval:
        """Ask whether a call may run, and with which arguments."""
        self._show_call(event)
        arguments: Mapping[str, Any] | None = event.arguments if event.fault else None
        prompt = _SERVER_PROMPT if event.of_server else _APPROVAL_PROMPT
        while True:
            typed = await self._word(prompt, at_end="n", lower=False)
            word = typed.lower()
            if word in ("e", "edit"):
                arguments = await self._edited(arguments or event.arguments) or arguments
            elif word == "d":
                if instead := await self._word("What to do instead: ", at_end="", lower=False):
                    return Approval("no", instead=instead)
            elif word in _DECISIONS:
                decision = _DECISIONS[word]
                return Approval(decision, None if decision == "no" else arguments)
            elif match := _NO_WITH_TEXT.fullmatch(typed):
                return Approval("no", instead=match[1])
            else:
                self.say("Type 1, 2, 3, e, n or d.")

    def _show_call(self, event: ApprovalWanted) -> None:
        if event.fault:
            self.say(f"! invalid arguments: {visible_line(event.fault)}")
        line = event.render()
        self.say(f"? {visible_line(line.text)}")
        self.say(f"  {visible_line(Call(event.name, event.shown_arguments).signature())}")
        if event.of_server:
            self._show_preview(event.rationale)
        elif event.rationale.strip():
            self.say(f"  why: {visible_line(event.rationale)}")
        self.say(f"  {visible_line(line.detail)}")
        for text in visible(event.changes).splitlines():  # in full: nothing can be unfolded here
            self.say(f"  {text}")

    async def _trust(self, event: TrustWanted) -> Trust:
        """Ask whether a file of the project may be used."""
        self.say(f"? {event.render().words}")
        self._show_preview(event.text)
        while (word := await self._word(_TRUST_PROMPT, at_end="l")) not in _TRUST_CHOICES:
            self.say("Type 1, n or l.")
        return _TRUST_CHOICES[word]

    async def _limit(self, event: LimitHit) -> LimitChoice:
        """Ask what to do at a limit."""
        self._show_offers(event.offers)
        while True:
            keys = "r, m, a or s"
            kind, model = await self._choice(event.offers, _LIMIT_PROMPT, _LIMIT_CHOICES, keys)
            if kind != "raise":
                return LimitChoice(kind, model)
            proposal = enough_text(event)
            hint = f"enter for {proposal}"
            if not proposal:
                hint = f"such as {_AMOUNT_EXAMPLES[event.unit]}"
            prompt = f"New cap for this {event.scope} ({hint}): "
            # a blank at the end of the input, because that must not accept the proposal
            typed = await self._word(prompt, at_end=" ") or proposal
            try:
                if typed.strip():
                    parse_amount(typed)
                    return LimitChoice("raise", typed)
            except UsageError as error:
                self.say(visible_line(str(error)))

    async def _cost(self, event: CostWanted) -> CostChoice:
        """Ask whether an expensive step may run."""
        line = event.render()
        self.say(f"? {visible_line(line.text)}")
        self.say(f"  {line.detail}")
        self._show_offers(event.offers)
        keys = "g, d, m, a or s"
        return CostChoice(*await self._choice(event.offers, _COST_PROMPT, _COST_CHOICES, keys))

    async def _quote(self, event: Quote) -> QuoteChoice:
        """Ask whether quoted work may start, and without which nodes."""
        for number, label in enumerate(event.labels, 1):
            self.say(f"  [{number}] {visible_line(label)}")
        while True:
            word = await self._word(_QUOTE_PROMPT, at_end="r")
            numbers = {int(part) for part in re.findall(r"\d+", word)}
            if word in ("g", "y", "go"):
                return QuoteChoice("start")
            if word in ("r", "n", "no", "s"):
                return QuoteChoice("refuse")
            if numbers and numbers <= {*range(1, len(event.labels) + 1)}:
                labels = tuple(event.labels[number - 1] for number in sorted(numbers))
                return QuoteChoice("trim", labels)
            self.say("Type g, r, or the numbers of nodes to leave out.")

    async def _choice(
        self, offers: Sequence[ModelOffer], prompt: str, choices: Mapping[str, K], keys: str
    ) -> tuple[K, str]:
        """Return the choice, made by a word or the number of an offered model, and the name of another model."""
        span = "1" if len(offers) == 1 else f"1-{len(offers)}"
        numbers = f"[{span}] that model  " if offers else ""
        models = {str(number): offer.name for number, offer in enumerate(offers, 1)}
        while True:
            word = await self._word(f"{numbers}{prompt}", at_end="s")
            kind = choices["model"] if word in models else choices.get(word)
            if kind is None:
                self.say(f"Type {keys}, or a model's number.")
            elif kind != "model":
                return kind, ""
            elif name := models.get(word) or await self._word(
                _MODEL_PROMPT, at_end="", lower=False
            ):
                return choices["model"], name

    def _show_preview(self, text: str) -> None:
        lines = visible(text).splitlines()
        for line in lines[:_PREVIEW_LINES]:
            self.say(f"  {line}")
        if len(lines) > _PREVIEW_LINES:
            self.say(f"  … {counted(len(lines) - _PREVIEW_LINES, 'more line')}")

    def _show_offers(self, offers: Sequence[ModelOffer]) -> None:
        for number, offer in enumerate(offers, 1):
            warning = "" if offer.fits else "; may not fit under the caps"
            name = f"{visible_line(offer.name)} ({'local' if offer.local else 'remote'})"
            is_known = offer.most_nano is not None
            cost = f"{dollars(offer.most_nano)} at most" if is_known else "price unknown"
            size = counted(offer.most_tokens, "token")
            self.say(f"  [{number}] {name}: {cost}, {size} at most{warning}")

    async def _edited(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Read arguments; None keeps them."""
        self.say(f"  {visible_line(json.dumps(dict(arguments), ensure_ascii=False, default=str))}")
        while typed := await self._word(_ARGUMENTS_PROMPT, at_end="", lower=False):
            try:
                return parse_arguments(typed)
            except UsageError as error:
                self.say(visible_line(str(error)))
        return None

    async def _word(self, prompt: str, *, at_end: str, lower: bool = True) -> str:
        """Read a trimmed line; return `at_end` at the end of the input."""
        try:
            typed = (await self.read(prompt)).strip()
        except EOFError:
            return at_end
        return typed.lower() if lower else typed

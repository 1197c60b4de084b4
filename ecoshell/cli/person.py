"""A person who is asked in line, between two lines of output: when each question is put, and how the answer is read."""

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
    Trust,
    enough_text,
    parse_arguments,
)
from ecoshell.agent.commands import amount, dollars
from ecoshell.budget import counted, parse_amount
from ecoshell.cli.parser import Interrupted
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, CostWanted, Event, LimitHit, ModelOffer, TrustWanted
from ecoshell.messages import Call, visible, visible_line

_PATIENCE = 1.0
"""Seconds until a question is asked whose event is not read: the store may be locked, and the events wait for it."""
_TRUST = "[1] trust it until it changes  [n] no, until it changes  [l] not now: "
_DECIDE = "[1] once  [2] this session  [3] this project  [e] edit  [n] no  [d] no, do this instead: "
_DECIDE_ONCE = "[1] yes  [e] edit  [n] no: "
_WHICH = "Model (/models lists them): "
_NO_BUT = re.compile(r"no?\b[\s,:;.]+(\S.*)", re.IGNORECASE | re.DOTALL)
_SHOWN_LINES = 40
"""Lines of a preview, or of instructions, that are printed."""

T = TypeVar("T")
K = TypeVar("K", bound=str)
Question = ApprovalWanted | LimitHit | CostWanted | TrustWanted
"""What the core wants decided."""


def _by_word(typed: Mapping[T, str]) -> dict[str, T]:
    """Each decision by every word that may be typed for it."""
    return {word: decision for decision, words in typed.items() for word in words.split()}


_DECISIONS: Mapping[str, Decision] = _by_word(
    {"once": "1 y yes once", "session": "2 s session", "project": "3 p project", "no": "n no"}
)
_LIMIT_WORDS: Mapping[str, Literal["raise", "model", "answer", "stop"]] = _by_word(
    {"raise": "r raise", "model": "m model", "answer": "a answer", "stop": "s stop"}
)
_COST_WORDS: Mapping[str, Literal["go", "always", "model", "answer", "stop"]] = _by_word(
    {"go": "g y go", "always": "d always", "model": "m model", "answer": "a answer", "stop": "s stop"}
)
_TRUSTS: Mapping[str, Trust] = _by_word({"yes": "1 y yes", "no": "n no", "later": "l later"})


@dataclass(slots=True)
class _Pending:
    """A question the core waits with; it is made while the event loop runs."""

    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    begun: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class LinePerson:
    """Asks a person for what the core wants decided.

    The core's question arrives as an event and as a call to `approve`, `at_limit`, `at_cost` or `trust`. Only the event
    has its place among the lines printed before it, so `meet` asks when it is read, and the call waits for the answer.
    """

    read: Callable[[str], Awaitable[str]]
    """Shows a prompt and gives what was typed; raises Interrupted and EOFError."""
    say: Callable[[str], None]
    """Prints one line."""
    _pending: dict[int, _Pending] = field(default_factory=dict[int, _Pending])
    _early: set[int] = field(default_factory=set[int])
    """Questions that were asked before their event was read."""

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return await self._decided(wanted, Approval("no"))

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        return await self._decided(hit, LimitChoice("stop"))

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        return await self._decided(wanted, CostChoice("stop"))

    async def trust(self, wanted: TrustWanted) -> Trust:
        return await self._decided(wanted, "later")

    async def meet(self, event: Event) -> None:
        """Ask the person if the event is a question; raises Interrupted when the person would rather stop."""
        if id(event) in self._early:
            self._early.discard(id(event))
        elif isinstance(event, (ApprovalWanted, LimitHit, CostWanted, TrustWanted)):
            await self._ask(event)

    def forget(self) -> None:
        """Drop what was decided for a turn that is over."""
        self._pending.clear()
        self._early.clear()

    async def _decided(self, event: Question, interrupted: T) -> T:
        """The decision; `interrupted` when Ctrl-C is typed and nobody reads the events, who could stop the turn."""
        pending = self._pending.setdefault(id(event), _Pending())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await pending.begun.wait()
            if not pending.begun.is_set():
                self._early.add(id(event))
                await self._ask(event)
            return await pending.answer
        except Interrupted:
            return interrupted
        finally:
            pending.answer.cancel()
            self._pending.pop(id(event), None)

    async def _ask(self, event: Question) -> None:
        """Ask while the core waits; when it no longer does, because the turn was stopped, the question is withdrawn."""
        pending = self._pending.setdefault(id(event), _Pending())
        pending.begun.set()
        match event:
            case ApprovalWanted():
                asked: Coroutine[Any, Any, object] = self._approval(event)
            case LimitHit():
                asked = self._limit(event)
            case CostWanted():
                asked = self._cost(event)
            case TrustWanted():
                asked = self._trust(event)
        task = asyncio.ensure_future(asked)
        pending.answer.add_done_callback(lambda _: task.cancel())
        try:
            decided = await task
        except asyncio.CancelledError:
            if not pending.answer.cancelled():
                raise
        else:
            if not pending.answer.done():
                pending.answer.set_result(decided)

    async def _approval(self, wanted: ApprovalWanted) -> Approval:
        """May this call run, and with which arguments?"""
        if wanted.fault:
            self.say(f"! these arguments cannot be used: {visible_line(wanted.fault)}")
        server, called = wanted.of_server, visible_line(Call(wanted.name, wanted.arguments).signature())
        self.say(f"? {'may it run ' * (not server)}{called}")
        if server:
            self._show_lines(wanted.rationale)
        elif wanted.rationale.strip():
            self.say(f"  why: {visible_line(wanted.rationale)}")
        self.say(f"  {visible_line(wanted.reason)}")
        if wanted.price_nano:
            self.say(f"  One use costs {dollars(wanted.price_nano)}.")
        self._show_lines(wanted.changes)
        arguments: Mapping[str, Any] | None = wanted.arguments if wanted.fault else None
        while True:
            word = await self._word(_DECIDE_ONCE if server else _DECIDE, at_end="n", lower=False)
            typed = word.lower()
            if typed in ("e", "edit"):
                arguments = await self._edited(arguments or wanted.arguments) or arguments
            elif typed == "d":
                if instead := await self._word("What to do instead: ", at_end="", lower=False):
                    return Approval("no", instead=instead)
            elif typed in _DECISIONS:
                return Approval(_DECISIONS[typed], arguments if typed not in ("n", "no") else None)
            elif but := _NO_BUT.fullmatch(word):
                return Approval("no", instead=but[1])
            else:
                self.say("Type 1, 2, 3, e, n or d.")

    async def _trust(self, wanted: TrustWanted) -> Trust:
        """May the model follow the instructions of this project?"""
        again = ", which has changed" if wanted.changed else ""
        self.say(f"? may the model follow {visible_line(wanted.file)}{again}")
        self._show_lines(wanted.text)
        while (typed := await self._word(_TRUST, at_end="l")) not in _TRUSTS:
            self.say("Type 1, n or l.")
        return _TRUSTS[typed]

    async def _limit(self, hit: LimitHit) -> LimitChoice:
        """What to do at a limit?"""
        self._show_offers(hit.offers)
        prompt = "[r] raise the cap  [m] another model  [a] answer from what there is  [s] stop: "
        while True:
            kind, model = await self._choice(hit.offers, prompt, _LIMIT_WORDS, "r, m, a or s")
            if kind != "raise":
                return LimitChoice(kind, model)
            proposed = enough_text(hit)
            hint = f"enter for {proposed}" if proposed else f"such as {'0.50' if hit.unit == 'usd' else '20000tok'}"
            asked = f"New cap for this {hit.scope} ({hint}): "
            typed = await self._word(asked, at_end=" ") or proposed  # a blank: the end of the input agrees to nothing
            try:
                if typed.strip():
                    parse_amount(typed)
                    return LimitChoice("raise", typed)
            except UsageError as error:
                self.say(visible_line(str(error)))

    async def _cost(self, wanted: CostWanted) -> CostChoice:
        """May an expensive step go on?"""
        low, high, above = (dollars(nano) for nano in (wanted.low_nano, wanted.high_nano, wanted.threshold_nano))
        self.say(f"? the next step with {visible_line(wanted.model)} costs from {low} to {high} at most")
        self.say(f"  You are asked above {above}: [budget] ask_above in the settings.")
        self._show_offers(wanted.offers)
        prompt = "[g] go on  [d] go on, don't ask again  [m] another model  [a] answer from what there is  [s] stop: "
        return CostChoice(*await self._choice(wanted.offers, prompt, _COST_WORDS, "g, d, m, a or s"))

    async def _choice(
        self, offers: Sequence[ModelOffer], prompt: str, words: Mapping[str, K], keys: str
    ) -> tuple[K, str]:
        """What is chosen, by a word or by the number of a model that is offered, and the model, if it is another."""
        numbers = f"[1{f'-{len(offers)}' if len(offers) > 1 else ''}] that model  " if offers else ""
        by_number = {str(number): offer.name for number, offer in enumerate(offers, 1)}
        while True:
            typed = await self._word(f"{numbers}{prompt}", at_end="s")
            kind = words["model"] if typed in by_number else words.get(typed)
            if kind is None:
                self.say(f"Type {keys}, or a model's number.")
            elif kind != "model":
                return kind, ""
            elif name := by_number.get(typed) or await self._word(_WHICH, at_end="", lower=False):
                return words["model"], name

    def _show_lines(self, text: str) -> None:
        lines = visible(text).splitlines()
        for line in lines[:_SHOWN_LINES]:
            self.say(f"  {line}")
        if len(lines) > _SHOWN_LINES:
            self.say(f"  … {counted(len(lines) - _SHOWN_LINES, 'more line')}")

    async def _edited(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Arguments as typed; None when the person leaves them."""
        self.say(f"  {visible_line(json.dumps(dict(arguments), ensure_ascii=False, default=str))}")
        while typed := await self._word("Arguments as one line of JSON (empty keeps them): ", at_end="", lower=False):
            try:
                return parse_arguments(typed)
            except UsageError as wrong:
                self.say(visible_line(str(wrong)))
        return None

    def _show_offers(self, offers: Sequence[ModelOffer]) -> None:
        for number, offer in enumerate(offers, 1):
            fits = "" if offer.fits else "; may not fit under the caps"
            where = "local" if offer.local else "remote"
            cost = "price unknown" if offer.most_nano is None else f"{dollars(offer.most_nano)} at most"
            size = amount(offer.most_tokens, "tokens")
            self.say(f"  [{number}] {visible_line(offer.name)} ({where}): {cost}, {size} at most{fits}")

    async def _word(self, prompt: str, *, at_end: str, lower: bool = True) -> str:
        """What was typed, trimmed; `at_end` when the input has ended."""
        try:
            typed = (await self.read(prompt)).strip()
        except EOFError:
            return at_end
        return typed.lower() if lower else typed

"""What a person is asked in line, and how what they type is read."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from ecoshell.agent.printing import amount, dollars
from ecoshell.agent.user_interface import (
    Approval,
    CostChoice,
    Decision,
    LimitChoice,
    Trust,
    enough_text,
    parse_arguments,
)
from ecoshell.budget.money import counted, parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, ModelOffer, TrustWanted
from ecoshell.messages import Call
from ecoshell.untrusted import visible, visible_line

_DECISIONS: dict[str, Decision] = {
    "1": "once",
    "y": "once",
    "yes": "once",
    "once": "once",
    "2": "session",
    "s": "session",
    "session": "session",
    "3": "project",
    "p": "project",
    "project": "project",
    "n": "no",
    "no": "no",
}
_LIMIT_WORDS: dict[str, Literal["raise", "model", "answer", "stop"]] = {
    "r": "raise",
    "raise": "raise",
    "m": "model",
    "model": "model",
    "a": "answer",
    "answer": "answer",
    "s": "stop",
    "stop": "stop",
}
_COST_WORDS: dict[str, Literal["go", "always", "model", "answer", "stop"]] = {
    "g": "go",
    "y": "go",
    "go": "go",
    "d": "always",
    "always": "always",
    "m": "model",
    "model": "model",
    "a": "answer",
    "answer": "answer",
    "s": "stop",
    "stop": "stop",
}
_TRUSTS: dict[str, Trust] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "l": "later",
    "later": "later",
    "1": "yes",
}
_TRUST = "[1] trust it until it changes  [n] no, until it changes  [l] not now: "
_DECIDE = "[1] once  [2] this session  [3] this project  [e] edit  [n] no  [d] no, do this instead: "
_NO_BUT = re.compile(r"no?\b[\s,:;.]+(\S.*)", re.IGNORECASE | re.DOTALL)
_SHOWN_LINES = 40
"""Lines of a preview, or of instructions, that are printed."""

T = TypeVar("T")


class Questions:
    """Asks one thing after another until there is a decision."""

    def __init__(self, read: Callable[[str], Awaitable[str]], say: Callable[[str], None]) -> None:
        """`read` shows a prompt and gives what was typed (raises Interrupted, EOFError); `say` prints one line."""
        self._read = read
        self._say = say

    async def approval(self, wanted: ApprovalWanted) -> Approval:
        """May this call run, and with which arguments?"""
        self._show_call(wanted)
        arguments: Mapping[str, Any] | None = wanted.arguments if wanted.fault else None
        while True:
            word = await self._word(_DECIDE, at_end="n", lower=False)
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
                self._say("Type 1, 2, 3, e, n or d.")

    async def trust(self, wanted: TrustWanted) -> Trust:
        """May the model follow the instructions of this project?"""
        again = ", which has changed" if wanted.changed else ""
        self._say(f"? may the model follow {visible_line(wanted.file)}{again}")
        self._show_lines(wanted.text)
        while (typed := await self._word(_TRUST, at_end="l")) not in _TRUSTS:
            self._say("Type 1, n or l.")
        return _TRUSTS[typed]

    async def limit(self, hit: LimitHit) -> LimitChoice:
        """What to do at a limit?"""
        self._show_offers(hit.offers)
        prompt = "[r] raise the cap  [m] another model  [a] answer from what there is  [s] stop: "
        while True:
            typed = await self._word(f"{_numbers(hit.offers)}{prompt}", at_end="s")
            if offered := _picked(typed, hit.offers):
                return LimitChoice("model", offered.name)
            match _LIMIT_WORDS.get(typed):
                case "raise":
                    choice = await self._new_cap(hit)
                case "model":
                    choice = await self._model(lambda name: LimitChoice("model", name))
                case "answer" | "stop" as kind:
                    return LimitChoice(kind)
                case _:
                    choice = self._say("Type r, m, a or s, or a model's number.")
            if choice is not None:
                return choice

    async def cost(self, wanted: CostWanted) -> CostChoice:
        """May an expensive step go on?"""
        low, high, above = (dollars(nano) for nano in (wanted.low_nano, wanted.high_nano, wanted.threshold_nano))
        self._say(f"? the next step with {visible_line(wanted.model)} costs from {low} to {high} at most")
        self._say(f"  You are asked above {above}: [budget] ask_above in the settings.")
        self._show_offers(wanted.offers)
        prompt = "[g] go on  [d] go on, don't ask again  [m] another model  [a] answer from what there is  [s] stop: "
        while True:
            typed = await self._word(f"{_numbers(wanted.offers)}{prompt}", at_end="s")
            if offered := _picked(typed, wanted.offers):
                return CostChoice("model", offered.name)
            match _COST_WORDS.get(typed):
                case "model":
                    choice = await self._model(lambda name: CostChoice("model", name))
                    if choice is not None:
                        return choice
                case None:
                    self._say("Type g, d, m, a or s, or a model's number.")
                case kind:
                    return CostChoice(kind)

    def _show_call(self, wanted: ApprovalWanted) -> None:
        if wanted.fault:
            self._say(f"! these arguments cannot be used: {visible_line(wanted.fault)}")
        self._say(f"? may it run {visible_line(Call(wanted.name, wanted.arguments).signature())}")
        if wanted.rationale.strip():
            self._say(f"  why: {visible_line(wanted.rationale)}")
        self._say(f"  {visible_line(wanted.reason)}")
        if wanted.price_nano:
            self._say(f"  One use costs {dollars(wanted.price_nano)}.")
        self._show_lines(wanted.changes)

    def _show_lines(self, text: str) -> None:
        lines = visible(text).splitlines()
        for line in lines[:_SHOWN_LINES]:
            self._say(f"  {line}")
        if len(lines) > _SHOWN_LINES:
            self._say(f"  … {counted(len(lines) - _SHOWN_LINES, 'more line')}")

    async def _edited(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Arguments as typed; None when the person leaves them."""
        self._say(f"  {visible_line(json.dumps(dict(arguments), ensure_ascii=False, default=str))}")
        while typed := await self._word("Arguments as one line of JSON (empty keeps them): ", at_end="", lower=False):
            try:
                return parse_arguments(typed)
            except UsageError as wrong:
                self._say(visible_line(str(wrong)))
        return None

    def _show_offers(self, offers: Sequence[ModelOffer]) -> None:
        for number, offer in enumerate(offers, 1):
            fits = "" if offer.fits else "; may not fit under the caps"
            where = "local" if offer.local else "remote"
            cost = "price unknown" if offer.most_nano is None else f"{dollars(offer.most_nano)} at most"
            size = amount(offer.most_tokens, "tokens")
            self._say(f"  [{number}] {visible_line(offer.name)} ({where}): {cost}, {size} at most{fits}")

    async def _model(self, choice: Callable[[str], T]) -> T | None:
        name = await self._word("Model (/models lists them): ", at_end="", lower=False)
        return choice(name) if name else None

    async def _new_cap(self, hit: LimitHit) -> LimitChoice | None:
        """A cap as typed; an empty line takes the one that is proposed."""
        proposed = enough_text(hit)
        example = "0.50" if hit.unit == "usd" else "20000tok"
        hint = f"enter for {proposed}" if proposed else f"such as {example}"
        typed = await self._word(f"New cap for this {hit.scope} ({hint}): ", at_end="") or proposed
        if not typed:
            return None
        try:
            parse_amount(typed)
        except UsageError as error:
            self._say(visible_line(str(error)))
            return None
        return LimitChoice("raise", typed)

    async def _word(self, prompt: str, *, at_end: str, lower: bool = True) -> str:
        """What was typed, trimmed; `at_end` when the input has ended."""
        try:
            typed = (await self._read(prompt)).strip()
        except EOFError:
            return at_end
        return typed.lower() if lower else typed


def _numbers(offers: Sequence[ModelOffer]) -> str:
    """How the offers are chosen, for the prompt."""
    if not offers:
        return ""
    return "[1] that model  " if len(offers) == 1 else f"[1-{len(offers)}] that model  "


def _picked(typed: str, offers: Sequence[ModelOffer]) -> ModelOffer | None:
    """The offer whose number was typed."""
    return next((offer for number, offer in enumerate(offers, 1) if typed == str(number)), None)

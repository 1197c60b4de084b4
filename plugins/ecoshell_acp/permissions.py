"""Asks the editor's user for permissions and decisions (Agent Client Protocol v1)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from acp.schema import PermissionOption, PermissionOptionKind

from ecoshell.agent import (
    Approval,
    CostChoice,
    Decision,
    LimitChoice,
    NonInteractive,
    QuoteChoice,
    Trust,
    enough_text,
)
from ecoshell.agent.command_table import dollars
from ecoshell.budget import amount_text
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, ModelOffer, Quote, TrustWanted
from ecoshell.events.work import quote_text
from ecoshell.messages import visible_line
from ecoshell_acp.updates import Question

Option = tuple[str, str, PermissionOptionKind]
"""An option's ID, its label and its kind."""
Ask = Callable[[Question, Sequence[PermissionOption]], Awaitable[str]]
"""Asks a question and returns the chosen ID, empty if none; raises CannotAsk."""

_ANNOUNCEMENT_SECONDS = 1.0
"""Longest wait for a question's event, which is late if the session store is locked."""
_MODEL = "model:"
_WITHOUT = "without:"
_MAX_TRIMS = 8
"""Nodes of a quote up to which each can be omitted; a permission request has no list to choose several from."""
_DECISIONS: Mapping[str, Decision] = {"once": "once", "session": "session", "project": "project"}
_APPROVAL: Sequence[Option] = (
    ("once", "Allow once", "allow_once"),
    ("session", "Always allow in this session", "allow_always"),
    ("project", "Always allow in this project", "allow_always"),
    ("no", "Reject", "reject_once"),
)
_ENDINGS: Sequence[Option] = (
    ("answer", "Answer with what was found so far", "reject_once"),
    ("stop", "Stop", "reject_once"),
)
_TRUST: Sequence[Option] = (
    ("yes", "Yes, until it changes", "allow_always"),
    ("no", "No, until it changes", "reject_always"),
    ("later", "Not now", "reject_once"),
)


class CannotAsk(Exception):
    """The editor does not support the question, or has disconnected."""


@dataclass(slots=True, eq=False)
class EditorUser:
    """Asks through permission requests, each after its event was sent, so that the editor can show the context.

    If the editor cannot ask, decisions are those of a non-interactive run.
    """

    ask: Ask | None = None
    _fallback: NonInteractive = field(default_factory=NonInteractive)
    _announced: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])

    def announce(self, event: Question) -> None:
        """Record that the event of a question was sent to the editor."""
        self._announced.setdefault(id(event), asyncio.Event()).set()

    def forget(self) -> None:
        """Forget the questions of a finished turn."""
        self._announced.clear()

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        try:
            options = [
                option
                for option in _APPROVAL
                if not (wanted.of_server and option[0] in ("session", "project"))
            ]
            return Approval(_DECISIONS.get(await self._choice(wanted, options), "no"))
        except CannotAsk:
            return await self._fallback.approve(wanted)

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        enough = enough_text(hit)
        raised = f"Raise the cap of this {hit.scope} to {amount_text(hit.enough, hit.unit)}"
        options: list[Option] = [("raise", raised, "allow_once")] if enough else []
        try:
            chosen = await self._choice(hit, (*options, *_models(hit.offers), *_ENDINGS))
        except CannotAsk:
            return await self._fallback.at_limit(hit)
        return LimitChoice("raise", enough) if chosen == "raise" else LimitChoice(*_ending(chosen))

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        options: Sequence[Option] = (
            ("go", "Continue", "allow_once"),
            ("always", "Continue, and don't ask again in this session", "allow_always"),
            *_models(wanted.offers),
            *_ENDINGS,
        )
        try:
            chosen = await self._choice(wanted, options)
        except CannotAsk:
            return await self._fallback.at_cost(wanted)
        return CostChoice(chosen) if chosen in ("go", "always") else CostChoice(*_ending(chosen))

    async def at_quote(self, quoted: Quote) -> QuoteChoice:
        labels = quoted.labels if len(quoted.labels) <= _MAX_TRIMS else ()
        options: Sequence[Option] = (
            ("start", f"Start ({quote_text(quoted)})", "allow_once"),
            *(
                (f"{_WITHOUT}{label}", f"Start without {visible_line(label)}", "allow_once")
                for label in dict.fromkeys(labels)
            ),
            ("refuse", "Do not start", "reject_once"),
        )
        try:
            chosen = await self._choice(quoted, options)
        except CannotAsk:
            return await self._fallback.at_quote(quoted)
        if chosen.startswith(_WITHOUT):
            return QuoteChoice("trim", (chosen.removeprefix(_WITHOUT),))
        return QuoteChoice("start" if chosen == "start" else "refuse")

    async def trust(self, wanted: TrustWanted) -> Trust:
        with suppress(CannotAsk):
            chosen = await self._choice(wanted, _TRUST)
            if chosen in ("yes", "no"):
                return chosen
        return "later"

    async def _choice(self, event: Question, options: Sequence[Option]) -> str:
        """Ask and return the chosen ID; empty if nothing valid was chosen."""
        if self.ask is None:
            raise CannotAsk
        announcement = self._announced.setdefault(id(event), asyncio.Event())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANNOUNCEMENT_SECONDS):
                    await announcement.wait()
        finally:
            self._announced.pop(id(event), None)
        chosen = await self.ask(
            event,
            [PermissionOption(option_id=id_, name=name, kind=kind) for id_, name, kind in options],
        )
        return chosen if chosen in {id_ for id_, _, _ in options} else ""


def _models(offers: Sequence[ModelOffer]) -> list[Option]:
    options: list[Option] = []
    for offer in offers:
        cost = "price unknown" if offer.most_nano is None else f"{dollars(offer.most_nano)} at most"
        fits = "" if offer.fits else "; may not fit under the caps"
        label = f"Continue with {visible_line(offer.name)} ({cost}{fits})"
        options.append((f"{_MODEL}{offer.name}", label, "allow_once"))
    return options


def _ending(chosen: str) -> tuple[Literal["model", "answer", "stop"], str]:
    """Convert a choice to a model, an answer from the results so far, or a stop."""
    if chosen.startswith(_MODEL):
        return "model", chosen.removeprefix(_MODEL)
    return "answer" if chosen == "answer" else "stop", ""

"""The person at an editor, who is asked for permission where a chat would ask (Agent Client Protocol v1)."""

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
    Trust,
    enough_text,
)
from ecoshell.agent.commands import amount, dollars
from ecoshell.cli.editor.updates import Question
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, ModelOffer, TrustWanted
from ecoshell.messages import visible_line

Option = tuple[str, str, PermissionOptionKind]
"""What can be chosen: its id, its words, and what kind of answer it is."""
Ask = Callable[[Question, Sequence[PermissionOption]], Awaitable[str]]
"""Puts a question; gives the id that was chosen, empty where none was. Raises NobodyThere."""

_PATIENCE = 1.0
"""Seconds until a question is put whose event is not told yet: the store may be locked, and the events wait for it."""
_MODEL = "model:"
_DECISIONS: Mapping[str, Decision] = {"once": "once", "session": "session", "project": "project"}
_APPROVAL: Sequence[Option] = (
    ("once", "Allow once", "allow_once"),
    ("session", "Always allow in this session", "allow_always"),
    ("project", "Always allow in this project", "allow_always"),
    ("no", "Reject", "reject_once"),
)
_ENDINGS: Sequence[Option] = (
    ("answer", "Answer from what there is", "reject_once"),
    ("stop", "Stop", "reject_once"),
)
_TRUST: Sequence[Option] = (
    ("yes", "Yes, until it changes", "allow_always"),
    ("no", "No, until it changes", "reject_always"),
    ("later", "Not now", "reject_once"),
)


class NobodyThere(Exception):
    """The editor cannot ask, or is gone."""


@dataclass(slots=True, eq=False)
class EditorPerson:
    """Asks by requests for permission, each once its event has been told, so that the editor knows what it is about.

    Where the editor cannot ask, it is as if nobody were there.
    """

    ask: Ask | None = None
    _nobody: NonInteractive = field(default_factory=NonInteractive)
    _told: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])

    def told(self, event: Question) -> None:
        """Take note that the editor was told of this."""
        self._told.setdefault(id(event), asyncio.Event()).set()

    def forget(self) -> None:
        """Drop what the editor was told of in a turn that is over."""
        self._told.clear()

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        try:
            options = [one for one in _APPROVAL if not (wanted.of_server and one[0] in ("session", "project"))]
            return Approval(_DECISIONS.get(await self._choice(wanted, options), "no"))
        except NobodyThere:
            return await self._nobody.approve(wanted)

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        enough = enough_text(hit)
        raised = f"Raise the cap of this {hit.scope} to {amount(hit.enough, hit.unit)}"
        options: list[Option] = [("raise", raised, "allow_once")] if enough else []
        try:
            chosen = await self._choice(hit, (*options, *_models(hit.offers), *_ENDINGS))
        except NobodyThere:
            return await self._nobody.at_limit(hit)
        return LimitChoice("raise", enough) if chosen == "raise" else LimitChoice(*_ending(chosen))

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        options: Sequence[Option] = (
            ("go", "Go on", "allow_once"),
            ("always", "Go on, and don't ask again in this session", "allow_always"),
            *_models(wanted.offers),
            *_ENDINGS,
        )
        try:
            chosen = await self._choice(wanted, options)
        except NobodyThere:
            return await self._nobody.at_cost(wanted)
        return CostChoice(chosen) if chosen in ("go", "always") else CostChoice(*_ending(chosen))

    async def trust(self, wanted: TrustWanted) -> Trust:
        with suppress(NobodyThere):
            chosen = await self._choice(wanted, _TRUST)
            if chosen in ("yes", "no"):
                return chosen
        return "later"

    async def _choice(self, event: Question, options: Sequence[Option]) -> str:
        """The id of what is chosen; empty where that is nothing."""
        if self.ask is None:
            raise NobodyThere
        told = self._told.setdefault(id(event), asyncio.Event())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await told.wait()
        finally:
            self._told.pop(id(event), None)
        chosen = await self.ask(
            event, [PermissionOption(option_id=id_, name=name, kind=kind) for id_, name, kind in options]
        )
        return chosen if chosen in {id_ for id_, _, _ in options} else ""


def _models(offers: Sequence[ModelOffer]) -> list[Option]:
    found: list[Option] = []
    for offer in offers:
        cost = "price unknown" if offer.most_nano is None else f"{dollars(offer.most_nano)} at most"
        fits = "" if offer.fits else "; may not fit under the caps"
        found.append((f"{_MODEL}{offer.name}", f"Go on with {visible_line(offer.name)} ({cost}{fits})", "allow_once"))
    return found


def _ending(chosen: str) -> tuple[Literal["model", "answer", "stop"], str]:
    """What a question about money can come to besides its own ways on: another model, an answer, or nothing more."""
    if chosen.startswith(_MODEL):
        return "model", chosen.removeprefix(_MODEL)
    return "answer" if chosen == "answer" else "stop", ""

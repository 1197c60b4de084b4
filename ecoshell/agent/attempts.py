"""The modes that one turn tries, chosen by experience in the mode `auto`, and the record of how each did."""

import asyncio
from dataclasses import dataclass, field, replace

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.experience import now
from ecoshell.agent.model_set import AUTO
from ecoshell.agent.turn_usage import TurnUsage
from ecoshell.budget import price_unknown
from ecoshell.errors import ModelBroken, ModelMissing, PriceUnknown, StoreError, UsageError
from ecoshell.events import Emit, ModeChosen, Notice, Status, TurnStarted
from ecoshell.planning.btp.evidence import CANDIDATES, ModeChoice, choose
from ecoshell.planning.btp.experience import Attempt
from ecoshell.secrecy import environ

_RECORDED: frozenset[Status] = frozenset({"answered", "gave_up", "limit"})
"""Outcomes that say something about the mode; errors and interruptions do not."""
_UNAVAILABLE = (ModelMissing, ModelBroken, UsageError)


@dataclass(slots=True)
class Attempts:
    """One turn's attempts at its question. Call `begin` first."""

    deps: Dependencies
    started: TurnStarted
    session: str
    usage: TurnUsage
    """The turn's usage so far."""
    emit: Emit
    _usage_before: TurnUsage = field(default_factory=TurnUsage)
    """The turn's usage when the current attempt began."""
    _names: str = ""
    """The models that began the current attempt; empty once it is recorded."""
    _has_switched: bool = False

    async def begin(self) -> None:
        """In the mode AUTO, choose a mode and report why; without experience, choose the first."""
        if self.deps.models.mode == AUTO:
            first, models = CANDIDATES[0], self.deps.models
            playing = {mode: models.playing(mode) for mode in CANDIDATES}
            past, question = self.deps.experience.past, self.started.question
            try:
                if models.no_choice:
                    choice = ModeChoice(first, models.no_choice)
                else:
                    records = await asyncio.to_thread(past.modes, question, playing)
                    choice = choose(records, self.deps.settings.hour_nano or 0)
            except (StoreError, ModelMissing) as failure:
                choice = ModeChoice(first, f"experience is unavailable; {failure}")
            if not await self._activate(choice.mode, choice.why):
                await self._activate(first, "it is available")
        self._start()

    async def take_over(self, reason: str) -> bool:
        """Switch to the other mode after one gave up; only in the mode AUTO, and once per turn."""
        models = self.deps.models
        if models.mode != AUTO or self._has_switched or models.no_choice:
            return False
        self._has_switched, previous = True, models.current.mode.name
        mode = next(mode for mode in CANDIDATES if mode != previous)
        await self.end("gave_up")
        is_active = await self._activate(mode, f"{previous} gave up{f': {reason}' if reason else ''}", after=previous)
        if is_active:
            self._start()
        return is_active

    async def end(self, status: Status) -> None:
        """Record the attempt as experience, unless another model took part or it is recorded already."""
        names, self._names = self._names, ""
        usage, start = replace(self.usage), self._usage_before
        mode, strategy = self.deps.models.current.mode.name, self.deps.settings.strategy
        if status not in _RECORDED or not names or names != self.deps.models.playing(mode):
            return

        def attempt() -> Attempt:  # made in a thread
            from ecoshell.planning.btp.redaction import QUERY, beginning

            return Attempt(
                query=beginning(self.started.question, environ, QUERY),
                mode=mode,
                models=names,
                strategy=strategy,
                outcome=status,
                price_nano=None if usage.unpriced > start.unpriced else usage.known_nano - start.known_nano,
                tokens=usage.usage.total - start.usage.total,
                seconds=usage.worked - start.worked,
                session=self.session,
                turn=self.started.turn,
                at=now(),
            )

        if self.deps.settings.recording:
            await self.deps.experience.remember(attempt, self.emit)

    def _start(self) -> None:
        models = self.deps.models
        self._usage_before, self._names = replace(self.usage), models.playing(models.current.mode.name)

    async def _activate(self, mode: str, reason: str, after: str = "") -> bool:
        """Switch to a mode and report it.

        False, with a notice, if its models are unavailable, or if one has no price under a cap in dollars.
        """
        models = self.deps.models
        try:
            await models.choose(mode)
            if mode != CANDIDATES[0]:
                unpriced = [model.traits.name for model in models.current.models if model.traits.price is None]
                caps = [cap for cap in await self.deps.budget.caps() if cap.unit == "usd"]
                if refused := [(name, cap) for name in unpriced for cap in caps if cap.over(name)]:
                    raise price_unknown(*refused[0])
        except (*_UNAVAILABLE, PriceUnknown) as failure:
            self.emit(Notice(f"The mode {mode} is unavailable. {failure}"))
            return False
        models.chosen = ModeChosen(mode, models.name, reason, after)
        self.emit(models.chosen)
        return True

"""The attempts of one turn: who makes them where that is left to experience, and what each has come to."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ecoshell.agent.dependencies import Dependencies, now
from ecoshell.agent.mode import Mode, View, of_conclusion, used
from ecoshell.agent.model_set import AUTO
from ecoshell.budget.holds import CapState, Hold, fitting_output, price_unknown
from ecoshell.errors import BudgetError, LimitReached, ModelBroken, ModelMissing, PriceUnknown, StoreError, UsageError
from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    Emit,
    Event,
    ModeChosen,
    Notice,
    Status,
    StepStarted,
    Taken,
    ToolRegistered,
    ToolsOffered,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.planning.btp.experience import Attempt
from ecoshell.planning.mode_choice import CANDIDATES, ModeChoice, choose
from ecoshell.secrecy import environ

_TOLD: frozenset[Status] = frozenset({"answered", "gave_up", "limit"})
"""How an attempt ends that is remembered; a failure and a stop say nothing of who thought."""
_UNAVAILABLE = (ModelMissing, ModelBroken, UsageError)


@dataclass(slots=True)
class TurnUsage:
    """Adds up what a turn costs from its events; money becomes unknown once any part of it is."""

    started: float = field(default_factory=time.monotonic)
    known_nano: int = 0
    unpriced: int = 0
    """Model calls of which nobody knows what they cost."""
    usage: Usage = field(default_factory=Usage)
    taken: Taken = field(default_factory=Taken)
    """The same as people are shown it."""
    steps: int = 0
    worked: float = 0.0
    """Seconds of models and tools, one after another; the person's own are not in it."""
    saved_tokens: int = 0
    registered: list[str] = field(default_factory=list[str])
    _sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of what the agent registered."""
    _carried: int = 0
    _everything: int = 0

    @property
    def spent_nano(self) -> int | None:
        """What was spent; None when a part of it is unknown."""
        return None if self.unpriced else self.known_nano

    def see(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case BudgetSettled():
                self.known_nano += event.spent_nano or 0
                self.unpriced += event.spent_nano is None
                self.usage += event.usage
                self.taken = self.taken.plus(event)
                self.worked += event.seconds
            case CallFinished():
                self.known_nano += event.spent_nano
                self.taken = self.taken.paid(event.spent_nano)
                self.worked += event.seconds
            case StepStarted():
                self.steps = event.step
                self.saved_tokens += max(0, self._everything - self._carried)
            case ToolsOffered():
                self._carried, self._everything = event.context_tokens, event.everything_tokens
            case ToolRegistered():
                self._sizes[event.name] = event.tokens if event.by == "agent" else 0
                self._carried += self._sizes[event.name]
                self.registered.append(event.name)
            case BranchLeft():
                self._carried -= sum(self._sizes.get(name, 0) for name in event.unregistered)
            case _:
                pass


class Attempts:
    """One turn's attempts at its question. Call `begin` first."""

    def __init__(self, deps: Dependencies, asked: TurnStarted, session: str, usage: TurnUsage, emit: Emit) -> None:
        """`usage` is what the turn takes, as far as it has come."""
        self._deps = deps
        self._asked = asked
        self._session = session
        self._tell = emit
        self._usage = usage
        self._before = usage
        """The same as it was when the attempt began."""
        self._names = ""
        self._again = False
        """Whether the other mode has taken over already."""

    async def begin(self) -> None:
        """In the mode AUTO, choose who thinks and say why; raises nothing for want of experience or of a model."""
        if self._deps.models.mode == AUTO:
            first, models = CANDIDATES[0], self._deps.models
            playing = {mode: models.playing(mode) for mode in CANDIDATES}
            past, question = self._deps.experience.past, self._asked.question
            try:
                if models.no_choice:
                    choice = ModeChoice(first, models.no_choice)
                else:
                    known = await asyncio.to_thread(past.modes, question, playing)
                    choice = choose(known, self._deps.settings.hour_nano or 0)
            except (StoreError, ModelMissing) as failure:
                choice = ModeChoice(first, f"there is no experience to go by; {failure}")
            if not await self._think_as(choice.mode, choice.why):
                await self._think_as(first, "it can be had")
        self._start()

    async def take_over(self, reason: str, view: View) -> bool:
        """Whether the other mode goes on from here, now that this one has given up for a reason.

        Once in a turn, in the mode AUTO alone, and only where every cap has room for a step and the answer.
        """
        models = self._deps.models
        if models.mode != AUTO or self._again or models.no_choice:
            return False
        self._again, before = True, models.current.mode.name
        other = next(mode for mode in CANDIDATES if mode != before)
        await self.end("gave_up")
        fault = await self._obstacle(other, view)
        if fault:
            self._tell(Notice(f"{before} gave up, and {other} does not go on. {fault}"))
        elif await self._think_as(other, f"{before} gave up{f': {reason}' if reason else ''}", after=before):
            self._start()
            return True
        return False

    async def end(self, status: Status) -> None:
        """Remember what the attempt has come to, unless another model took part in it or it is remembered already."""
        names, self._names = self._names, ""
        usage, before = replace(self._usage), self._before
        mode, strategy = self._deps.models.current.mode.name, self._deps.settings.strategy
        if status not in _TOLD or not names or names != self._deps.models.playing(mode):
            return

        def made() -> Attempt:  # where its time does not count
            from ecoshell.planning.btp.redaction import QUERY, beginning

            return Attempt(
                query=beginning(self._asked.question, environ, QUERY),
                mode=mode,
                models=names,
                strategy=strategy,
                outcome=status,
                price_nano=None if usage.unpriced > before.unpriced else usage.known_nano - before.known_nano,
                tokens=usage.usage.total - before.usage.total,
                seconds=usage.worked - before.worked,
                session=self._session,
                turn=self._asked.turn,
                at=now(),
            )

        if self._deps.settings.recording:
            await self._deps.experience.remember(made, self._tell)

    def _start(self) -> None:
        models = self._deps.models
        self._before, self._names = replace(self._usage), models.playing(models.current.mode.name)

    async def _think_as(self, mode: str, why: str, after: str = "") -> bool:
        """Go over to a mode and say so.

        False, and a notice, where its models cannot be had, or one has no price and a cap in dollars stands.
        """
        models = self._deps.models
        try:
            await models.choose(mode)
            if mode != CANDIDATES[0]:
                unpriced = [model.traits.name for model in models.current.models if model.traits.price is None]
                capped = [cap for cap in await self._deps.budget.caps() if cap.unit == "usd"]
                if unpriced and capped:
                    raise price_unknown(unpriced[0], capped[0])
        except (*_UNAVAILABLE, PriceUnknown) as failure:
            self._tell(Notice(f"{mode} cannot think. {failure}"))
            return False
        chosen = models.chosen = ModeChosen(mode, models.name, why, after)
        self._tell(chosen)
        return True

    async def _obstacle(self, mode: str, view: View) -> str:
        """Why a mode cannot go on from this view; empty when it can."""
        models, there = self._deps.models, (*self._deps.models.current.models, *self._deps.models.idle)
        make = partial(models.factory.make, models.session_model, mode, roles=models.roles, at_hand=there)
        try:
            caps = await self._deps.budget.caps()
            other = await asyncio.to_thread(make)
        except (*_UNAVAILABLE, StoreError) as failure:
            return str(failure)
        try:
            await asyncio.to_thread(_require_room, other.mode, view, caps, models.current.mode.aside)
        except LimitReached:  # its figures are those of a moment that will not come
            return "The caps have no room for a step of it beside the answer; /budget raises them."
        except BudgetError as refused:
            return str(refused)
        else:
            return ""
        finally:
            for model in other.models:
                if model not in there:
                    await model.aclose()


def _require_room(mode: Mode, view: View, caps: Sequence[CapState], aside: Hold | None) -> None:
    """Raise BudgetError where the gate would refuse a step, or what is set aside beside it; counts, so may block.

    What is set aside now will be given back before.
    """
    foreseen = mode.foresee(view)
    answer = of_conclusion(foreseen)
    free = [replace(cap, held=used(cap, aside) - cap.spent) for cap in caps]
    left = [replace(cap, held=cap.held + (answer.in_unit_of(cap) or 0)) for cap in free]
    calls = [(call, left) for call in foreseen.steps]
    calls += [(foreseen.conclusion, free)] if foreseen.conclusion else []
    for call, room in calls:
        fitting_output(call.model.reservation(call.request, call.role), room)

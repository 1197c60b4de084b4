"""At a limit the turn pauses and asks: raise the cap, another model, answer from what there is, or stop."""

from collections.abc import Awaitable, Callable
from typing import cast

from ecoshell.agent.mode import Mode
from ecoshell.agent.person import LimitChoice, Person
from ecoshell.agent.purse import Purse
from ecoshell.budget.caps import Scope
from ecoshell.budget.money import Unit, parse_amount
from ecoshell.errors import EcoshellError, LimitReached
from ecoshell.events import BudgetChanged, Emit, LimitChosen, LimitHit, Notice


class AnswerNow(Exception):
    """No further steps: answer from what there is."""


class StopNow(Exception):
    """Stop without an answer."""


class LimitDesk:
    """Carries a limit to the person and the person's choice back into the turn."""

    def __init__(self, purse: Purse, person: Callable[[], Person], switch: Callable[[str], Awaitable[Mode]]) -> None:
        """`switch` makes another model the session's and gives its mode."""
        self._purse = purse
        self._person = person
        self._switch = switch

    async def settle(self, hit: LimitReached, mode: Mode, emit: Emit) -> Mode:
        """The mode to go on with; raises AnswerNow or StopNow."""
        wanted = LimitHit(hit.scope, cast("Unit", hit.unit), hit.need, hit.left, str(hit))
        while True:
            emit(wanted)
            choice = await self._person().at_limit(wanted)
            emit(LimitChosen(choice.kind))
            if choice.kind == "answer":
                raise AnswerNow
            if choice.kind == "stop":
                raise StopNow
            try:
                return await self._carry_out(choice, wanted, mode, emit)
            except EcoshellError as refused:  # a mistyped amount or model is no reason to lose the turn
                emit(Notice(str(refused)))

    async def _carry_out(self, choice: LimitChoice, wanted: LimitHit, mode: Mode, emit: Emit) -> Mode:
        if choice.kind == "model":
            return await self._switch(choice.value)
        await self._purse.set_cap(cast("Scope", wanted.scope), parse_amount(choice.value))
        emit(BudgetChanged(await self._purse.caps()))
        return mode

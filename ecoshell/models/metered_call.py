"""One reserved model call, from its hold until it is settled or released."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from ecoshell.budget import Hold, Settlement
from ecoshell.budget.gate import Gate, finished
from ecoshell.budget.working_time import TimeUp, WorkingTime
from ecoshell.errors import ModelError, ModelUnavailable, StoreError
from ecoshell.events import BudgetHeld, BudgetSettled, Emit, Notice
from ecoshell.messages import Usage
from ecoshell.models.retrying import Retries

T = TypeVar("T")


class MeteredCall:
    """One reserved call, from its hold until it is settled or released."""

    def __init__(
        self, gate: Gate, hold: Hold, emit: Emit, retries: Retries, *, local: bool
    ) -> None:
        """The hold of an unbilled attempt is kept for the next attempt.

        Calls that leave this machine or cost money start only after their reservation is on disk in the session.
        """
        self.hold = hold
        self.emit = emit
        self.usage: Usage | None = None
        self.estimate: Callable[[], Usage] | None = None  # counts tokens; may block
        self.text: Callable[[], str] = lambda: ""  # the text received so far
        self.prompt = ""  # digest of the prompt, if its reported count is reused
        self.tool = ""
        self.pause: float | None = None  # seconds until the next attempt; None without one
        self.shown = False  # whether a part of the reply arrived
        self._ended = "no usage was reported"
        self._gate = gate
        self._retries = retries
        self._outside = not local or hold.nano != 0
        self._time = WorkingTime(hold.ms, lambda: gate.extend(hold.entry))

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work and end the hold: settled once anything was sent, otherwise released."""
        ending: Literal["settle", "release", "keep"] = "release"
        try:
            self.emit(_reserved(self.hold))
            if self._outside:
                await self._gate.logged()
            ending = "settle"
            return await self._time.spend(work)
        except TimeUp:
            self._ended = "its time was up"
            raise
        except asyncio.CancelledError:
            self._ended = "the call was stopped"
            raise
        except ModelError as error:
            self._ended, error.shown = "the call failed", self.shown
            if isinstance(error, ModelUnavailable):
                self.pause = self._retries.next_pause(error)
            if not error.billed:
                ending = "release" if self.pause is None else "keep"
            raise
        finally:
            if ending == "settle":
                await finished(self._settle())
            elif ending == "release":
                await self._gate.release(self.hold, self._time.ms or None)
            elif self._time.ms:
                await self._gate.end_attempt(self.hold, self._time.ms)

    async def _settle(self) -> None:
        hold, ms = self.hold, self._time.ms
        estimate = None
        if self.usage is None and self.estimate is not None:
            estimate = await asyncio.to_thread(self.estimate)
        try:
            settlement = await self._gate.settle(
                hold, self.usage, tool=self.tool, ms=ms, estimate=estimate
            )
        except StoreError as error:  # the answer is kept, and the hold counts in full
            self.emit(Notice(f"The call could not be settled. {error}"))
            worst = Usage(hold.prompt_tokens, hold.max_tokens)
            settlement = Settlement(hold.entry, hold.nano, worst, reported=False, estimate=estimate)
            self._ended = "it could not be settled"
        self.emit(
            BudgetSettled(
                entry=hold.entry,
                role=hold.account.role,
                model=hold.account.model,
                spent_nano=settlement.spent_nano,
                usage=settlement.usage,
                reported=settlement.reported,
                seconds=ms / 1_000,
                overrun_nano=settlement.overrun_nano,
                estimate=settlement.estimate,
                estimate_nano=settlement.estimate_nano,
                why="" if settlement.reported else self._ended,
                prompt=self.prompt if settlement.reported else "",
            )
        )
        if settlement.overran:
            from ecoshell.events.budget import overrun_text

            self.emit(Notice(overrun_text(hold.account.model, settlement.overrun_text)))


def _reserved(hold: Hold) -> BudgetHeld:
    return BudgetHeld(
        entry=hold.entry,
        role=hold.account.role,
        model=hold.account.model,
        held_nano=hold.nano,
        held_tokens=hold.tokens,
        max_tokens=hold.max_tokens,
        clamped=hold.clamped,
        held_ms=hold.ms,
    )

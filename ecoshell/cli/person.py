"""A person who is asked in line, between two lines of output."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

from ecoshell.agent.person import Approval, CostChoice, Decision, LimitChoice
from ecoshell.budget.money import parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, CostWanted, Event, LimitHit
from ecoshell.messages import Call
from ecoshell.untrusted import visible_line

_DECISIONS: dict[str, Decision] = {
    "y": "once",
    "yes": "once",
    "once": "once",
    "s": "session",
    "session": "session",
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

_T = TypeVar("_T")


class LinePerson:
    """Asks a person for what the core wants decided.

    The core's question arrives as an event and as a call to `approve` or `at_limit`. Only the event has its place among
    the lines printed before it, so `meet` asks when the event is read, and the call waits for the decision.
    """

    def __init__(self, read: Callable[[str], Awaitable[str]], say: Callable[[str], None]) -> None:
        """`read` shows a prompt and gives what was typed (raises Interrupted, EOFError); `say` prints one line."""
        self._read = read
        self._say = say
        self._approvals: dict[str, asyncio.Future[Decision]] = {}
        self._limit: asyncio.Future[LimitChoice] | None = None

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        decision = await self._approval(wanted.id)
        del self._approvals[wanted.id]
        return Approval(decision)

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        choice = await self._choice()
        self._limit = None
        return choice

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        return CostChoice("go")

    async def meet(self, event: Event) -> None:
        """Ask the person if the event is a question; raises Interrupted when the person would rather stop."""
        if isinstance(event, ApprovalWanted):
            await _decide(self._approval(event.id), self._ask_approval(event))
        elif isinstance(event, LimitHit):
            await _decide(self._choice(), self._ask_limit(event))

    def forget(self) -> None:
        """Drop what was decided for a turn that is over."""
        self._approvals.clear()
        self._limit = None

    def _approval(self, call: str) -> "asyncio.Future[Decision]":
        return self._approvals.setdefault(call, asyncio.get_running_loop().create_future())

    def _choice(self) -> "asyncio.Future[LimitChoice]":
        if self._limit is None:
            self._limit = asyncio.get_running_loop().create_future()
        return self._limit

    async def _ask_approval(self, wanted: ApprovalWanted) -> Decision:
        self._say(f"? may it run {visible_line(Call(wanted.name, wanted.arguments).signature())}")
        self._say(f"  {visible_line(wanted.reason)}")
        while True:
            typed = await self._word(
                "[y] once  [s] always in this session  [p] always in this project  [n] no: ", at_end="n"
            )
            if typed in _DECISIONS:
                return _DECISIONS[typed]
            self._say("Type y, s, p or n.")

    async def _ask_limit(self, hit: LimitHit) -> LimitChoice:
        while True:
            typed = await self._word(
                "[r] raise the cap  [m] another model  [a] answer from what there is  [s] stop: ", at_end="s"
            )
            choice = await self._limit_choice(_LIMIT_WORDS.get(typed), hit)
            if choice is not None:
                return choice

    async def _limit_choice(self, kind: str | None, hit: LimitHit) -> LimitChoice | None:
        """The finished choice, or None when the person has to be asked again."""
        match kind:
            case "raise":
                return await self._new_cap(hit)
            case "model":
                name = await self._word("Model (/models lists them): ", at_end="", lower=False)
                return LimitChoice("model", name) if name else None
            case "answer" | "stop":
                return LimitChoice(kind)
            case _:
                self._say("Type r, m, a or s.")
                return None

    async def _new_cap(self, hit: LimitHit) -> LimitChoice | None:
        example = "0.50" if hit.unit == "usd" else "20000tok"
        typed = await self._word(f"New cap for this {hit.scope}, such as {example}: ", at_end="")
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


async def _decide(decision: "asyncio.Future[_T]", asking: Coroutine[Any, Any, _T]) -> None:
    """Ask while the core waits; when it no longer does, because the turn was stopped, the question is withdrawn."""
    task = asyncio.ensure_future(asking)
    decision.add_done_callback(lambda _: task.cancel())
    try:
        decided = await task
    except asyncio.CancelledError:
        if not decision.cancelled():
            raise
    else:
        if not decision.done():
            decision.set_result(decided)

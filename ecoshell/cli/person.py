"""A person who is asked in line, between two lines of output."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ecoshell.agent.user_interface import Approval, CostChoice, LimitChoice, Trust
from ecoshell.cli.interrupts import Interrupted
from ecoshell.cli.questions import Questions
from ecoshell.events import ApprovalWanted, CostWanted, Event, LimitHit, TrustWanted

_PATIENCE = 1.0
"""Seconds until a question is asked whose event is not read: the store may be locked, and the events wait for it."""

T = TypeVar("T")


class _Pending(Generic[T]):
    """A question the core waits with."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()


class LinePerson:
    """Asks a person for what the core wants decided.

    The core's question arrives as an event and as a call to `approve`, `at_limit`, `at_cost` or `trust`. Only the event
    has its place among the lines printed before it, so `meet` asks when it is read, and the call waits for the answer.
    """

    def __init__(self, read: Callable[[str], Awaitable[str]], say: Callable[[str], None]) -> None:
        """`read` shows a prompt and gives what was typed (raises Interrupted, EOFError); `say` prints one line."""
        self._questions = Questions(read, say)
        self._pending: dict[int, _Pending[Any]] = {}
        self._early: set[int] = set()
        """Questions that were asked before their event was read."""

    async def approve(self, wanted: ApprovalWanted) -> Approval:
        return await self._decided(wanted, self._questions.approval, Approval("no"))

    async def at_limit(self, hit: LimitHit) -> LimitChoice:
        return await self._decided(hit, self._questions.limit, LimitChoice("stop"))

    async def at_cost(self, wanted: CostWanted) -> CostChoice:
        return await self._decided(wanted, self._questions.cost, CostChoice("stop"))

    async def trust(self, wanted: TrustWanted) -> Trust:
        return await self._decided(wanted, self._questions.trust, "later")

    async def meet(self, event: Event) -> None:
        """Ask the person if the event is a question; raises Interrupted when the person would rather stop."""
        if id(event) in self._early:
            self._early.discard(id(event))
        elif isinstance(event, ApprovalWanted):
            await self._ask(event, self._questions.approval(event))
        elif isinstance(event, LimitHit):
            await self._ask(event, self._questions.limit(event))
        elif isinstance(event, CostWanted):
            await self._ask(event, self._questions.cost(event))
        elif isinstance(event, TrustWanted):
            await self._ask(event, self._questions.trust(event))

    def forget(self) -> None:
        """Drop what was decided for a turn that is over."""
        self._pending.clear()
        self._early.clear()

    def _of(self, event: Event) -> _Pending[Any]:
        """The question, whichever of event and call came first."""
        return self._pending.setdefault(id(event), _Pending())

    async def _decided(self, event: Event, ask: Callable[[Any], Coroutine[Any, Any, T]], interrupted: T) -> T:
        """The decision; `interrupted` when Ctrl-C is typed and nobody reads the events, who could stop the turn."""
        pending = self._of(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await pending.begun.wait()
            if not pending.begun.is_set():
                self._early.add(id(event))
                await self._ask(event, ask(event))
            return await pending.answer
        except Interrupted:
            return interrupted
        finally:
            pending.answer.cancel()
            self._pending.pop(id(event), None)

    async def _ask(self, event: Event, asking: Coroutine[Any, Any, Any]) -> None:
        """Ask while the core waits; when it no longer does, because the turn was stopped, the question is withdrawn."""
        pending = self._of(event)
        pending.begun.set()
        task = asyncio.ensure_future(asking)
        pending.answer.add_done_callback(lambda _: task.cancel())
        try:
            decided = await task
        except asyncio.CancelledError:
            if not pending.answer.cancelled():
                raise
        else:
            if not pending.answer.done():
                pending.answer.set_result(decided)

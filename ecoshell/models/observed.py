"""Observers of settled replies, which plugins add."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ecoshell.budget import Hold
from ecoshell.errors import EcoshellError
from ecoshell.events import BudgetSettled, Emit, Event, Notice
from ecoshell.models import Reply, Request, Traits
from ecoshell.models.metered import MeteredModel
from ecoshell.secrecy import mask_secrets


@dataclass(frozen=True, slots=True)
class SettledReply:
    """A reply to a request, with masked secrets, and what it cost."""

    role: str  # `single`, `planner`, `caller`, `summarizer`, or the purpose of another call
    request: Request
    reply: Reply
    traits: Traits
    spent_nano: int | None  # None if unknown


class ReplyObserver(Protocol):
    """Sees each reply of a session's models."""

    def observe(self, settled: SettledReply) -> Sequence[str]:
        """Take a reply and return messages for the user; called on the event loop, so it must not block."""
        ...

    async def aclose(self) -> None:
        """End pending work when the session closes."""
        ...


Observe = Callable[[SettledReply], Sequence[str]]


class ObservedModel(MeteredModel):
    """A metered model whose replies are observed."""

    observers: Sequence[Observe] = ()

    async def ask(
        self, request: Request, emit: Emit, *, role: str = "single", aside: Hold | None = None
    ) -> Reply:
        """Ask the model, then show its reply to the observers."""
        spent_nano: int | None = None

        def hear(event: Event) -> None:
            nonlocal spent_nano
            if isinstance(event, BudgetSettled):
                spent_nano = event.spent_nano
            emit(event)

        reply = await super().ask(request, hear, role=role, aside=aside)
        request = replace(request, messages=mask_secrets(request.messages))
        settled = SettledReply(role, request, mask_secrets(reply), self.traits, spent_nano)
        for observe in self.observers:
            try:
                news = observe(settled)
            except EcoshellError as error:
                self.observers = [other for other in self.observers if other is not observe]
                news = [str(error)]
            for text in news:
                emit(Notice(text))
        return reply

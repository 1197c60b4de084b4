"""The apprentice: a model of this machine that makes each call a paid model makes, too, to see where they agree.

What it makes is never run, costs nothing, and nobody waits for it: it is asked once the paid model has answered, in a
thread of a low priority, and not through the gate, as a cap in tokens would count what nobody needs. Each call is
predicted before anything can be learned from it, so every use is a held-out one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, cast

from ecoshell.budget import Hold
from ecoshell.budget.gate import Gate
from ecoshell.errors import EcoshellError
from ecoshell.events import BudgetSettled, Emit, Event, Notice
from ecoshell.messages import META_TOOLS, TOOL_CALL, Call
from ecoshell.models import Model, Reply, Request, Traits
from ecoshell.models.metered import AccountOf, MeteredModel
from ecoshell.models.retrying import RetryPolicy
from ecoshell.planning.btp.experience import ExperienceStore, Prediction
from ecoshell.secrecy import mask_secrets

LEAST_USES, LATEST_USES = 20, 50
"""A tool is judged by its latest uses, so many at most, and not before there are so many."""
GOOD = 0.8
"""The share of them that must be alike, by the lower end of Wilson's 95 % interval."""
_Z = 1.959964
_ROLES = frozenset({"single", "caller"})
"""Who makes calls."""
_WAITING = 8
"""Calls that wait to be predicted; of more, the earliest are given up."""
_LONGEST = 512
"""Tokens of a predicted call."""
_Action = tuple[str, dict[str, Any]]
"""A tool and its arguments."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often an apprentice made the calls of a tool as the paid model did."""

    model: str
    """The apprentice."""
    tool: str
    uses: int
    alike: int
    """With the same name and arguments."""
    lower: float
    """Of the latest uses, the share that is alike at least (95 %)."""
    good: bool
    """Whether it is good enough to make them."""
    saved_nano: int
    """What the paid model's calls cost that it made alike."""


def agreements(predictions: Iterable[Prediction]) -> list[Agreement]:
    """One of each apprentice and tool, in the order in which they first came."""
    found: dict[tuple[str, str], list[Prediction]] = {}
    for one in predictions:
        found.setdefault((one.model, one.tool), []).append(one)
    judged: list[Agreement] = []
    for uses in found.values():
        latest = uses[-LATEST_USES:]
        n, z2 = len(latest), _Z * _Z
        share = sum(one.alike for one in latest) / n
        spread = _Z * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
        lower = max(0.0, (share + z2 / (2 * n) - spread) / (1 + z2 / n))
        alike = [one for one in uses if one.alike]
        saved, good = sum(one.spent_nano or 0 for one in alike), n >= LEAST_USES and lower >= GOOD
        judged.append(Agreement(uses[0].model, uses[0].tool, len(uses), len(alike), lower, good, saved))
    return judged


class Apprentice:
    """Predicts calls one after another, and says when a tool has become good enough, or is so no more."""

    def __init__(self, name: str, make: Callable[[], Model], records: Callable[[], ExperienceStore]) -> None:
        """`make` and `records` may block, and are called with the first call; `name` is that for `/role caller`."""
        self.name = name
        self._make, self._open = make, records
        self._model: Model | None = None
        self._records: ExperienceStore | None = None
        self._waiting: deque[tuple[Request, _Action, int | None]] = deque(maxlen=_WAITING)
        self._working: asyncio.Task[None] | None = None
        self.news: list[str] = []
        """What a person should know that was not told yet."""
        self._off = False

    def shadow(self, request: Request, call: Call, spent_nano: int | None) -> None:
        """Have the call predicted that a paid model has made; returns at once."""
        made = _action(call)
        if self._off or made is None:
            return
        self._waiting.append((request, made, spent_nano))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())

    async def aclose(self) -> None:
        """Give up what is not predicted, and let the model go."""
        self._off = True
        self._waiting.clear()
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])
        if self._model is not None:
            await self._model.aclose()
        if self._records is not None:
            self._records.close()

    async def _work(self) -> None:
        """Predict the calls that wait; where that fails, none is predicted any more."""
        try:
            while self._waiting:
                request, action, spent_nano = self._waiting.popleft()
                self._model = model = self._model or await asyncio.to_thread(self._make)
                self._records = records = self._records or await asyncio.to_thread(self._open)
                request = replace(request, role="caller", temperature=0.0, max_tokens=min(request.max_tokens, _LONGEST))
                size, context = await asyncio.to_thread(model.size, request), model.traits.context
                if context is not None and size.count + request.max_tokens > context:
                    continue  # it could not have been asked
                reply: Reply | None = None
                async for piece in model.stream(request):
                    reply = piece if isinstance(piece, Reply) else reply
                alike = reply is not None and reply.call is not None and _action(reply.call) == action
                await asyncio.to_thread(self._keep, records, Prediction(action[0], self.name, alike, spent_nano))
        except EcoshellError as error:
            self._off = True
            self._waiting.clear()
            self.news.append(f"{self.name} makes no calls beside the paid model any more. {error}")

    def _keep(self, records: ExperienceStore, use: Prediction) -> None:
        was = {one.tool for one in agreements(records.predictions(self.name)) if one.good}
        records.add_prediction(use)
        now = {one.tool: one for one in agreements(records.predictions(self.name)) if one.good}
        figures = ", ".join(f"{one.tool} {one.alike} of {one.uses}" for one in now.values())
        if use.tool in now.keys() - was:
            told = f"{self.name} makes calls of {use.tool} as the paid model does ({figures} alike)."
            self.news.append(f"{told} /role caller {self.name}, in the mode umi, has it make all calls.")
        elif use.tool in was - now.keys():
            told = f"{self.name} no longer makes calls of {use.tool} as the paid model does."
            self.news.append(f"{told} Good enough: {figures or 'nothing'}.")


class Shadowed(MeteredModel):
    """A paid model whose calls an apprentice makes, too."""

    def __init__(
        self,
        model: Model,
        gate: Gate,
        account_of: AccountOf,
        *,
        apprentice: Apprentice,
        retry: RetryPolicy | None = None,
    ) -> None:
        super().__init__(model, gate, account_of, retry=retry)
        self._apprentice = apprentice

    async def ask(self, request: Request, emit: Emit, *, role: str = "single", aside: Hold | None = None) -> Reply:
        """As any model; the apprentice is asked the same after it."""
        while self._apprentice.news:
            emit(Notice(self._apprentice.news.pop(0)))
        spent: list[int | None] = []

        def hear(event: Event) -> None:
            if isinstance(event, BudgetSettled):
                spent.append(event.spent_nano)
            emit(event)

        reply = await super().ask(request, hear, role=role, aside=aside)
        if reply.call is not None and role in _ROLES and request.purpose == "step" and request.want != "text":
            shown = replace(request, messages=mask_secrets(request.messages))
            self._apprentice.shadow(shown, mask_secrets(reply.call), spent[-1] if spent else None)
        return reply


def is_paid(traits: Traits) -> bool:
    """Whether calls of a model cost money, or may; those of models of this machine never do."""
    return traits.price is None or traits.price.worst(1_000, 1_000) > 0


def _action(call: Call) -> _Action | None:
    """Name and arguments of the call of a tool, also where it is made through `tool_call`; None for any other.

    Without what makes no difference: blanks around texts, and arguments that are null.
    """
    name, arguments = call.name, call.arguments
    if name == TOOL_CALL:
        inside: object = arguments.get("arguments")
        name = call.subject
        arguments = cast("Mapping[str, Any]", inside) if isinstance(inside, Mapping) else dict[str, Any]()
    elif name in META_TOOLS:
        return None
    plain = ((key, value.strip() if isinstance(value, str) else value) for key, value in arguments.items())
    return name, {key: value for key, value in plain if value is not None}

"""The apprentice: a local model that predicts each call of a paid model, to measure where they agree.

Its calls never run, cost nothing and delay nothing. It runs after the paid model has answered, in a thread with low
priority, and bypasses the gate, because a cap in tokens would count its output. Each call is predicted before it can
be learned from, so every use is held out.
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

MIN_USES = 20
MAX_USES = 50
"""The number of latest uses by which a tool is judged."""
GOOD_SHARE = 0.8
"""The share of equal calls, by the lower end of Wilson's 95 % interval, from which a tool is good."""
_Z = 1.959964
_ROLES = frozenset({"single", "caller"})
"""Roles that make calls."""
_MAX_PENDING = 8
"""Calls that wait for their prediction; beyond that, the earliest are dropped."""
_MAX_CALL_TOKENS = 512
_Action = tuple[str, dict[str, Any]]
"""A tool and its arguments."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often an apprentice predicted the calls of a tool."""

    model: str
    """The apprentice."""
    tool: str
    uses: int
    alike: int
    """Predictions with the same name and arguments."""
    lower: float
    """The lower bound of that share among the latest uses (95 %)."""
    good: bool
    """Whether the apprentice could make the calls."""
    saved_nano: int
    """The cost of the predicted calls of the paid model."""


def agreements(predictions: Iterable[Prediction]) -> list[Agreement]:
    """One agreement for each apprentice and tool, in the order of their first prediction."""
    groups: dict[tuple[str, str], list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault((prediction.model, prediction.tool), []).append(prediction)
    results: list[Agreement] = []
    for uses in groups.values():
        latest = uses[-MAX_USES:]
        n, z2 = len(latest), _Z * _Z
        share = sum(use.alike for use in latest) / n
        spread = _Z * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
        lower = max(0.0, (share + z2 / (2 * n) - spread) / (1 + z2 / n))
        alike = [use for use in uses if use.alike]
        saved, is_good = (
            sum(use.spent_nano or 0 for use in alike),
            n >= MIN_USES and lower >= GOOD_SHARE,
        )
        results.append(
            Agreement(uses[0].model, uses[0].tool, len(uses), len(alike), lower, is_good, saved)
        )
    return results


class Apprentice:
    """Predicts calls one after another, and reports when a tool becomes good or stops being good."""

    def __init__(
        self, name: str, make: Callable[[], Model], records: Callable[[], ExperienceStore]
    ) -> None:
        """`make` and `records` run with the first call and may block; `name` is the one for `/role caller`."""
        self.name = name
        self._make, self._open = make, records
        self._model: Model | None = None
        self._records: ExperienceStore | None = None
        self._pending: deque[tuple[Request, _Action, int | None]] = deque(maxlen=_MAX_PENDING)
        self._working: asyncio.Task[None] | None = None
        self.news: list[str] = []
        """Messages for the user that were not shown yet."""
        self._off = False

    def shadow(self, request: Request, call: Call, spent_nano: int | None) -> None:
        """Predict a call that a paid model has made; returns at once."""
        action = _action(call)
        if self._off or action is None:
            return
        self._pending.append((request, action, spent_nano))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())

    async def aclose(self) -> None:
        """Drop pending predictions, and release the model."""
        self._off = True
        self._pending.clear()
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])
        if self._model is not None:
            await self._model.aclose()
        if self._records is not None:
            self._records.close()

    async def _work(self) -> None:
        """Predict the pending calls; after a failure, predicts no more calls."""
        try:
            while self._pending:
                request, action, spent_nano = self._pending.popleft()
                self._model = model = self._model or await asyncio.to_thread(self._make)
                self._records = records = self._records or await asyncio.to_thread(self._open)
                request = replace(
                    request,
                    role="caller",
                    temperature=0.0,
                    max_tokens=min(request.max_tokens, _MAX_CALL_TOKENS),
                )
                size, context = await asyncio.to_thread(model.size, request), model.traits.context
                if context is not None and size.count + request.max_tokens > context:
                    continue  # too long for the apprentice
                reply: Reply | None = None
                async for piece in model.stream(request):
                    reply = piece if isinstance(piece, Reply) else reply
                alike = (
                    reply is not None and reply.call is not None and _action(reply.call) == action
                )
                await asyncio.to_thread(
                    self._keep, records, Prediction(action[0], self.name, alike, spent_nano)
                )
        except EcoshellError as error:
            self._off = True
            self._pending.clear()
            self.news.append(f"{self.name} stopped predicting calls. {error}")

    def _keep(self, records: ExperienceStore, use: Prediction) -> None:
        good_before = {
            item.tool for item in agreements(records.predictions(self.name)) if item.good
        }
        records.add_prediction(use)
        good_now = {
            item.tool: item for item in agreements(records.predictions(self.name)) if item.good
        }
        figures = ", ".join(
            f"{item.tool} {item.alike} of {item.uses}" for item in good_now.values()
        )
        if use.tool in good_now.keys() - good_before:
            text = f"{self.name} makes the same calls of {use.tool} as the paid model ({figures} alike)."
            self.news.append(
                f"{text} /role caller {self.name}, in mode umi, lets it make all calls."
            )
        elif use.tool in good_before - good_now.keys():
            text = f"{self.name} no longer makes the same calls of {use.tool} as the paid model."
            self.news.append(f"{text} Good tools: {figures or 'none'}.")


class Shadowed(MeteredModel):
    """A paid model whose calls an apprentice predicts."""

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

    async def ask(
        self, request: Request, emit: Emit, *, role: str = "single", aside: Hold | None = None
    ) -> Reply:
        """Ask the model, then start the apprentice's prediction."""
        while self._apprentice.news:
            emit(Notice(self._apprentice.news.pop(0)))
        spent: list[int | None] = []

        def hear(event: Event) -> None:
            if isinstance(event, BudgetSettled):
                spent.append(event.spent_nano)
            emit(event)

        reply = await super().ask(request, hear, role=role, aside=aside)
        if (
            reply.call is not None
            and role in _ROLES
            and request.purpose == "step"
            and request.want != "text"
        ):
            masked = replace(request, messages=mask_secrets(request.messages))
            self._apprentice.shadow(masked, mask_secrets(reply.call), spent[-1] if spent else None)
        return reply


def is_paid(traits: Traits) -> bool:
    """Whether calls of a model cost money or may; calls of local models never do."""
    return traits.price is None or traits.price.worst(1_000, 1_000) > 0


def _action(call: Call) -> _Action | None:
    """Name and arguments of a tool's call, direct or through `tool_call`; None for meta-tools.

    Strips blanks around texts, and drops null arguments, because they make no difference.
    """
    name, arguments = call.name, call.arguments
    if name == TOOL_CALL:
        inside: object = arguments.get("arguments")
        name = call.subject
        arguments = (
            cast("Mapping[str, Any]", inside) if isinstance(inside, Mapping) else dict[str, Any]()
        )
    elif name in META_TOOLS:
        return None
    plain = (
        (key, value.strip() if isinstance(value, str) else value)
        for key, value in arguments.items()
    )
    return name, {key: value for key, value in plain if value is not None}

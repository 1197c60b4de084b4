"""The apprentice: a local model that predicts each call of a paid model, to measure where they agree.

Its calls never run, cost nothing and delay nothing. It runs after the paid model has answered, in a thread with low
priority, and bypasses the gate, because a cap in tokens would count its output. Each call is predicted before it can
be learned from, so every use is held out.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ecoshell.errors import EcoshellError, UsageError
from ecoshell.messages import META_TOOLS, TOOL_CALL, Call
from ecoshell.models import Model, Reply, Request, Traits
from ecoshell.models.observed import SettledReply
from ecoshell.paths import Paths
from ecoshell_train.agreement import Prediction, Predictions, agreements

_ROLES = frozenset({"single", "caller"})
"""Roles that make calls."""
_MAX_PENDING = 8
"""Calls that wait for their prediction; beyond that, the earliest are dropped."""
_MAX_CALL_TOKENS = 512
_Action = tuple[str, dict[str, Any]]
"""A tool and its arguments."""


class Apprentice:
    """Predicts calls one after another, and reports when a tool becomes good or stops being good."""

    def __init__(
        self, name: str, make: Callable[[], Model], records: Callable[[], Predictions]
    ) -> None:
        """`make` and `records` run with the first call and may block; `name` is the one for `/role caller`."""
        self.name = name
        self._make, self._open = make, records
        self._model: Model | None = None
        self._records: Predictions | None = None
        self._pending: deque[tuple[Request, _Action, int | None]] = deque(maxlen=_MAX_PENDING)
        self._working: asyncio.Task[None] | None = None
        self._news: list[str] = []
        """Messages for the user that were not shown yet."""
        self._off = False

    def observe(self, settled: SettledReply) -> list[str]:
        """Start the prediction of a paid model's call, and return the messages about earlier ones."""
        request, call = settled.request, settled.reply.call
        action = None if call is None else _action(call)
        if (
            action is not None
            and not self._off
            and is_paid(settled.traits)
            and settled.role in _ROLES
            and request.purpose == "step"
            and request.want != "text"
        ):
            self._pending.append((request, action, settled.spent_nano))
            if self._working is None or self._working.done():
                self._working = asyncio.create_task(self._work())
        news, self._news = self._news, []
        return news

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
                    self._record, records, Prediction(action[0], self.name, alike, spent_nano)
                )
        except EcoshellError as error:
            self._off = True
            self._pending.clear()
            self._news.append(f"{self.name} stopped predicting calls. {error}")

    def _record(self, records: Predictions, use: Prediction) -> None:
        good_before = {item.tool for item in agreements(records.of(self.name)) if item.good}
        records.add(use)
        good_now = {item.tool: item for item in agreements(records.of(self.name)) if item.good}
        figures = ", ".join(
            f"{item.tool} {item.alike} of {item.uses}" for item in good_now.values()
        )
        if use.tool in good_now.keys() - good_before:
            text = f"{self.name} makes the same calls of {use.tool} as the paid model ({figures} alike)."
            self._news.append(
                f"{text} /role caller {self.name}, in mode umi, lets it make all calls."
            )
        elif use.tool in good_before - good_now.keys():
            text = f"{self.name} no longer makes the same calls of {use.tool} as the paid model."
            self._news.append(f"{text} Good tools: {figures or 'none'}.")


def apprentice_of(settings: Mapping[str, Any], paths: Paths) -> Apprentice | None:
    """Return the apprentice that `[plugins.train]` names; raises UsageError for an invalid setting."""
    if unknown := settings.keys() - {"apprentice"}:
        names = ", ".join(sorted(unknown))
        raise UsageError(f"[plugins.train] has no setting {names}; the only one is apprentice")
    name: object = settings.get("apprentice", "")
    if not isinstance(name, str):
        raise UsageError("plugins.train.apprentice must be embedded or local:FILE.gguf")
    if not name:
        return None
    return Apprentice(name, partial(local_model, name, paths), partial(Predictions.under, paths))


def local_model(name: str, paths: Paths) -> Model:
    """Return the local model with this name as a caller, running with low priority."""
    from ecoshell.assembly import load_settings
    from ecoshell.models.embedded import CONTEXT, NAME, embedded_as
    from ecoshell.models.engine import EngineOptions
    from ecoshell.models.local import LocalModel
    from ecoshell.models.local_models import is_embedded, local_files

    name = embedded_as("caller") if name == NAME else name
    files = local_files(name, paths.models_folder)
    if files is None:
        raise UsageError(
            f"{name} is not a local model.",
            fix="Set plugins.train.apprentice to embedded or local:FILE.gguf.",
        )
    settings = load_settings(paths).local
    context = min(CONTEXT, settings.context) if is_embedded(name) else settings.context
    options = EngineOptions(settings.n_gpu_layers, 1, context, idle=True)
    return LocalModel(files.base, name=name, adapter=files.adapter, options=options)


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

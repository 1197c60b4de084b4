"""A read-only shell for display, which loads no model."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from ecoshell.agent.shell import Shell
from ecoshell.assembly import load_settings
from ecoshell.assembly.model_factory import SCRIPT, ConfiguredModelFactory
from ecoshell.assembly.shell import build, build_resumed
from ecoshell.budget import SCOPES, ZERO_PRICE, CapState, Price, parse_amount
from ecoshell.errors import ModelMissing
from ecoshell.models import (
    Delta,
    Model,
    PromptSize,
    Reply,
    Request,
    Traits,
    estimate,
    request_bound,
)
from ecoshell.models.local_models import is_embedded, is_local
from ecoshell.options import Options
from ecoshell.paths import user_paths


async def assemble_view(options: Options) -> Shell:
    """A shell over a stored session, or a new one that is never written; raises as `assemble` does.

    It has the model, mode, roles and workspace with which the session would be resumed, and shows the caps that would
    apply then. Its models have names and prices, and may be unavailable.
    """
    paths = user_paths()
    settings = await asyncio.to_thread(load_settings, paths)
    make = partial(build, settings=settings, paths=paths, model_factory=_PlaceholderFactory)
    shell, resumed, _ = await asyncio.to_thread(build_resumed, options, paths, make)
    try:
        await shell.open(resumed.resume, for_display=True)
    except BaseException:
        await shell.aclose()
        raise
    shell.caps_to_show = partial(caps_of, shell, resumed)
    return shell


async def caps_of(shell: Shell, options: Options) -> tuple[CapState, ...]:
    """The caps that would apply to a question now, including `--budget` and those of the settings for a new session."""
    settings = await asyncio.to_thread(load_settings, user_paths())
    present = await shell.deps.budget.caps()
    caps = {(cap.scope, cap.unit): cap for cap in present}
    for scope in SCOPES:
        text = getattr(settings.budget, scope)
        if scope == "session" and options.budget is not None:
            text = options.budget
        elif any(cap.scope == scope for cap in present):
            continue
        if text is not None:
            amount, turn = parse_amount(text), shell.conversation.turn
            caps[scope, amount.unit] = await asyncio.to_thread(
                shell.ledger.state_under, shell.session, turn, scope, amount
            )
    return tuple(caps.values())


class _PlaceholderFactory(ConfiguredModelFactory):
    """Makes a placeholder for every model except those of plugins."""

    def introduction(self, present: str) -> str:
        """Empty, so that pictures do not depend on the installed models."""
        return ""

    def _model(self, name: str) -> Model:
        if (model := self._plugin_model(name)) is not None:
            return model
        if is_embedded(name):
            return _Placeholder(name, ZERO_PRICE, local=True, small=True)
        local = is_local(name) or name.startswith(SCRIPT)
        price = (self._book.user.get(name) or ZERO_PRICE) if local else self._book.price(name)
        return _Placeholder(name, price, local=local)


class _Placeholder:
    """A model with a name and a price, which is never loaded."""

    loaded = False

    def __init__(self, name: str, price: Price | None, *, local: bool, small: bool = False) -> None:
        self.traits = Traits(name, price, None, None, native_tools=True, local=local, small=small)

    def count(self, text: str) -> int:
        return estimate(text)

    def size(self, request: Request) -> PromptSize:
        bound = request_bound(request, native_tools=True)
        return PromptSize(bound, bound, exact=False)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        name, fix = self.traits.name, "Open the chat to ask it."
        raise ModelMissing(f"{name} is not loaded for display.", fix=fix)
        yield  # makes this a generator

    async def aclose(self) -> None: ...

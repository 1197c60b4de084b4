"""A shell to look at: nothing is asked, loaded or written."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from ecoshell.agent.shell import Shell
from ecoshell.assembly import load_settings
from ecoshell.assembly.model_factory import SCRIPT, ConfiguredModelFactory
from ecoshell.assembly.shell import build
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
    """A shell over a stored session, or over a new one that is never written; raises as `assemble` does.

    Its model is the one of the settings in name and price, and need not be there.
    """
    paths = user_paths()
    settings = await asyncio.to_thread(load_settings, paths)
    shell = await asyncio.to_thread(build, options, settings, paths, model_factory=_Portraits)
    try:
        await shell.open(options.resume)
    except BaseException:
        await shell.aclose()
        raise
    return shell


async def caps_of(shell: Shell, options: Options) -> tuple[CapState, ...]:
    """The caps a question would come under now, with `--budget` and the settings' for a session that is not begun."""
    settings = await asyncio.to_thread(load_settings, user_paths())
    standing = await shell.deps.budget.caps()
    caps = {(cap.scope, cap.unit): cap for cap in standing}
    for scope in SCOPES:
        text = getattr(settings.budget, scope)
        if scope == "session" and options.budget is not None:
            text = options.budget
        elif any(cap.scope == scope for cap in standing):
            continue
        if text is not None:
            given = parse_amount(text)
            before = caps.get((scope, given.unit), CapState(scope, given.unit, 0, 0, 0))
            caps[scope, given.unit] = replace(before, limit=given.value)
    return tuple(caps.values())


class _Portraits(ConfiguredModelFactory):
    """Gives every model's portrait in its place."""

    def introduction(self, present: str) -> str:
        """Nothing: a picture does not depend on what else runs on this machine."""
        return ""

    def _model(self, name: str) -> Model:
        if is_embedded(name):
            return _Portrait(name, ZERO_PRICE, local=True, small=True)
        here = is_local(name) or name.startswith(SCRIPT)
        price = (self._book.user.get(name) or ZERO_PRICE) if here else self._book.price(name)
        return _Portrait(name, price, local=here)


class _Portrait:
    """A model of which there is a name and a price; it looks like one that is not loaded yet, and never is."""

    loaded = False

    def __init__(self, name: str, price: Price | None, *, local: bool, small: bool = False) -> None:
        self.traits = Traits(name, price, None, None, native_tools=True, local=local, small=small)

    def count(self, text: str) -> int:
        """An estimate."""
        return estimate(text)

    def size(self, request: Request) -> PromptSize:
        """An estimate."""
        bound = request_bound(request, native_tools=True)
        return PromptSize(bound, bound, exact=False)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Refuse."""
        raise _only_looked_at(self.traits)
        yield  # what makes this a stream

    async def aclose(self) -> None:
        """Nothing is open."""


def _only_looked_at(traits: Traits) -> ModelMissing:
    return ModelMissing(f"{traits.name} is only looked at here.", fix="Open the chat to ask it.", billed=False)

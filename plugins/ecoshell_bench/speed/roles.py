"""Three roles on the embedded model: the memory they take beside one, and how soon a role's adapter is switched."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ecoshell.messages import Message
from ecoshell.models.base import Request
from ecoshell.models.embedded import PACKAGE, embedded_path
from ecoshell_bench.measurement import Measurement
from ecoshell_bench.speed.timing import compared, told

if TYPE_CHECKING:
    from ecoshell.models.local import LocalModel

ROLES = ("planner", "caller", "summarizer")
PROMPT_WORDS = 1_400
"""Of each role, two tokens each: three such prompts do not fit the context together."""
_HELD = """
import asyncio, json, os
from ecoshell_bench.speed.roles import asked_in_turn
from ecoshell_bench.speed.timing import resident_mb
asyncio.run(asked_in_turn({roles!r}, {words}, lambda: print(json.dumps({{"megabytes": resident_mb(os.getpid())}}))))
"""
"""A process in which these roles ask, and which then says how much memory it holds."""


def measure_roles(repeat: int, adapter: Path | None = None, words: int = PROMPT_WORDS) -> Iterator[Measurement]:
    """Megabytes, from /proc, and milliseconds where there is an adapter; nothing without the embedded model."""
    if find_spec("llama_cpp") is None or find_spec(PACKAGE) is None:
        return
    if Path("/proc/self/statm").exists():
        yield measure_roles_memory(words)
    if adapter is not None:
        yield asyncio.run(measure_switch(adapter, repeat))


def measure_roles_memory(words: int = PROMPT_WORDS) -> Measurement:
    """Megabytes of a process after three roles asked, each with a long prompt of its own; the baseline is one role."""
    three, one = (
        told((sys.executable, "-c", _HELD.format(roles=roles, words=words)), os.environ, "megabytes")()
        for roles in (ROLES, ROLES[:1])
    )
    return compared("three_roles_rss", [three], [one], "MB")


async def measure_switch(adapter: Path, repeat: int) -> Measurement:
    """Milliseconds by which a role's first token is later for having another adapter than the role before it."""
    from ecoshell.models.local import LocalModel

    models = [LocalModel(embedded_path()), LocalModel(embedded_path(), adapter=adapter)]
    request = _request(ROLES[0], 20)
    try:
        for model in models:
            await _seconds(model, request)
        later = [await _later(model, request) for _ in range(repeat) for model in models]
    finally:
        for model in models:
            await model.aclose()
    return Measurement("adapter_switch", median(later) * 1000, "ms")


async def asked_in_turn(roles: tuple[str, ...], words: int, then: Callable[[], None]) -> None:
    """Ask the embedded model as each role, and do something before it is let go."""
    from ecoshell.models.local import LocalModel

    model = LocalModel(embedded_path())
    try:
        for role in roles:
            await _seconds(model, _request(role, words))
        then()
    finally:
        await model.aclose()


async def _later(model: "LocalModel", request: Request) -> float:
    """Seconds by which the first of two same requests takes longer, the one before which adapters are switched."""
    return await _seconds(model, request) - await _seconds(model, request)


def _request(role: str, words: int) -> Request:
    text = " ".join(str((place + len(role)) % 10) for place in range(words))
    return Request((Message("user", f"{role}: {text}"),), want="text", max_tokens=1, role=role)


async def _seconds(model: "LocalModel", request: Request) -> float:
    began = time.perf_counter()
    async for _ in model.stream(request):
        pass
    return time.perf_counter() - began

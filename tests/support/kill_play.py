"""Turns with effects in processes that tests kill, forked from a process that has imported everything."""

import asyncio
import multiprocessing
import os
from decimal import Decimal
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        __name__,
        "ecoshell.assembly.shell",
        "ecoshell.models.script",
        "ecoshell.modes.single",
        "ecoshell.settings.schema",
    ]
)


def play(home: Path) -> None:
    """Run one turn in a prepared `home`; all calls are approved and every model call has a price."""
    os.environ |= {"ECOSHELL_HOME": str(home / "home"), "ECOSHELL_AGENT_CONTEXT": "off"}
    asyncio.run(_turn(home))


async def _turn(home: Path) -> None:
    from ecoshell.assembly.shell import assemble
    from ecoshell.options import Options

    options = Options(
        model=f"script:{home / 'script.jsonl'}",
        workspace=home / "workspace",
        price=(Decimal(1), Decimal(4)),
        budget="1.00",
        registration="all",
        max_steps=500,
        yes=True,
    )
    shell = await assemble(options)
    async for _ in shell.ask("Go!"):
        pass
    await shell.aclose()

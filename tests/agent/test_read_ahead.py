"""The constant start of a prompt is evaluated while the user types."""

import asyncio

import pytest
from agent_play import of, turn

from ecoshell.assembly.shell import assemble
from ecoshell.events import BudgetSettled
from ecoshell.options import Options

QUESTION = "What is 15% of 80?"


@pytest.mark.slow
async def test_the_start_of_the_prompt_is_evaluated_ahead(home, embedded_model):
    shell = await assemble(Options(model="embedded", workspace=home))
    runtime, run = embedded_model._runtime, asyncio.get_running_loop().run_in_executor
    try:
        await run(
            runtime.worker, lambda: runtime.engine()._cache and runtime.engine()._cache.clear()
        )
        shell.read_ahead()
        await shell._reading
        await run(runtime.worker, int)  # wait until the worker is idle
        first, *_ = of(await turn(shell, QUESTION), BudgetSettled)
    finally:
        await shell.aclose()
    assert 0.8 * first.usage.input < first.usage.cached


async def test_a_question_cancels_reading_ahead(home, embedded_model):
    shell = await assemble(Options(model="embedded", workspace=home))
    try:
        shell.read_ahead()
        reading = shell._reading
        assert (await turn(shell, QUESTION))[-1].status == "answered"
        assert reading.cancelled()
        shell.read_ahead()
    finally:
        await shell.aclose()

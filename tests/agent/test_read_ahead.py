"""What is read of a model's prompt before it is asked."""

import asyncio

from agent_play import of, turn

from ecoshell.assembly.shell import assemble
from ecoshell.events import BudgetSettled
from ecoshell.options import Options

QUESTION = "What is 15% of 80?"


async def test_what_a_question_comes_after_is_read_while_it_is_typed(home, embedded_model):
    shell = await assemble(Options(model="embedded", workspace=home))
    runtime, run = embedded_model._runtime, asyncio.get_running_loop().run_in_executor
    try:
        await run(runtime.worker, lambda: runtime.engine()._cache and runtime.engine()._cache.clear())
        shell.read_ahead()
        await shell._reading
        await run(runtime.worker, int)  # it has been read
        first, *_ = of(await turn(shell, QUESTION), BudgetSettled)
    finally:
        await shell.aclose()
    assert 0.8 * first.usage.input < first.usage.cached


async def test_a_question_that_comes_at_once_is_answered_and_nothing_is_read_beside_it(home, embedded_model):
    shell = await assemble(Options(model="embedded", workspace=home))
    try:
        shell.read_ahead()
        reading = shell._reading
        assert (await turn(shell, QUESTION))[-1].status == "answered"
        assert reading.cancelled()
        shell.read_ahead()
    finally:
        await shell.aclose()

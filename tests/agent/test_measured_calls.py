"""The event of a call records the memory and the cost units of its tool."""

from pathlib import Path

import pytest
from agent_play import finish, of, say, turn

from ecoshell.events import CallFinished, from_json, to_json

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc"
)


async def test_a_call_records_its_memory_and_cost_units(play):
    async with play(
        [say("", "count_text", path="notes.txt"), finish("3")], registration="all"
    ) as shell:
        (call,) = of(await turn(shell), CallFinished)
    assert call.ok
    assert call.memory_mb > 10
    assert call.units > 2e-7
    assert from_json(to_json(call)) == call


async def test_a_refused_call_has_unknown_memory_and_cost_units(play):
    async with play(
        [say("", "juggle", path="notes.txt"), finish("no")], registration="all"
    ) as shell:
        (call,) = of(await turn(shell), CallFinished)
    assert call.refused == "unknown"
    assert (call.memory_mb, call.units) == (None, None)

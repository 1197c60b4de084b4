"""Tools that run in a worker process work in a whole session."""

import pytest
from agent_play import finish, of, say, turn

from ecoshell.events import CallFinished


@pytest.mark.parametrize(
    "call",
    [
        say("", "list_files"),
        say("", "search_text", text="two"),
        say("", "json_query", query="a", text='{"a": "notes.txt"}'),
        say("", "calculate", expression="1 + 2"),
    ],
)
async def test_tool_in_a_worker_returns_its_result(play, call):
    async with play([call, finish("done")], registration="all") as shell:
        (result,) = of(await turn(shell), CallFinished)
    assert result.ok, result.observation

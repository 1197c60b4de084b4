"""Details of one tool, from a real session."""

import asyncio

import pytest
from agent_play import finish, register, say, turn

from ecoshell.errors import UsageError


async def test_an_unregistered_tool_has_details(play):
    async with play([finish("x")]) as shell:
        tool_details = await shell.tool_details("read_file")
    assert (tool_details.schema.name, tool_details.by, tool_details.why) == ("read_file", "", "")
    assert tool_details.effects == ("read",)
    assert tool_details.tokens > 10


async def test_details_of_a_tool_registered_by_the_agent_give_the_reason(play):
    lines = [register("count_text"), say("", "count_text", path="notes.txt"), finish("Three.")]
    async with play(lines, registration="names") as shell:
        await turn(shell)
        tool_details = await shell.tool_details("count_text")
    assert tool_details.by == "agent"
    assert "count_text" in tool_details.why


async def test_details_of_a_tool_registered_by_the_user_until_its_removal(play):
    async with play([finish("x")]) as shell:
        await shell.command("/register read_file")
        registered_tool = await shell.tool_details("read_file")
        await shell.command("/unregister read_file")
        unregistered_tool = await shell.tool_details("read_file")
    assert (registered_tool.by, unregistered_tool.by) == ("user", "")


async def test_a_registered_tool_cannot_be_registered_again(play):
    async with play([register("count_text"), finish("x")], registration="names") as shell:
        await turn(shell)
        history = await asyncio.to_thread(shell.store.history, shell.session)
        with pytest.raises(UsageError, match="count_text is registered already"):
            await shell.command("/register count_text")
        assert await asyncio.to_thread(shell.store.history, shell.session) == history


async def test_the_tools_command_says_who_registered_or_removed_a_tool(play):
    async def why(shell, name):
        return (await shell.command(f"/tools {name}")).text.rpartition("\n")[2]

    async with play([register("count_text"), finish("x")], registration="names") as shell:
        await turn(shell)
        await shell.command("/register read_file")
        assert await why(shell, "count_text") == "count_text was registered by the agent."
        assert await why(shell, "read_file") == "read_file was registered by you."
        assert "name only" in await why(shell, "fetch_url")
    async with play([say("", "count_text", path="notes.txt"), finish("x")]) as shell:
        await turn(shell)
        assert await why(shell, "count_text") == "count_text was registered by its first call."
    async with play([finish("x")], registration="all") as shell:
        await turn(shell)
        assert "unregistered" not in await why(shell, "read_file")
        await shell.command("/unregister read_file")
        assert (
            await why(shell, "read_file")
            == "read_file was registered at the start, and you unregistered it."
        )


async def test_an_unknown_tool_has_no_details(play):
    async with play([finish("x")]) as shell:
        with pytest.raises(UsageError, match="no tool called 'red_file'"):
            await shell.tool_details("red_file")

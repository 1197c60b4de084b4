"""Details of one tool, from a real session."""

import asyncio
from decimal import Decimal

import pytest
from agent_play import finish, of, register, say, turn

from ecoshell.errors import UsageError
from ecoshell.events import ToolRegistered, ToolsOffered


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
            == "You unregistered read_file, so no turn begins with it."
        )


async def test_a_tool_that_the_user_unregistered_is_not_loaded_again(play):
    async def loaded(question):
        events = await turn(shell, question)
        offer = of(events, ToolsOffered)[0]
        assert ("list_files" in offer.loaded) is not ("list_files" in offer.known)
        return "list_files" in offer.loaded, offer.why

    lines = [
        finish("1"),
        finish("2"),
        finish("3"),
        register("list_files"),
        finish("4"),
        finish("5"),
    ]
    async with play(lines, price=(Decimal(1), Decimal(4))) as shell:
        assert (await loaded("one"))[0]
        await shell.command("/unregister list_files")
        names_only = (False, "The other tools are known by name.")
        assert await loaded("two") == names_only
        assert "list_files" in shell.requests[-1].messages[-1].text
        details = await shell.tool_details("list_files")
        assert (details.by, details.why) == (
            "",
            "You unregistered list_files, so no turn begins with it.",
        )
        await shell.open(shell.session)
        assert await loaded("three") == names_only
        assert of(await turn(shell, "four"), ToolRegistered)[0].by == "agent"
        assert await loaded("five") == (True, "The other tools are known by name.")


async def test_the_last_tool_that_is_not_loaded_can_be_registered_by_the_model(play, monkeypatch):
    """A small catalog is loaded whole, without a way to register anything."""
    monkeypatch.setattr("ecoshell.catalog.loading_decision.SMALL_REST_TOKENS", 10**6)
    lines = [finish("1"), register("list_files"), finish("2")]
    async with play(lines, price=(Decimal(1), Decimal(4))) as shell:
        await turn(shell, "one")
        assert all(tool.registered for tool in (await shell.status()).tools)
        await shell.command("/unregister list_files")
        assert of(await turn(shell, "two"), ToolRegistered)[0].name == "list_files"


async def test_a_tool_can_be_registered_again_by_the_user(play):
    async with play([finish("1"), finish("2")], registration="names") as shell:
        await shell.command("/register read_file")
        await shell.command("/unregister read_file")
        await shell.command("/register read_file")
        assert "read_file" not in shell.conversation.memory.library.removed
        assert "read_file" in of(await turn(shell), ToolsOffered)[0].loaded


async def test_an_unknown_tool_has_no_details(play):
    async with play([finish("x")]) as shell:
        with pytest.raises(UsageError, match="no tool called 'red_file'"):
            await shell.tool_details("red_file")

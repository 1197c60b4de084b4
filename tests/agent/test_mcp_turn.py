"""Turns with tools of a server: the prompt they leave alone, approval, and servers that do not come."""

import sys
from pathlib import Path

import pytest
from agent_play import finish, of, register, say, turn

from ecoshell.agent.user_interface import Approval
from ecoshell.events import ApprovalWanted, CallFinished, Notice
from ecoshell.paths import user_paths
from ecoshell.tools.mcp.provider import McpServer

pytest.importorskip("mcp")
SUPPORT = Path(__file__).parent.parent / "support"


class Agrees:
    """A person who allows everything, and remembers what."""

    def __init__(self):
        self.asked = []

    async def approve(self, wanted):
        self.asked.append(wanted)
        return Approval("once")


@pytest.fixture
def configured(home):
    """Writes servers into the settings: names, and the arguments of Python."""

    def write(more="", **servers):
        file = user_paths().settings_file
        file.parent.mkdir(parents=True, exist_ok=True)
        tables = [
            f'[mcp.servers.{name}]\ncommand = "{sys.executable}"\nargs = {list(map(str, arguments))}\n{more}\n'
            for name, arguments in servers.items()
        ]
        file.write_text("".join(tables))

    return write


TRIED = (SUPPORT / "mcp_server.py",)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """No test goes by how fast a server comes."""
    monkeypatch.setattr("ecoshell.agent.providers.FIRST_CONNECTION", 240.0)


def prefix(request):
    """All of a request that a cache may hold: the tool array, and the texts before the last question."""
    return ([tool.entry for tool in request.tools], [message.text for message in request.messages])


async def test_a_server_that_comes_changes_and_goes_leaves_the_stable_prefix_alone(play, configured):
    configured(tried=TRIED)
    lines = [
        register("tried.add"),
        say("", "tool_call", name="tried.add", arguments={"first": 2, "second": 3}),
        finish("5"),
        register("tried.grow"),
        say("", "tool_call", name="tried.grow", arguments={"name": "grown"}),
        finish("grown"),
        finish("as before"),
        finish("as ever"),
    ]
    async with play(lines, person=Agrees(), registration="names", presentation="stable") as shell:
        server = shell.deps.providers.all[0]
        first = await turn(shell, "What is 2 + 3?")
        assert any("Connecting for the first time to tried" in one.text for one in of(first, Notice))
        assert [one.ok for one in of(first, CallFinished) if one.name == "tried.add"] == [True]
        await turn(shell, "Have one more.")
        server._take([{"name": "add", "description": "Another.", "parameters": {"type": "object"}}])
        await turn(shell, "And now?")
        server._take([])
        await turn(shell, "And in the end?")
        assert "tried.grow" in shell.deps.catalog  # it was shown, so it stays
        assert "tried.look" not in shell.deps.catalog
        assert shell.deps.catalog.document("tried.add").description == "Add two numbers."
        for before, after in zip(shell.requests, shell.requests[1:], strict=False):
            (tools, texts), (tools_then, texts_then) = prefix(before), prefix(after)
            assert tools_then == tools
            assert texts_then[: len(texts)] == texts


async def test_a_tool_that_says_it_only_reads_asks_unless_its_server_is_trusted(play, configured):
    lines = [register("tried.look"), say("", "tool_call", name="tried.look", arguments={"name": "NONE"}), finish("-")]
    configured(tried=TRIED)
    person = Agrees()
    async with play(lines, person=person) as shell:
        events = await turn(shell)
        assert [one.name for one in of(events, ApprovalWanted)] == ["tried.look"]
    configured("trusted = true", tried=TRIED)
    async with play(lines, person=person) as shell:
        assert of(await turn(shell), ApprovalWanted) == []


async def test_without_a_person_and_read_only_no_tool_of_a_server_runs(play, configured):
    configured(tried=TRIED)
    lines = [register("tried.add"), say("", "tool_call", name="tried.add", arguments={"first": 1, "second": 1})]
    async with play([*lines, finish("-")], read_only=True) as shell:
        (seen,) = [one for one in of(await turn(shell), CallFinished) if one.name == "tried.add"]
        assert (seen.refused, seen.observation) == ("unapproved", "tried.add was not run: the shell is read-only.")


async def test_a_server_that_fails_is_told_once_and_the_turn_goes_on(play, configured):
    configured(broken=(SUPPORT / "hostile_mcp.py", "dies_at_once"))
    async with play([finish("1"), finish("2")]) as shell:
        told = [one.text for one in of(await turn(shell), Notice) if "broken" in one.text]
        assert "no licence" in told[-1]
        assert "/mcp broken" in told[-1]
        assert not any("broken" in one.text for one in of(await turn(shell), Notice))


async def test_slash_mcp_lists_servers_and_connects(play, configured):
    configured(tried=TRIED)
    async with play([]) as shell:
        assert "never connected to" in (await shell.command("/mcp")).text
        assert "Add two numbers." in (await shell.command("/mcp tried")).text
        assert "connected to tried" in (await shell.command("/mcp")).text
        assert "tried.add" in shell.deps.catalog
        assert isinstance(shell.deps.providers.all[0], McpServer)

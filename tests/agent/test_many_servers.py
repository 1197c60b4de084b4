"""Fifty servers with twenty tools each: the size of their prompt and of the shown context."""

import pytest
from agent_play import finish, of, register, turn

from ecoshell.catalog import CORE
from ecoshell.events import CallFinished, ToolRegistered, ToolsOffered
from ecoshell.models.tokens import counter_for
from ecoshell.paths import user_paths
from ecoshell.tools.mcp.servers import CachedLists, Server

VERBS = ("create", "list", "search", "update", "delete")
LONG = [
    f"{verb}_{thing}"
    for verb in VERBS
    for thing in ("pull_request", "issue_comment", "branch", "release_note")
]
SHORT = [f"{verb}{at}" for verb in VERBS for at in range(4)]
ADDRESS = "http://127.0.0.1:9/{}"


@pytest.fixture
def configured(home):
    """Write fifty servers with these tools into the settings, and their cached tool lists."""

    def write(tools):
        file = user_paths().settings_file
        file.parent.mkdir(parents=True, exist_ok=True)
        records = [
            {"name": name, "description": f"To {name}.", "parameters": {"type": "object"}}
            for name in tools
        ]
        for at in range(50):
            server = Server(f"server{at}", url=ADDRESS.format(at), cwd=str(home))
            CachedLists(user_paths().mcp_folder, server).write({"tools": records})
        tables = [f'[mcp.servers.server{at}]\nurl = "{ADDRESS.format(at)}"\n' for at in range(50)]
        file.write_text("".join(tables))

    return write


@pytest.mark.parametrize("tools", [SHORT, LONG], ids=["all fit", "too many"])
async def test_names_of_a_thousand_tools_take_under_five_thousand_tokens(play, configured, tools):
    configured(tools)
    question = "Search the issue comments of server7 and list its branches."
    async with play([register("server7.list_branch"), finish("ok")], registration="names") as shell:
        assert len(shell.deps.catalog) > 1000
        first = await shell.status()
        (offered,) = of(await turn(shell, question), ToolsOffered)
        last = await shell.status()
    prompt = shell.requests[0].messages[-1].text
    size = counter_for("openai/gpt-4o").count(prompt)
    assert question in prompt
    assert prompt.count("\nserver7: ") == 1
    assert size < 5_000
    for status in (first, last):
        assert 0 < status.context_tokens < 6_000 < status.everything_tokens
    if tools is SHORT:
        assert len(offered.names) == len(shell.deps.catalog)
    else:
        assert {"server7.list_branch", "server7.search_issue_comment"} <= set(offered.names)
        assert len(offered.names) < 1000


async def test_core_set_is_loaded_however_many_names_there_are(play, configured):
    configured(LONG)
    async with play([finish("ok")]) as shell:
        before = await shell.status()
        (offered,) = of(await turn(shell, "What is the time?"), ToolsOffered)
    assert offered.loaded == offered.core == CORE
    assert {tool.name for tool in before.tools if tool.ahead} == {*CORE}
    assert len(offered.names) < 1000


async def test_schemas_take_at_most_half_of_an_assumed_context(play, configured):
    configured(LONG)
    async with play([finish("ok")], registration="auto") as shell:
        await turn(shell, "What is the time?")
        (request,) = shell.requests
    sent = [
        *(tool.entry for tool in request.tools),
        *(message.text for message in request.messages),
    ]
    assert counter_for("openai/gpt-4o").count("\n".join(sent)) < 32_768 / 2 + 5_000


async def test_tools_of_several_servers_with_one_name_are_registered_separately(play, configured):
    configured(SHORT)
    lines = [register("server3.list0"), register("server4.list0"), register("list0"), finish("ok")]
    async with play(lines, registration="names") as shell:
        events = await turn(shell)
    assert [event.name for event in of(events, ToolRegistered)] == [
        "server3.list0",
        "server4.list0",
    ]
    (unknown,) = of(events, CallFinished)
    assert "server9.list0" in unknown.observation


async def test_the_registered_schemas_never_exceed_all_schemas(play):
    names = ["read_file", "count_text", "write_file"]
    for registration in ("names", "all", "all_text", "auto"):
        lines = [*map(register, names), finish("ok"), finish("ok")]
        async with play(
            lines if registration == "names" else [finish("ok")] * 2, registration=registration
        ) as shell:
            events = [*await turn(shell), *await turn(shell)]
            status = await shell.status()
            assert status.context_tokens <= status.everything_tokens
            for offered in of(events, ToolsOffered):
                assert offered.context_tokens <= offered.everything_tokens
            if registration in ("names", "auto"):
                assert status.context_tokens < status.everything_tokens
            else:
                assert status.context_tokens == status.everything_tokens

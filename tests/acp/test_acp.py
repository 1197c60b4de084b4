"""`ecoshell acp` in a separate process, with the SDK's client over pipes."""

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import acp
import pytest
from acp import schema
from agent_play import finish, register, say
from editor import LIMIT_S, command, editor, environment
from graph_turns import plan
from pictures import png
from processes import process_appears, processes_of

from ecoshell.agent import LimitChoice
from ecoshell.events import ApprovalWanted, LimitHit, Quote, TurnStarted
from ecoshell.events.work import BEYOND
from ecoshell.paths import Paths
from ecoshell.sessions import SessionStore
from ecoshell_acp.permissions import EditorUser

SUPPORT = Path(__file__).parent.parent / "support"
WRITE = say("Now I write.", "write_file", path="a.txt", content="one\n")
SEE, GONE = say("", "list_files"), finish("Gone.")
SLEEP = (register("run_command"), say("", "run_command", command="sleep 600"), finish("slept"))


def started(home, session):
    """The start events of a session's turns in the log."""
    with closing(SessionStore(Paths.under(home / "home").sessions_file)) as store:
        return [event for _, event in store.events(session) if isinstance(event, TurnStarted)]


async def test_initialize_reports_version_1_and_capabilities(tmp_path):
    async with editor(tmp_path, []) as opened:
        other_version = await opened.agent.initialize(protocol_version=99)
    output, capabilities = opened.about, opened.about.agent_capabilities
    assert (output.protocol_version, other_version.protocol_version) == (1, 1)
    assert output.agent_info.name == "ecoshell"
    assert capabilities.load_session
    assert capabilities.session_capabilities.list is not None
    assert capabilities.session_capabilities.close is not None
    assert capabilities.session_capabilities.resume is not None
    assert (
        capabilities.session_capabilities.delete is capabilities.session_capabilities.fork is None
    )
    assert (
        capabilities.prompt_capabilities.embedded_context,
        capabilities.prompt_capabilities.image,
    ) == (True, True)
    assert (capabilities.mcp_capabilities.http, capabilities.mcp_capabilities.sse) == (True, False)


async def test_a_turn_streams_its_text_call_and_answer_once(tmp_path):
    lines = [say("Let me see.", "list_files"), finish("There is nothing here.")]
    async with editor(tmp_path, lines) as opened:
        session = await opened.new()
        assert await opened.ask(session, "What is here?") == "end_turn"
    assert opened.text() == "Let me see.There is nothing here."
    assert opened.calls() == {"list_files()": ["in_progress", "completed"]}
    (start,) = opened.of(schema.ToolCallStart)
    assert (start.kind, opened.asked) == ("search", [])
    assert len({chunk.message_id for chunk in opened.of(schema.AgentMessageChunk)}) == 2


async def test_a_write_waits_for_permission_and_shows_its_diff(tmp_path):
    async with editor(tmp_path, [register("write_file"), WRITE, finish("Written.")]) as opened:
        file = opened.workspace / "a.txt"
        file.write_text("zero\n")
        session = await opened.new()
        assert await opened.ask(session, "Write one to a.txt.") == "end_turn"
        assert file.read_text() == "one\n"
    ((card, options, previous),) = opened.asked
    assert list(options) == ["once", "session", "project", "no"]
    (diff,) = [item for item in card.content if item.type == "diff"]
    assert (diff.path, diff.old_text, diff.new_text) == (str(file), "zero\n", "one\n")
    assert (card.kind, card.status, card.raw_input["path"]) == ("edit", "pending", "a.txt")
    assert [place.path for place in card.locations] == [str(file)]
    assert card.tool_call_id in [
        item.tool_call_id for item in previous if isinstance(item, schema.ToolCallStart)
    ]
    (write,) = [title for title in opened.calls() if title.startswith("write_file")]
    assert opened.calls()[write] == ["in_progress", "pending", "in_progress", "completed"]
    assert [item.type for item in opened.of(schema.ToolCallProgress)[-1].content] == [
        "diff",
        "content",
    ]


@pytest.mark.parametrize("answer", ["no", None])
async def test_a_rejected_or_dismissed_call_does_not_run(tmp_path, answer):
    async with editor(tmp_path, [register("write_file"), WRITE, finish("Not written.")]) as opened:
        opened.choose = lambda options: answer
        session = await opened.new()
        assert await opened.ask(session, "Write a.txt.") == "end_turn"
        assert not (opened.workspace / "a.txt").exists()
    ((card, _, _),) = opened.asked
    last = opened.of(schema.ToolCallProgress)[-1]
    assert (last.tool_call_id, last.status) == (card.tool_call_id, "failed")


async def test_a_call_allowed_for_the_session_is_asked_once(tmp_path):
    other = say("", "write_file", path="b.txt", content="two\n")
    async with editor(tmp_path, [register("write_file"), WRITE, other, finish("Done.")]) as opened:
        opened.choose = lambda options: "session"
        session = await opened.new()
        assert await opened.ask(session, "Write a.txt and b.txt.") == "end_turn"
        assert sorted(path.name for path in opened.workspace.iterdir()) == ["a.txt", "b.txt"]
    assert len(opened.asked) == 1


async def test_an_editor_that_cannot_ask_approves_nothing(tmp_path):
    async with editor(tmp_path, [register("write_file"), WRITE, finish("Not written.")]) as opened:

        async def refuse():
            raise acp.RequestError.method_not_found("session/request_permission")

        for answer in (
            lambda options: refuse(),
            lambda options: {"outcome": "cancelled"},
        ):  # an error and an invalid one
            opened.choose = answer
            session = await opened.new()
            assert await opened.ask(session, "Write a.txt.") == "end_turn"
            assert not (opened.workspace / "a.txt").exists()


async def test_sessions_can_be_listed_by_folder_loaded_with_history_and_closed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lines = [say("Let me see.", "list_files"), finish("Nothing is here.")]
    async with editor(tmp_path, lines) as opened:
        session = await opened.new()
        await opened.ask(session, "What is here?")
        other = await opened.new(elsewhere)
        await opened.ask(other, "And there?")
        sessions = (await opened.agent.list_sessions()).sessions
        (here,) = (await opened.agent.list_sessions(cwd=str(opened.workspace))).sessions
        assert {item.session_id for item in sessions} == {session, other}
        assert (here.session_id, here.title, here.cwd) == (
            session,
            "What is here?",
            str(opened.workspace),
        )
        assert (await opened.agent.list_sessions(cwd=f"{opened.workspace}/")).sessions == [here]
        assert (await opened.agent.list_sessions(cwd=str(tmp_path))).sessions == []
        with pytest.raises(acp.RequestError, match="is not an absolute path"):
            await opened.agent.list_sessions(cwd="here")
        await opened.agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError, match="is not open") as closed:
            await opened.ask(session, "Again?")
        assert closed.value.code == -32002
    async with editor(tmp_path, [finish("Still nothing.")]) as again:
        loaded = await again.agent.load_session(
            cwd=str(again.workspace), session_id=session, mcp_servers=[]
        )
        assert loaded.modes.current_mode_id == "single"
        assert again.text(schema.UserMessageChunk) == "What is here?"
        assert "\nLet me see." in again.text(schema.AgentThoughtChunk)
        assert again.text() == "Nothing is here."
        assert again.calls() == {"list_files()": ["in_progress", "completed"]}
        assert await again.ask(session, "And now?") == "end_turn"
        assert again.text().endswith("Still nothing.")
        with pytest.raises(acp.RequestError, match="Unknown session 'zzzz-zz'"):
            await again.agent.load_session(
                cwd=str(again.workspace), session_id="zzzz-zz", mcp_servers=[]
            )
        old = schema.SseMcpServer(type="sse", name="old", url="http://x/", headers=[])
        for folder, servers in ((tmp_path / "gone", []), ("here", []), (again.workspace, [old])):
            with pytest.raises(acp.RequestError):
                await again.agent.load_session(
                    cwd=str(folder), session_id=session, mcp_servers=servers
                )
        assert await again.ask(session, "/help") == "end_turn"
        await again.agent.load_session(cwd=str(again.workspace), session_id=session, mcp_servers=[])
        assert again.text(schema.UserMessageChunk).endswith("What is here?And now?")


async def test_a_session_of_another_process_is_resumed_without_replaying_it(tmp_path):
    question = ("Remember my name: Ada.", "What is my name?")
    async with editor(tmp_path, [finish("I will.")]) as opened:
        session = await opened.new()
        await opened.ask(session, question[0])
    async with editor(tmp_path, [finish("Ada.")]) as again:
        resumed = await again.agent.resume_session(
            cwd=str(again.workspace), session_id=session, mcp_servers=[]
        )
        assert resumed.modes.current_mode_id == "single"
        assert (again.text(), again.text(schema.UserMessageChunk)) == ("", "")
        assert again.text(schema.AgentThoughtChunk).startswith(f"Session {session} resumed with ")
        assert await again.ask(session, question[1]) == "end_turn"
        assert again.text() == "Ada."
        with pytest.raises(acp.RequestError, match="Unknown session 'zzzz-zz'") as missing:
            await again.agent.resume_session(
                cwd=str(again.workspace), session_id="zzzz-zz", mcp_servers=[]
            )
        assert missing.value.code == -32002
    assert [turn.question for turn in started(tmp_path, session)] == [*question]


async def test_a_long_list_of_sessions_has_pages(tmp_path):
    with closing(SessionStore(Paths.under(tmp_path / "home").sessions_file)) as store:
        for number in range(60):
            session = store.create(workspace=str(tmp_path), model="any")
            store.append(session, [TurnStarted(1, f"question {number}", "any", "single", "react")])
    async with editor(tmp_path, []) as opened:
        first = await opened.agent.list_sessions()
        second = await opened.agent.list_sessions(cursor=first.next_cursor)
        for cursor in ("x", "9" * 5000):
            with pytest.raises(acp.RequestError, match="Unknown page"):
                await opened.agent.list_sessions(cursor=cursor)
    assert (len(first.sessions), len(second.sessions), second.next_cursor) == (50, 10, None)
    assert len({item.session_id for item in (*first.sessions, *second.sessions)}) == 60


async def test_modes_match_the_shell_and_can_be_changed(tmp_path):
    async with editor(tmp_path, []) as opened:
        output = await opened.agent.new_session(cwd=str(opened.workspace), mcp_servers=[])
        assert output.modes.current_mode_id == "single"
        assert [mode.id for mode in output.modes.available_modes] == ["single", "umi"]
        await opened.agent.set_session_mode(mode_id="umi", session_id=output.session_id)
        assert await opened.ask(output.session_id, "/mode") == "end_turn"
        assert "›  umi" in opened.text()
        await opened.ask(output.session_id, "/mode single")
        assert [item.current_mode_id for item in opened.of(schema.CurrentModeUpdate)] == ["single"]
        with pytest.raises(acp.RequestError, match="Unknown mode 'fast'"):
            await opened.agent.set_session_mode(mode_id="fast", session_id=output.session_id)


async def test_the_planners_text_is_a_thought_and_the_answer_a_message(tmp_path):
    lines = [
        say("I should look.\nNext: caller"),
        say("", "list_files"),
        say("All done.\nNext: summarizer"),
    ]
    async with editor(tmp_path, [*lines, say("Nothing is here.")], "--mode", "umi") as opened:
        session = await opened.new()
        assert await opened.ask(session, "What is here?") == "end_turn"
    assert "I should look." in opened.text(schema.AgentThoughtChunk)
    assert opened.text() == "Nothing is here."


async def test_slash_commands_are_offered_and_run(tmp_path):
    async with editor(
        tmp_path, [finish("first"), finish("once more"), finish("a folder")]
    ) as opened:
        session = await opened.new()
        await opened.until(lambda: opened.of(schema.AvailableCommandsUpdate))
        offered = {
            item.name: item
            for item in opened.of(schema.AvailableCommandsUpdate)[0].available_commands
        }
        assert offered["budget"].input.root.hint == "[SCOPE] [AMOUNT|off]"
        assert not {"quit", "new", "resume", "clear", "copy"} & offered.keys()
        for typed, answer in (
            ("/budget 0.50", "$0.50"),
            ("/bugdet", "Did you mean /budget?"),
            ("/budget x", "'x' is not an amount."),
            ("/new", "use your editor's own command"),
        ):
            opened.told.clear()
            assert await opened.ask(session, typed) == "end_turn"
            assert answer in opened.text(), typed
        await opened.ask(session, "Ask this.")
        await opened.ask(session, "/retry")
        assert opened.text().endswith("once more")
        await opened.ask(session, "/usr/bin is what?")
        assert [turn.question for turn in started(tmp_path, session)] == [
            "Ask this.",
            "Ask this.",
            "/usr/bin is what?",
        ]


COUNT_COMMAND = """
from ecoshell.agent.command_table import Command, Printed
from ecoshell.plugins import hookimpl

async def count(shell, argument):
    return Printed(f"{len(argument.split())} words")

@hookimpl
def slash_commands():
    return [Command("count-2_words", "TEXT", "count words", count)]
"""


async def test_plugin_commands_and_server_prompts_are_offered_and_run(tmp_path):
    pytest.importorskip("mcp")
    folder = tmp_path / "home" / "config" / "plugins"
    folder.mkdir(parents=True)
    (folder / "count.py").write_text(COUNT_COMMAND)
    values = schema.McpServerStdio(
        name="docs", command=sys.executable, args=[str(SUPPORT / "mcp_server.py")], env=[]
    )
    async with editor(tmp_path, [finish("Reviewed.")]) as opened:
        session = await opened.new(servers=[values])
        assert await opened.ask(session, "/count-2_words one two") == "end_turn"
        assert opened.text() == "2 words"
        (opened.workspace / "a.txt").write_text("the notes")
        link = acp.resource_link_block("a.txt", (opened.workspace / "a.txt").as_uri())
        block = acp.embedded_text_resource((opened.workspace / "b.txt").as_uri(), "more notes")
        await opened.ask(session, "/docs:review ", link, acp.resource_block(block))
        (turn,) = started(tmp_path, session)
        assert turn.question.startswith("Review @a.txt in a b.txt tone.")
        assert [(item.name, item.text) for item in turn.attachments] == [
            ("a.txt", "the notes"),
            ("b.txt", "more notes"),
        ]
        again = await opened.new(servers=[values])
        await opened.until(lambda: opened.of(schema.AvailableCommandsUpdate, again))
        offered = {
            item.name: item
            for item in opened.of(schema.AvailableCommandsUpdate, again)[0].available_commands
        }
        assert offered["docs:review"].input.root.hint == "file tone"
        assert await opened.ask(again, "/New") == "end_turn"
        assert "use your editor's own command" in opened.text(session=again)


async def test_a_cancelled_turn_ends_and_leaves_no_process(tmp_path):
    async with editor(tmp_path, [*SLEEP, finish("Here I am.")], "--yes") as opened:
        session = await opened.new()
        turn = asyncio.create_task(opened.ask(session, "Run a long command."))
        await process_appears(tmp_path / "home", "sleep 600")
        with pytest.raises(acp.RequestError, match="A turn is running"):
            await opened.ask(session, "And another one?")
        with pytest.raises(acp.RequestError, match="A turn is running"):
            await opened.agent.set_session_mode(mode_id="umi", session_id=session)
        await opened.agent.cancel(session_id=session)
        assert await turn == "cancelled"
        assert not [line for line in processes_of(tmp_path / "home") if "sleep 600" in line]
        assert opened.calls()['run_command(command="sleep 600")'][-1] == "failed"
        assert await opened.ask(session, "Are you there?") == "end_turn"


async def test_a_turn_can_be_cancelled_before_its_start_and_while_waiting_for_permission(tmp_path):
    async with editor(tmp_path, [register("write_file"), WRITE, finish("Never.")]) as opened:
        session = await opened.new()
        turn = asyncio.create_task(opened.ask(session, "Write."))
        await asyncio.sleep(0)
        await opened.agent.cancel(session_id=session)
        assert await turn == "cancelled"
        opened.choose = lambda options: asyncio.Event().wait()  # an editor that never answers
        turn = asyncio.create_task(opened.ask(session, "Write."))
        await opened.until(lambda: opened.asked)
        await opened.agent.cancel(session_id=session)
        assert await turn == "cancelled"
        await opened.agent.cancel(session_id="nothing")
        assert not (opened.workspace / "a.txt").exists()


async def test_blocks_of_a_prompt_become_attachments(tmp_path):
    async with editor(tmp_path, [finish("Read."), finish("Read.")]) as opened:
        (opened.workspace / "notes one.txt").write_text("three\n")
        (opened.workspace / "plain.txt").write_text("four\n")
        (tmp_path / "outside.txt").write_text("secret\n")
        uri = opened.workspace.as_uri()
        session = await opened.new()
        await opened.ask(
            session,
            "Compare",
            acp.resource_link_block("notes", f"{uri}/notes%20one.txt"),
            "and",
            acp.resource_link_block("plain", f"{uri}/plain.txt"),
            "，?",
            acp.resource_link_block("outside", (tmp_path / "outside.txt").as_uri()),
            acp.resource_link_block("odd", "file://[/x%00"),
            acp.resource_link_block("web", "https://example.org/page"),
            acp.audio_block("aGk=", "audio/wav"),
        )
        selected = acp.embedded_text_resource(f"{uri}/plain.txt#L1:2", "unsaved\n")
        long = acp.embedded_text_resource("zed:///rules", "x" * 200_000)
        await opened.ask(
            session, "What is this? ", acp.resource_block(selected), acp.resource_block(long)
        )
    linked, embedded = started(tmp_path, session)
    files = {item.name: item.text for item in linked.attachments}
    assert files == {"notes one.txt": "three\n", "plain.txt": "four\n"}
    assert linked.question.startswith('Compare @"notes one.txt" and @"plain.txt"，? file://')
    assert linked.question.endswith("https://example.org/page")
    notes = opened.text(schema.AgentThoughtChunk)
    assert "outside.txt was not attached: it is outside the workspace" in notes
    assert (
        "Content of the type audio was not attached; only text and images are supported." in notes
    )
    assert embedded.question == "What is this? plain.txt#L1:2 zed:///rules"
    texts = {item.name: item.text for item in embedded.attachments}
    assert texts["plain.txt#L1:2"] == "unsaved\n"
    assert texts["zed:///rules"].endswith("[cut: the first 100,000 of 200,000 bytes]")


async def test_images_of_a_prompt_are_attached(tmp_path):
    data = base64.b64encode(png()).decode()
    async with editor(tmp_path, [finish("Grey."), finish("Grey.")]) as opened:
        session = await opened.new()
        blob = acp.embedded_blob_resource("file:///tmp/a%20plan.png", data, mime_type="image/png")
        await opened.ask(
            session,
            "What is this?",
            acp.image_block(data, "image/png"),
            acp.resource_block(blob),
            acp.image_block("aGk=", "image/png"),
        )
        await opened.ask(session, acp.image_block(data, "image/png"))
    asked, alone = started(tmp_path, session)
    assert [(item.name, item.image.data) for item in asked.attachments] == [
        ("image 1", data),
        ("a plan.png", data),
    ]
    assert "image 3 was not attached: image 3 is not a PNG" in opened.text(schema.AgentThoughtChunk)
    assert (asked.question, alone.question) == ("What is this?", "[image image 1 64×48]")


async def test_an_image_for_a_model_without_vision_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    async with editor(tmp_path, []) as opened:
        session = await opened.new()
        assert await opened.ask(session, "/model openai/gpt-3.5-turbo") == "end_turn"
        with pytest.raises(acp.RequestError, match=r"gpt-3.5-turbo cannot see images"):
            await opened.ask(
                session, "And this?", acp.image_block(base64.b64encode(png()).decode(), "image/png")
            )
    assert started(tmp_path, session) == []


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_servers_of_the_editor_are_added_to_those_of_the_settings_for_its_session(
    tmp_path, way
):
    pytest.importorskip("mcp")
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        '[mcp.servers.own]\nurl = "http://127.0.0.1:9/mcp"\nenabled = true\n'
    )
    arguments, server = [str(SUPPORT / "mcp_server.py")], None
    if way == "http":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, str(port), stderr=subprocess.DEVNULL
        )
        values = schema.HttpMcpServer(
            type="http", name="my tools", url=f"http://127.0.0.1:{port}/mcp", headers=[]
        )
        await _listens(port)
    else:
        variable = schema.EnvVariable(name="TOLD", value="by the editor")
        values = schema.McpServerStdio(
            name="my tools", command=sys.executable, args=arguments, env=[variable]
        )
    try:
        call = say("", "tool_call", name="my-tools.look", arguments={"name": "TOLD"})
        async with editor(
            tmp_path, [register("my-tools.look"), call, finish("Seen.")], "--yes"
        ) as opened:
            session = await opened.new(servers=[values])
            await opened.ask(session, "/mcp my-tools")
            await opened.ask(session, "/mcp")
            assert "own" in opened.text()
            assert await opened.ask(session, "Look it up.") == "end_turn"
            (call,) = [
                item for title, item in opened.calls().items() if title.startswith("my-tools.look")
            ]
            assert call[-1] == "completed"
            output = str(opened.of(schema.ToolCallProgress)[-1].content)
            assert ("by the editor" if way == "stdio" else "nothing") in output
            without = await opened.new()
            opened.told.clear()
            await opened.ask(without, "/mcp")
            assert "my-tools" not in opened.text()
            with pytest.raises(acp.RequestError, match="unsupported transport"):
                await opened.new(
                    servers=[
                        schema.SseMcpServer(type="sse", name="old", url="http://x/", headers=[])
                    ]
                )
            header = schema.HttpHeader(name="Authorization", value="Bearer secret-of-mine")
            odd = schema.HttpMcpServer(type="http", name="odd", url="x", headers=[header])
            alike = schema.HttpMcpServer(
                type="http", name="one", url="http://127.0.0.1:9/", headers=[]
            )
            with pytest.raises(acp.RequestError, match="The server odd cannot be used") as refused:
                await opened.new(servers=[*([alike] * 150), odd])
            assert "secret-of-mine" not in str(refused.value)
    finally:
        if server is not None:
            server.kill()
            await server.wait()


async def _listens(port):
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def test_usage_updates_have_context_cost_and_caps(tmp_path):
    priced = finish("Said.", usage={"input": 1000, "output": 100})
    async with editor(tmp_path, [priced], "--price", "1,2", "--budget", "0.50") as opened:
        session = await opened.new()
        await opened.ask(session, "Say.")
    last = opened.of(schema.UsageUpdate)[-1]
    assert (last.used, last.size, last.cost.currency) == (1100, 128_000, "USD")
    assert last.cost.amount == pytest.approx(0.0012)
    assert last.field_meta["ecoshell"]["caps"] == [
        {
            "scope": "session",
            "unit": "usd",
            "limit": "0.5",
            "spent": "0.0012",
            "held": "0",
            "left": "0.4988",
        }
    ]


@pytest.mark.parametrize(
    ("choice", "reason", "text"),
    [
        ("raise", "end_turn", "Said."),
        ("answer", "end_turn", ""),
        ("stop", "cancelled", ""),
        (None, "cancelled", ""),
    ],
)
async def test_the_user_is_asked_at_a_cap_like_in_a_chat(tmp_path, choice, reason, text):
    lines = [say("Let me see.", "list_files"), finish("Said.")]
    async with editor(tmp_path, lines, "--price", "1,2", "--budget", "0.0001") as opened:
        opened.choose = lambda options: choice
        session = await opened.new()
        assert await opened.ask(session, "Say.") == reason
    card, options, previous = opened.asked[0]
    assert options["raise"].startswith("Raise the cap of this session to $")
    assert [*options][-2:] == ["answer", "stop"]
    assert card.title == "limit reached"
    assert card.tool_call_id in [
        item.tool_call_id for item in previous if isinstance(item, schema.ToolCallStart)
    ]
    assert opened.calls()["limit reached"] == ["pending", "completed"]
    assert text in opened.text()


@pytest.mark.parametrize(
    ("choice", "started", "chosen"),
    [
        ("start", ["count_text", "list_files"], ""),
        ("without:count_text", ["list_files"], "without count_text"),
        ("refuse", [], "not started"),
        (None, [], "not started"),
    ],
)
async def test_the_user_starts_trims_or_refuses_quoted_work(tmp_path, choice, started, chosen):
    graph = say('["list_files", ["<task>"], "count_text", ["<task>", "list_files"]]')
    (tmp_path / "home" / "config").mkdir(parents=True)
    settings = tmp_path / "home" / "config" / "config.toml"
    settings.write_text('[agent]\nstrategy = "graph"\nregistration = "all"\nquote_share = 0.0001\n')
    nodes = [say("", "list_files"), say("", "count_text", text="one")]
    lines = [graph, *(line for line in nodes if line["call"]["name"] in started), finish("Done.")]
    async with editor(tmp_path, lines, "--price", "1,4", "--budget", "1.00") as opened:
        opened.choose = lambda options: choice
        session = await opened.new()
        assert await opened.ask(session, "Count and list.") == "end_turn"
    ((card, options, previous),) = opened.asked
    assert [*options] == ["start", "without:list_files", "without:count_text", "refuse"]
    assert card.title.startswith("quote for 2 nodes: $")
    assert "of the remaining budget" in card.content[0].content.text
    assert card.tool_call_id in [
        item.tool_call_id for item in previous if isinstance(item, schema.ToolCallStart)
    ]
    calls = opened.calls()
    assert calls.pop(card.title) == ["pending", "completed"]
    assert sorted(title.partition("(")[0] for title in calls) == started
    (answered,) = [
        item
        for item in opened.of(schema.ToolCallProgress)
        if item.tool_call_id == card.tool_call_id
    ]
    assert "".join(item.content.text for item in answered.content or ()) == chosen


async def test_an_editor_that_cannot_ask_starts_quoted_work_that_fits():
    quoted = Quote("1", "graph", 2, 0.1, 0.2, 0.3, 1, 2, 3, reason="it may take 30 %")
    assert (await EditorUser().at_quote(quoted)).kind == "start"
    beyond = replace(quoted, reason=f"{BEYOND} $0.10 left for it")
    assert (await EditorUser().at_quote(beyond)).kind == "refuse"


@pytest.mark.parametrize("choice", ["raise", "model:openai/dear", "yes-to-everything"])
async def test_a_choice_that_was_not_offered_is_ignored(choice):
    user, hit = EditorUser(), LimitHit("session", "usd", 2, 1, "The cap is reached.")

    async def choose(event, options):
        return choice

    user.ask = choose
    user.announce(hit)
    assert await user.at_limit(hit) == LimitChoice("stop")
    request = ApprovalWanted("c1", "write_file", {}, ("write",), "It would.")
    user.announce(request)
    assert (await user.approve(request)).decision == "no"


async def test_a_request_of_a_server_can_be_approved_only_once():
    offered = []

    async def choose(event, options):
        offered.extend(item.option_id for item in options)
        return "once"

    request, user = (
        ApprovalWanted("f0", "asks:form", {}, ("network",), "It asks."),
        EditorUser(choose),
    )
    user.announce(request)
    assert (await user.approve(request)).decision == "once"
    assert offered == ["once", "no"]


async def test_a_turn_at_its_step_limit_has_its_own_stop_reason(tmp_path):
    lines = [say("", "list_files"), say("Nothing is here.")]
    async with editor(tmp_path, lines, "--max-steps", "1") as opened:
        session = await opened.new()
        assert await opened.ask(session, "What is here?") == "max_turn_requests"
    assert opened.text().endswith("Nothing is here.")


async def test_a_tool_graph_is_a_plan_with_statuses(tmp_path):
    lines = [
        plan(list_files=[], read_file=["list_files"]),
        SEE,
        say("", "read_file", path="gone.txt"),
        *[GONE] * 3,
    ]
    async with editor(tmp_path, lines, "--strategy", "graph") as opened:
        session = await opened.new()
        assert await opened.ask(session, "List the files and read gone.txt.") == "end_turn"
    plans = [
        [(item.content, item.status) for item in update.entries]
        for update in opened.of(schema.AgentPlanUpdate)
    ]
    assert plans[0] == [("list_files", "pending"), ("read_file", "pending")]
    assert [("list_files", "in_progress"), ("read_file", "pending")] in plans
    (listed, read) = plans[-1]
    assert listed == ("list_files", "completed")
    assert (read[0].startswith("read_file failed"), read[1]) == (True, "completed")
    assert "[" not in opened.text()  # the text of the plan is not a message


async def test_project_instructions_need_permission(tmp_path):
    async with editor(tmp_path, [finish("Yes.")]) as opened:
        (opened.workspace / "AGENTS.md").write_text("Be brief.\n")
        opened.choose = lambda options: "yes"
        session = await opened.new()
        assert await opened.ask(session, "Are you?") == "end_turn"
    ((card, options, _),) = opened.asked
    assert (list(options), "AGENTS.md" in card.title) == (["yes", "no", "later"], True)
    assert "Be brief." in card.content[0].content.text


async def test_sessions_run_in_parallel(tmp_path):
    answer = asyncio.Event()

    async def later(options):
        await answer.wait()
        return "once"

    async with editor(tmp_path, [register("write_file"), WRITE, finish("Written.")]) as opened:
        (tmp_path / "other").mkdir()
        first, second = await opened.new(), await opened.new(tmp_path / "other")
        opened.choose = lambda options: later(options) if len(opened.asked) == 1 else "no"
        waiting = asyncio.create_task(opened.ask(first, "Write."))
        await opened.until(lambda: opened.asked)
        assert await opened.ask(second, "Write.") == "end_turn"
        assert not waiting.done()
        await opened.agent.close_session(session_id=second)
        answer.set()
        assert await waiting == "end_turn"
        assert opened.text(session=first).endswith("Written.")
    assert (opened.workspace / "a.txt").exists()
    assert not (tmp_path / "other" / "a.txt").exists()


async def test_closing_a_session_stops_its_turn(tmp_path):
    async with editor(tmp_path, SLEEP, "--yes") as opened:
        session = await opened.new()
        turn = asyncio.create_task(opened.ask(session, "Run a long command."))
        await process_appears(tmp_path / "home", "sleep 600")
        await opened.agent.close_session(session_id=session)
        assert await turn == "cancelled"
        assert not [line for line in processes_of(tmp_path / "home") if "sleep 600" in line]


async def test_errors_have_the_messages_of_the_shell(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with editor(tmp_path, []) as opened:
        for folder, output in (
            (tmp_path / "nowhere", "is not a folder"),
            ("relative", "is not an absolute path"),
            ("/nul\0", "is not an absolute path"),
        ):
            with pytest.raises(acp.RequestError, match=output) as refused:
                await opened.new(folder)
            assert refused.value.code == -32602
        session = await opened.new()
        with pytest.raises(acp.RequestError, match="The question is empty"):
            await opened.ask(session, " ")
        with pytest.raises(acp.RequestError, match="has only 0 replies") as spent:
            await opened.ask(session, "Say.")
        assert spent.value.code == -32603
        assert "has only 0 replies" in opened.text()
        (tmp_path / "script.jsonl").unlink()
        with pytest.raises(acp.RequestError, match=r"script\.jsonl"):
            await opened.new()
    async with editor(tmp_path, [], "--model", "openai/gpt-4o-mini") as opened:
        with pytest.raises(acp.RequestError, match="API key for openai/gpt-4o-mini") as locked:
            await opened.new()
        assert (locked.value.code, locked.value.data) == (-32000, {"kind": "ModelMissing"})


class Raw:
    """The agent without the SDK, driven by lines."""

    def __init__(self, home, lines=(), *options):
        (home / "workspace").mkdir()
        self.process = subprocess.Popen(
            command(home, lines, *options),
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def request(self, number, method, **params):
        self.send(
            json.dumps(
                {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            ).encode()
        )

    def answer(self, number):
        """The answer to a request; asserts that all lines before it are messages."""
        for line in self.process.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            json.dumps(message, ensure_ascii=False).encode()  # it has no unpaired surrogates
            if message.get("id", "none") == number:
                return message
        raise AssertionError(f"the output ended before the answer to {number}")


def test_invalid_lines_are_refused_without_ending_the_agent(tmp_path):
    raw = Raw(tmp_path)
    raw.send(b'{"jsonrpc": "2.0", "id": 1, "meth')
    assert raw.answer(None)["error"]["code"] == -32700
    raw.send(b"\xff\xfe[")
    assert raw.answer(None)["error"]["code"] == -32700
    raw.send(b"[1, 2]")
    assert raw.answer(None)["error"]["code"] == -32600
    raw.send(b"")
    raw.request(2, "session/fly")
    assert raw.answer(2)["error"]["code"] == -32601
    raw.request(3, "session/new", cwd=5)
    assert raw.answer(3)["error"]["code"] == -32602
    raw.request(4, "session/prompt", sessionId="none", prompt=[])
    assert raw.answer(4)["error"]["code"] == -32002
    raw.send(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "none"}}')
    raw.request(5, "initialize", protocolVersion=1)
    assert raw.answer(5)["result"]["protocolVersion"] == 1
    raw.send(b"[" * 100_000)
    assert raw.answer(None)["error"]["code"] == -32700
    raw.request(6, "session/new", cwd="/\ud800", mcpServers=[])
    assert raw.answer(6)["error"] == {
        "code": -32602,
        "message": "The workspace /? is not a folder. Use --workspace with an existing folder.",
        "data": {"kind": "UsageError"},
    }
    for number, name in enumerate(("\ud800", "../../x", "%", ""), start=10):
        raw.request(
            number, "session/load", sessionId=name, cwd=str(tmp_path / "workspace"), mcpServers=[]
        )
        assert raw.answer(number)["error"]["code"] == -32002
    raw.process.stdin.close()
    assert raw.process.wait(LIMIT_S) == 0


def test_requests_from_a_file_are_answered_before_its_end(tmp_path):
    questions = [("initialize", {"protocolVersion": 1}), ("session/list", {})]
    lines = [
        {"jsonrpc": "2.0", "id": at, "method": name, "params": params}
        for at, (name, params) in enumerate(questions)
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with (
        (tmp_path / "requests.jsonl").open("rb") as values,
        (tmp_path / "answers.jsonl").open("wb") as output,
    ):
        subprocess.run(
            command(tmp_path, []),
            env=environment(tmp_path),
            stdin=values,
            stdout=output,
            check=True,
            timeout=LIMIT_S,
        )
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert {answer["id"] for answer in answers if "result" in answer} == {0, 1}


def test_other_output_is_not_mixed_with_messages(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import atexit, os\natexit.register(os.write, 1, b'printed')"
    )
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    )
    run = say("", "run_command", command="echo hello; cat")
    odd = say("", "list_files", path="\ud800")
    raw = Raw(tmp_path, [register("run_command"), run, odd, finish("Run \ud800.")], "--yes")
    raw.request(1, "session/new", cwd=str(tmp_path / "workspace"), mcpServers=[])
    session = raw.answer(1)["result"]["sessionId"]
    raw.request(2, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Run."}])
    assert raw.answer(2)["result"] == {"stopReason": "end_turn"}
    raw.process.stdin.close()
    assert raw.process.stdout.read() == b""
    assert raw.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("ending", ["the input ends", "SIGTERM"])
def test_all_processes_end_with_the_agent(tmp_path, ending):
    raw = Raw(tmp_path, SLEEP, "--yes")
    raw.request(1, "session/new", cwd=str(tmp_path / "workspace"), mcpServers=[])
    session = raw.answer(1)["result"]["sessionId"]
    raw.request(2, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Sleep."}])
    asyncio.run(process_appears(tmp_path / "home", "sleep 600"))
    if ending == "SIGTERM":
        raw.process.send_signal(signal.SIGTERM)
    else:
        raw.process.stdin.close()
    assert raw.process.wait(LIMIT_S) == (0 if ending == "the input ends" else 130)
    asyncio.run(_all_gone(tmp_path / "home"))
    assert processes_of(tmp_path / "home") == []
    (turn,) = started(tmp_path, session)
    assert turn.question == "Sleep."


CLIENT = """
import json, os, subprocess, sys
agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def ask(number, method, **params):
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
    agent.stdin.write(line + b"\\n")
    agent.stdin.flush()

server = {"name": "tried", "command": sys.executable, "args": [sys.argv[1]], "env": []}
ask(1, "session/new", cwd=os.getcwd(), mcpServers=[server])
for line in agent.stdout:
    answer = json.loads(line).get("result") or {}
    if "sessionId" in answer:
        ask(2, "session/prompt", sessionId=answer["sessionId"], prompt=[{"type": "text", "text": "Sleep."}])
"""


def test_a_killed_editor_leaves_no_process(tmp_path):
    pytest.importorskip("mcp")
    client = subprocess.Popen(
        [
            sys.executable,
            "-c",
            CLIENT,
            str(SUPPORT / "mcp_server.py"),
            *command(tmp_path, SLEEP, "--yes"),
        ],
        env=environment(tmp_path),
        cwd=tmp_path,
    )
    asyncio.run(process_appears(tmp_path / "home", "sleep 600"))
    os.kill(client.pid, signal.SIGKILL)
    assert client.wait(LIMIT_S) == -signal.SIGKILL
    asyncio.run(_all_gone(tmp_path / "home"))
    assert processes_of(tmp_path / "home") == []


async def _all_gone(home):
    async with asyncio.timeout(LIMIT_S):
        while processes_of(home):  # noqa: ASYNC110 - the processes are not children
            await asyncio.sleep(0.05)


def test_at_a_terminal_the_command_explains_its_purpose(tmp_path):
    pexpect = pytest.importorskip("pexpect")
    child = pexpect.spawn(
        sys.executable, ["-m", "ecoshell", "acp"], env=environment(tmp_path), timeout=LIMIT_S
    )
    child.expect("started by an editor")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2

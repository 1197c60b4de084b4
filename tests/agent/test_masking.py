"""Known keys are masked in all output before it is shown, stored, sent or written."""

import json
import sys

import pytest
from agent_play import User, finish, of, say, turn

from ecoshell import secrecy
from ecoshell.errors import ToolError
from ecoshell.events import ApprovalWanted, CallFinished, TextArrived
from ecoshell.paths import user_paths
from ecoshell.secrecy import MARK
from ecoshell.tools.mcp.servers import Server

KEY = "sk-abcabd-0123456789"


@pytest.fixture(autouse=True)
def known_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(secrecy, "_added_secrets", set())
    yield
    monkeypatch.undo()
    secrecy.protect_secrets()


def stored():
    """The content of all files under the home."""
    data = user_paths().data
    return b"".join(
        file.read_bytes() for file in data.rglob("*") if file.is_file() and "undo" not in file.parts
    )


async def test_a_key_in_files_answers_and_arguments_is_masked_in_events_store_and_prompts(
    play, home
):
    (home / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    lines = [
        say("", "read_file", path=".env"),
        say(f"It is {KEY}", "count_text", text=KEY),
        say("", "run_command", command="cat .env; exit 3"),
        say(f"The key is {KEY[:4]} or {KEY}."),
    ]
    async with play(lines, registration="all", yes=True) as shell:
        events = await turn(shell, f"Is {KEY} in @.env?")
        sent = json.dumps(
            [[message.text for message in request.messages] for request in shell.requests]
        )
    assert events[-1].answer == f"The key is {KEY[:4]} or {MARK}."
    assert of(events, CallFinished)[0].observation == f"OPENAI_API_KEY={MARK}\n"
    assert KEY not in repr(events)
    assert KEY not in sent
    assert KEY.encode() not in stored()
    streamed = "".join(event.text for event in of(events, TextArrived))
    assert streamed.endswith(f"The key is {KEY[:4]} or {MARK}.")


async def test_a_key_in_the_output_of_a_user_command_is_masked(play, home):
    (home / ".env").write_text(KEY)
    async with play([]) as shell:
        assert (await shell.run("cat .env")).output == MARK
    assert KEY.encode() not in stored()


@pytest.mark.parametrize(
    "options",
    [
        'args = ["-c", ECHO, "--api-key", "KEY"]',
        'args = ["-c", ECHO, "--token=KEY"]',
        'args = ["-c", ECHO]\nenv = { NOTES_TOKEN = "KEY" }',
        'args = ["-c", ECHO]\nenv = { TOKEN = "KEY" }',
    ],
)
async def test_a_key_in_the_last_message_of_a_server_is_masked(play, home, options):
    pytest.importorskip("mcp")
    key, echo = "own-0123456789", "import os, sys; sys.exit(repr([*sys.argv, *os.environ.items()]))"
    options = options.replace("KEY", key).replace("ECHO", json.dumps(echo))
    user_paths().settings_file.parent.mkdir(parents=True, exist_ok=True)
    user_paths().settings_file.write_text(
        f"[mcp.servers.one]\ncommand = {json.dumps(sys.executable)}\n{options}\n"
    )
    async with play([say("Well.")]) as shell:
        with pytest.raises(ToolError, match="cannot be reached") as failure:
            await shell.command("/mcp one")
        printed = (await shell.command("/mcp")).text
        events = await turn(shell)
    assert MARK in failure.value.message
    assert key not in f"{failure.value} {printed} {events}"
    assert key.encode() not in stored()


@pytest.mark.parametrize(
    ("server", "key"),
    [
        ({"headers": {"Authorization": "basic dXNlcjpwYXNz"}}, "dXNlcjpwYXNz"),
        ({"headers": {"proxy-authorization": "token 0123456789"}}, "0123456789"),
        ({"headers": {"X-Api-Key": "0123456789"}}, "0123456789"),
        ({"url": "https://me:pass-0123456@example.org/mcp"}, "pass-0123456"),
        ({"url": "https://example.org/mcp?a=b&api_key=0123456789"}, "0123456789"),
        ({"url": "https://example.org/mcp?token=${OTHER:-0123456789}"}, "0123456789"),
    ],
)
def test_keys_in_server_settings_are_masked(server, key):
    Server("one", **{"url": "https://example.org/mcp", **server}).helper_input()
    assert secrecy.mask_secrets(f"it is {key}") == f"it is {MARK}"


async def test_a_mask_is_never_written_over_a_key(play, home):
    text = f"OPENAI_API_KEY={KEY}\nDEBUG=0\n"
    (home / ".env").write_text(text)
    rewrite = say(
        "", "write_file", path=".env", content=f"OPENAI_API_KEY={MARK}\nDEBUG=1\n{'#' * 80}\n"
    )
    edit = say("", "edit_file", path=".env", old="DEBUG=0", new="DEBUG=1")
    async with play([rewrite, edit, finish("done")], registration="all", yes=True) as shell:
        events = await turn(shell)
    refused, edited = of(events, CallFinished)
    assert not refused.ok
    assert "Nothing was written" in refused.observation
    assert edited.ok
    assert MARK in edited.changes
    assert (home / ".env").read_text() == text.replace("DEBUG=0", "DEBUG=1")


async def test_an_approval_request_masks_keys(play, home):
    user = User("once")
    (home / ".env").write_text(f"{KEY}\nDEBUG=0\n")
    edit = say("", "edit_file", path=".env", old="DEBUG=0", new="DEBUG=1")
    async with play([edit, finish("done")], registration="all", user=user) as shell:
        events = await turn(shell)
    (request,) = of(events, ApprovalWanted)
    assert user.asked == [request]
    assert user.asked[0] is request  # the line shell compares requests by identity
    assert MARK in request.changes

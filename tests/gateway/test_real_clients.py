"""Real clients against emulated providers: each completes a task, and each shows the message of the cap.

They run with `ECOSHELL_REAL_CLIENTS=1`. `ECOSHELL_CLIENTS` is a folder with `node_modules` (claude-code, codex,
opencode) and the virtual environments `py` (the SDKs of OpenAI and Anthropic) and `aider`. Missing ones are skipped.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from lenient_provider import ANSWER, LenientChat, LenientMessages, LenientResponses, one_command
from providers import Emulator

FOLDER = Path(os.environ.get("ECOSHELL_CLIENTS", "/nonexistent"))
TASK = "Write the word done into done.txt with the shell."
SECONDS = 240
pytestmark = pytest.mark.skipif(
    not os.environ.get("ECOSHELL_REAL_CLIENTS"), reason="ECOSHELL_REAL_CLIENTS is not set"
)

OPENAI_SDK = """
import base64, openai
client = openai.OpenAI(max_retries=5)
image = "data:image/png;base64," + base64.b64encode(bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000000000200015e"
    "21bc330000000049454e44ae426082")).decode()
tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
parts = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": image}}]
messages = [{"role": "user", "content": parts}]
try:
    reply = client.chat.completions.create(model="gpt-4.1-mini", messages=messages, tools=[tool], max_tokens=50)
    call = reply.choices[0].message.tool_calls[0]
    messages += [reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "ok"}]
    stream = client.chat.completions.create(model="gpt-4.1-mini", messages=messages, max_tokens=50, stream=True)
    chunks = list(stream)
    assert all(chunk.choices for chunk in chunks)
    print("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
except openai.APIStatusError as error:
    print(error.status_code, error.message)
"""
RESPONSES_SDK = """
import openai
client = openai.OpenAI(max_retries=5)
try:
    with client.responses.stream(model="gpt-4.1-mini", input="hi", max_output_tokens=50) as stream:
        print(stream.get_final_response().output_text)
    print(client.responses.create(model="gpt-4.1-mini", input="hi", max_output_tokens=50).usage.total_tokens)
except openai.APIStatusError as error:
    print(error.status_code, error.message)
"""
ANTHROPIC_SDK = """
import anthropic
client = anthropic.Anthropic(max_retries=5)
tool = {"name": "bash", "input_schema": {"type": "object", "properties": {}}}
messages = [{"role": "user", "content": "hi"}]
try:
    reply = client.messages.create(model="claude-sonnet-4-5", max_tokens=50, messages=messages, tools=[tool])
    call = next(block for block in reply.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "ok"}
    messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    with client.messages.stream(model="claude-sonnet-4-5", max_tokens=50, messages=messages, tools=[tool]) as stream:
        print(stream.get_final_text())
except anthropic.APIStatusError as error:
    print(error.status_code, error.message)
"""
SDK, NODE = FOLDER / "py/bin/python", FOLDER / "node_modules/.bin"
CODEX = (
    "exec",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "-m",
    "gpt-5.1-codex",
    TASK,
)
AIDER = (
    "--model",
    "openai/gpt-4.1-mini",
    "--yes-always",
    "--no-git",
    "--no-check-update",
    "--analytics-disable",
)
CLIENTS: dict[str, tuple[type[Emulator], Path, Sequence[str]]] = {
    "openai-sdk": (LenientChat, SDK, ("-c", OPENAI_SDK)),
    "openai-sdk-responses": (LenientResponses, SDK, ("-c", RESPONSES_SDK)),
    "anthropic-sdk": (LenientMessages, SDK, ("-c", ANTHROPIC_SDK)),
    "aider": (LenientChat, FOLDER / "aider/bin/aider", (*AIDER, "--message", "Say hello.")),
    "claude-code": (
        LenientMessages,
        NODE / "claude",
        ("-p", TASK, "--model", "claude-sonnet-4-5", "--allowedTools", "Bash"),
    ),
    "codex": (LenientResponses, NODE / "codex", CODEX),
    "opencode": (
        LenientMessages,
        NODE / "opencode",
        ("run", "-m", "anthropic/claude-sonnet-4-5", TASK),
    ),
}
WITH_SHELL = ("claude-code", "codex", "opencode")


def play(name: str, budget: str, home: Path) -> tuple[subprocess.CompletedProcess[str], Emulator]:
    """Run a client under a cap, in an empty home."""
    emulator, program, arguments = CLIENTS[name]
    if not program.exists():
        pytest.skip(f"{program} is not installed")
    work = home / "work"
    work.mkdir()
    own = {"HOME": str(home), "ECOSHELL_HOME": str(home / "ecoshell"), "PWD": str(work)}
    keys = {"OPENAI_API_KEY": "sk-the-real-openai-key", "ANTHROPIC_API_KEY": "sk-ant-the-real-key"}
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    with emulator() as provider:
        provider.script(one_command)
        upstreams = (
            "--upstream-openai",
            provider.address,
            "--upstream-anthropic",
            provider.address,
        )
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ecoshell",
                "run",
                "--budget",
                budget,
                *upstreams,
                "--",
                str(program),
                *arguments,
            ],
            env={**inherited, **own, **keys, **quiet},
            cwd=work,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    return done, provider


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_completes_its_task(name: str, tmp_path: Path):
    done, provider = play(name, "5", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ANSWER in done.stdout
    assert provider.requests
    if name in WITH_SHELL:
        assert (tmp_path / "work/done.txt").read_text() == "done\n"


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_shows_the_message_of_the_cap(name: str, tmp_path: Path):
    done, provider = play(name, "0.00001", tmp_path)
    assert "cap of $0.00001 reached" in " ".join((done.stdout + done.stderr).split())
    assert all("count_tokens" in path for path in provider.paths)

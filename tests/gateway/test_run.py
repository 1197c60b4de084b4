"""`ecoshell gateway`, `ecoshell run` and `ecoshell budget raise` as processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_play import TOKEN, message_of, playing
from odd_provider import OddProvider

from ecoshell.cli import main
from ecoshell.errors import UsageError
from ecoshell.models.keys import key_variables
from ecoshell.paths import Paths
from ecoshell_gateway.options import scoped_amount
from ecoshell_gateway.presets import PRESETS, Target, common_variables, preset_of
from ecoshell_gateway.registry import running_gateways
from ecoshell_gateway.run import child_environ

TARGET = Target("http://127.0.0.1:8377", "the-token")
AGENT = """
import json, os, sys, urllib.request
body = {"model": "gpt-4.1-mini", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"},
)
reply = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
print(json.load(reply)["usage"]["total_tokens"], os.environ.get("GITHUB_TOKEN"), os.environ.get("GEMINI_API_KEY"))
sys.exit(7)
"""


def environ(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "ECOSHELL_HOME": str(home), **more}


async def test_a_program_runs_under_the_cap_and_its_status_is_returned(tmp_path: Path):
    async with OddProvider() as provider:
        keys = {
            "OPENAI_API_KEY": "sk-the-real-key",
            "GEMINI_API_KEY": "gm-the-real-key",
            "GITHUB_TOKEN": "ght-123456",
        }
        options = ["--budget", "0.05", "--upstream-openai", provider.address]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ecoshell", "run", *options, "--", sys.executable, "-c", AGENT),
            env=environ(tmp_path, **keys),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(process.communicate(), 120)
        assert (process.returncode, output.decode()) == (7, "8 ght-123456 None\n"), errors
        assert any("Bearer sk-the-real-key" in line for line in provider.heads[0])


async def test_the_server_prints_its_address_and_ends_on_a_signal(tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "ecoshell",
            "gateway",
            "--port",
            "0",
            "--budget",
            "2.00",
            "--token",
            TOKEN,
        ),
        env=environ(tmp_path),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 120)).decode()
    assert line.startswith("listening on http://127.0.0.1:")
    (gateway,) = running_gateways(Paths.under(tmp_path))
    assert gateway.pid == process.pid
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert running_gateways(Paths.under(tmp_path)) == []


async def test_a_raised_cap_lets_a_waiting_request_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path))
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="0.0001", ask_seconds=60) as play,
    ):
        waiting = asyncio.create_task(play.chat())
        assert await asyncio.to_thread(main, ["budget", "raise", "0.00005"]) == 2
        assert "it is unchanged" in capsys.readouterr().err
        assert not waiting.done()
        assert await asyncio.to_thread(main, ["budget", "raise", "0.50"]) == 0
        assert f"The cap of {play.serving.session} is $0.50." in capsys.readouterr().out
        assert (await asyncio.wait_for(waiting, 60)).status_code == 200


async def test_a_waiting_request_is_refused_when_nobody_answers(tmp_path: Path):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="0.0001", ask_seconds=0.1) as play,
    ):
        response = await asyncio.wait_for(play.chat(), 60)
        assert response.status_code == 402
        assert "cap of $0.0001 reached" in message_of(response)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run"], "No command to run"),
        (["run", "--", "no-such-program"], "not installed"),
        (["run", "--budget", "lots", "--", "true"], "'lots' is not an amount"),
        (["run", "--budget", "turn=1", "--", "true"], "Unknown cap 'turn'"),
        (["run", "--below", "20%", "with", "x", "--", "true"], "is not a rule"),
        (["run", "--max-request", "500tok", "--", "true"], "--max-request is in dollars"),
        (["run", "--upstream-openai", "ftp://x", "--", "true"], "is not an HTTP address"),
        (["gateway", "--port", "99999999"], "is not a number of port"),
        (["gateway", "--loop-guard", "-1"], "Give a whole number from 0 to 10,000."),
        (["gateway", "--token", "a b"], "token"),
        (["budget", "raise", "5"], "No such gateway is running"),
    ],
)
def test_mistakes_are_explained(
    words: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path))
    assert main(words) == 2
    assert text in capsys.readouterr().err


def test_an_agent_that_cannot_be_capped_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    program = tmp_path / "gemini"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert main(["run", "--", "gemini"]) == 2
    assert "no cap could hold" in capsys.readouterr().err


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in PRESETS)
    assert main(["run", "--list", "--json"]) == 0
    assert {preset["name"] for preset in json.loads(capsys.readouterr().out)["presets"]} == set(
        PRESETS
    ) - {"gemini"}


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_passes_on_a_real_key(name: str, monkeypatch: pytest.MonkeyPatch):
    for variable in key_variables():
        monkeypatch.setenv(variable, "a-real-key")
    preset = PRESETS[name]
    values = child_environ(preset, TARGET)
    assert "a-real-key" not in values.values()
    words = json.dumps([values, *preset.arguments(TARGET)])
    assert TARGET.token in words
    assert TARGET.url in words


def test_a_subscription_keeps_the_clients_credentials_and_has_the_token_in_the_address():
    target = Target("http://127.0.0.1:8377", "the-token", is_subscription=True)
    values = {**common_variables(target), **PRESETS["claude"].variables(target)}
    assert values["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8377/t/the-token"
    assert "ANTHROPIC_AUTH_TOKEN" not in values
    assert "ANTHROPIC_API_KEY" not in values


def test_a_preset_is_chosen_by_the_programs_name():
    assert preset_of("/usr/local/bin/codex") is PRESETS["codex"]
    assert preset_of("my-agent") is None
    words: Any = PRESETS["codex"].arguments(TARGET)
    assert 'model_providers.ecoshell.base_url="http://127.0.0.1:8377/v1"' in words


@pytest.mark.parametrize(
    ("text", "scope", "value"),
    [("5", "session", 5), ("day=20", "day", 20), ("month=1", "month", 1)],
)
def test_budgets_have_a_scope(text: str, scope: str, value: int):
    found, amount = scoped_amount(text)
    assert (found, amount.value) == (scope, value * 1_000_000_000)
    with pytest.raises(UsageError):
        scoped_amount(f"week={text}")

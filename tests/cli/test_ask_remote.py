"""`ecoshell ask` with remote models as a process: missing keys, wrong names and processes that remain."""

import json
import os
import subprocess
import sys
from decimal import Decimal

import pytest
from hostile_server import hostile_server
from processes import processes_of

from ecoshell.budget import amount_text, nano_to_usd_text
from ecoshell.budget.ledger import Ledger

LIMIT_S = 600


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home" / "config").mkdir(parents=True)
    return tmp_path / "home"


def ask(home, *options):
    """Ask one question in a process without any key."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env |= {"ECOSHELL_HOME": str(home), "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
    command = [sys.executable, "-m", "ecoshell", "ask", "hi", "--workspace", str(home), *options]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def rows(home):
    ledger = Ledger(home / "data" / "ledger.sqlite")
    rows = ledger.rows("model")
    ledger.close()
    return rows


@pytest.fixture
def keyless(command, monkeypatch):
    """Ask one question in this process, where no server is reached."""
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("keyring.get_password", lambda service, name: None)
    return lambda *options: command("ask", "hi", *options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "openai/gpt-4o",
            "Set OPENAI_API_KEY, or store the key with: keyring set ecoshell OPENAI_API_KEY",
        ),
        ("gpt-4o-mimi", "Did you mean gpt-4o-mini"),
        ("nonsense", "Write the provider first"),
        ("small.gguf", "named local:small.gguf"),
    ],
)
def test_unavailable_model_is_an_error_before_anything_is_reserved(home, keyless, model, message):
    done = keyless("--model", model)
    assert (done.returncode, done.stdout) == (1, "")
    assert model in done.stderr
    assert message in done.stderr
    assert rows(home) == ()


def test_missing_key_with_json_is_an_error_event_and_a_result(keyless):
    done = keyless("--model", "openai/gpt-4o", "--json")
    error, result = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 1
    assert (error["type"], error["kind"]) == ("error", "ModelMissing")
    assert "OPENAI_API_KEY" in error["fix"]
    assert (result["type"], result["status"]) == ("result", "error")


def test_local_server_needs_no_settings_or_key_and_is_free(home, monkeypatch, command):
    with hostile_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        done = ask(home, "--model", "openai/good", "--json", "--budget", "0.01")
        result = json.loads(done.stdout.splitlines()[-1])
        assert (result["status"], result["answer"], float(result["cost_usd"])) == (
            "answered",
            "The answer.",
            0,
        )
        listed = command("models", "--json", "gpt-4o-mini")
    row = next(row for row in json.loads(listed.stdout)["rows"] if row["name"] == "gpt-4o-mini")
    assert row["ready"]
    assert row["price"]["input"] not in (0, "0"), (
        "a model whose price is known may be passed on by a proxy"
    )


def test_stopped_server_is_reported_once_without_retries(home, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    done = ask(home, "--model", "ollama/llama3")
    assert done.returncode == 1
    assert done.stderr.count("Ollama does not answer on 127.0.0.1:1.") == 1
    assert "Start it with ollama serve, or choose another model with /model." in done.stderr
    assert "asked again" not in done.stderr


def test_call_without_usage_shows_an_estimate_and_counts_in_full_until_reconciled(home, command):
    def output(*arguments):
        ended = command(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    with hostile_server() as server:
        model = f'[models."openai/no-usage"]\nbase_url = "{server.openai}"\n'
        (home / "config" / "config.toml").write_text(model)
        done = ask(home, "--model", "openai/no-usage", "--price", "1,10", "--budget", "1", "--json")
        assert processes_of(home) == [], "a question that was answered leaves none behind"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (settled,) = [event for event in events if event["type"] == "budget_settled"]
    result, reserved_usage = events[-1], settled["usage"]
    assert (done.returncode, settled["reported"], settled["why"]) == (
        0,
        False,
        "no usage was reported",
    )
    assert (result["cost_usd"], result["usage"]) == (
        nano_to_usd_text(settled["spent_nano"]),
        reserved_usage,
    )
    likely = result["estimate"]
    assert 0 < likely["usage"]["input"] < reserved_usage["input"] / 2
    assert 0 < likely["usage"]["output"] < 20 < reserved_usage["output"]
    assert 0 < Decimal(likely["cost_usd"]) < Decimal(result["cost_usd"]) / 2

    text, row = output("cost"), json.loads(output("cost", "--json"))["rows"][0]
    assert (row["spent_usd"], row["input"]) == (result["cost_usd"], reserved_usage["input"])
    assert row["estimate"]["spent_usd"] == likely["cost_usd"]
    assert f"≈ {amount_text(settled['estimate_nano'], 'usd')}" in text
    assert f"≈ {likely['usage']['input']:,}" in text
    assert json.loads(output("cost", "--json"))["caps"][0]["spent_usd"] == result["cost_usd"]

    output("cost", "--reconcile", f"{settled['entry']}=0.001")
    row = json.loads(output("cost", "--json"))["rows"][0]
    assert (row["spent_usd"], row["estimate"]["spent_usd"]) == ("0.001", "0.001")
    assert "≈ $" not in output("cost")

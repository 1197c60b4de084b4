"""`ecoshell models`, `models pull` and `--model hf:…`, as processes, with a hub on loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hub_server import HubServer, Repo, hub_server
from model_servers import OLLAMA, model_server
from real_terminal import Terminal, closed, opened

from ecoshell.cli import main

WHOLE = b"GGUF" + bytes(4) * 1_000_000
NAME = "maker/small-GGUF"
FILE = "small-q4_k_m.gguf"
LIMIT_S = 600


@pytest.fixture
def hub():
    with hub_server() as running:
        running.repos[NAME] = Repo({FILE: WHOLE})
        yield running


@pytest.fixture
def environ(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    """The environment of the processes: a temporary home, and the hub as the mirror."""
    return {
        "HOME": str(tmp_path),
        "ECOSHELL_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(tmp_path / "hf"),
        "OLLAMA_HOST": "127.0.0.1:9",
        "ECOSHELL_LOCAL_ASK_SERVERS": "true",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


@pytest.fixture
def run(environ: dict[str, str], tmp_path: Path):
    """Run ecoshell to its end, without a terminal."""

    def started(*argv: str, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ecoshell", *argv]
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "ECOSHELL_"))
        }
        done = subprocess.run(
            command,
            env={**inherited, **environ, **more},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done

    return started


def test_pull_prints_size_licence_progress_and_the_model_name(run, hub, tmp_path):
    hub.repos[NAME].cuts = 1
    done = run("models", "pull", NAME)
    assert done.stderr.count("Connection lost, trying again.") == 1
    path = tmp_path / "home" / "data" / "models" / "maker" / "small-GGUF" / FILE
    assert path.read_bytes() == WHOLE
    assert f"{FILE} · 4.0 MB · licence apache-2.0" in done.stderr
    assert "4.0 MB of 4.0 MB" in done.stderr
    assert done.stdout == f"Saved as {path}\nStart a chat: ecoshell --model hf:{NAME}\n"
    rows = {row["name"]: row for row in json.loads(run("models", "--json").stdout)["rows"]}
    row = rows[f"hf:{NAME}:Q4_K_M"]
    assert (row["kind"], row["path"], row["size_bytes"], row["ready"]) == (
        "file",
        str(path),
        len(WHOLE),
        True,
    )
    again = json.loads(run("models", "pull", f"hf:{NAME}:q4_k_m", "--json").stdout)
    assert again == {
        "name": f"hf:{NAME}:q4_k_m",
        "path": str(path),
        "size_bytes": len(WHOLE),
        "licence": "apache-2.0",
    }


def test_failed_pull_has_a_message_and_a_status(run, command, hub):
    hub.repos["maker/secret"] = Repo({FILE: WHOLE}, gated=True)
    hub.repos["maker/torch"] = Repo({"model.safetensors": b"x"})
    assert "HF_TOKEN" in run("models", "pull", "maker/secret", status=1).stderr
    assert "has no GGUF file" in run("models", "pull", "maker/torch", status=1).stderr
    assert "does not exist" in run("models", "pull", "maker/nothing", status=1).stderr
    for arguments, message in (
        ("pull nonsense", "names no repository"),
        ("pull", "unsloth/"),
        ("push x/y", "`models push`"),
    ):
        ended = command("models", *arguments.split())
        assert (ended.returncode, message in ended.stderr) == (2, True)


@pytest.fixture
def listed(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Return the output of `ecoshell models` in this process, with a long time limit for servers."""
    monkeypatch.setattr("ecoshell.models.servers.SECONDS", 20.0)
    for name in ("LM_STUDIO_API_BASE", "LLAMAFILE_API_BASE", "HOSTED_VLLM_API_BASE"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")

    def printed(*argv: str, **more: str) -> str:
        for name, value in (environ | more).items():
            monkeypatch.setenv(name, value)
        assert main(["models", *argv]) == 0
        return capsys.readouterr().out

    return printed


def test_rows_have_the_kind_of_model_and_why_it_is_unavailable(listed):
    with model_server(OLLAMA) as ollama:
        rows = json.loads(listed("--json", OLLAMA_HOST=ollama.host))["rows"]
    assert {row["kind"] for row in rows} >= {"embedded", "server", "hub"}
    for row in rows:
        assert row["ready"] in (True, False)
        assert ("why" in row) == (not row["ready"])
    served = next(row for row in rows if row["kind"] == "server")
    assert served == {
        "name": "ollama_chat/qwen3:4b",
        "kind": "server",
        "provider": "Ollama",
        "address": f"http://{ollama.host}",
        "size_bytes": 2_500_000_000,
        "context": 8192,
        "price": {"input": "0", "cached_input": "0", "output": "0"},
        "price_source": "runs here and costs nothing",
        "ready": True,
    }
    assert "ecoshell models pull unsloth/" in next(
        row["why"] for row in rows if row["kind"] == "hub"
    )


def test_servers_are_not_listed_if_disabled(listed):
    with model_server(OLLAMA) as ollama:
        output = listed(OLLAMA_HOST=ollama.host, ECOSHELL_LOCAL_ASK_SERVERS="false")
        assert ollama.asked == []
        assert "ollama_chat" not in output
        assert "ollama_chat/qwen3:4b" in listed(OLLAMA_HOST=ollama.host)


def test_missing_model_without_a_terminal_says_how_to_pull_it(run):
    done = run("ask", "hi", "--model", f"hf:{NAME}", status=1)
    assert f"Download it with: ecoshell models pull {NAME}" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_interrupted_pull_says_that_it_can_be_continued(environ, hub):
    hub.repos[NAME].stall = threading.Event()
    command = [sys.executable, "-m", "ecoshell", "models", "pull", NAME]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, env={**os.environ, **environ}, cwd=root, stderr=subprocess.PIPE, text=True
    ) as pull:
        assert pull.stderr is not None
        progress = [pull.stderr.readline() for _ in range(2)]
        assert " of 4.0 MB" in progress[1]  # the first tenth has arrived
        pull.send_signal(signal.SIGINT)
        error = pull.stderr.read()
    assert pull.returncode == 130
    assert "The downloaded part is kept; pull again to continue." in error
    hub.repos[NAME].stall.set()


@pytest.fixture
def terminal(environ: dict[str, str], tmp_path: Path):
    """`ecoshell line` on a terminal."""
    started: list[Terminal] = []

    def open_line(*options: str) -> Terminal:
        started.append(opened(tmp_path / "home", tmp_path, "line", *options, **environ))
        return started[-1]

    yield open_line
    for terminal in started:
        terminal.child.close(force=True)


def test_missing_model_on_a_terminal_is_pulled_after_consent(terminal, hub, tmp_path):
    pytest.importorskip("llama_cpp", reason="the extra `local` is not installed")
    line = terminal("--model", f"hf:{NAME}")
    line.wait(r"small-q4_k_m\.gguf · 4\.0 MB · licence apache-2\.0")
    line.wait(r"Pull it\? \[y/N\]")
    line.type("y\r")
    line.wait(f"hf:{NAME} answers")
    line.type("/quit\r")
    assert line.ended() == 0
    assert (
        tmp_path / "home" / "data" / "models" / "maker" / "small-GGUF" / FILE
    ).read_bytes() == WHOLE


def test_missing_model_on_a_terminal_is_not_pulled_without_consent(terminal, hub, tmp_path):
    line = terminal("--model", f"hf:{NAME}")
    line.wait(r"Pull it\? \[y/N\]")
    line.type("\r")
    line.wait("was not pulled")
    assert line.ended() == 1
    assert hub.ranges == []


@pytest.mark.parametrize("shell", [pytest.param("line", marks=pytest.mark.slow), "chat"])
def test_pull_in_a_shell_shows_progress_breaks_off_and_is_resumed(hub, environ, tmp_path, shell):
    workspace, script = tmp_path / "workspace", tmp_path / "script.jsonl"
    workspace.mkdir()
    script.write_text('{"text": "Still here."}\n')
    hub.repos[NAME].cuts, hub.repos[NAME].stall = 100, threading.Event()
    command = ["line"] if shell == "line" else []
    terminal = opened(
        tmp_path / "home", workspace, *command, "--model", f"script:{script}", **environ
    )
    try:
        terminal.wait(r"^ ?›")
        terminal.type(f"/model pull {NAME}:Q4_K_M\r")
        terminal.wait(
            r"[12]\.\d MB of 4\.0 MB .*esc stops|[12]\.\d MB of 4\.0 MB .*downloading maker/small"
        )
        hub.repos[NAME].stall.set()
        terminal.wait("The download failed")
        terminal.type("are you there?\r")
        terminal.wait(r"Still here\.")
        assert " of 4.0 MB" not in terminal.text
        assert [*(tmp_path / "home" / "data" / "models").rglob(f"{FILE}*")]
    finally:
        closed(terminal)

"""`ecoshell models host`, and the model host in `ecoshell doctor`."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import pytest

from ecoshell.models.host_address import await_end, host_address, status, stop_all
from ecoshell.models.remote_process import HostOptions, RemoteProcess

OFF = {"running": False, "pid": None, "idle_seconds": None}


@pytest.fixture
def run_folder(command, monkeypatch):
    """Return the host's folder in a home whose path is short enough for a socket."""
    home = Path(tempfile.mkdtemp(prefix="ecoshell-"))
    monkeypatch.setenv("ECOSHELL_HOME", str(home))
    yield home / "cache" / "run"
    stop_all(home / "cache" / "run")
    assert status(host_address(home / "cache" / "run")) is None
    shutil.rmtree(home)


async def start(folder):
    process = RemoteProcess(host=HostOptions(folder, 600))
    await process.warm(shared=True)
    pid = process.pid
    await process.aclose()
    return pid


def test_host_status_and_stop(command, run_folder):
    assert json.loads(command("models", "host", "status", "--json").stdout) == OFF
    assert not run_folder.exists()
    pid = asyncio.run(start(run_folder))
    state = json.loads(command("models", "host", "status", "--json").stdout)
    assert (state["running"], state["pid"]) == (True, pid)
    assert state["idle_seconds"] >= 0
    assert f"process {pid}" in command("models", "host").stdout
    assert "was stopped" in command("models", "host", "stop").stdout
    assert await_end(host_address(run_folder), 600)
    assert json.loads(command("models", "host", "status", "--json").stdout) == OFF
    assert "not running" in command("models", "host", "stop").stdout


def test_unknown_host_action_is_refused(command, run_folder):
    refused = command("models", "host", "begin")
    assert refused.returncode != 0
    assert "models host status" in refused.stderr


def test_doctor_shows_the_host(command, run_folder, monkeypatch):
    def check():
        checks = json.loads(command("doctor", "--json").stdout)["checks"]
        return next(
            (check["state"], check["found"]) for check in checks if check["name"] == "model host"
        )

    assert check() == ("ok", "off ([remote] host_idle_seconds = 0)")
    monkeypatch.setenv("ECOSHELL_REMOTE_HOST_IDLE_SECONDS", "60")
    assert check() == (
        "ok",
        "not running; starts with the first remote model, ends after 60 idle seconds",
    )
    pid = asyncio.run(start(run_folder))
    assert f"process {pid}" in check()[1]
    stop_all(run_folder)
    run_folder.chmod(0o755)
    assert check() == ("missing", f"{run_folder}: not a private folder")
    run_folder.chmod(0o700)

"""Signing in to a server by OAuth, against an authorization server on loopback."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringError

from ecoshell.cli import main
from ecoshell.errors import ToolError
from ecoshell.secrecy import mask_secrets
from ecoshell.tools import ResultSize
from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.mcp.servers import Server

pytest.importorskip("mcp")


def free_port() -> int:
    """A port nobody listens on; others count on nobody at port 1."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


SUPPORT = Path(__file__).parent.parent / "support"


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self):
        super().__init__()
        self.held = {}

    def get_password(self, service, username):
        return self.held.get((service, username))

    def set_password(self, service, username, password):
        self.held[service, username] = password

    def delete_password(self, service, username):
        del self.held[service, username]


@pytest.fixture
def ring():
    before, ring = keyring.get_keyring(), Ring()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(before)


@pytest.fixture
def address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(SUPPORT / "oauth_server.py"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 240
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys, ring):
    """Runs a command in a home of its own; the browser goes where it is sent."""
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))

    def browse(address):
        threading.Thread(target=lambda: urlopen(address, timeout=240).close(), daemon=True).start()

    monkeypatch.setattr("webbrowser.open", browse)

    def run(*argv, status=0):
        got = main(list(argv))
        told = capsys.readouterr()
        assert got == status, told.err
        return told.out, told.err

    return run


def server(address, tmp_path):
    return McpServer(
        Server("private", url=address), folder=tmp_path / "cache", result=ResultSize(8_000), connecting=240.0
    )


async def renewed(address, tmp_path):
    """What a server of the same name says that another process connects to."""
    made = server(address, tmp_path)
    try:
        await made.connect()
        return (await made.tools[0].run({})).text
    finally:
        await made.aclose()


def test_one_signs_in_once_and_the_keyring_keeps_it(shell, address, ring, tmp_path):
    shell("mcp", "add", "private", "--url", address, "--no-test")
    wanted = json.loads(shell("mcp", "test", "private", "--json", status=1)[0])["error"]
    assert "sign in" in wanted
    assert "ecoshell mcp login" in wanted
    shell("mcp", "add", "keyed", "--url", address, "--header", "authorization: Bearer wrong", "--no-test")
    unwanted = json.loads(shell("mcp", "test", "keyed", "--json", status=1)[0])["error"]
    assert unwanted == "keyed cannot be reached: it does not take the Authorization header of its settings."
    told, shown = shell("mcp", "login", "private", "--json")
    assert json.loads(told)["tools"] == ["renewed"]
    assert "open this address" in shown
    assert json.loads(shell("mcp", "test", "private", "--json")[0])["tools"] == ["renewed"]
    assert asyncio.run(renewed(address, tmp_path)) == "0 of 1"

    (name,) = ring.held
    held = json.loads(ring.held[name])
    before = held["state"]["tokens"]["access_token"]
    assert before not in (tmp_path / "home" / "config" / "config.toml").read_text()
    assert before not in mask_secrets(f"Bearer {before}")
    held["state"]["expires_at"] = 1
    ring.held[name] = json.dumps(held)
    assert asyncio.run(renewed(address, tmp_path)) == "1 of 1"  # renewed, without anybody being asked
    assert json.loads(ring.held[name])["state"]["tokens"]["access_token"] != before

    shell("mcp", "remove", "private")
    assert ring.held == {}


def test_a_keyring_that_takes_nothing_is_one_error_that_says_so(shell, address, ring, monkeypatch):
    def fail(self, *given):
        raise KeyringError("it is locked\x1b[2J")

    for way in ("get_password", "set_password", "delete_password"):
        monkeypatch.setattr(Ring, way, fail)
    shell("mcp", "add", "private", "--url", address, "--no-test")
    told, shown = shell("mcp", "login", "private", "--json", status=1)
    assert "private lets you in, but the keyring does not keep that: it is locked" in json.loads(told)["error"]
    assert "\x1b" not in json.loads(told)["error"]
    assert "Traceback" not in shown
    assert "ecoshell mcp login" in json.loads(shell("mcp", "test", "private", "--json", status=1)[0])["error"]
    shell("mcp", "remove", "private")


async def test_what_was_kept_for_another_address_is_not_sent(ring, address, tmp_path):
    state = {"tokens": {"access_token": "secret-of-another", "token_type": "Bearer"}, "port": free_port()}
    ring.held["ecoshell", "mcp private"] = json.dumps({"url": "http://127.0.0.1:1/mcp", "state": state})
    made = server(address, tmp_path)
    with pytest.raises(ToolError, match="it wants you to sign in"):
        await made.connect()
    await made.aclose()


async def test_tokens_that_are_no_good_any_more_without_a_person_say_what_to_do(ring, address, tmp_path):
    state = {"tokens": {"access_token": "no-good-any-more", "token_type": "Bearer"}, "port": free_port()}
    ring.held["ecoshell", "mcp private"] = json.dumps({"url": address, "state": state})
    made = server(address, tmp_path)
    with pytest.raises(ToolError, match="nobody has signed in; `ecoshell mcp login` does it"):
        await made.connect()
    await made.aclose()


def test_a_server_with_a_header_of_its_own_is_not_signed_in_to(shell):
    shell("mcp", "add", "one", "--url", "http://127.0.0.1:1/mcp", "--header", "Authorization: Bearer x", "--no-test")
    assert "is not signed in to" in shell("mcp", "login", "one", status=2)[1]

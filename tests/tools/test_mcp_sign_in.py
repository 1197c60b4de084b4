"""OAuth sign-in to a server, with an authorization server on loopback."""

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
    """Return an unused port; port 1 is unused as well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


SUPPORT = Path(__file__).parent.parent / "support"


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self):
        super().__init__()
        self.passwords = {}

    def get_password(self, service, username):
        return self.passwords.get((service, username))

    def set_password(self, service, username, password):
        self.passwords[service, username] = password

    def delete_password(self, service, username):
        del self.passwords[service, username]


@pytest.fixture
def ring():
    original, ring = keyring.get_keyring(), Ring()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(original)


@pytest.fixture
def address():
    port = free_port()
    command = [sys.executable, str(SUPPORT / "oauth_server.py"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys, ring):
    """A function that runs a command with a temporary home and a browser that opens each URL."""
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))

    def browse(address):
        threading.Thread(target=lambda: urlopen(address, timeout=240).close(), daemon=True).start()

    monkeypatch.setattr("webbrowser.open", browse)

    def run(*argv, status=0):
        actual = main(list(argv))
        output = capsys.readouterr()
        assert actual == status, output.err
        return output.out, output.err

    return run


def server(address, tmp_path):
    return McpServer(
        Server("private", url=address),
        folder=tmp_path / "cache",
        result=ResultSize(8_000),
        connect_seconds=240.0,
    )


async def renewed(address, tmp_path):
    """Return the number of token renewals that the server reports to a new connection."""
    provider = server(address, tmp_path)
    try:
        await provider.connect()
        return (await provider.tools[0].run({})).text
    finally:
        await provider.aclose()


def test_a_sign_in_is_stored_in_the_keyring_and_renewed(shell, address, ring, tmp_path):
    shell("mcp", "add", "private", "--url", address, "--no-test")
    error = json.loads(shell("mcp", "test", "private", "--json", status=1)[0])["error"]
    assert "sign in" in error
    assert "ecoshell mcp login" in error
    shell(
        "mcp",
        "add",
        "keyed",
        "--url",
        address,
        "--header",
        "authorization: Bearer wrong",
        "--no-test",
    )
    error = json.loads(shell("mcp", "test", "keyed", "--json", status=1)[0])["error"]
    assert error == "keyed cannot be reached: it rejects the configured Authorization header."
    output, prompt = shell("mcp", "login", "private", "--json")
    assert json.loads(output)["tools"] == ["renewed"]
    assert "open this address" in prompt
    assert json.loads(shell("mcp", "test", "private", "--json")[0])["tools"] == ["renewed"]
    assert asyncio.run(renewed(address, tmp_path)) == "0 of 1"

    (name,) = ring.passwords
    entry = json.loads(ring.passwords[name])
    token = entry["state"]["tokens"]["access_token"]
    assert token not in (tmp_path / "home" / "config" / "config.toml").read_text()
    assert token not in mask_secrets(f"Bearer {token}")
    entry["state"]["expires_at"] = 1
    ring.passwords[name] = json.dumps(entry)
    assert asyncio.run(renewed(address, tmp_path)) == "1 of 1"  # renewed without the user
    assert json.loads(ring.passwords[name])["state"]["tokens"]["access_token"] != token

    shell("mcp", "remove", "private")
    assert ring.passwords == {}


def test_an_unusable_keyring_is_reported(shell, address, ring, monkeypatch):
    def fail(self, *arguments):
        raise KeyringError("it is locked\x1b[2J")

    for method in ("get_password", "set_password", "delete_password"):
        monkeypatch.setattr(Ring, method, fail)
    shell("mcp", "add", "private", "--url", address, "--no-test")
    output, stderr = shell("mcp", "login", "private", "--json", status=1)
    error = json.loads(output)["error"]
    assert (
        "You are signed in to private, but the keyring could not store that: it is locked" in error
    )
    assert "\x1b" not in error
    assert "Traceback" not in stderr
    assert (
        "ecoshell mcp login"
        in json.loads(shell("mcp", "test", "private", "--json", status=1)[0])["error"]
    )
    shell("mcp", "remove", "private")


async def test_a_token_stored_for_another_address_is_not_sent(ring, address, tmp_path):
    state = {
        "tokens": {"access_token": "secret-of-another", "token_type": "Bearer"},
        "port": free_port(),
    }
    ring.passwords["ecoshell", "mcp private"] = json.dumps(
        {"url": "http://127.0.0.1:1/mcp", "state": state}
    )
    provider = server(address, tmp_path)
    with pytest.raises(ToolError, match="it requires you to sign in"):
        await provider.connect()
    await provider.aclose()


async def test_an_expired_token_without_a_user_names_the_sign_in_command(ring, address, tmp_path):
    state = {
        "tokens": {"access_token": "expired-token", "token_type": "Bearer"},
        "port": free_port(),
    }
    ring.passwords["ecoshell", "mcp private"] = json.dumps({"url": address, "state": state})
    provider = server(address, tmp_path)
    with pytest.raises(
        ToolError, match="sign-in was declined; run `ecoshell mcp login` to sign in"
    ):
        await provider.connect()
    await provider.aclose()


def test_a_server_with_an_authorization_header_needs_no_sign_in(shell):
    shell(
        "mcp",
        "add",
        "one",
        "--url",
        "http://127.0.0.1:1/mcp",
        "--header",
        "Authorization: Bearer x",
        "--no-test",
    )
    assert "does not use a login" in shell("mcp", "login", "one", status=2)[1]

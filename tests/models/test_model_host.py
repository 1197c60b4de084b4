"""The model host, one process per user that serves many commands, with real processes, sockets and litellm."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from hostile_server import hostile_server

from ecoshell.budget import PriceBook
from ecoshell.errors import ModelUnavailable
from ecoshell.messages import Message
from ecoshell.models import Reply, Request, host_address
from ecoshell.models.host_address import HostAddress, await_end, host_environ, status, stop_all
from ecoshell.models.keys import Keys
from ecoshell.models.remote import RemoteModel, RemoteOptions
from ecoshell.models.remote_process import HostOptions, RemoteProcess
from ecoshell.models.tokens import helper_environ

on_one_loop = pytest.mark.asyncio(loop_scope="module")

ASK = Request((Message("user", "Hello?"),), want="text")
LIMIT_S = 600


@pytest.fixture(scope="module")
def server():
    with hostile_server() as running:
        yield running


@pytest.fixture(autouse=True)
def forget(server):
    server.forget()


def new_folder():
    """A folder whose path is short enough for a socket; pytest's folders are too deep."""
    return Path(tempfile.mkdtemp(prefix="ecoshell-")) / "run"


def remove(folder):
    """End the hosts of a folder, wait for their end and delete the folder."""
    stop_all(folder)
    for lock in folder.glob("*.lock"):
        assert await_end(HostAddress(folder, lock.stem), LIMIT_S)
    shutil.rmtree(folder.parent)


@pytest.fixture(scope="module")
def shared_folder():
    folder = new_folder()
    yield folder
    remove(folder)


@pytest.fixture
def folder():
    folder = new_folder()
    yield folder
    remove(folder)


@asynccontextmanager
async def client(folder, idle=LIMIT_S, **options):
    process = RemoteProcess(host=HostOptions(folder, idle), **options)
    try:
        yield process
    finally:
        await process.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm_host(shared_folder, server):
    """The folder of a host that has loaded litellm."""
    async with client(shared_folder) as process:
        await ask(process, server)
        assert status(host_address.host_address(shared_folder)).pid == process.pid
    return shared_folder


def model(process, server, name="openai/good", key="sk-of-a-test-0123456789"):
    options, keys = RemoteOptions(server.openai), Keys({"OPENAI_API_KEY": key})
    return RemoteModel(name, book=PriceBook(), keys=keys, process=process, options=options)


async def ask(process, server, name="openai/good", key="sk-of-a-test-0123456789"):
    return await answer(model(process, server, name, key))


async def answer(model, request=ASK):
    reply = [piece async for piece in model.stream(request)][-1]
    assert isinstance(reply, Reply)
    return reply


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - the condition depends on another process
            await asyncio.sleep(0.01)


@on_one_loop
async def test_successive_commands_share_one_host(warm_host, server):
    host = status(host_address.host_address(warm_host))
    for _ in range(2):
        async with client(warm_host) as process:
            assert (await ask(process, server)).text == "The answer."
            assert process.pid == host.pid
            assert status(host_address.host_address(warm_host)).idle_seconds == 0
    idle = status(host_address.host_address(warm_host))
    assert idle.pid == host.pid
    assert idle.idle_seconds >= 0


@on_one_loop
async def test_each_client_sends_its_own_key(warm_host, server):
    keys = [f"sk-of-client-{name}-0123456789" for name in "abab"]
    async with client(warm_host) as first, client(warm_host) as second:
        for number, key in enumerate(keys):
            await ask((first, second)[number % 2], server, key=key)
        await asyncio.gather(
            *(ask(first, server, key=keys[0]) for _ in range(4)), ask(second, server, key=keys[1])
        )
    sent = [headers["authorization"] for headers in server.headers]
    assert sent[:4] == [f"Bearer {key}" for key in keys]
    assert sorted(sent[4:]) == [f"Bearer {keys[0]}"] * 4 + [f"Bearer {keys[1]}"]


SCAN = """
import asyncio, gc, json, sys
from ecoshell.models import remote_worker

KEYS = ["-".join(("sk", "of", provider, "0123456789")) for provider in ("openai", "anthropic")]
MODELS = ("openai/good", "anthropic/claude-sonnet-4")

replies = []

def write(line):
    record = json.loads(line)
    assert "error" not in record, record
    replies.extend([record] if "reply" in record else [])

async def main():
    ready = asyncio.Event()
    ready.set()
    worker = remote_worker.Worker(write, ready)
    for number, (model, key, address) in enumerate(zip(MODELS, KEYS, sys.argv[1:])):
        ask = {"model": model, "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 9}
        ask |= {"api_key": key, "base_url": address, "timeout": 600}
        worker.take({"id": number, "ask": ask, "bytes": 1 << 24, "seconds": 600})
        while len(replies) == number:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # litellm runs callbacks after each reply

def contains(part, key):
    # the collector does not track containers of texts only, so search them here
    if isinstance(part, (str, bytes)):
        return key in str(part)
    return not gc.is_tracked(part) and any(contains(child, key) for child in gc.get_referents(part))

def holders(number):
    gc.collect()
    matches = []
    for holder in gc.get_objects():
        if holder is not KEYS and any(contains(part, KEYS[number]) for part in gc.get_referents(holder)):
            matches.append((type(holder).__name__, str(holder)[:300]))
    return matches

remote_worker.load_litellm()
gc.unfreeze()
asyncio.run(main())
remote_worker.warm_litellm()
missing = [name for name in remote_worker.FIRST_CALL_MODULES if name not in sys.modules]
assert not missing, missing
reference = {"key": KEYS[0]}
assert len(holders(0)) == 1 + len(holders(1)), "the scan misses a key in a dictionary"
del reference
print(*holders(0), *holders(1), sep="\\n", end="")
"""


def test_a_key_is_not_kept_after_its_call(server, tmp_path):
    (tmp_path / "scan.py").write_text(SCAN)
    command = [sys.executable, str(tmp_path / "scan.py"), server.openai, server.address]
    done = subprocess.run(
        command, env=helper_environ(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    sent = [headers.get("authorization") or headers["x-api-key"] for headers in server.headers]
    assert sent == ["Bearer sk-of-openai-0123456789", "sk-of-anthropic-0123456789"]


@on_one_loop
async def test_a_host_killed_during_a_call_fails_it_as_possibly_billed_and_is_replaced(
    folder, server
):
    async with client(folder) as process:
        call = asyncio.create_task(ask(process, server, "openai/slow"))
        assert await asyncio.to_thread(server.arrived.wait, LIMIT_S)
        killed = process.pid
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(
            ModelUnavailable, match="the helper process for remote models ended"
        ) as caught:
            await call
        assert caught.value.billed
        assert [*folder.glob("*.sock")], "the dead host leaves its socket"
        await process.warm(shared=True)
        assert process.pid == status(host_address.host_address(folder)).pid != killed


@on_one_loop
async def test_a_host_killed_before_sending_a_request_is_not_billed(folder, server):
    async with client(folder) as process:
        await process.warm(shared=True)
        os.kill(process.pid, signal.SIGSTOP)
        link = await process.warm(shared=True)
        asking = asyncio.create_task(ask(process, server))
        await until(lambda: link.inboxes)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ModelUnavailable) as caught:
            await asking
        assert not caught.value.billed


@on_one_loop
async def test_a_killed_client_cancels_its_calls_and_not_those_of_others(warm_host, server):
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from ecoshell.models.remote_process import HostOptions, RemoteProcess\n"
        "async def main():\n"
        "    process = RemoteProcess(host=HostOptions(Path(sys.argv[1]), 600))\n"
        "    ask = {'model': 'openai/slow', 'messages': [{'role': 'user', 'content': 'x'}], 'max_tokens': 9}\n"
        "    ask |= {'api_key': 'sk-none', 'base_url': sys.argv[2]}\n"
        "    async for _ in process.ask(ask, max_bytes=1 << 20, seconds=600, shared=True): pass\n"
        "asyncio.run(main())\n"
    )
    command = (sys.executable, "-c", program, str(warm_host), server.openai)
    doomed = await asyncio.create_subprocess_exec(*command, env=helper_environ())
    try:
        assert await asyncio.to_thread(server.arrived.wait, LIMIT_S)
    finally:
        doomed.kill()
        await doomed.wait()
    assert await asyncio.to_thread(server.client_left.wait, LIMIT_S)
    async with client(warm_host) as process:
        await ask(process, server)


@on_one_loop
async def test_a_cancelled_call_ends_and_its_connection_stays_usable(warm_host, server):
    async with client(warm_host) as process:
        asking = asyncio.create_task(ask(process, server, "openai/slow"))
        assert await asyncio.to_thread(server.arrived.wait, LIMIT_S)
        asking.cancel()
        assert await asyncio.to_thread(server.client_left.wait, LIMIT_S)
        await ask(process, server)


@on_one_loop
async def test_commands_that_start_a_host_at_the_same_time_share_one(folder):
    processes = [RemoteProcess(host=HostOptions(folder, LIMIT_S)) for _ in range(6)]
    await asyncio.gather(*(process.warm(shared=True) for process in processes))
    pids = {process.pid for process in processes}
    for process in processes:
        await process.aclose()
    assert pids == {status(host_address.host_address(folder)).pid}
    assert len([*folder.glob("*.lock")]) == 1


@on_one_loop
async def test_an_idle_host_ends_and_the_next_command_starts_another(folder):
    async with client(folder, idle=0.05) as process:
        await process.warm(shared=True)
        first = process.pid
    address = host_address.host_address(folder)
    assert await asyncio.to_thread(await_end, address, LIMIT_S)
    assert status(address) is None
    assert not address.socket_file.exists()
    async with client(folder) as process:
        await process.warm(shared=True)
        assert process.pid not in (None, first)


@on_one_loop
async def test_a_connected_client_keeps_the_host(folder):
    async with client(folder, idle=0.05) as process:
        await process.warm(shared=True)
        await asyncio.sleep(1.2)  # longer than the interval at which the host checks for clients
        assert status(host_address.host_address(folder)).pid == process.pid


@on_one_loop
async def test_a_stuck_host_is_killed_after_the_deadline(folder, server):
    async with client(folder, grace=0.5) as process:
        await process.warm(shared=True)
        stuck = model(process, server)
        stuck._deadline = 0.5
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(ModelUnavailable, match="it no longer answered"):
            await answer(stuck)
    assert await asyncio.to_thread(await_end, host_address.host_address(folder), LIMIT_S)


@on_one_loop
async def test_a_host_that_does_not_greet_is_replaced_by_a_child(folder, monkeypatch):
    monkeypatch.setattr(host_address, "PATIENCE", 0.2)
    address = host_address.host_address(folder)
    async with client(folder) as process:
        await process.warm(shared=True)
        stopped = process.pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        async with client(folder) as process:
            await process.warm(shared=True)
            assert process.pid not in (None, stopped)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert status(address).pid == stopped


def make_open(folder):
    folder.mkdir(mode=0o755)


def make_link(folder):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def make_file(folder):
    folder.touch()


def block_socket(folder):
    """Block the paths of the socket and its lock with folders."""
    folder.mkdir(mode=0o700)
    host_address.host_address(folder).socket_file.mkdir()
    host_address.host_address(folder).lock_file.mkdir()


@on_one_loop
@pytest.mark.parametrize("spoil", [make_open, make_link, make_file, block_socket])
async def test_a_child_process_is_used_without_a_private_folder(folder, spoil):
    spoil(folder)
    async with client(folder) as process:
        await process.warm(shared=True)
        child = process.pid
        assert child is not None
        assert status(host_address.host_address(folder)) is None
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    for lock in folder.glob("*.lock"):
        lock.rmdir()


@on_one_loop
async def test_a_child_process_is_used_if_the_socket_path_is_too_long(folder):
    deep = folder / ("x" * 100)
    async with client(deep) as process:
        await process.warm(shared=True)
        assert process.pid is not None
        assert not deep.exists()


@on_one_loop
async def test_providers_with_credentials_in_the_environment_use_a_child(folder):
    async with client(folder) as process:
        parts = {"book": PriceBook(), "keys": Keys({}), "process": process}
        await RemoteModel("bedrock/some-model", **parts).warm()
        assert not folder.exists()
        await RemoteModel("openai/gpt-4o", **parts).warm()
        assert status(host_address.host_address(folder)).pid == process.pid


@on_one_loop
async def test_a_command_with_another_environment_does_not_use_the_host(folder, monkeypatch):
    async with client(folder) as process:
        await process.warm(shared=True)
        host = process.pid
    monkeypatch.setenv("TERM_SESSION_ID", "another terminal")
    monkeypatch.setenv("MISTRAL_API_KEY", "another key, which hosts do not receive")
    async with client(folder) as process:
        await process.warm(shared=True)
        assert process.pid == host
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    async with client(folder) as process:
        await process.warm(shared=True)
        assert process.pid not in (None, host)
    assert status(host_address.host_address(folder)).pid == host


def test_a_host_gets_client_settings_from_the_environment_and_no_keys():
    settings = {
        "OPENAI_BASE_URL": "http://x/v1",
        "https_proxy": "http://y",
        "HOME": "/h",
        "SSL_CERT_FILE": "/c",
    }
    keys = {
        "OPENAI_API_KEY": "k",
        "GOOGLE_API_KEY": "k",
        "LITELLM_MASTER_SECRET": "k",
        "FIREWORKS_AI_TOKEN": "k",
    }
    noise = {"SHLVL": "2", "TERM": "xterm", "AWS_PROFILE": "p"}
    assert host_environ(settings | keys | noise) == settings | {"PYTHONUTF8": "1"}


@pytest.mark.parametrize(
    ("name", "value"), [("__version__", "0.0.1"), ("sys", None), ("__file__", None)]
)
def test_an_upgrade_changes_the_address(folder, monkeypatch, tmp_path, name, value):
    original = host_address.host_address(folder)
    if name == "sys":
        monkeypatch.setattr(sys, "version", "3.99")
    elif name == "__file__":
        for module in ("model_host.py", "remote_worker.py"):
            (tmp_path / module).touch()
        monkeypatch.setattr(host_address, name, str(tmp_path / "host_address.py"))
    else:
        monkeypatch.setattr(host_address, name, value)
    assert host_address.host_address(folder) == replace(
        original, key=host_address.host_address(folder).key
    )
    assert host_address.host_address(folder).key != original.key


@on_one_loop
async def test_socket_and_folder_are_private_to_the_user(folder):
    async with client(folder) as process:
        await process.warm(shared=True)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (file,) = folder.glob("*.sock")
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="takes another user's process"
)
def test_a_listener_of_another_user_is_refused(folder):
    address = host_address.host_address(folder)
    address.require_private(make=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(address.socket_file))
        os.seteuid(65534)  # clients see the user who called listen
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(PermissionError, match="another user listens there"):
            address.connect()
    address.socket_file.unlink()


@on_one_loop
async def test_an_invalid_client_is_disconnected_without_affecting_others(warm_host, server):
    address = host_address.host_address(warm_host)
    for noise in (b"no JSON\n", b"[1]\n", b"{}\n", b'{"id": [], "ask": 1}\n', b"\xff" * 70_000):
        with address.connect() as connection:
            connection.sendall(noise)
    async with client(warm_host) as process:
        assert (await ask(process, server)).text == "The answer."


@on_one_loop
async def test_a_host_over_its_memory_limit_ends_with_an_error_and_is_replaced(folder, server):
    async with client(folder, memory=560 << 20) as greedy, client(folder) as modest:
        await greedy.warm(shared=True)
        asking = asyncio.create_task(ask(modest, server, "openai/slow"))
        assert await asyncio.to_thread(server.arrived.wait, LIMIT_S)
        first = modest.pid
        assert greedy.pid == first
        huge = Request((Message("user", "x" * 120_000_000),), want="text")
        with pytest.raises(ModelUnavailable, match="the helper process for remote models ended"):
            await answer(model(greedy, server), huge)
        await asyncio.gather(asking, return_exceptions=True)  # the server may have answered already
        assert not modest._links[True].alive
        await ask(greedy, server)
        assert greedy.pid not in (None, first)

"""The helper process of remote models: start, end, restart and wire protocol, with a real process."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import pytest_asyncio
from hostile_server import hostile_server

from ecoshell import secrecy
from ecoshell.budget import PriceBook
from ecoshell.errors import ModelUnavailable
from ecoshell.messages import Message
from ecoshell.models import Reply, Request
from ecoshell.models.keys import Keys
from ecoshell.models.remote import RemoteModel, RemoteOptions
from ecoshell.models.remote_process import RemoteProcess, _Child
from ecoshell.models.remote_worker import Worker
from ecoshell.models.tokens import helper_environ

on_one_loop = pytest.mark.asyncio(loop_scope="module")

ASK = Request((Message("user", "Hello?"),), want="text")


@pytest.fixture(scope="module")
def server():
    with hostile_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process():
    running = RemoteProcess()
    yield running
    await running.aclose()


@pytest.fixture
def model(server, process):
    server.forget()
    return lambda name: RemoteModel(
        name, book=PriceBook(), keys=Keys({}), process=process, options=RemoteOptions(server.openai)
    )


async def answer(model):
    return [piece async for piece in model.stream(ASK)][-1]


@on_one_loop
async def test_the_event_loop_is_not_blocked_while_litellm_loads(model, process):
    ticks, modules = [], set(sys.modules)
    ticking = asyncio.create_task(tick(ticks))
    await process.warm()
    reply = await answer(model("openai/good"))
    ticking.cancel()
    assert isinstance(reply, Reply)
    assert len(ticks) > 3
    assert "litellm" not in set(sys.modules) - modules, "litellm was imported in this process"


@on_one_loop
async def test_ctrl_c_does_not_reach_the_helper(model, process):
    assert isinstance(await answer(model("openai/good")), Reply)  # it ignores the signal by then
    pid = process.pid
    os.kill(pid, signal.SIGINT)
    assert isinstance(await answer(model("openai/good")), Reply)
    assert process.pid == pid


@on_one_loop
async def test_a_helper_killed_during_a_call_fails_it_as_possibly_billed_and_is_replaced(
    model, server, process
):
    task = asyncio.create_task(answer(model("openai/slow")))
    assert await asyncio.to_thread(server.arrived.wait, 600)
    killed = process.pid
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(ModelUnavailable) as caught:
        await task
    assert caught.value.billed
    assert isinstance(await answer(model("openai/good")), Reply)
    assert process.pid not in (None, killed)


@on_one_loop
async def test_a_helper_killed_before_sending_a_request_is_not_billed(server):
    fresh = RemoteProcess()
    slow = RemoteModel(
        "openai/slow",
        book=PriceBook(),
        keys=Keys({}),
        process=fresh,
        options=RemoteOptions(server.openai),
    )
    await fresh.warm()
    stopped = fresh.pid
    os.kill(stopped, signal.SIGSTOP)  # so that it cannot read the request
    asking = asyncio.create_task(answer(slow))
    while not fresh._links[False].inboxes:  # noqa: ASYNC110 - nothing tells of a request that waits
        await asyncio.sleep(0.01)
    assert fresh.pid == stopped
    os.kill(stopped, signal.SIGKILL)
    try:
        with pytest.raises(ModelUnavailable) as caught:
            await asking
        assert not caught.value.billed
    finally:
        await fresh.aclose()


@on_one_loop
async def test_the_death_of_a_helper_is_noticed_without_asyncio_warnings(caplog):
    for _ in range(20):
        fresh = RemoteProcess()
        await fresh.warm()
        os.kill(fresh.pid, signal.SIGKILL)
        while fresh.pid is not None:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        await fresh.aclose()
    assert caplog.messages == []


@on_one_loop
async def test_closing_ends_the_process(server):
    fresh = RemoteProcess()
    await fresh.warm()
    number = fresh.pid
    await fresh.aclose()
    assert fresh.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_the_helper_ends_when_the_shell_is_killed():
    program = (
        "import asyncio, time\n"
        "from ecoshell.models.remote_process import RemoteProcess\n"
        "async def main():\n"
        "    process = RemoteProcess()\n"
        "    await process.warm()\n"
        "    print(process.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    shell = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=helper_environ()
    )
    number = int(shell.stdout.readline())
    shell.kill()
    shell.communicate()
    deadline = time.monotonic() + 600
    while is_running(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(number)


def test_printed_text_in_the_helper_does_not_reach_the_wire():
    program = (
        "import os\n"
        "from ecoshell.models import remote_worker\n"
        "wire = remote_worker._take_stdout()\n"
        "print('noise', flush=True)\n"
        "os.system('echo more noise')\n"
        "wire.write(b'a line\\n')\n"
        "wire.flush()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=helper_environ(), check=True
    )
    assert result.stdout == b"a line\n"
    assert b"noise" in result.stderr


def test_the_helper_imports_nothing_from_the_working_folder(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('taken over')")
    command = [sys.executable, "-P", "-m", "ecoshell.models.tokens", "no_such_encoding"]
    result = subprocess.run(
        command, cwd=tmp_path, env=helper_environ(), capture_output=True, check=False
    )
    assert b"no_such_encoding" in result.stderr
    assert b"taken over" not in result.stderr


async def tick(ticks):
    while True:
        await asyncio.sleep(0.001)
        ticks.append(None)


def is_running(number):
    """Whether a process runs; zombies do not."""
    stat = Path(f"/proc/{number}/stat")
    if stat.parent.parent.joinpath("self").exists():
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_removed_keys_go_over_the_pipe_and_not_into_the_environment(monkeypatch):
    key = "sk-abcabd-0123456789"
    monkeypatch.setattr(secrecy, "_removed", {"SOME_API_KEY": key})
    process, written = RemoteProcess(), []
    monkeypatch.setattr(_Child, "write", lambda _, line: written.append(line))
    try:
        await process.warm()
        environ = Path(f"/proc/{process.pid}/environ")
        while not (variables := await asyncio.to_thread(environ.read_bytes)):  # noqa: ASYNC110 - empty at its start
            await asyncio.sleep(0.01)
        assert key.encode() not in variables
    finally:
        await process.aclose()
    assert written == [{"environ": {"SOME_API_KEY": key}}]


async def test_the_helper_sets_the_keys_it_receives(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "")
    reader = asyncio.StreamReader()
    reader.feed_data(b'{"environ": {"SOME_API_KEY": "secret"}}\n')
    reader.feed_eof()
    await Worker(io.BytesIO().write, asyncio.Event()).serve(reader)
    assert os.environ["SOME_API_KEY"] == "secret"

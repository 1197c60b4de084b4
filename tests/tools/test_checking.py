"""A program of the person's own says whether a text is right."""

import asyncio
import os

import pytest

from ecoshell.errors import ToolError
from ecoshell.tools.base import ToolOptions
from ecoshell.tools.builtin.commands import passes

OPTIONS = ToolOptions(command_seconds=20)


@pytest.mark.parametrize(
    ("command", "right"),
    [("grep -q 391", True), ("grep -q 392", False), ("exit 3", False), ("true", True), ("yes | head -c 1000000", True)],
)
async def test_it_reads_the_text_and_its_exit_status_is_its_word(tmp_path, command, right):
    assert await passes(command, "It is 391.\n", folder=tmp_path, options=OPTIONS) is right


async def test_a_long_text_that_nobody_reads_holds_nothing_up(tmp_path):
    assert await passes("true", "x" * 5_000_000, folder=tmp_path, options=OPTIONS)
    assert await passes("test $(wc -c) = 5000000", "x" * 5_000_000, folder=tmp_path, options=OPTIONS)


async def test_the_text_arrives_as_utf8_also_where_it_has_half_a_surrogate_pair(tmp_path):
    assert await passes("grep -qx 'é?'", "é\ud800", folder=tmp_path, options=OPTIONS)


async def test_it_runs_in_the_workspace_and_sees_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    (tmp_path / "expected.txt").write_text("391")
    command = 'test "$(cat)" = "$(cat expected.txt)" && test -z "$SOME_API_KEY"'
    assert await passes(command, "391", folder=tmp_path, options=OPTIONS)


@pytest.mark.parametrize(
    ("command", "said"),
    [("/nowhere/checker", "cannot be run"), ("kill -9 $$", "signal 9"), ("sleep 600", "longer than 0.2 s")],
)
async def test_where_it_cannot_tell_it_says_why(tmp_path, command, said):
    options = ToolOptions(command_seconds=0.2 if "sleep" in command else 20)
    with pytest.raises(ToolError, match=said):
        await passes(command, "391", folder=tmp_path, options=options)


async def test_stopping_it_ends_the_program(tmp_path):
    os.mkfifo(tmp_path / "begun")
    options = ToolOptions(command_seconds=600)
    checking = asyncio.create_task(passes("echo $$ > begun; exec sleep 600", "391", folder=tmp_path, options=options))
    process = int(await asyncio.to_thread((tmp_path / "begun").read_text))
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)

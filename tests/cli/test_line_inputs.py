"""Where the line shell's lines come from."""

import io
import signal
import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ecoshell.agent.commands import Completion
from ecoshell.cli.inputs import KeptHistory, Lines, SlashCompleter
from ecoshell.cli.parser import Interrupted


def unwarned(text: str) -> None:
    raise AssertionError(f"unexpected warning: {text}")


async def test_a_pipe_gives_its_lines_and_then_the_end() -> None:
    lines = Lines(io.BytesIO(b"one\r\n\xe2\x82\xac\n"), prompts=None, warn=unwarned)
    assert [await lines.question("> "), await lines.question("> ")] == ["one", "€"]
    with pytest.raises(EOFError):
        await lines.question("> ")


async def test_what_is_not_utf8_is_replaced_and_said() -> None:
    warnings: list[str] = []
    lines = Lines(io.BytesIO(b"caf\xff\n"), prompts=None, warn=warnings.append)
    assert await lines.question("") == "caf�"
    assert len(warnings) == 1


async def test_a_terminal_that_can_only_print_gets_the_prompt() -> None:
    prompts = io.StringIO()
    await Lines(io.BytesIO(b"y\n"), prompts=prompts, warn=unwarned).word("[y] once: ")
    assert prompts.getvalue() == "[y] once: "


class Signalling(io.BytesIO):
    """A stream whose reader gets a signal while it waits."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(b"too late\n")
        self.number = number

    def readline(self, size: int | None = -1, /) -> bytes:
        signal.raise_signal(self.number)
        return super().readline(size)


async def test_ctrl_c_while_a_line_is_awaited_interrupts() -> None:
    with pytest.raises(Interrupted):
        await Lines(Signalling(signal.SIGINT), prompts=None, warn=unwarned).question("")


async def test_termination_while_a_line_is_awaited_ends_the_input() -> None:
    with pytest.raises(EOFError):
        await Lines(Signalling(signal.SIGTERM), prompts=None, warn=unwarned).question("")


async def no_values(typed: str) -> list[Completion]:
    return []


async def test_values_that_have_to_be_asked_for_are_offered_after_the_rest() -> None:
    async def values(typed: str) -> list[Completion]:
        return [Completion(f"{typed}kind", "")]

    completer = SlashCompleter(lambda text: [Completion("/docs:review x", "")], values)
    offered = completer.get_completions_async(Document("/docs:review "), CompleteEvent())
    assert [one.text async for one in offered] == ["/docs:review x", "/docs:review kind"]
    assert [one async for one in completer.get_completions_async(Document("and /docs:"), CompleteEvent())] == []


def test_only_lines_that_begin_with_a_slash_are_completed() -> None:
    completer = SlashCompleter(lambda text: [Completion("/budget", f"for {text}")], no_values)
    event = CompleteEvent()
    (offered,) = completer.get_completions(Document("/bu"), event)
    assert (offered.text, offered.start_position, offered.display_meta_text) == ("/budget", -3, "for /bu")
    assert list(completer.get_completions(Document("and /bu"), event)) == []


def test_the_history_survives_the_shell_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "data" / "history.txt"
    KeptHistory(file, unwarned).append_string("how many\nlines?")
    assert list(KeptHistory(file, unwarned).load_history_strings()) == ["how many\nlines?"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_history_that_cannot_be_kept_is_said_once_and_loses_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    warnings: list[str] = []
    history = KeptHistory(tmp_path / "data" / "history.txt", warnings.append)
    history.append_string("one")
    history.append_string("two")
    assert history.get_strings() == ["one", "two"]
    assert len(warnings) == 1
    assert "not kept" in warnings[0]

"""The input sources of the line shell."""

import io
import signal
import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ecoshell.agent.command_table import Completion
from ecoshell.cli.inputs import Lines, PrivateHistory, SlashCompleter
from ecoshell.cli.signals import Interrupted


def unwarned(text: str) -> None:
    raise AssertionError(f"unexpected warning: {text}")


async def test_pipe_yields_its_lines_and_then_the_end() -> None:
    lines = Lines(io.BytesIO(b"one\r\n\xe2\x82\xac\n"), prompts=None, warn=unwarned)
    assert [await lines.question("> "), await lines.question("> ")] == ["one", "€"]
    with pytest.raises(EOFError):
        await lines.question("> ")


async def test_invalid_utf8_is_replaced_with_a_warning() -> None:
    warnings: list[str] = []
    lines = Lines(io.BytesIO(b"caf\xff\n"), prompts=None, warn=warnings.append)
    assert await lines.question("") == "caf�"
    assert len(warnings) == 1


async def test_dumb_terminal_gets_the_prompt() -> None:
    prompts = io.StringIO()
    await Lines(io.BytesIO(b"y\n"), prompts=prompts, warn=unwarned).word("[y] once: ")
    assert prompts.getvalue() == "[y] once: "


class Signalling(io.BytesIO):
    """A stream whose reader receives a signal while waiting."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(b"too late\n")
        self.number = number

    def readline(self, size: int | None = -1, /) -> bytes:
        signal.raise_signal(self.number)
        return super().readline(size)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, EOFError)]
)
async def test_signal_while_reading_a_line_interrupts_or_ends_the_input(
    number: signal.Signals, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await Lines(Signalling(number), prompts=None, warn=unwarned).question("")


async def no_values(typed: str) -> list[Completion]:
    return []


async def test_looked_up_values_follow_the_other_completions() -> None:
    async def values(typed: str) -> list[Completion]:
        return [Completion(f"{typed}kind", "")]

    completer = SlashCompleter(lambda text: [Completion("/docs:review x", "")], values)
    offered = completer.get_completions_async(Document("/docs:review "), CompleteEvent())
    assert [completion.text async for completion in offered] == [
        "/docs:review x",
        "/docs:review kind",
    ]
    unrelated = completer.get_completions_async(Document("and /docs:"), CompleteEvent())
    assert [completion async for completion in unrelated] == []


def test_only_slash_commands_are_completed() -> None:
    completer = SlashCompleter(lambda text: [Completion("/budget", f"for {text}")], no_values)
    event = CompleteEvent()
    (offered,) = completer.get_completions(Document("/bu"), event)
    assert (offered.text, offered.start_position, offered.display_meta_text) == (
        "/budget",
        -3,
        "for /bu",
    )
    assert list(completer.get_completions(Document("and /bu"), event)) == []


def test_history_is_stored_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "data" / "history.txt"
    PrivateHistory(file, unwarned).append_string("how many\nlines?")
    assert list(PrivateHistory(file, unwarned).load_history_strings()) == ["how many\nlines?"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_unwritable_history_is_reported_once_and_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    warnings: list[str] = []
    history = PrivateHistory(tmp_path / "data" / "history.txt", warnings.append)
    history.append_string("one")
    history.append_string("two")
    assert history.get_strings() == ["one", "two"]
    assert len(warnings) == 1
    assert "not saved" in warnings[0]

"""The chosen mode in options, the line shell, the transcript and an exported session."""

import io

import pytest

from ecoshell.cli.event_lines import EventLines
from ecoshell.cli.parser import build_parser
from ecoshell.cli.printer import Printer
from ecoshell.cli.run_options import options_from
from ecoshell.events import ModeChosen
from ecoshell.sessions.export import as_markdown
from ecoshell.tui.transcript import event_blocks

FIRST = ModeChosen("umi", "openai/large", "of questions like this one umi answers 80% for about $0.003")
SECOND = ModeChosen("single", "openai/large", "umi gave up: no \x1b[2Jsuch\nfile", after="umi")


def test_the_mode_is_an_option_of_every_command_that_asks() -> None:
    for argv in (["--mode", "auto"], ["ask", "q", "--mode", "auto"], ["line", "--mode", "auto"]):
        assert options_from(build_parser().parse_args(argv)).mode == "auto"


@pytest.mark.parametrize("event", [FIRST, SECOND])
def test_chosen_mode_takes_one_line_of_text(event: ModeChosen) -> None:
    screen = io.StringIO()
    EventLines(Printer(screen)).show(event)
    (line,) = screen.getvalue().splitlines()
    assert f"{event.mode} thinks: {event.why.split(chr(27))[0]}" in line
    assert "\x1b" not in line
    block = event_blocks.block_of(event)
    assert len(block.rows) == 1
    assert f"{event.mode} thinks" in block.text()
    assert "\x1b" not in block.text()


def test_change_of_mode_is_shown_as_a_warning() -> None:
    assert (event_blocks.block_of(FIRST).tone, event_blocks.block_of(SECOND).tone) == ("muted", "warning")


def test_exported_session_has_the_chosen_modes() -> None:
    text = as_markdown([(0.0, FIRST), (1.0, SECOND)])
    assert "`umi` thinks: of questions like this one umi answers 80%" in text
    assert "`single` thinks: umi gave up" in text

"""How the choice of a mode is asked for and told: options, the line shell, the transcript, an exported session."""

import io

import pytest

from ecoshell.cli.parser import build_parser, options_from
from ecoshell.cli.render import EventLines, Printer
from ecoshell.events import ModeChosen
from ecoshell.sessions.export import as_markdown
from ecoshell.tui.transcript import event_blocks

FIRST = ModeChosen("umi", "openai/large", "of questions like this one umi answers 80% for about $0.003")
SECOND = ModeChosen("single", "openai/large", "umi gave up: no \x1b[2Jsuch\nfile", after="umi")


def test_the_mode_is_an_option_of_every_command_that_asks() -> None:
    for argv in (["--mode", "auto"], ["ask", "q", "--mode", "auto"], ["line", "--mode", "auto"]):
        assert options_from(build_parser().parse_args(argv)).mode == "auto"


@pytest.mark.parametrize("event", [FIRST, SECOND])
def test_who_thinks_and_why_takes_one_line_and_nothing_in_it_is_obeyed(event: ModeChosen) -> None:
    screen = io.StringIO()
    EventLines(Printer(screen)).show(event)
    (told,) = screen.getvalue().splitlines()
    assert f"{event.mode} thinks: {event.why.split(chr(27))[0]}" in told
    assert "\x1b" not in told
    block = event_blocks.block_of(event)
    assert len(block.rows) == 1
    assert f"{event.mode} thinks" in block.text()
    assert "\x1b" not in block.text()


def test_another_that_goes_on_is_louder_than_a_first_choice() -> None:
    assert (event_blocks.block_of(FIRST).tone, event_blocks.block_of(SECOND).tone) == ("muted", "warning")


def test_an_exported_session_tells_who_thought_and_why() -> None:
    text = as_markdown([(0.0, FIRST), (1.0, SECOND)])
    assert "`umi` thinks: of questions like this one umi answers 80%" in text
    assert "`single` thinks: umi gave up" in text

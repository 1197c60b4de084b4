"""How a transcript's content is painted, without a screen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import TONES, Block, rows_of
from ecoshell.tui.transcript.column import Column
from ecoshell.tui.transcript.live import LiveText
from ecoshell.tui.transcript.painter import Painter


@pytest.fixture
def column() -> Column:
    column = Column()
    column.repaint(painter(), 40)
    return column


def painter() -> Painter:
    return Painter(dict.fromkeys(TONES, Style()))


def block(text: str, sign: str = "·") -> Block:
    return Block(sign, "muted", rows_of(text))


def test_lines_after_the_first_stand_beside_the_sign(column: Column):
    column.add(block("a text that is a little longer than one line can be"))
    assert column.plain == "·  a text that is a little longer than\n   one line can be"


def test_an_observation_stays_to_the_right_of_its_corner(column: Column):
    column.add(Block("▸", "tool", (lines.row(lines.Piece("word " * 12), lead="└ "),)))
    assert [line[:5] for line in column.plain.splitlines()] == ["▸  └ ", "     "]


def test_wide_characters_never_stand_beyond_the_edge(column: Column):
    column.add(block("数" * 100 + "😀" * 50))
    assert all(column.line(at).cell_length <= 40 for at in range(column.height))
    assert column.plain.count("😀") == 50


def test_markup_in_a_text_is_shown_as_it_is(column: Column):
    column.add(block("[red]not red[/red]"))
    assert "[red]not red[/red]" in column.plain


def test_an_answer_is_set_as_markdown(column: Column):
    column.add(lines.answer(lines.Answer("**bold** and\n\n- one\n- two")))
    assert "**" not in column.plain
    assert "• one" in column.plain


def test_an_answer_that_was_prepared_is_painted_as_one_that_was_not(column: Column):
    answer = lines.answer(lines.Answer("**bold** and\n\n- one\n- two"))
    column.prepare(answer)
    column.add(answer, answer)
    first, second = column.plain.split("✔")[1:]
    assert first.strip() == second.strip()


def test_a_link_in_an_answer_shows_where_it_leads(column: Column):
    column.repaint(painter(), 80)
    column.add(lines.answer(lines.Answer("[your bank](https://evil.example)")))
    assert "https://evil.example" in column.plain
    assert not any(segment.style and segment.style.link for segment in column.line(0))


def test_an_open_block_is_replaced_when_it_is_settled(column: Column):
    column.open(block("running"))
    column.settle(block("done"))
    assert column.plain == "·  done"


def test_a_block_can_be_inserted_above_text_that_is_still_arriving(column: Column):
    column.stream("thinking", "◇", "thought")
    column.insert(block("a notice"))
    column.stream(" on", "◇", "thought")
    column.paint()
    assert column.plain == "·  a notice\n◇  thinking on"


def test_text_that_is_interrupted_stays(column: Column):
    column.stream("half a thou", "◇", "thought")
    column.add(block("stopped"))
    assert column.plain == "◇  half a thou\n·  stopped"


def test_another_width_paints_everything_again(column: Column):
    column.add(block("one two three four five six seven eight nine ten"))
    column.stream("one two three four five six seven eight nine ten", "◇", "thought")
    column.repaint(painter(), 20)
    assert all(cell_len(line) <= 20 for line in column.plain.splitlines())
    assert column.plain.split().count("ten") == 2


@settings(deadline=None)  # painting takes its time on a busy machine
@given(st.lists(st.text(alphabet="ab 数\n\t", max_size=30), max_size=30), st.integers(5, 30))
def test_streaming_loses_nothing_and_stays_within_the_width(pieces: list[str], width: int):
    live = _streamed(pieces, width)
    assert "".join(_words(live)) == "".join("".join(pieces).split())
    assert all(live.line(at).cell_length <= width for at in range(live.height))


@settings(deadline=None)  # painting takes its time on a busy machine
@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=8), max_size=40), st.integers(1, 9), st.integers(12, 30))
def test_streamed_text_wraps_as_it_would_have_done_in_one_piece(words: list[str], step: int, width: int):
    text = " ".join(words)
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    assert _words(_streamed(pieces, width)) == _words(_streamed([text], width))


def _streamed(pieces: list[str], width: int) -> LiveText:
    live = LiveText("◇", "thought")
    for piece in pieces:
        live.append(piece)
        live.paint(painter(), width)
    return live


def _words(live: LiveText) -> list[str]:
    """Painted lines that say something, without their margins and the blanks that a break may swallow."""
    painted = ("".join(live.line(at).text[3:].split()) for at in range(live.height))
    return [line for line in painted if line]


def test_a_long_stream_is_not_wrapped_again_from_its_beginning():
    live, counting = LiveText("◇", "thought"), _CountingPainter(dict.fromkeys(TONES, Style()))
    for _ in range(2_000):
        live.append("word ")
        live.paint(counting, 40)
    assert counting.characters < 2_000 * 60


class _CountingPainter(Painter):
    characters = 0

    def wrap(self, row, width):
        self.characters += len(row.plain)
        return super().wrap(row, width)

"""Layout of blocks in the transcript's column, without a screen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import TONES, Block, Body, rows_of
from ecoshell.tui.transcript.column import BlockColumn
from ecoshell.tui.transcript.painting import PaintedLine, Painter


def painter(width: int = 40) -> Painter:
    return Painter(dict.fromkeys(TONES, Style()), width)


def column_of(*blocks: Block, width: int = 40) -> BlockColumn:
    column = BlockColumn()
    column.repaint(painter(width))
    column.add(*blocks)
    return column


@pytest.fixture
def column() -> BlockColumn:
    return column_of()


def block(text: str, sign: str = "·") -> Block:
    return Block(sign, "muted", rows_of(text))


def answer(text: str) -> Block:
    return event_blocks.answer(event_blocks.Answer(text))


def test_wrapped_lines_are_indented_past_the_sign(column: BlockColumn):
    column.add(block("a text that is a little longer than one line can be"))
    assert column.plain == "·  a text that is a little longer than\n   one line can be"


def test_observation_is_indented_past_its_corner(column: BlockColumn):
    column.add(Block("►", "tool", bodies=(Body("word " * 12, 4, corner="└ "),)))
    assert [line[:5] for line in column.plain.splitlines()] == ["►  └ ", "     "]


def test_wide_characters_stay_within_the_width(column: BlockColumn):
    column.add(block("数" * 100 + "😀" * 50))
    assert all(column.line(at).strip.cell_length <= 40 for at in range(column.height))
    assert column.plain.count("😀") == 50


@pytest.mark.parametrize(
    "text", ["👩‍👩‍👧‍👦" * 40, "e\u0301" * 100, "שלום עולם " * 20, "\t\tx\ty" * 20, "z" * 500]
)
def test_every_script_is_complete_and_within_the_width(text: str):
    column = column_of(block(text))
    assert all(column.line(at).strip.cell_length <= 40 for at in range(column.height))
    assert "".join(column.plain.split()).removeprefix("·") == "".join(text.split())


@pytest.mark.parametrize("width", [1, 2, 5])
def test_narrowest_screen_works(width: int):
    column = column_of(
        answer("# 数数数\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = 1\n```"), width=width
    )
    assert "x = 1" in column.plain


def test_markup_is_shown_literally(column: BlockColumn):
    column.add(block("[red]not red[/red]"))
    assert "[red]not red[/red]" in column.plain


def test_open_block_is_replaced_when_it_is_settled(column: BlockColumn):
    column.open(block("running"))
    column.settle(block("done"))
    assert column.plain == "·  done"


def test_several_open_blocks_settle_in_place(column: BlockColumn):
    column.open(block("one runs"), "1")
    column.open(block("two runs"), "2")
    column.settle(block("two is done"), "2")
    column.insert(block("a notice"))
    assert column.plain == "·  a notice\n·  one runs\n·  two is done"
    column.settle(block("one is done"), "1")
    column.insert(block("below"))
    assert column.plain == "·  a notice\n·  one is done\n·  two is done\n·  below"


def test_adding_settles_open_blocks_unchanged(column: BlockColumn):
    column.open(block("runs"), "1")
    column.stream("half a thou", "◦", "thought")
    column.add(block("stopped"))
    assert column.plain == "·  runs\n◦  half a thou\n·  stopped"


def test_block_is_inserted_above_arriving_text(column: BlockColumn):
    column.stream("thinking", "◦", "thought")
    column.insert(block("a notice"))
    column.stream(" on", "◦", "thought")
    assert column.plain == "·  a notice\n◦  thinking on"


def test_dropped_block_leaves_no_line(column: BlockColumn):
    column.add(block("before"))
    column.stream("thinking", "◦", "thought")
    column.drop()
    assert column.plain == "·  before"
    assert column.height == 1


def test_new_width_repaints_everything(column: BlockColumn):
    column.add(block("one two three four five six seven eight nine ten"))
    column.stream("one two three four five six seven eight nine ten", "◦", "thought")
    column.repaint(painter(20))
    assert all(cell_len(line) <= 20 for line in column.plain.splitlines())
    assert column.plain.split().count("ten") == 2


def test_blocks_added_before_the_first_width_are_painted_later():
    column = BlockColumn()
    column.add(block("early"))
    column.stream("**an** answer", "…", "text")
    column.settle()
    column.repaint(painter())
    assert column.plain == "·  early\n\n…  an answer"


def test_folded_block_shows_its_start_until_opened(column: BlockColumn):
    column.add(
        Block(
            "►", "tool", bodies=(Body("\n".join(f"line {n}" for n in range(50)), 2, corner="└ "),)
        )
    )
    assert column.plain.splitlines() == ["►  └ line 0", "     line 1", "     … 48 more lines"]
    column.fold(column.items[0], opened=True)
    assert column.plain.splitlines()[49].strip() == "line 49"
    assert column.plain.splitlines()[50].strip() == "▲ fold"
    column.fold(column.items[0], opened=False)
    assert column.height == 3


def test_only_visible_blocks_are_painted(monkeypatch: pytest.MonkeyPatch):
    counting = counted(monkeypatch)
    column = column_of(*(block(f"block {n}") for n in range(5_000)))
    column.reveal_end(30)
    assert len(counting) < 100
    assert column.line(column.height - 1).text == "block 4999"


def test_only_visible_parts_of_a_long_answer_are_painted(monkeypatch: pytest.MonkeyPatch):
    counting = counted(monkeypatch)
    column = column_of(
        answer("\n\n".join(f"Paragraph number {n} has some words." for n in range(2_000)))
    )
    column.reveal_end(30)
    assert len(counting) < 60
    assert column.line(column.height - 1).text == "Paragraph number 1999 has some words."


def test_streamed_answer_is_not_repainted_when_settled(
    column: BlockColumn, monkeypatch: pytest.MonkeyPatch
):
    text = "\n\n".join(f"Paragraph **{n}** of some." for n in range(20))
    column.stream(text, "…", "text")
    assert column.plain.startswith("\n…  Paragraph 0")
    counting = counted(monkeypatch)
    column.open(answer(text))
    column.settle(event_blocks.answer(event_blocks.Answer(text), "gave_up"))
    assert column.plain.startswith("\nØ  Paragraph 0")
    assert len(counting) == 2


def test_long_stream_is_not_repainted_from_its_start(
    column: BlockColumn, monkeypatch: pytest.MonkeyPatch
):
    counting = counted(monkeypatch)
    for n in range(200):
        column.stream(f"Paragraph {n} is this long.\n\n", "…", "text")
        column.catch_up()
        column.reveal_end(20)
    assert len(counting) < 3 * 200


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every section painted from now on."""
    painted: list[object] = []
    paint = Painter.paint

    def counting(self: Painter, section, *more) -> list[PaintedLine]:
        painted.append(section)
        return paint(self, section, *more)

    monkeypatch.setattr(Painter, "paint", counting)
    return painted


def test_removed_block_has_no_lines():
    column = column_of(block("one"))
    column.open(block("two"))
    item = column.items[-1]
    column.drop()
    assert column.span(item) == range(0)


def test_painting_above_does_not_move_lines_below():
    column = column_of(
        *(block("some words that go on and on and on " * (n % 5)) for n in range(300)),
        block("here"),
    )
    top = column.reveal_end(10)
    previous = column.line(top).text
    more = column.reveal_above(top, 60)
    assert column.line(top + more).text == previous


def test_spot_is_found_again_at_another_width():
    column = column_of(
        *(block(f"{n} and some words that go on and on and on and on") for n in range(300))
    )
    column.reveal(0, None)
    spot = column.spot(column.span(column.items[200]).start)
    column.repaint(painter(23))
    assert spot is not None
    assert column.line(column.line_of(spot)).text.startswith("200 ")


def test_painted_lines_are_released_and_repainted_on_demand():
    column = column_of(*(block(f"block {n}") for n in range(9_000)))
    column.reveal(0, None)
    column.release()
    assert not any(lines for item in column.items for lines in item.painted)
    assert column.height == 9_000
    assert column.line(8_000).text == "block 8000"


@settings(deadline=None)  # painting can be slow on a busy machine
@given(st.lists(st.text(alphabet="ab 数\n\t", max_size=30), max_size=30), st.integers(11, 30))
def test_streamed_thought_loses_nothing_and_stays_within_the_width(pieces: list[str], width: int):
    column = column_of(width=width)
    for piece in pieces:
        column.stream(piece, "◦", "thought")
        column.catch_up()
    assert "".join(column.plain.split()).removeprefix("◦") == "".join("".join(pieces).split())
    assert all(column.line(at).strip.cell_length <= width for at in range(column.height))


def test_megabyte_line_is_painted_in_parts():
    column = column_of(block("word " * 200_000))
    column.reveal(0, 30)
    assert column.line(0).text.startswith("word word")
    assert sum(len(lines or ()) for lines in column.items[0].painted) < 200

"""The transcript on a screen, driven by keys: scrolling, folding, copying, searching and resizing."""

import asyncio

import pytest
from textual.app import App, ComposeResult
from textual.events import Key
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Input, Static
from tui_play import eventually

from ecoshell.tui.keys import Hint
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import Block, Body, Piece, row, rows_of
from ecoshell.tui.transcript.search import SearchBar
from ecoshell.tui.transcript.view import Transcript

LONG = "\n".join(f"line {n}" for n in range(60))


class Host(App[None]):
    """A transcript over an input."""

    CSS = "Transcript { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.hints: list[str] = []
        self.opened: list[str] = []

    def compose(self) -> ComposeResult:
        yield Transcript()
        yield Input()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def on_hint(self, hint: Hint) -> None:
        self.hints.append(hint.text)

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        self.opened.append(url)


def note(text: str) -> Block:
    return Block("·", "muted", rows_of(text))


def call(output: str = LONG) -> Block:
    return Block(
        "►", "tool", (row(Piece("read_file()", "tool")),), bodies=(Body(output, 3, corner="└ "),)
    )


def turns(count: int) -> list[Block]:
    thought = event_blocks.rationale(event_blocks.Rationale("I think so.", "single"))
    item_value = [
        thought,
        call(),
        event_blocks.answer(event_blocks.Answer("It **is** so.\n\n- one\n- two")),
    ]
    return [
        block
        for n in range(count)
        for block in (event_blocks.question(f"question {n}"), *item_value)
    ]


def seen(app: Host) -> list[str]:
    """The lines on the screen."""
    transcript = app.transcript
    return [transcript.render_line(y).text[1:].rstrip() for y in range(transcript.size.height)]


async def settled(pilot: Pilot[None]) -> None:
    """Run all deferred callbacks."""
    await pilot.pause()
    await pilot.pause(0.1)


async def test_cursor_disappears_with_its_block():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(note("first"))
        app.transcript.column.open(note("on its way"))
        app.transcript.focus()
        await settled(pilot)
        await pilot.press("down", "down")
        assert "┃" in seen(app)[1]
        app.transcript.column.drop()
        await pilot.press("enter", "y", "plus")
        await settled(pilot)
        assert [line.strip() for line in seen(app)[:2]] == ["·  first", ""]
        assert app.hints == []
        await pilot.press("down")
        assert "┃" in seen(app)[0]


async def test_view_follows_the_end_until_scrolled_up():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(*turns(20))
        app.transcript.focus()
        await settled(pilot)
        assert seen(app)[-1].strip() == "• two"
        await pilot.press("pageup")
        await settled(pilot)
        above = seen(app)
        app.transcript.column.add(note("something new"))
        await settled(pilot)
        assert seen(app) == above
        await pilot.press("end")
        app.transcript.column.add(note("newer"))
        await settled(pilot)
        assert seen(app)[-1] == "·  newer"


async def test_session_of_2000_turns_opens_at_once_and_scrolls_without_gaps():
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.transcript.column.add(*turns(2_000))
        app.transcript.focus()
        await settled(pilot)
        assert seen(app)[-1].strip() == "• two"
        previous = seen(app)
        for _ in range(12):
            await pilot.press("pageup")
            now = seen(app)
            assert now[-1] == previous[0]
            previous = now
        await pilot.press("home")
        await settled(pilot)
        assert "question 0" in seen(app)[1]


async def test_scrolling_up_shows_every_unpainted_line():
    app = Host()
    async with app.run_test(size=(60, 10)) as pilot:
        app.transcript.column.add(
            *(note(f"{n} " + "some more words " * (n % 7)) for n in range(60))
        )
        await settled(pilot)
        met = seen(app)[::-1]
        while app.transcript.scroll_offset.y:
            app.transcript.scroll_relative(y=-1, animate=False)
            met.append(seen(app)[0])
        assert "\n".join(reversed(met)) == app.transcript.column.plain


@pytest.mark.parametrize("width", [30, 200, 1, 80])
async def test_resize_while_text_streams_loses_nothing(width: int):
    app = Host()
    text = "".join(
        f"Paragraph **{n}** with `code` and some words.\n\n- item {n}\n\n" for n in range(60)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        for at in range(0, len(text), 11):
            app.transcript.column.stream(text[at : at + 11], "…", "text")
            if at == 1_100:
                await pilot.resize_terminal(width, 20)
            if at % 275 == 0:
                await pilot.pause()
        app.transcript.column.settle(event_blocks.answer(event_blocks.Answer(text)))
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        streamed, fresh = app.transcript.column.plain, Host()
    async with fresh.run_test(size=(80, 24)):
        fresh.transcript.column.add(event_blocks.answer(event_blocks.Answer(text)))
        assert streamed == fresh.transcript.column.plain


async def test_line_at_the_top_stays_there_when_the_width_changes():
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        app.transcript.column.add(
            *(
                note(f"{n} and some words that go on and on and on and on and on")
                for n in range(500)
            )
        )
        app.transcript.focus()
        await pilot.press("home", *["pagedown"] * 9)
        top = seen(app)[0].split()[1]
        await pilot.resize_terminal(35, 20)
        await settled(pilot)
        assert seen(app)[0].split()[1] == top


async def test_terminal_without_room_is_harmless():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(*turns(3))
        await pilot.resize_terminal(1, 1)
        app.transcript.column.stream("more", "…", "text")
        await settled(pilot)
        await pilot.resize_terminal(60, 20)
        await settled(pilot)
        assert seen(app)[-1] == "…  more"


async def test_keys_echo_while_ten_thousand_tokens_arrive():
    app = Host()
    async with app.run_test(size=(120, 36)) as pilot:
        app.query_one(Input).focus()
        await pilot.pause()
        for n in range(10_000):
            app.transcript.column.stream(f"word{n} " if n % 50 else "\n\n", "…", "text")
            if n % 1_000 == 500:
                app.post_message(Key("a", "a"))
            await asyncio.sleep(0)
        await eventually(pilot, lambda: app.query_one(Input).value == "a" * 10)
        assert "word9999" in app.transcript.column.plain


async def test_block_cursor_moves_and_is_visible():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(note("one"), note("two"), note("three"))
        app.transcript.focus()
        await pilot.press("k", "up")
        assert seen(app)[:3] == ["·  one", "· ┃two", "·  three"]
        await pilot.press("j")
        assert seen(app)[2] == "· ┃three"


async def test_enter_opens_and_folds_the_block_under_the_cursor():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(note("before"), call())
        app.transcript.focus()
        assert "line 59" not in app.transcript.column.plain
        await pilot.press("up", "enter")
        assert "line 59" in app.transcript.column.plain
        assert "read_file" in "\n".join(seen(app))
        await pilot.press("enter")
        assert "line 59" not in app.transcript.column.plain


async def test_control_o_opens_the_newest_folded_block():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(call("\n".join("abcdef")), call(), note("after"))
        app.transcript.focus()
        await pilot.press("ctrl+o")
        assert "line 59" in app.transcript.column.plain
        assert "└ a\n     b\n     c\n     … 3 more lines" in app.transcript.column.plain


async def test_block_without_a_fold_shows_a_hint():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(note("short"))
        app.transcript.focus()
        await pilot.press("up", "enter")
        assert app.hints == ["Nothing is folded away in this block."]


async def test_click_on_the_fold_opens_it():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(call())
        await settled(pilot)
        await pilot.click(Transcript, offset=(8, 4))
        assert "line 59" in app.transcript.column.plain


async def test_click_on_a_link_opens_its_address():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(
            event_blocks.answer(event_blocks.Answer("[the docs](https://docs.example/a) and more"))
        )
        await settled(pilot)
        await pilot.click(Transcript, offset=(6, 1))
        assert app.opened == ["https://docs.example/a"]


async def test_y_copies_the_complete_block():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(call())
        app.transcript.focus()
        await pilot.press("up", "y")
        assert app.clipboard == f"read_file()\n└ {LONG}"
        assert app.hints == ["The block is copied."]


async def test_brackets_jump_between_turns():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(*turns(30))
        app.transcript.focus()
        await settled(pilot)
        await pilot.press("left_square_bracket")
        first = int(seen(app)[1].split()[-1])
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert seen(app)[1] == f"› ┃question {first - 2}"
        await pilot.press("right_square_bracket")
        assert seen(app)[1] == f"› ┃question {first - 1}"


async def test_selection_is_copied_joined_without_signs():
    app = Host()
    async with app.run_test(size=(30, 20)) as pilot:
        app.transcript.column.add(
            note("first block of words that is wrapped at the edge"), note("second")
        )
        await settled(pilot)
        selection = Selection(Offset(9, 0), Offset(6, 3))
        assert app.transcript.get_selection(selection) == (
            "block of words that is wrapped at the edge\nsec",
            "\n",
        )
        assert app.transcript.get_selection(Selection(None, None)) == (
            "first block of words that is wrapped at the edge\nsecond", "\n",
        )  # fmt: skip


@pytest.mark.parametrize(
    "selection",
    [
        Selection(Offset(9, 0), Offset(55, 0)),
        Selection(Offset(50, 0), None),
        Selection(None, Offset(1, 0)),
    ],
    ids=["ends", "begins", "in the margin"],
)
async def test_selection_may_end_past_a_line(selection: Selection):
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(note("漢字" * 12))
        await settled(pilot)
        previous = seen(app)
        app.screen.selections = {app.transcript: selection}
        assert seen(app) == previous
        await pilot.resize_terminal(40, 20)
        await settled(pilot)
        assert "".join(seen(app)).count("漢") == 12


async def test_selecting_everything_paints_nothing_off_screen():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(*turns(500))
        await settled(pilot)
        height = app.transcript.virtual_size.height
        text, _ = app.transcript.get_selection(Selection(None, None)) or ("", "")
        assert text.count("It **is** so.") == 500
        assert app.transcript.virtual_size.height == height


def count(app: Host) -> str:
    return str(app.query_one("#search-count", Static).visual)


async def test_search_counts_shows_and_unfolds_matches():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(*turns(10))
        app.transcript.focus()
        await pilot.press("slash", *"LINE 5")
        await eventually(pilot, lambda: count(app).endswith("110"))
        await pilot.press("enter")
        assert "line 5" in "\n".join(seen(app))
        await pilot.press("escape")
        assert not app.query(SearchBar)
        assert app.focused is app.transcript


async def test_search_wraps_around_and_matches_across_styles_and_lines():
    app = Host()
    async with app.run_test(size=(24, 20)) as pilot:
        app.transcript.column.add(
            event_blocks.answer(
                event_blocks.Answer("a **bold** word, and " + "again and " * 3 + "a bold word")
            )
        )
        app.transcript.focus()
        await pilot.press("slash", *"bold word")
        await eventually(pilot, lambda: count(app) == "1 of 2")
        await pilot.press("down")
        assert count(app) == "2 of 2"
        await pilot.press("enter")
        assert count(app) == "1 of 2"
        await pilot.press("up")
        assert count(app) == "2 of 2"


async def test_search_without_a_match_has_a_message():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(*turns(3))
        app.transcript.focus()
        await pilot.press("slash", *"nowhere")
        await eventually(pilot, lambda: count(app) == "no match")
        assert "question 2" in "\n".join(seen(app))


async def test_theme_change_repaints_at_once():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(note("words"))
        await settled(pilot)
        dark = {segment.style.color for segment in app.transcript.render_line(0) if segment.style}
        app.theme = "textual-light"
        await settled(pilot)
        light = {segment.style.color for segment in app.transcript.render_line(0) if segment.style}
        assert dark.isdisjoint(light)


async def test_long_replay_draws_only_its_end():
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        await settled(pilot)
        with app.transcript.filling():
            app.transcript.column.add(*turns(50))
            await settled(pilot)
            assert app.transcript.virtual_size.height == 0
        await settled(pilot)
        assert seen(app)[-1].strip() == "• two"


async def test_streaming_does_not_redraw_lines_above(monkeypatch: pytest.MonkeyPatch):
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.transcript.column.add(*turns(10))
        app.transcript.column.stream("The first words", "…", "text")
        await settled(pilot)
        drawn: list[int] = []
        finish = Strip.apply_offsets  # called for each redrawn line
        monkeypatch.setattr(
            Strip, "apply_offsets", lambda self, x, y: drawn.append(y) or finish(self, x, y)
        )
        previous = None
        while previous != len(drawn):  # a busy machine may still draw earlier lines
            previous = len(drawn)
            await settled(pilot)
        drawn.clear()
        app.transcript.column.stream(" and more", "…", "text")
        await settled(pilot)
        assert set(drawn) == {app.transcript.virtual_size.height - 1}
        assert seen(app)[-1] == "…  The first words and more"

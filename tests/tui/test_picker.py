"""Behaviour common to all pickers, driven by keys."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from picker_play import Stage, here, listed, read
from textual.widgets import OptionList, Static
from tui_play import eventually

from ecoshell.errors import StoreError
from ecoshell.tui.screens.picker import MAX_ROWS, Filter, Picker, PickerColumn, PickerRow

FRUIT = ("apple", "apricot", "banana", "blackberry", "cherry", "date", "elderberry", "fig")


class FruitPicker(Picker[str]):
    heading = "fruit"
    NOTHING = "The basket is empty."
    COLUMNS = (
        PickerColumn("fruit"),
        PickerColumn("length", right=True),
        PickerColumn("initial", from_width=70),
    )

    def __init__(
        self, basket: Sequence[str] = FRUIT, *, begin: str = "", rare: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self.basket = basket
        self.first = begin
        self.rare = rare
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    async def load(self) -> Sequence[PickerRow[str]]:
        await self.gate.wait()
        if self.failure:
            raise self.failure
        return [
            PickerRow(
                item,
                item,
                (item, str(len(item)), item[:1]),
                also="rotten" if item == "fig" else "",
                common=item not in self.rare,
                detail=f"{item} is a fruit",
            )
            for item in self.basket
        ]

    def result(self, item: str) -> str | None:
        if item == "date":
            self.complain("No dates today.")
            return None
        return f"/eat {item}"


def detail(picker: Picker) -> str:
    return str(picker.query_one("#detail", Static).visual)


async def test_typing_filters_and_enter_returns_the_best_match():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press(*"berry")
        assert [row.split()[0] for row in listed(stage.shown)] == ["blackberry", "elderberry"]
        await pilot.press("enter")
        await pilot.pause()
    assert stage.given == ["/eat blackberry"]


async def test_escape_returns_nothing():
    stage = Stage(FruitPicker())
    async with stage.run_test() as pilot:
        await read(pilot, stage.shown)
        await pilot.press("down", "escape")
        await pilot.pause()
    assert stage.given == [None]


async def test_moved_highlight_stays_on_its_row_while_typing():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("down", "down", "down", *"berr")
        assert here(stage.shown).startswith("blackberry")
        await pilot.press("down", "backspace", "backspace", "backspace", "backspace")
        assert here(stage.shown).startswith("elderberry")
        await pilot.press(*"ap")
        assert here(stage.shown).startswith("apple")


async def test_unmoved_highlight_follows_the_best_match():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("b")
        assert here(stage.shown).startswith("banana")
        await pilot.press("l")
        assert here(stage.shown).startswith("blackberry")


async def test_picker_highlights_the_given_row_first():
    stage = Stage(FruitPicker(begin="cherry"))
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        assert here(stage.shown).startswith("cherry")
        assert detail(stage.shown) == "cherry is a fruit"
        await pilot.press("e")
        assert here(stage.shown).startswith("elderberry")
        await pilot.press("backspace")
        assert here(stage.shown).startswith("cherry")


async def test_page_down_before_the_list_is_visible_is_harmless():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press(*"zzz")
        for key in ("backspace", "backspace", "backspace", "pagedown"):
            stage.post_message(_key(stage, key))
        await pilot.pause()
        assert "apple" in listed(stage.shown)[0]


async def test_keys_of_one_packet_act_in_order():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        for key in (*"ap", "down", "enter"):
            stage.post_message(_key(stage, key))
        await eventually(pilot, lambda: stage.given)
    assert stage.given == ["/eat apricot"]


async def test_unselectable_row_is_explained():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press(*"date", "enter")
        assert detail(stage.shown) == "No dates today."
        assert stage.given == []
        await pilot.press("backspace", "backspace", "backspace", "backspace", "down")
        await eventually(pilot, lambda: detail(stage.shown) == "apricot is a fruit")


async def test_picker_accepts_typing_while_it_loads():
    picker = FruitPicker()
    picker.gate.clear()
    stage = Stage(picker)
    async with stage.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "reading …" in stage.text)
        await pilot.press(*"che", "enter")
        assert stage.given == []
        picker.gate.set()
        await eventually(pilot, lambda: here(picker).startswith("cherry"))


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (
            StoreError("The file is damaged.", fix="Move it away."),
            "The file is damaged. Move it away.",
        ),
        (RuntimeError("a defect"), "Unexpected error: a defect"),
    ],
)
async def test_loading_error_replaces_the_list(failure, words):
    picker = FruitPicker()
    picker.failure = failure
    stage = Stage(picker)
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, picker)
        assert words in stage.text
        await pilot.press("enter", "escape")
        await pilot.pause()
    assert stage.given == [None]


async def test_empty_list_and_no_match_have_messages():
    empty = Stage(FruitPicker(()))
    async with empty.run_test(size=(80, 24)) as pilot:
        await read(pilot, empty.shown)
        assert "The basket is empty." in empty.text
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press(*"zzz", "enter")
        assert "No match for “zzz”." in stage.text
        assert detail(stage.shown) == ""
        assert stage.given == []


async def test_filter_matches_hidden_text():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press(*"rotten")
        assert [row.split()[0] for row in listed(stage.shown)] == ["fig"]


async def test_rare_rows_are_counted_and_found_by_typing():
    stage = Stage(FruitPicker(rare=frozenset({"banana", "fig"})))
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        assert len(listed(stage.shown)) == 6
        assert "6 shown · typing searches all 8" in stage.text
        await pilot.press(*"ban")
        assert here(stage.shown).startswith("banana")


async def test_reloading_keeps_filter_and_highlight():
    picker = FruitPicker()
    stage = Stage(picker)
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, picker)
        await pilot.press("b", "down")
        picker.basket = ("bilberry", *FRUIT)
        picker.reload()
        await eventually(pilot, lambda: len(listed(picker)) == 4)
        assert here(picker).startswith("blackberry")
        assert picker.query_one(Filter).value == "b"


async def test_neighbour_of_a_removed_row_is_highlighted():
    picker = FruitPicker()
    stage = Stage(picker)
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, picker)
        await pilot.press("down", "down")
        picker.basket = tuple(fruit for fruit in FRUIT if fruit != "banana")
        picker.reload()
        await eventually(pilot, lambda: len(listed(picker)) == 7)
        assert here(picker).startswith("blackberry")


async def test_click_selects_a_row_and_outside_closes():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(120, 36)) as pilot:
        await read(pilot, stage.shown)
        await pilot.click(OptionList, offset=(3, 2))
        await eventually(pilot, lambda: stage.given)
    assert stage.given == ["/eat banana"]
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(120, 36)) as pilot:
        await read(pilot, stage.shown)
        await pilot.click(offset=(0, 0))
        await eventually(pilot, lambda: stage.given)
    assert stage.given == [None]


async def test_late_input_for_a_closed_picker_closes_nothing_else():
    stage = Stage(FruitPicker())
    async with stage.run_test() as pilot:
        await read(pilot, stage.shown)
        stage.shown.action_choose()
        stage.shown.action_choose()
        await pilot.pause()
        assert stage.screen.query(Static)
    assert stage.given == ["/eat apple"]


async def test_wide_and_hostile_texts_keep_columns_aligned():
    names = ("日本語のなまえ", "[bold]red[/] \x1b[31m", "plain", "👩‍🚀 pilot", "a" * 200)
    stage = Stage(FruitPicker(names))
    async with stage.run_test(size=(60, 20)) as pilot:
        await read(pilot, stage.shown)
        assert "[bold]red[/] ␛[31m" in stage.text
        from rich.cells import cell_len

        assert len({cell_len(row) for row in listed(stage.shown)}) == 1
        assert "…" in stage.text
        assert "initial" not in stage.text


async def test_long_lists_are_cut_and_counted():
    stage = Stage(FruitPicker([f"fruit {number}" for number in range(3_000)]))
    async with stage.run_test(size=(80, 24)) as pilot:
        await read(pilot, stage.shown)
        assert len(listed(stage.shown)) == MAX_ROWS
        assert f"the first {MAX_ROWS} of 3,000" in stage.text
        await pilot.press(*"2987")
        assert here(stage.shown).startswith("fruit 2987")


async def test_picker_works_at_every_size():
    stage = Stage(FruitPicker())
    async with stage.run_test(size=(200, 50)) as pilot:
        await read(pilot, stage.shown)
        assert "initial" in stage.text
        for size in ((60, 15), (10, 4), (1, 1), (120, 36)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await pilot.press(*"fig", "enter")
        await pilot.pause()
    assert stage.given == ["/eat fig"]


def _key(stage: Stage, key: str):
    from textual.events import Key

    return Key(key, key if len(key) == 1 else None)


async def test_loading_is_cancelled_on_close(monkeypatch):
    picker = FruitPicker()
    picker.gate.clear()
    monkeypatch.setattr(
        Filter, "on_unmount", lambda _: picker.gate.set(), raising=False
    )  # arrives while closing
    stage = Stage(picker)
    async with stage.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: picker.is_mounted)
        await pilot.press("escape")
        await eventually(pilot, lambda: not picker.is_attached)
    assert stage.given == [None]


async def test_resizing_a_closed_picker_is_harmless(monkeypatch):
    picker, late = FruitPicker(), list[partial[object]]()
    stage = Stage(picker)
    async with stage.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: picker.is_mounted)
        monkeypatch.setattr(
            picker, "call_after_refresh", lambda *word, **how: late.append(partial(*word, **how))
        )
        await pilot.resize_terminal(40, 10)
        await eventually(pilot, lambda: late)
        await pilot.press("escape")
        await eventually(pilot, lambda: not picker.children)
        for item_value in late:  # Textual does it on another screen, possibly too late
            item_value()
    assert stage.given == [None]

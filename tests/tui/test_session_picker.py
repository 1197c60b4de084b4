"""The session picker over a real store, driven by keys."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from picker_play import Stage, here, listed, read
from textual.widgets import OptionList, Static
from tui_play import FakeShell, eventually

from ecoshell.agent.archive import Archive
from ecoshell.budget.ledger import Ledger
from ecoshell.events import TurnStarted
from ecoshell.sessions import SessionStore
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tui.screens.picker import AskPane
from ecoshell.tui.screens.pickers import SessionPicker

SIZE = (100, 30)


class Shelf:
    """A store with sessions, the newest of which is the current one."""

    def __init__(self, folder: Path) -> None:
        self.seconds = 1_700_000_000.0
        self.store = SessionStore(folder / "sessions.sqlite", clock=lambda: self.seconds)
        self.ledger = Ledger(folder / "ledger.sqlite")
        self.undo = UndoLog(folder / "undo")
        self.current = ""

    def talk(self, question: str, model: str = "embedded") -> str:
        self.seconds += 3600
        self.current = self.store.create(workspace="/project", model=model)
        self.store.append(self.current, [TurnStarted(1, question, model, "single", "react")])
        return self.current

    def stage(self) -> Stage:
        archive = Archive(
            self.store, self.ledger, forget=(self.undo.forget,), current=lambda: self.current
        )
        return Stage(SessionPicker(FakeShell(archive=archive)))

    def titles(self) -> list[str]:
        return [item.title for item in self.store.list()]


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.store.close()
    shelf.ledger.close()


def detail(stage: Stage) -> str:
    return str(stage.shown.query_one("#detail", Static).visual)


def asks(stage: Stage) -> bool:
    return stage.shown.query_one(AskPane).has_class("-on")


async def test_sessions_are_listed_newest_first_and_enter_resumes(shelf):
    first = shelf.talk("fix the readme", "openai/gpt-4o")
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        rows = listed(stage.shown)
        assert rows[0].split()[:2] == ["count", "words"]
        assert rows[0].endswith("this one")
        assert "openai/gpt-4o" in rows[1]
        await pilot.press(*"readme", "enter")
        await eventually(pilot, lambda: stage.given)
    assert stage.given == [f"/resume {first}"]


async def test_current_session_is_not_resumed(shelf):
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("enter")
        assert "This is the current session" in detail(stage)
        assert stage.given == []


async def test_session_is_renamed_in_place(shelf):
    shelf.talk("fix the readme")
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("down", "f2", *"docs", "enter")
        await eventually(pilot, lambda: shelf.titles() == ["count words", "docs"])
        await eventually(pilot, lambda: here(stage.shown).startswith("docs"))
        await pilot.press("f2", "escape", *"words")
        await eventually(pilot, lambda: here(stage.shown).startswith("count words"))
    assert shelf.titles() == ["count words", "docs"]


async def test_empty_title_is_refused(shelf):
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("f2", "backspace", "enter")
        await eventually(pilot, lambda: "The title is empty." in detail(stage))
    assert shelf.titles() == ["count words"]


async def test_deleting_asks_for_confirmation(shelf):
    shelf.talk("fix the readme")
    shelf.talk("write tests")
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("down", "delete")
        await eventually(pilot, lambda: "Delete “write tests”" in stage.text)
        await pilot.press("enter")
        await eventually(pilot, lambda: not asks(stage))
        assert len(shelf.titles()) == 3
        await pilot.press("delete", "y")
        await eventually(pilot, lambda: shelf.titles() == ["count words", "fix the readme"])
        await eventually(pilot, lambda: here(stage.shown).startswith("fix the readme"))


async def test_current_session_is_not_deleted(shelf):
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("delete")
        await eventually(pilot, lambda: "start or resume another one" in detail(stage))
        assert not asks(stage)
    assert shelf.titles() == ["count words"]


async def test_delete_key_still_deletes_letters_of_the_filter(shelf):
    shelf.talk("fix the readme")
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press(*"xfix", "home", "delete")
        await eventually(pilot, lambda: here(stage.shown).startswith("fix the readme"))
        assert not asks(stage)


async def test_session_is_exported_to_a_new_file_only(shelf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = shelf.talk("count words")
    (tmp_path / "old.md").write_text("mine")
    stage = shelf.stage()
    async with stage.run_test(size=(160, 30)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("f4")
        await eventually(pilot, lambda: f"{session}.md" in stage.text)
        for name in ("old.md", "new.json", "new.md"):
            await pilot.press(*([] if asks(stage) else ["f4"]), "ctrl+u", *name, "enter")
            text_shown = "exists already" if name == "old.md" else f"Exported to {name}."
            await eventually(pilot, lambda text=text_shown: text in detail(stage))
    assert (tmp_path / "old.md").read_text() == "mine"
    assert "count words" in (tmp_path / "new.md").read_text()
    assert json.loads((tmp_path / "new.json").read_text())["session"]["id"] == session


async def test_key_starts_a_new_session(shelf):
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("ctrl+n")
        await eventually(pilot, lambda: stage.given)
    assert stage.given == ["/new"]


async def test_letter_keys_work_in_the_focused_list(shelf):
    shelf.talk("fix the readme")
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("tab", "down", "d")
        await eventually(pilot, lambda: "Delete “fix the readme”" in stage.text)
        await pilot.press("n", "r")
        await eventually(pilot, lambda: "The session's title:" in stage.text)
        await pilot.press("escape", "n")
        await eventually(pilot, lambda: stage.given)
    assert stage.given == ["/new"]


async def test_open_question_blocks_other_actions(shelf):
    shelf.talk("fix the readme")
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("down", "f2")
        await eventually(pilot, lambda: asks(stage))
        await pilot.press("f8", "ctrl+n", "f4")
        await pilot.click(OptionList, offset=(4, 1))
        assert asks(stage)
        await pilot.press(*"docs", "enter")
        await eventually(pilot, lambda: "docs" in shelf.titles())
    assert stage.given == []


async def test_closing_the_picker_cancels_its_question(shelf):
    shelf.talk("fix the readme")
    shelf.talk("count words")
    stage = shelf.stage()
    async with stage.run_test(size=(120, 36)) as pilot:
        await read(pilot, stage.shown)
        await pilot.press("down", "delete")
        await eventually(pilot, lambda: asks(stage))
        await pilot.click(offset=(0, 0))
        await eventually(pilot, lambda: stage.given)
    assert stage.given == [None]
    assert len(shelf.titles()) == 2


async def test_empty_session_list_has_a_message(shelf):
    stage = shelf.stage()
    async with stage.run_test(size=(60, 20)) as pilot:
        await read(pilot, stage.shown)
        assert "No sessions yet" in stage.text
        await pilot.press("f2", "delete", "f4", "enter", "escape")
        await eventually(pilot, lambda: stage.given)
    assert stage.given == [None]


async def test_damaged_store_says_what_to_do(shelf, tmp_path):
    shelf.talk("count words")
    with closing(sqlite3.connect(tmp_path / "sessions.sqlite")) as database:
        database.execute("DROP TABLE events")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        assert "sessions.sqlite" in str(
            stage.shown.query_one("#state").visual
        )  # long paths are wrapped on the screen
        assert listed(stage.shown) == []


async def test_hostile_titles_are_escaped(shelf):
    shelf.talk("[bold]x[/bold] \x1b[31mred \u202e 日本語のタイトル")
    stage = shelf.stage()
    async with stage.run_test(size=SIZE) as pilot:
        await read(pilot, stage.shown)
        await eventually(pilot, lambda: "[bold]x[/bold] ␛[31mred \\u202e 日本" in stage.text)
        assert not {"\x1b", "\u202e"} & set(stage.text)

"""The stored draft: typed text and attachments survive a crash."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from full_disk import no_file_over
from hypothesis import given
from hypothesis import strategies as st
from prompt_play import LONG, PromptApp, until
from textual.widgets import Static

from ecoshell.messages import Attachment
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.drafts import Draft, DraftFile

WITH_PASTE = Draft("why [paste-1 · 312 lines]", (Attachment("paste-1", LONG),))
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def test_draft_is_restored_with_its_attachments(tmp_path):
    file = DraftFile(tmp_path / "data" / "draft.txt")
    file.write(WITH_PASTE)
    assert file.read() == WITH_PASTE


def test_draft_without_attachments_is_plain_text(tmp_path):
    DraftFile(tmp_path / "draft.txt").write(Draft("half a thought\nand more"))
    assert (tmp_path / "draft.txt").read_bytes() == b"half a thought\nand more"


def test_plain_draft_may_start_with_anything(tmp_path):
    (tmp_path / "draft.txt").write_text('[{"name": "x"}]\nold draft')
    assert DraftFile(tmp_path / "draft.txt").read() == Draft('[{"name": "x"}]\nold draft')


@pytest.mark.parametrize("start", ["", "[", "{}", "[1]", '{"text": "x"}', "[" * 5_000])
def test_damaged_attachments_lose_no_text(tmp_path, start):
    (tmp_path / "draft.txt").write_text(f"\0attachments {start}\nwhat was typed")
    assert "what was typed" in DraftFile(tmp_path / "draft.txt").read().text


def test_empty_draft_removes_the_file(tmp_path):
    file = DraftFile(tmp_path / "draft.txt")
    file.write(Draft("text"))
    file.write(Draft(" \n"))
    assert list(tmp_path.iterdir()) == []


def test_unwritable_draft_is_not_fatal(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    DraftFile(blocked / "draft.txt").write(Draft("text"))
    assert DraftFile(blocked / "draft.txt").read() == Draft()


def test_crash_while_writing_keeps_the_older_draft(tmp_path, monkeypatch):
    file = DraftFile(tmp_path / "draft.txt")
    file.write(Draft("older"))

    def crash(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", crash)
    file.write(Draft("newer"))
    assert file.read() == Draft("older")
    assert [stored_value.name for stored_value in tmp_path.iterdir()] == ["draft.txt"]


@given(text=TEXT.filter(str.strip), texts=st.lists(TEXT, max_size=3))
def test_every_text_is_restored_unchanged(tmp_path_factory, text, texts):
    draft = Draft(
        text.replace("\0", ""),
        tuple(Attachment(f"paste-{at}", item) for at, item in enumerate(texts)),
    )
    file = DraftFile(tmp_path_factory.mktemp("draft") / "draft.txt")
    file.write(draft)
    assert file.read() == (draft if draft.text.strip() else Draft())


class _SlowFile(DraftFile):
    """Blocks each write until released."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.may_write = threading.Event()
        self.written: list[str] = []

    def write(self, draft: Draft) -> None:
        assert self.may_write.wait(600)
        self.written.append(draft.text)


async def test_closing_writes_the_last_draft_after_a_pending_one():
    file, text = _SlowFile(), "first"
    file.current = lambda: Draft(text)
    file.touch()
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    text = "second"
    file.may_write.set()
    await closing
    assert file.written[-1] == "second"


async def test_draft_is_stored_without_a_pause(tmp_path, monkeypatch):
    monkeypatch.setattr("ecoshell.tui.prompt.drafts._MAX_DELAY", 0.05)
    file, typed = DraftFile(tmp_path / "draft.txt"), ""
    file.current = lambda: Draft(typed)
    async with asyncio.timeout(600):
        while not (tmp_path / "draft.txt").exists():
            typed += "x"
            file.touch()
            await asyncio.sleep(0)
    assert 0 < len(file.read().text) <= len(typed)
    await file.close()
    assert file.read() == Draft(typed)


async def test_large_paste_is_restored_with_the_draft(tmp_path):
    app = PromptApp(tmp_path)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.query_one(PromptBar).is_restored)
        await pilot.press(*"why ")
        app.paste(LONG)
        await until(pilot, (tmp_path / "draft.txt").exists)
        assert app.draft_file.read() == WITH_PASTE
    app = PromptApp(tmp_path)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.prompt.text)
        await pilot.press("?", "enter")
        assert app.sent == [Draft(f"{WITH_PASTE.text}?", WITH_PASTE.attachments)]


async def test_early_input_follows_the_restored_draft(tmp_path):
    DraftFile(tmp_path / "draft.txt").write(Draft("from before, "))
    app = PromptApp(tmp_path)
    async with app.run_test() as pilot:
        bar = app.query_one(PromptBar)
        await until(pilot, lambda: bar.is_restored)
        assert app.prompt.text == "from before, "
        app.prompt.put("typed")
        await bar.restore()
        assert app.prompt.text == "from before, typed"


async def test_full_disk_shows_that_the_draft_is_not_stored(tmp_path):
    app = PromptApp(tmp_path)
    async with app.run_test() as pilot:
        bar, hint = app.query_one(PromptBar), app.query_one("#hint", Static)
        await until(pilot, lambda: bar.is_restored)
        with no_file_over(0):
            await pilot.press(*"why")
            await until(
                pilot, lambda: "would be lost in a crash: File too large" in str(hint.render())
            )
            await pilot.press("enter")
            await until(
                pilot, lambda: "can no longer be stored: File too large" in str(hint.render())
            )
            assert app.sent == [Draft("why")]
            assert [*tmp_path.glob("*draft*")] == []
            assert (tmp_path / "history.txt").read_bytes() == b""

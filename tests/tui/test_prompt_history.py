"""The input history: recall, search, and sharing with the line shell."""

import os
from pathlib import Path

import pytest
from prompt_play import LONG, PromptApp, until

from ecoshell.cli.inputs import PrivateHistory
from ecoshell.messages import Attachment
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.drafts import Draft, DraftFile, History

SENT = ("write a haiku", "count the words\nof notes.txt", "Count the lines", "what remains?")


def loaded(file: Path) -> History:
    history = History(file)
    history.prepend(history.load())
    return history


@pytest.fixture
def app(tmp_path: Path) -> PromptApp:
    history = History(tmp_path / "history.txt")
    for text in SENT:
        history.write(text)
    return PromptApp(tmp_path)


async def ready(pilot, app: PromptApp) -> None:
    """Wait for the history, which loads after the first frame."""
    await until(pilot, lambda: app.query_one(PromptBar).is_restored)


def test_history_is_shared_with_the_line_shell_through_its_file(tmp_path):
    from prompt_toolkit.history import FileHistory

    file = tmp_path / "history.txt"
    for text in ("one\ntwo", "three"):
        History(file).write(text)
    assert list(FileHistory(str(file)).load_history_strings()) == ["three", "one\ntwo"]
    FileHistory(str(file)).store_string("four\nfive")
    again = loaded(file)
    looked_back = [entry and entry.text for entry in (again.move(-1, Draft()) for _ in range(4))]
    assert looked_back == ["four\nfive", "three", "one\ntwo", None]


def test_history_survives_a_file_that_is_not_text(tmp_path):
    file = tmp_path / "history.txt"
    file.write_bytes(b"\xff\xfe\n+caf\xe9\n")
    assert loaded(file).move(-1, Draft()) == Draft("caf\ufffd")


def test_unwritable_history_lasts_as_long_as_the_chat(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    history = loaded(blocked / "history.txt")
    assert history.add(Draft("stored"))
    history.write("stored")
    assert history.move(-1, Draft()) == Draft("stored")


def test_pipes_instead_of_files_do_not_block(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    history, text_shown = loaded(pipe), []
    history.add(Draft("stored"))
    history.write("stored")
    stored = PrivateHistory(pipe, text_shown.append)
    stored.store_string("stored")
    assert (list(stored.load_history_strings()), len(text_shown)) == ([], 1)
    assert DraftFile(pipe).read() == Draft()


def test_late_loaded_entries_precede_sent_ones():
    history = History()
    history.add(Draft("sent"))
    history.prepend(["older"])
    assert [history.move(-1, Draft()), history.move(-1, Draft())] == [Draft("sent"), Draft("older")]


def test_repeated_input_is_one_entry():
    history = History()
    assert [history.add(Draft("again")), history.add(Draft("again")), history.add(Draft(" "))] == [
        True,
        False,
        False,
    ]
    assert [
        history.move(-1, Draft("now")),
        history.move(-1, Draft()),
        history.move(1, Draft()),
    ] == [
        Draft("again"),
        None,
        Draft("now"),
    ]


def test_search_matches_all_words_and_lists_entries_once_newest_first():
    history = History()
    history.prepend(["count words", "other", "words to count", "count words"])
    assert history.search("wor cou") == ["count words", "words to count"]


def test_capital_letter_makes_the_search_case_sensitive():
    history = History()
    history.prepend(["Readme", "readme"])
    assert history.search("readme") == ["readme", "Readme"]
    assert history.search("R") == ["Readme"]


async def test_control_r_lists_the_history_newest_at_the_prompt(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"draft", "ctrl+r")
        assert app.offered == list(SENT)
        assert app.highlighted == "what remains?"
        assert app.title_words == "history search"


async def test_typing_filters_the_search_and_enter_takes_an_entry(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press("ctrl+r", *"count")
        assert app.offered == [SENT[1], SENT[2]]
        assert app.highlighted == SENT[2]
        await pilot.press("ctrl+r", "enter")
        assert app.prompt.text == SENT[1]
        assert app.sent == []
        assert app.title_words == ""


async def test_escape_restores_draft_cursor_and_undo(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"my draft", "left", "left", "ctrl+r", *"haiku", "escape")
        assert app.prompt.text == "my draft"
        assert app.prompt.cursor_location == (0, 6)
        await pilot.press("ctrl+z")
        assert app.prompt.text == ""


async def test_inserted_history_entry_can_be_undone(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"draft", "ctrl+r", *"haiku", "enter")
        assert app.prompt.text == "write a haiku"
        await pilot.press("ctrl+z")
        assert app.prompt.text == "draft"


async def test_search_without_a_match_sends_nothing(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press("ctrl+r", *"zzz")
        await until(pilot, lambda: app.title_words == "history search · no match")
        await pilot.press("enter")
        assert app.sent == []
        await pilot.press("escape")
        assert app.prompt.text == ""


async def test_search_stops_at_the_oldest_entry_and_returns(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press("ctrl+r", *["ctrl+r"] * 9)
        assert app.highlighted == SENT[0]
        await pilot.press("down", "ctrl+s")
        assert app.highlighted == SENT[2]


async def test_search_in_one_packet_takes_its_match(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        app.type_in_one_packet("ctrl+r", *"haiku", "enter", *"!", "enter")
        await until(pilot, lambda: app.sent)
        assert [draft.text for draft in app.sent] == ["write a haiku!"]


async def test_draft_is_stored_during_a_search(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"draft", "ctrl+r", *"haiku")
        assert app.prompt.draft == Draft("draft")


async def test_cleared_input_is_in_the_history_and_a_search_is_closed(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        bar = app.query_one(PromptBar)
        await pilot.press(*"draft", "ctrl+r", "x")
        assert bar.clear()
        assert app.prompt.text == "draft"
        assert bar.clear()
        assert app.prompt.text == ""
        assert not bar.clear()
        await pilot.press("up")
        assert app.prompt.text == "draft"


async def test_recalled_command_does_not_open_completions(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"/tools", "enter", "up", "up")
        assert app.prompt.text == "what remains?"


async def test_entry_is_recalled_with_the_paste_that_was_sent_with_it(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        app.paste(LONG)
        await until(pilot, lambda: app.prompt.text)
        await pilot.press(*" why", "enter", "up", "enter")
        assert app.sent[0].attachments == (Attachment("paste-1", LONG),)
        assert app.sent[1] == app.sent[0]


async def test_sent_input_is_written_to_the_file(app):
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"new", "enter")
        await until(pilot, lambda: app.history_file.read_text().endswith("+new\n"))
        assert loaded(app.history_file).search("")[0] == "new"

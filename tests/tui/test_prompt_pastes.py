"""Pastes in the prompt: large ones become attachments, and control characters are harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_play import LONG, PromptApp, until

from ecoshell.messages import Attachment, visible
from ecoshell.tui.prompt.drafts import Draft, Pastes, is_large, unified

MARKER = "[paste-1 · 312 lines]"


@pytest.fixture
def app(tmp_path) -> PromptApp:
    return PromptApp(tmp_path)


async def pasted(pilot, app: PromptApp, text: str) -> None:
    previous = app.prompt.text
    app.paste(text)
    await until(pilot, lambda: app.prompt.text != previous)


async def test_large_paste_becomes_an_attachment_with_a_name(app):
    async with app.run_test() as pilot:
        await pilot.press(*"why ")
        await pasted(pilot, app, LONG)
        assert app.prompt.text == f"why {MARKER}"
        await pilot.press("?", "enter")
        assert app.sent == [Draft(f"why {MARKER}?", (Attachment("paste-1", LONG),))]


async def test_small_paste_is_inserted_with_normalized_newlines(app):
    async with app.run_test() as pilot:
        await pasted(pilot, app, "one\r\ntwo\rthree")
        assert app.prompt.text == "one\ntwo\nthree"
        assert app.prompt.draft.attachments == ()


async def test_paste_replaces_the_selection(app):
    async with app.run_test() as pilot:
        await pilot.press(*"one two", "ctrl+shift+left")
        await pasted(pilot, app, "2")
        assert app.prompt.text == "one 2"


async def test_paste_higher_than_the_prompt_can_be_undone_and_redone(app):
    async with app.run_test(size=(80, 24)) as pilot:
        await pasted(pilot, app, "a line\n" * 15)
        for key, lines in (("ctrl+z", 0), ("ctrl+y", 15), ("ctrl+z", 0)):
            await pilot.press(key)
            assert app.prompt.text == "a line\n" * lines


async def test_marker_is_deleted_completely_with_its_attachment(app):
    async with app.run_test() as pilot:
        await pasted(pilot, app, LONG)
        await pilot.press("backspace")
        assert app.prompt.draft == Draft()
        await pilot.press("ctrl+z")
        assert app.prompt.draft == Draft(MARKER, (Attachment("paste-1", LONG),))


async def test_deleting_a_word_of_a_marker_deletes_all_of_it(app):
    async with app.run_test() as pilot:
        await pilot.press(*"see ")
        await pasted(pilot, app, LONG)
        await pilot.press("ctrl+w")
        assert app.prompt.text == "see "


async def test_text_typed_inside_a_marker_goes_after_it(app):
    async with app.run_test() as pilot:
        await pasted(pilot, app, LONG)
        await pilot.press("left", "left", "x")
        assert app.prompt.text == f"{MARKER}x"


async def test_typed_marker_is_plain_text(app):
    async with app.run_test() as pilot:
        app.prompt.put(MARKER)
        await pilot.press("enter")
        assert app.sent == [Draft(MARKER)]


async def test_pastes_have_unique_names(app):
    async with app.run_test() as pilot:
        await pasted(pilot, app, LONG)
        await pilot.press("enter")
        await pasted(pilot, app, LONG)
        await pilot.press("enter")
        assert [draft.attachments[0].name for draft in app.sent] == ["paste-1", "paste-2"]


async def test_large_paste_is_expanded_in_a_command(app):
    async with app.run_test() as pilot:
        await pilot.press(*"!cat <<E ")
        await pasted(pilot, app, LONG)
        assert app.prompt.text == f"!cat <<E {LONG}"
        await pasted(pilot, app, "y" * 30_000)
        assert app.prompt.text.endswith("[paste-1 · 30,000 characters]")
        await pilot.press("enter")
        assert app.sent == [Draft(f"!cat <<E {LONG}{'y' * 30_000}")]


async def test_million_character_line_is_an_attachment(app):
    async with app.run_test() as pilot:
        await pasted(pilot, app, "x" * 1_000_000)
        assert app.prompt.text == "[paste-1 · 1,000,000 characters]"
        assert app.prompt.draft.attachments == (Attachment("paste-1", "x" * 1_000_000),)


async def test_control_characters_in_a_paste_are_escaped(app):
    async with app.run_test() as pilot:
        await pasted(pilot, app, "a\x1b[2Jb\x07c\x00d\u202ee\x9bf")
        assert app.prompt.text == "a␛[2Jb\\x07cd\\u202ee\\x9bf"


@pytest.mark.parametrize(
    "text", ["👩‍👩‍👧 family", "日本語 wide", "e\u0301 combined", "مرحبا بالعالم", "tab\there"]
)
async def test_any_script_can_be_pasted(app, text):
    async with app.run_test(size=(20, 6)) as pilot:
        await pasted(pilot, app, text)
        await pilot.press("left", "right", "backspace", "ctrl+z", "enter")
        assert app.sent == [Draft(text)]


async def test_very_large_text_becomes_a_marker(app):
    async with app.run_test() as pilot:
        app.prompt.put("z" * 50_000)
        assert app.prompt.text == "[paste-1 · 50,000 characters]"
        await pilot.press("enter")
        assert app.sent[0].attachments == (Attachment("paste-1", "z" * 50_000),)


async def test_paste_into_a_search_is_shortened_to_one_line(app):
    async with app.run_test() as pilot:
        await pilot.press("ctrl+r")
        await pasted(pilot, app, f"needle\n{LONG}")
        assert app.prompt.text == " ".join(f"needle\n{LONG}"[:200].split())


@pytest.mark.parametrize(
    ("text", "large"),
    [
        ("x" * 2_000, False),
        ("x" * 2_001, True),
        ("x\n" * 19 + "x", False),
        ("x\n" * 20 + "x", True),
        ("", False),
    ],
)
def test_paste_is_large_from_21_lines_or_2001_characters(text, large):
    assert is_large(text) == large


def test_each_marker_expands_to_its_paste():
    pastes = Pastes()
    item, two = pastes.add("a" * 3_000), pastes.add("b" * 3_000)
    assert pastes.expand(f"first {item}, then {two}") == f"first {'a' * 3_000}, then {'b' * 3_000}"


def test_adopted_pastes_keep_their_names_and_new_ones_follow():
    pastes = Pastes()
    pastes.adopt("[paste-4 · 2 lines]", [Attachment("paste-4", "a\nb")])
    assert pastes.attachments_of("[paste-4 · 2 lines]") == (Attachment("paste-4", "a\nb"),)
    assert pastes.add("c\nd") == "[paste-5 · 2 lines]"


@given(st.text())
def test_escaped_text_is_harmless_and_stable(text):
    output = visible(unified(text))
    assert all(letter in "\n\t" or letter >= " " for letter in output)
    assert not set(output) & {"\x7f", "\x9b", "\u2028", "\u202e"}
    assert visible(unified(output)) == output

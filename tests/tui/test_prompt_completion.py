"""Completions of the prompt: slash commands, their arguments and mentioned files."""

import asyncio
from pathlib import Path

import pytest
from prompt_play import PromptApp, until

from ecoshell.agent.command_table import Completion
from ecoshell.tui.prompt.completion import (
    CompletionList,
    Mention,
    MentionSearch,
    best_names,
    mention_at,
    mention_text,
)


@pytest.fixture
def app(tmp_path: Path) -> PromptApp:
    return PromptApp(tmp_path)


async def test_command_is_found_by_any_of_its_letters(app):
    async with app.run_test() as pilot:
        await pilot.press(*"/bgt")
        assert app.offered == ["/budget"]
        await pilot.press("tab")
        assert app.prompt.text == "/budget "


async def test_commands_with_the_typed_prefix_come_first(app):
    async with app.run_test() as pilot:
        await pilot.press(*"/t")
        assert app.offered == ["/tools", "/budget", "/quit"]


async def test_arguments_are_completed_fuzzily(app):
    async with app.run_test() as pilot:
        await pilot.press(*"/model gpt")
        assert app.offered == ["/model openai/gpt-5-mini"]
        await pilot.press("enter")
        assert app.prompt.text == "/model openai/gpt-5-mini"
        await pilot.press("enter")
        assert [draft.text for draft in app.sent] == ["/model openai/gpt-5-mini"]


async def test_server_values_are_offered_when_they_arrive(app):
    requested, late = [], asyncio.Event()

    async def values(typed):
        requested.append(typed)
        if typed.endswith(" "):
            await late.wait()  # results for an outdated text are not shown
        return [
            Completion(f"/docs:review {item}", "")
            for item in ("kind", "keen")
            if item.startswith(typed.split()[-1])
        ]

    async with app.run_test() as pilot:
        app.prompt.values = values
        await pilot.press(*"/docs:review ")
        assert app.offered == []
        await pilot.press("k", "e")
        await until(pilot, lambda: app.offered == ["/docs:review keen"])
        late.set()
        await pilot.press("tab")
        assert app.prompt.text == "/docs:review keen"
        assert requested[0] == "/docs:review "


async def test_other_text_has_no_completions(app):
    async with app.run_test() as pilot:
        await pilot.press(*"/xyz")
        assert app.offered == []
        await pilot.press("enter")
        assert [draft.text for draft in app.sent] == ["/xyz"]


async def test_completion_can_be_undone(app):
    async with app.run_test() as pilot:
        await pilot.press(*"/too", "tab")
        assert app.prompt.text == "/tools "
        await pilot.press("ctrl+z")
        assert app.prompt.text == "/too"


async def test_click_takes_a_completion(app):
    async with app.run_test() as pilot:
        await pilot.press("/")
        await pilot.click(CompletionList, offset=(4, 1))
        assert app.prompt.text == "/help "


async def test_at_sign_lists_files_and_typing_filters_them(app):
    async with app.run_test() as pilot:
        await pilot.press(*"see @")
        await until(pilot, lambda: len(app.offered) == 6)
        await pilot.press(*"kys")
        await until(pilot, lambda: app.offered == ["ecoshell/tui/keys.py"])
        await pilot.press("tab")
        assert app.prompt.text == "see @ecoshell/tui/keys.py "


async def test_mention_inside_a_text_is_completed_in_place(app):
    async with app.run_test() as pilot:
        app.prompt.put("look at  please\nthen stop")
        app.prompt.move_cursor((0, 8))
        await pilot.press(*"@notes")
        await until(pilot, lambda: app.offered == ["notes.txt"])
        await pilot.press("enter")
        assert app.prompt.text == "look at @notes.txt please\nthen stop"
        assert app.sent == []


async def test_name_with_blanks_is_quoted(app):
    async with app.run_test() as pilot:
        await pilot.press(*"@readme")
        await until(pilot, lambda: app.offered == ["README.md", "docs/read me.md"])
        await pilot.press("down", "tab")
        assert app.prompt.text == '@"docs/read me.md" '


async def test_mention_continues_after_a_folder(app):
    async with app.run_test() as pilot:
        await pilot.press(*"@docs")
        await until(pilot, lambda: app.offered)
        await pilot.press("tab")
        assert app.prompt.text == "@docs/"
        await until(pilot, lambda: "docs/read me.md" in app.offered)


async def test_enter_sends_a_complete_mention(app):
    async with app.run_test() as pilot:
        await pilot.press(*"@notes.txt")
        await until(pilot, lambda: app.offered)
        await pilot.press("enter")
        assert [draft.text for draft in app.sent] == ["@notes.txt"]


async def test_enter_in_one_packet_completes_the_mention(app):
    async with app.run_test() as pilot:
        app.type_in_one_packet(*"@kys", "tab", *"why?", "enter")
        await until(pilot, lambda: app.sent)
        assert [draft.text for draft in app.sent] == ["@ecoshell/tui/keys.py why?"]


async def test_escape_closes_the_files_until_more_is_typed(app):
    async with app.run_test() as pilot:
        await pilot.press("@", "n")
        await until(pilot, lambda: app.offered)
        await pilot.press("escape")
        assert app.offered == []
        await pilot.press("o")
        await until(pilot, lambda: app.offered)
        assert app.prompt.text == "@no"


async def test_moving_away_from_a_mention_closes_its_files(app):
    async with app.run_test() as pilot:
        await pilot.press(*"@no")
        await until(pilot, lambda: app.offered)
        await pilot.press("home")
        await until(pilot, lambda: not app.offered)
        assert app.prompt.text == "@no"


async def test_each_mention_lists_files_again(app):
    async with app.run_test() as pilot:
        await pilot.press(*"@notes", "tab")
        app.names = ("fresh.py",)
        await pilot.press("@")
        await until(pilot, lambda: app.offered == ["fresh.py"])
        assert app.asked_for_names == 2


async def test_unlistable_files_leave_the_prompt_unchanged(app):
    async def broken() -> list[str]:
        raise OSError("no such folder")

    async with app.run_test() as pilot:
        app.prompt.mentions.files = broken
        await pilot.press(*"@notes", "enter")
        assert [draft.text for draft in app.sent] == ["@notes"]


async def test_shell_commands_have_no_completions(app):
    async with app.run_test() as pilot:
        await pilot.press(*"!ls /t @no")
        await pilot.pause()
        assert app.offered == []
        assert app.asked_for_names == 0
        assert app.title_words == "shell command"
        await pilot.press("enter")
        assert [draft.text for draft in app.sent] == ["!ls /t @no"]
        assert app.title_words == ""


async def test_number_sign_and_mail_address_are_plain_text(app):
    async with app.run_test() as pilot:
        await pilot.press(*"# me@no")
        await pilot.pause()
        assert app.offered == []
        assert app.asked_for_names == 0


async def test_only_the_names_for_the_latest_query_are_shown():
    output: list[tuple[str, list[str]]] = []
    listed = asyncio.Event()

    async def files() -> list[str]:
        await listed.wait()
        return ["alpha", "beta"]

    search = MentionSearch(lambda mention, names: output.append((mention.query, names)))
    search.files = files
    search.search(Mention((0, 0), "al"))
    await asyncio.sleep(0)
    search.search(Mention((0, 0), "bet"))
    listed.set()
    await search.settle()
    assert output[-1] == ("bet", ["beta"])
    assert [query for query, _ in output] == ["bet"]


async def test_cancelled_mention_shows_nothing():
    output: list[str] = []
    search = MentionSearch(lambda mention, _: output.append(mention.query))
    search.search(Mention((0, 0), "al"))
    await asyncio.sleep(0)
    search.search(None)
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    assert output == []


@pytest.mark.parametrize(
    ("line", "query"),
    [
        ("@", ""),
        ("a @b/c", "b/c"),
        ('see @"a b', "a b"),
        ("(@x", "x"),
        ("me@home", None),
        ("@a b", None),
        ("", None),
        ('@"a" ', None),
    ],
)
def test_mention_follows_an_at_sign_at_a_word_start(line, query):
    matches = mention_at(line, 0, len(line))
    assert (matches and matches.query) == query


def test_mention_ends_at_the_cursor():
    assert mention_at("see @notes.txt", 3, 7) == Mention((3, 4), "no")


@pytest.mark.parametrize(
    ("path", "mention"),
    [
        ("a/b.txt", "@a/b.txt"),
        ("a b.txt", '@"a b.txt"'),
        ("it's.txt", '@"it\'s.txt"'),
        ("a(1).txt", '@"a(1).txt"'),
    ],
)
def test_path_with_special_characters_is_quoted(path, mention):
    assert mention_text(path) == mention


@pytest.mark.parametrize(
    ("query", "names", "offered"),
    [
        (
            "prompt",
            ("prompt/zebra.py", "a/b/prompt.py", "x/prompt.py", "unrelated"),
            ["x/prompt.py", "a/b/prompt.py", "prompt/zebra.py"],
        ),
        ("", ("longer", "short"), ["short", "longer"]),
        ("[1]", ("a[1].txt", "a1.txt", "b^c"), ["a[1].txt"]),
        ("^", ("a^b", "ab"), ["a^b"]),
    ],
    ids=["own names first", "shorter paths first", "brackets", "caret"],
)
def test_names_are_ranked_and_signs_are_literal(query, names, offered):
    assert best_names(names, query) == offered

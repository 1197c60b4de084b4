"""The welcome block."""

import re

import pytest

from ecoshell.agent.command_list import COMMANDS
from ecoshell.tui.commands import THEME
from ecoshell.tui.screens.welcome import is_first_start, requests_block, welcome_block


def test_first_start_shows_local_model_caps_and_other_models() -> None:
    text = welcome_block("1.2", first=True).text()
    assert text.startswith("ecoshell 1.2\n")
    for words in ("no key needed", "set a cap", "/budget 0.50", "another model", "OPENAI_API_KEY", "f1 keys"):
        assert words in text


def test_later_starts_show_a_short_welcome() -> None:
    text = welcome_block("1.2", first=False).text()
    assert text.count("\n") == 2
    assert "OPENAI_API_KEY" not in text


def test_suggested_requests_fit_the_folder() -> None:
    text_shown = requests_block(["src/", "src/notes.txt", "My notes.md", "notes.txt"]).text()
    assert text_shown.splitlines()[1:] == [
        "  How many words are in notes.txt?",
        "  Which files are in this folder?",
        "  What is 17 * 23?",
    ]
    assert len(requests_block([]).text().splitlines()) == 4


def test_missing_local_extra_shows_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoshell.tui.screens.welcome.find_spec", lambda _: None)
    assert 'pip install "ecoshell[local]"' in welcome_block("1.2", first=True).text()


def test_start_is_the_first_until_something_is_sent(paths) -> None:
    assert is_first_start(paths)
    paths.data.mkdir(parents=True, exist_ok=True)
    paths.history_file.write_text("")
    assert not is_first_start(paths)


def test_every_named_command_exists() -> None:
    commands_value = {usage.split()[0] for usage, _ in COMMANDS.overview()} | {f"/{THEME.name}", "/settings"}
    listed_names = set(re.findall(r"(?<![\w/])/[a-z]+\b(?!/)", welcome_block("1.2", first=True).text()))
    assert len(listed_names) >= 4
    assert listed_names <= commands_value

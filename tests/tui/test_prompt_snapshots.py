"""Snapshots of the prompt in its states."""

from pathlib import Path

import pytest
from prompt_play import LONG, PromptApp, until

from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.drafts import History

USUAL, SMALL = (80, 16), (44, 9)
SENT = (
    "write a haiku about terminals",
    "how many words are in notes.txt and in every other file of the folder?\nCount them one by one.",
    "/budget session 0.50",
    "!git status",
    "how many lines?",
)


def typed(*keys: str, paste: str = "", offers: int = 0):
    """Type, paste, and wait until this many completions are offered."""

    async def before(pilot) -> None:
        app = pilot.app
        await until(pilot, lambda: app.query_one(PromptBar).is_restored)
        await pilot.press(*keys)
        if paste:
            app.paste(paste)
            await until(pilot, lambda: "paste" in app.prompt.text)
        await until(pilot, lambda: len(app.offered) >= offers)
        await pilot.pause()

    return before


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PromptApp:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for text in SENT:
        History(tmp_path / "history.txt").write(text)
    return PromptApp(tmp_path)


def test_commands_offered(snap_compare, app):
    assert snap_compare(app, terminal_size=USUAL, run_before=typed("/", "down", offers=5))


def test_files_offered(snap_compare, app):
    app.names = (*app.names, f"{'a-very-long-folder/' * 6}readme.txt")
    assert snap_compare(app, terminal_size=SMALL, run_before=typed(*"compare @re", offers=3))


def test_history_search(snap_compare, app):
    assert snap_compare(
        app,
        terminal_size=USUAL,
        run_before=typed(*"draft", "ctrl+r", *"how many", "ctrl+r", offers=2),
    )


def test_shell_command(snap_compare, app):
    assert snap_compare(app, terminal_size=USUAL, run_before=typed(*"!git log --oneline"))


def test_many_lines(snap_compare, app):
    lines = [key for at in range(12) for key in (*f"line {at}", "ctrl+j")]
    assert snap_compare(app, terminal_size=SMALL, run_before=typed(*lines, *"日本語 and 👩‍👩‍👧"))


def test_paste_and_list_in_terminal_colors(snap_compare, app):
    async def before(pilot) -> None:
        pilot.app.theme = "ansi-dark"
        await typed(*"see ", paste=LONG)(pilot)
        await pilot.press(*" @re")
        await until(pilot, lambda: len(pilot.app.offered) >= 2)
        await pilot.pause()

    assert snap_compare(app, terminal_size=(60, 9), run_before=before)

"""Snapshots of the screens over the chat: wide and narrow, light and without colour."""

from collections.abc import Awaitable, Callable

import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from themed_host import Host
from tui_play import eventually

from ecoshell.paths import Paths
from ecoshell.tui.screens.help import HelpScreen, Key, KeyGroup
from ecoshell.tui.screens.picker import Picker
from ecoshell.tui.screens.pickers import ThemePicker
from ecoshell.tui.screens.settings import SettingsScreen

LOOKS = pytest.mark.parametrize(
    ("size", "theme"),
    [((80, 24), "light"), ((60, 24), "mono")],
    ids=["light", "colorless"],
)
OWN = '# mine\n[agent]\nmax_steps = 5\n[models."openai/x"]\ncontext = 32768\n[approval]\nallow = ["read_file"]\n'
PLACES = [
    KeyGroup(
        "prompt",
        "Enter sends, tab completes.",
        (Key("⏎", "send"), Key("^j shift+⏎", "new line")),
        is_active=True,
    ),
    KeyGroup(
        "transcript",
        "The arrow keys move.",
        (Key("y", "copy the block"), Key("pgup", "page up", own=False)),
    ),
]
COMMANDS = [
    ("/budget [SCOPE] [AMOUNT|off]", "show or set a spending cap"),
    ("/theme [NAME]", "change the theme"),
]
Before = Callable[[Pilot[int]], Awaitable[None]]


@pytest.fixture
def wearing(paths: Paths, quiet: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Host]:
    """An app with this theme and user settings."""

    def make(theme: str) -> Host:
        paths.config.mkdir(parents=True)
        paths.settings_file.write_text(OWN)
        if theme == "mono":
            monkeypatch.setenv("NO_COLOR", "1")
        else:
            monkeypatch.setenv("ECOSHELL_TUI_THEME", theme)
        return Host(paths)

    return make


def over(make: Callable[[], Screen], *keys: str) -> Before:
    """Open a screen, wait until it lists something, and type."""

    async def before(pilot: Pilot[int]) -> None:
        await pilot.app.push_screen(make())
        await eventually(
            pilot, lambda: isinstance(pilot.app.screen, Picker) and pilot.app.screen.highlighted
        )
        await pilot.press(*keys)
        await pilot.app.workers.wait_for_complete()

    return before


def test_theme_picker(snap_compare, wearing) -> None:
    assert snap_compare(
        wearing("dark"), terminal_size=(120, 36), run_before=over(lambda: ThemePicker("dark"))
    )


@LOOKS
def test_settings(snap_compare, wearing, paths, size, theme) -> None:
    host = wearing(theme)
    assert snap_compare(
        host, terminal_size=size, run_before=over(lambda: SettingsScreen(paths), *["down"] * 9)
    )


def test_help(snap_compare, wearing) -> None:
    output = over(lambda: HelpScreen(PLACES, COMMANDS), "down")
    assert snap_compare(wearing("dark"), terminal_size=(120, 36), run_before=output)


def test_invalid_setting(snap_compare, wearing, paths) -> None:
    async def before(pilot: Pilot[int]) -> None:
        await over(lambda: SettingsScreen(paths), *"max_steps")(pilot)
        await pilot.press("enter", "backspace", "x")
        await pilot.pause()

    assert snap_compare(wearing("dark"), terminal_size=(80, 24), run_before=before)

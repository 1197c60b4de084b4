"""Contrast of the themes."""

from pathlib import Path

import pytest
from textual.color import Color
from themed_host import Host, least_contrast, ratio
from tui_play import COUNTING, FINISHED, FakeShell, eventually

from ecoshell.events import Answer, CallFinished, CallStarted
from ecoshell.paths import Paths
from ecoshell.tui.screens.help import HelpScreen, key_groups
from ecoshell.tui.screens.pickers import ThemePicker
from ecoshell.tui.screens.settings import SettingsScreen
from ecoshell.tui.themes import FileTheme, load_themes
from ecoshell.tui.transcript.view import Transcript

NOWHERE = Path("/nonexistent")
THEMES = [
    theme for theme in load_themes(Paths(NOWHERE, NOWHERE, NOWHERE)).all if not theme.colorless
]
EACH = pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
TEXTS = ("foreground", "primary", "secondary", "accent", "success", "warning", "error")
CODED = Answer(
    "# Done\n\nSee `x` and [a page](https://example.org).\n\n"
    "```python\ndef f(x):  # one\n    return 'a' + 2\n```\n\n> said"
)
CHANGED = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n"
EVENTS = (
    *COUNTING[:6],
    CallStarted("c2", "write_file", {"path": "x"}),
    CallFinished("c2", "write_file", True, "written", False, 0.1, changes=CHANGED),
    CODED,
    FINISHED,
)
GROUNDS = ("background", "surface", "panel")


def demanded(theme: FileTheme) -> float:
    return 7.0 if theme.name.startswith("high-contrast") else 4.5


def texts(theme: FileTheme) -> dict[str, Color]:
    """Every colour used for text."""
    variables = {
        name: Color.parse(value)
        for name, value in theme.variables.items()
        if name.startswith(("syntax-", "diff-"))
    }
    muted = {"muted": Color.parse(theme.variables["foreground-muted"])}
    return {name: Color.parse(getattr(theme, name)) for name in TEXTS} | variables | muted


def colors_of(theme: FileTheme, *names: str) -> list[Color]:
    return [Color.parse(getattr(theme, name)) for name in names]


def test_dark_light_and_two_high_contrast_themes_exist() -> None:
    kinds = {theme.name: theme.dark for theme in THEMES}
    assert kinds["dark"]
    assert not kinds["light"]
    assert (kinds["high-contrast"], kinds["high-contrast-light"]) == (True, False)
    assert len(kinds) >= 8


@EACH
def test_every_text_contrasts_with_every_background(theme: FileTheme) -> None:
    grounds = [Color.parse(getattr(theme, ground)) for ground in GROUNDS]
    output = {
        name: min(ratio(text, ground) for ground in grounds) for name, text in texts(theme).items()
    }
    assert {name: matches for name, matches in output.items() if matches < demanded(theme)} == {}


@EACH
def test_selections_are_readable(theme: FileTheme) -> None:
    pairs = (
        ("block-cursor-foreground", "block-cursor-background"),
        ("block-cursor-blurred-foreground", "block-cursor-blurred-background"),
        ("input-selection-foreground", "input-selection-background"),
        ("screen-selection-foreground", "screen-selection-background"),
    )
    for front, back in pairs:
        assert ratio(
            Color.parse(theme.variables[front]), Color.parse(theme.variables[back])
        ) >= demanded(theme)


@EACH
def test_code_is_readable_on_the_ground_of_changed_lines(theme: FileTheme) -> None:
    colors = texts(theme)
    ground, text = colors_of(theme, "background", "foreground")
    for kind in ("added", "removed"):
        line = ground.blend(colors[f"diff-{kind}"], 0.12)  # as in chat.tcss
        on_line = {name: color for name, color in colors.items() if name.startswith("syntax-")}
        on_line |= {
            "muted": colors["muted"],
            "sign": colors[f"diff-{kind}"],
            "code": ground.blend(text, 0.85),
        }
        output = {name: ratio(color, line) for name, color in on_line.items()}
        assert {
            name: contrast for name, contrast in output.items() if contrast < demanded(theme)
        } == {}


@EACH
def test_scrollbars_and_borders_of_inputs_can_be_seen(theme: FileTheme) -> None:
    (ground,) = colors_of(theme, "background")
    for name in ("scrollbar", "scrollbar-hover", "border-blurred", "block-cursor-background"):
        assert ratio(Color.parse(theme.variables[name]), ground) >= 3, name


async def test_every_screen_is_readable_in_every_theme(host: Host, paths: Paths) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        await host.reload_themes()
        for screen in (
            None,
            ThemePicker("dark"),
            SettingsScreen(paths),
            HelpScreen(key_groups(host.screen)),
        ):
            if screen is not None:
                await host.push_screen(screen)
                await host.workers.wait_for_complete()
            for theme in THEMES:
                host.apply_theme(theme.name)
                await pilot.pause()
                matches, text = least_contrast(host)
                assert matches >= demanded(theme), (theme.name, screen, text)
            if screen is not None:
                await pilot.press("escape")


async def test_chat_is_readable_in_every_theme(make_app) -> None:
    app = make_app(FakeShell(EVENTS))
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"hello", "enter")
        await eventually(pilot, lambda: "saved" in app.chat.query_one(Transcript).column.plain)
        await app.reload_themes()
        for typed in ("", "/"):
            await pilot.press(*typed)
            for theme in THEMES:
                app.apply_theme(theme.name)
                await pilot.pause()
                matches, text = least_contrast(app)
                assert matches >= demanded(theme), (theme.name, text)

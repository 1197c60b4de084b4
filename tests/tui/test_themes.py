"""Themes from files."""

import pytest
from textual.theme import Theme
from tui_play import FakeShell, eventually

from ecoshell.paths import Paths
from ecoshell.tui.look.themes import load_themes
from ecoshell.tui.transcript.view import Transcript


def wanting(paths: Paths, theme: str) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text(f'[tui]\ntheme = "{theme}"\n')


def by_name(paths: Paths) -> dict[str, Theme]:
    return {theme.name: theme for theme in load_themes(paths).all}


def test_dark_is_worn_unless_the_settings_say_otherwise(paths):
    assert load_themes(paths).chosen == "dark"
    wanting(paths, "light")
    assert load_themes(paths).chosen == "light"
    assert not by_name(paths)["light"].dark


def test_a_theme_of_the_users_own_wins(paths):
    folder = paths.config / "themes"
    folder.mkdir(parents=True)
    (folder / "dark.toml").write_text('[colors]\nprimary = "#123456"\n')
    assert by_name(paths)["dark"].primary == "#123456"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("colors = 1", "no [colors]"),
        ('[colors]\nprimary = "blurple"', "is not a color"),
        ('[colors]\nprimry = "red"', "knows no color 'primry'"),
        ('[colors]\naccent = "red"', "no color 'primary'"),
        ("[colors", "cannot be used"),
    ],
)
def test_a_broken_theme_is_named_and_the_others_still_work(paths, text: str, complaint: str):
    folder = paths.config / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(text)
    themes = load_themes(paths)
    assert "mine.toml" in themes.complaints[0]
    assert complaint in themes.complaints[0]
    assert {"dark", "light"} <= {theme.name for theme in themes.all}


async def test_a_theme_that_does_not_exist_is_told_on_the_screen(make_app, paths):
    wanting(paths, "drak")
    app = make_app(FakeShell())
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: "There is no theme 'drak'" in app.chat.query_one(Transcript).text)
        assert app.theme == "dark"


async def test_no_color_is_respected(make_app, monkeypatch):
    app = None
    make_app(FakeShell())
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await eventually(pilot, lambda: app.chat.talk)
        strip = app.chat.query_one(Transcript).render_line(0)
        filtered = [strip.apply_filter(one, app.chat.background_colors[1]) for one in app.get_line_filters()]
        assert app.no_color
        assert filtered
